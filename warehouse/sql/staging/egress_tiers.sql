-- What the internet traffic out of each provider's region costs, by monthly volume.
-- grain: provider, region, from_tier_gb
-- units: GB per month; USD per GB
-- kept: table
-- The provider's own price list before the terms seed, a region's own price before a global one;
-- of several products (premium and standard routing) the dearest, so that no bill surprises.
with places as (
    select distinct provider, region
    from staging.offers
),

stated as (
    select
        p.provider,
        p.region,
        f.product,
        f.from_tier_gb::double as from_tier_gb,
        f.price::double * fx.usd_per_unit
        / case f.unit when 'gib' then 1.073741824 else 1 end as usd_per_gb,
        case when f.region = p.region then 1 else 2 end as preference,
        f.source_url,
        f.observed_at::date::varchar as seen
    from places as p
    inner join staging.fees as f
        on p.provider = f.provider and f.region in (p.region, 'global')
    inner join staging.fx_latest as fx using (currency)
    where f.fee_kind = 'egress' and f.unit in ('gb', 'gib')
    union all
    select
        p.provider,
        p.region,
        coalesce(t.region_like, '') as product,
        coalesce(t.from_tier_gb, 0) as from_tier_gb,
        t."value"::double * fx.usd_per_unit as usd_per_gb,
        case when t.region_like is not null then 3 else 4 end as preference,
        t.source_url,
        t.source_date as seen
    from places as p
    inner join seeds.provider_terms as t
        on p.provider = t.provider and (t.region_like is null or p.region like t.region_like)
    inner join staging.fx_latest as fx on fx.currency = coalesce(t.currency, 'USD')
    where
        t.term = 'egress_price_per_gb' and t.status = 'adopted'
        and t.sku_like is null and t.tier is null and t.market is null
),

ranked as (
    select *, max(usd_per_gb) over (partition by provider, region, preference, product) as dearest
    from stated
),

-- One product with all its tiers.
best as (
    select *
    from ranked
    qualify
        dense_rank() over (
            partition by provider, region order by preference, dearest desc, product
        ) = 1
),

free as (
    select
        provider,
        max("value"::double) as free_gb_per_month,
        max_by(source_url, "value"::double) as source_url,
        max_by(source_date, "value"::double) as source_date
    from seeds.provider_terms
    where
        term = 'egress_free_gb_per_month' and status = 'adopted'
        and sku_like is null and tier is null and market is null and region_like is null
    group by provider
),

tiers as (
    select
        provider,
        region,
        from_tier_gb,
        usd_per_gb,
        case when preference <= 2 then product else 'egress_price_per_gb' end as product,
        source_url,
        seen,
        1e15 as end_gb
    from best
    union all
    -- An allowance without a stated price beyond it: known up to there.
    select
        p.provider,
        p.region,
        0 as from_tier_gb,
        0 as usd_per_gb,
        'egress_free_gb_per_month' as product,
        free.source_url,
        free.source_date as seen,
        free.free_gb_per_month as end_gb
    from places as p
    inner join free using (provider)
    where not exists (
        from best where best.provider = p.provider and best.region = p.region
    )
),

bounded as (
    select
        tiers.provider,
        tiers.region,
        tiers.from_tier_gb,
        lead(tiers.from_tier_gb, 1, tiers.end_gb) over (
            partition by tiers.provider, tiers.region order by tiers.from_tier_gb
        ) as to_tier_gb,
        tiers.usd_per_gb,
        coalesce(free.free_gb_per_month, 0) as free_gb_per_month,
        tiers.product,
        tiers.source_url,
        tiers.seen
    from tiers
    left join free using (provider)
)

select
    *,
    -- Places with the same tiers bill the same for the same result.
    hash(
        list(row(from_tier_gb, to_tier_gb, usd_per_gb, free_gb_per_month)) over (
            partition by provider, region order by from_tier_gb
            rows between unbounded preceding and unbounded following
        )
    ) as schedule_id
from bounded
