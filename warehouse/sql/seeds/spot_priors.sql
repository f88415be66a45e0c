-- How often spot machines are interrupted: a sourced band per provider, '*' where nothing is known.
-- grain: provider
-- units: interruptions per hour of running; hours without capacity after one
-- kept: table
select
    provider,
    interruptions_per_hour_low::double as interruptions_per_hour_low,
    interruptions_per_hour::double as interruptions_per_hour,
    interruptions_per_hour_high::double as interruptions_per_hour_high,
    wait_hours_low::double as wait_hours_low,
    wait_hours::double as wait_hours,
    wait_hours_high::double as wait_hours_high,
    evidence,
    source_url
from temp.raw_spot_priors
