-- The hours and gigabytes on the bill of each reference job and class of offers.
-- grain: job, class_id, is_kept_running
-- units: hours; GB; GB-months of 730 hours; interruptions per hour
-- kept: table
select * from marts.hours_of('sizing.plans', 'seeds.jobs')
