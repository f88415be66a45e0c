-- What each reference job costs on every offer that can run it, component by component.
-- grain: job, offer_id
-- units: USD; hours; GB; interruptions per hour
select * from marts.cost_of('marts.job_hours', 'staging.current_offers')
