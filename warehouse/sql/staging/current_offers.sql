-- The offers in force, in today's dollars, each with the on-demand price of the same machine.
-- grain: offer_id
-- units: USD; USD per GB; seconds; GiB
-- kept: table
with current as (
    select
        s.* replace (
            s.price_per_hour::double * rate.now as price_usd_per_hour,
            s.price_per_hour::double * rate.now / s.gpu_count as price_usd_per_gpu_hour,
            s.storage_usd_per_gb_month
            * case s.storage_price_from when 'offer' then rate.now / s.usd_per_unit else 1 end
                as storage_usd_per_gb_month,
            s.stopped_usd_per_gb_month
            * case s.stopped_price_from when 'offer' then rate.now / s.usd_per_unit else 1 end
                as stopped_usd_per_gb_month,
            s.kept_usd_per_gb_month
            * case s.kept_price_from when 'offer' then rate.now / s.usd_per_unit else 1 end
                as kept_usd_per_gb_month,
            s.egress_usd_per_gb * rate.now / s.usd_per_unit as egress_usd_per_gb,
            s.ingress_usd_per_gb
            * case s.ingress_price_from when 'offer' then rate.now / s.usd_per_unit else 1 end
                as ingress_usd_per_gb,
            rate.now as usd_per_unit
        )
    from staging.offer_spans as s
    left join (select currency, usd_per_unit as now from staging.fx_latest) as rate
        using (currency)
    where s.valid_to is null
),

on_demand as (
    select
        provider,
        sku,
        region,
        "zone",
        tier,
        min(price_usd_per_hour) as price_usd_per_hour,
        min_by(terms_id, price_usd_per_hour) as terms_id
    from current
    where market = 'on_demand'
    group by all
),

-- Spot is often listed by zone, or as a tier, where on-demand is not.
in_region as (
    select
        provider,
        sku,
        region,
        min(price_usd_per_hour) as price_usd_per_hour,
        min_by(terms_id, price_usd_per_hour) as terms_id
    from on_demand
    group by all
)

select
    current.*,
    null::timestamp as asked_at,
    coalesce(same.price_usd_per_hour, near.price_usd_per_hour) as on_demand_usd_per_hour,
    case when current.market = 'spot' then coalesce(same.terms_id, near.terms_id) end
        as on_demand_terms_id,
    hash(current.terms_id, on_demand_terms_id) as class_id
from current
left join on_demand as same
    on
        current.provider = same.provider
        and current.sku = same.sku
        and current.region = same.region
        and current."zone" is not distinct from same."zone"
        and current.tier is not distinct from same.tier
left join in_region as near
    on
        current.provider = near.provider
        and current.sku = near.sku
        and current.region = near.region
