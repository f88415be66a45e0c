-- The cheapest disk to work on, and the cheapest place to keep data, per provider and region.
-- grain: provider, region
-- units: USD per GB and month
-- kept: table
with disks as (
    select
        f.provider,
        f.region,
        f.product,
        f.fee_kind,
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
)

select
    provider,
    region,
    -- A disk is what a machine works on; what is only kept may lie in a bucket.
    min(usd_per_gb_month) filter (fee_kind <> 'object_storage') as usd_per_gb_month,
    min_by(product, usd_per_gb_month) filter (fee_kind <> 'object_storage') as product,
    min(usd_per_gb_month) filter (fee_kind <> 'local_storage') as cheapest_usd_per_gb_month,
    min_by(product, usd_per_gb_month) filter (fee_kind <> 'local_storage') as cheapest_product,
    max(observed_at) as observed_at
from disks
group by provider, region
