-- What every provider asks now, one row per offer, with where and when it was seen.
-- grain: offer_id
-- units: USD for the whole machine or one GPU per hour; GiB; hours of age
select
    provider,
    provider_name,
    region,
    country,
    continent,
    "zone",
    sku,
    market,
    tier,
    commitment_months,
    gpu,
    gpu_label,
    gpu_count,
    gpu_memory_gib,
    vcpus,
    memory_gib,
    local_disk_gib,
    interconnect,
    price_per_hour,
    currency,
    price_usd_per_hour,
    price_usd_per_gpu_hour,
    is_available,
    billing_increment_seconds,
    billing_minimum_seconds,
    storage_usd_per_gb_month,
    egress_usd_per_gb,
    ingress_usd_per_gb,
    interruption_rate_monthly,
    valid_from as price_since,
    observed_at,
    -- A naive UTC "now": the tables hold naive UTC.
    epoch(make_timestamp(epoch_us(now())) - observed_at) / 3600 as age_hours,
    expires_at,
    is_baseline,
    source_url as source,
    offer_id
from staging.current_offers
where staging.is_in_force(effective_at, expires_at, make_timestamp(epoch_us(now())))
