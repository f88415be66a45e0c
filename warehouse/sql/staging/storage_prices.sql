-- The cheapest disk that keeps a fine-tuning job's data, per provider and region of its price list.
-- grain: provider, region
-- units: USD per GB and month
-- kept: table
with disks as (
    select
        f.provider,
        f.region,
        f.product,
        f.observed_at,
        f.price::double * fx.usd_per_unit
        * case f.unit when 'gib_month' then 1 / 1.073741824 else 1 end as usd_per_gb_month
    from staging.fees as f
    inner join staging.fx_latest as fx using (currency)
    where
        f.fee_kind in ('block_storage', 'network_storage', 'local_storage')
        and f.unit in ('gb_month', 'gib_month')
        and f.from_tier_gb = 0
        and f.price > 0
)

select
    provider,
    region,
    min(usd_per_gb_month) as usd_per_gb_month,
    min_by(product, usd_per_gb_month) as product,
    min_by(observed_at, usd_per_gb_month) as observed_at
from disks
group by provider, region
