-- Terms that decide the bill, one sourced and dated statement per row, superseded ones included.
-- grain: provider, term, market, tier, sku_like, region_like, from_tier_gb, status, source_url, value
-- units: as stated in unit
-- kept: table
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
    from_tier_gb::double as from_tier_gb,
    applies_to,
    source_url,
    source_date,
    status,
    reason,
    note
from temp.raw_provider_terms
