-- What decides the hours on a bill: offers of one class differ in prices alone.
-- grain: class_id
-- units: GPUs; seconds; hours
-- kept: table
select
    class_id,
    any_value(gpu) as gpu,
    any_value(gpu_count) as gpu_count,
    any_value(market = 'spot') as is_spot,
    any_value(spot_prior) as spot_prior,
    any_value(billing_increment_seconds) as billing_increment_seconds,
    any_value(billing_minimum_seconds) as billing_minimum_seconds,
    any_value(minimum_applies) as minimum_applies,
    any_value(minimum_rental_hours) as minimum_rental_hours,
    any_value(stop_behaviour) as stop_behaviour,
    any_value(storage_survives_stop) as storage_survives_stop,
    any_value(spot_max_lifetime_hours) as spot_max_lifetime_hours,
    any_value(egress_schedule_id) as egress_schedule_id,
    any_value(egress_included_gb_per_month) as egress_included_gb_per_month
from staging.offer_spans
where gpu is not null
group by class_id
