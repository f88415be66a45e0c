-- What taking each reference job's result home costs from each provider's region.
-- grain: job, place_id
-- units: USD
-- kept: table
select * from marts.egress_of('sizing.plans')
