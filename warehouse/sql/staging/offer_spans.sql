-- Every span of every offer's price, in dollars and with the terms that decide a bill.
-- grain: offer_id, valid_from
-- units: USD; USD per GB; seconds; GiB
-- Dollars are those of the day on which the span began, so that the past is never rewritten.
with rated as (
    select
        s.offer_id,
        s.valid_from,
        coalesce(
            case when s.currency = 'USD' then 1.0 end, daily.usd_per_unit, latest.usd_per_unit
        ) as usd_per_unit
    from staging.price_spans as s
    left join staging.fx_latest as latest using (currency)
    asof left join staging.fx_rates as daily
        on s.currency = daily.currency and s.valid_from >= daily.rate_date
)

select
    s.offer_id,
    s.provider,
    coalesce(p.provider_name, s.provider) as provider_name,
    p.provider_kind,
    s.scope,
    o.sku,
    o.region,
    o."zone",
    o.country,
    o.continent,
    o.region_group,
    o.market,
    o.tier,
    o.commitment_months,
    o.gpu_label,
    o.gpu,
    o.gpu_count::double as gpu_count,
    coalesce(o.gpu_memory_gib::double, g.vram_gb) as gpu_memory_gib,
    o.vcpus::double as vcpus,
    o.memory_gib::double as memory_gib,
    o.local_disk_gib::double as local_disk_gib,
    coalesce(o.interconnect, g.interconnect) as interconnect,
    s.price_per_hour,
    s.currency,
    s.upfront,
    r.usd_per_unit,
    s.price_per_hour::double * r.usd_per_unit as price_usd_per_hour,
    s.price_per_hour::double * r.usd_per_unit / o.gpu_count::double as price_usd_per_gpu_hour,
    s.is_available,
    -- Anyone can have it now: no commitment, and not stated as sold out.
    o.market in ('on_demand', 'spot')
    and t.commitment_required is distinct from true
    and s.is_available is distinct from false as is_rentable,
    coalesce(s.billing_increment_seconds, t.billing_increment_seconds)
        as billing_increment_seconds,
    coalesce(s.billing_minimum_seconds, t.billing_minimum_seconds) as billing_minimum_seconds,
    t.minimum_applies,
    t.minimum_rental_hours,
    t.commitment_required,
    t.stop_behaviour,
    t.storage_survives_stop,
    -- A price is from the offer itself, from a list (staging.storage_prices: the purpose names it)
    -- or from a term, whose name is told.
    coalesce(
        s.storage_price_per_gb_month::double * r.usd_per_unit,
        work.usd_per_gb_month,
        t.storage_term_usd
    ) as storage_usd_per_gb_month,
    case
        when s.storage_price_per_gb_month is not null then 'offer'
        when work.usd_per_gb_month is not null then work.purpose
        when t.storage_term_usd is not null then 'storage_price_per_gb_month'
    end as storage_price_from,
    -- The disk of a stopped machine: its own price, else that of a running one, once or twice.
    coalesce(
        t.stopped_term_usd,
        storage_usd_per_gb_month * case t.stop_behaviour when 'double_storage' then 2 else 1 end
    ) as stopped_usd_per_gb_month,
    case
        when t.stopped_term_usd is not null then 'stopped_storage_price_per_gb_month'
        else storage_price_from
    end as stopped_price_from,
    -- Data that are only kept lie where it is cheapest: bucket, network volume or stopped disk, but
    -- not on one that goes with its machine.
    least(
        keep.usd_per_gb_month,
        t.kept_term_usd,
        coalesce(
            t.stopped_term_usd,
            case
                when storage_price_from <> 'work' or not work.is_local then storage_usd_per_gb_month
            end
        )
    ) as kept_usd_per_gb_month,
    case kept_usd_per_gb_month
        when keep.usd_per_gb_month then keep.purpose
        when t.kept_term_usd then t.kept_term
        when t.stopped_term_usd then 'stopped_storage_price_per_gb_month'
        when storage_usd_per_gb_month then storage_price_from
    end as kept_price_from,
    case when kept_price_from = 'object_storage_price_per_gb_month' then t.bucket_minimum_usd end
        as kept_minimum_usd_per_month,
    greatest(o.local_disk_gib::double * 1.073741824, t.included_disk_gb) as included_disk_gb,
    s.egress_price_per_gb::double * r.usd_per_unit as egress_usd_per_gb,
    o.egress_included_gb_per_month::double as egress_included_gb_per_month,
    coalesce(s.ingress_price_per_gb::double * r.usd_per_unit, t.ingress_term_usd)
        as ingress_usd_per_gb,
    case
        when s.ingress_price_per_gb is not null then 'offer'
        when t.ingress_term_usd is not null then 'ingress_price_per_gb'
    end as ingress_price_from,
    t.nat_usd_per_gb,
    t.nat_usd_per_hour,
    s.interruption_rate_monthly::double as interruption_rate_monthly,
    t.spot_notice_seconds,
    t.spot_max_lifetime_hours,
    t.multi_node_fabric,
    t.multi_node_gbit_per_second,
    t.has_ssh,
    t.has_docker,
    t.has_jupyter,
    t.has_persistent_storage,
    s.effective_at,
    s.expires_at,
    s.valid_from,
    s.valid_to,
    -- Unseen in a listing that was cut short, an offer is as old as the last complete one.
    case when s.valid_to is null then greatest(s.last_told_at, c.last_complete_at) end
        as observed_at,
    s.is_baseline,
    coalesce(c.source_url, p.pricing_url) as source_url,
    -- Offers that differ in prices alone are billed for the same hours: see offer_classes.
    hash(
        o.gpu, o.gpu_count, o.market = 'spot', coalesce(prior.provider, '*'),
        coalesce(s.billing_increment_seconds, t.billing_increment_seconds),
        coalesce(s.billing_minimum_seconds, t.billing_minimum_seconds), t.minimum_applies,
        t.minimum_rental_hours, t.stop_behaviour, t.storage_survives_stop,
        t.spot_max_lifetime_hours, t.spot_notice_seconds, t.has_persistent_storage,
        traffic.schedule_id, o.egress_included_gb_per_month
    ) as terms_id,
    coalesce(prior.provider, '*') as spot_prior,
    traffic.schedule_id as egress_schedule_id
from staging.price_spans as s
inner join rated as r using (offer_id, valid_from)
inner join staging.offers as o using (offer_id)
inner join staging.scopes as c on s.provider = c.provider and s.scope = c.scope
left join staging.offer_terms as t using (offer_id)
left join seeds.gpus as g on o.gpu = g.gpu
left join seeds.spot_priors as prior on o.provider = prior.provider
left join seeds.providers as p on s.provider = p.provider
left join staging.storage_prices as work
    on
        o.provider = work.provider
        and o.region = work.region
        and work.purpose = 'work'
left join staging.storage_prices as keep
    on
        o.provider = keep.provider
        and o.region = keep.region
        and keep.purpose = 'keep'
left join (select distinct provider, region, schedule_id from staging.egress_tiers) as traffic
    on
        o.provider = traffic.provider
        and o.region = traffic.region
        and s.egress_price_per_gb is null
