-- The cheapest disk to work on, and the cheapest place to keep data, in each provider's region.
-- grain: provider, region, purpose
-- units: USD per GB and month
-- kept: table
-- A region's own price list before the provider's global one.
with places as (
    select distinct provider, region
    from staging.offers
),

disks as (
    select
        f.provider,
        f.region as list_region,
        f.product,
        f.fee_kind,
        f.source_url,
        f.observed_at,
        f.price::double * fx.usd_per_unit
        * case f.unit when 'gib_month' then 1 / 1.073741824 else 1 end as usd_per_gb_month
    from staging.fees as f
    inner join staging.fx_latest as fx using (currency)
    where
        f.fee_kind in ('block_storage', 'network_storage', 'local_storage', 'object_storage')
        and f.unit in ('gb_month', 'gib_month')
        and f.price > 0
    -- What a free first tier precedes costs its next one.
    qualify
        row_number() over (
            partition by f.provider, f.region, f.fee_kind, f.product order by f.from_tier_gb
        ) = 1
),

-- A disk is what a machine works on; what is only kept may lie in a bucket.
suited as (
    select 'work' as purpose, *
    from disks
    where fee_kind <> 'object_storage'
    union all
    select 'keep' as purpose, *
    from disks
    where fee_kind <> 'local_storage'
)

select
    s.provider,
    p.region,
    s.purpose,
    s.product,
    s.fee_kind = 'local_storage' as is_local,
    s.usd_per_gb_month,
    s.source_url,
    s.observed_at
from places as p
inner join suited as s on p.provider = s.provider and s.list_region in (p.region, 'global')
qualify
    row_number() over (
        partition by s.provider, p.region, s.purpose
        order by s.list_region = 'global', s.usd_per_gb_month, s.product
    ) = 1
