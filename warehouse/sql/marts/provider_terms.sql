-- The adopted terms of each provider, one statement per row with its source and date.
-- grain: provider, term, market, tier, sku_like, region_like, from_tier_gb
-- units: as stated in unit
select
    provider,
    term,
    "value",
    unit,
    currency,
    market,
    tier,
    sku_like,
    region_like,
    from_tier_gb,
    applies_to,
    source_url,
    source_date,
    reason,
    note
from seeds.provider_terms
where status = 'adopted'
