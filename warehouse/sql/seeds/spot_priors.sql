-- How often spot machines are interrupted: a sourced band per provider, '*' where nothing is known.
-- grain: provider
-- units: interruptions per hour of running
-- kept: table
select
    provider,
    interruptions_per_hour_low::double as interruptions_per_hour_low,
    interruptions_per_hour::double as interruptions_per_hour,
    interruptions_per_hour_high::double as interruptions_per_hour_high,
    evidence,
    source_url
from temp.raw_spot_priors
