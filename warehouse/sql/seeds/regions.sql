-- Where a provider's region is.
-- grain: provider, region
-- units: none
-- kept: table
select
    provider,
    region,
    country,
    city,
    continent,
    region_group,
    source
from temp.raw_regions
