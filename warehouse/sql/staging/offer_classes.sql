-- What decides the hours and the traffic of a bill: offers of one class differ in prices alone.
-- grain: class_id
-- units: GPUs; seconds; hours
-- kept: table
-- Prices per hour, of storage, of ingress and of the offer's own egress, that is; regional egress by
-- tiers is of the class.
-- Spot is told apart by the terms of the same machine on demand, with which its bill is compared.
with terms as (
    select
        terms_id,
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
        any_value(spot_notice_seconds) as spot_notice_seconds,
        any_value(has_persistent_storage) as has_persistent_storage,
        any_value(egress_schedule_id) as egress_schedule_id,
        any_value(egress_included_gb_per_month) as egress_included_gb_per_month
    from staging.offer_spans
    where gpu is not null
    group by terms_id
),

pairs as (
    select distinct terms_id, on_demand_terms_id
    from staging.current_offers
    union
    select terms_id, null::ubigint as on_demand_terms_id
    from terms
)

select hash(pairs.terms_id, pairs.on_demand_terms_id) as class_id, pairs.on_demand_terms_id, terms.*
from pairs
inner join terms using (terms_id)
