-- Every price of every offer with the time from which and to which it held.
-- grain: offer_id, valid_from
-- units: USD for the whole machine or one GPU per hour; UTC
select
    provider,
    region,
    country,
    "zone",
    sku,
    market,
    tier,
    commitment_months,
    gpu,
    gpu_label,
    gpu_count,
    price_per_hour,
    currency,
    price_usd_per_hour,
    price_usd_per_gpu_hour,
    is_available,
    valid_from,
    valid_to,
    is_baseline,
    source_url as source,
    offer_id
from staging.offer_spans
