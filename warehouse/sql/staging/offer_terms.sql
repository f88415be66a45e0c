-- The terms that hold for each offer, a column each.
-- grain: offer_id
-- units: seconds; hours; GB; Gbit/s; USD per GB and month; USD per GB; USD per hour; USD per month
-- kept: table
select
    offer_id,
    any_value("value") filter (term = 'billing_increment_seconds')::integer
        as billing_increment_seconds,
    any_value("value") filter (term = 'billing_minimum_seconds')::integer
        as billing_minimum_seconds,
    any_value("value") filter (term = 'minimum_applies') as minimum_applies,
    any_value("value") filter (term = 'minimum_rental_hours')::double as minimum_rental_hours,
    any_value("value") filter (term = 'commitment_required')::boolean as commitment_required,
    any_value("value") filter (term = 'stop_behaviour') as stop_behaviour,
    any_value("value") filter (term = 'storage_survives_stop')::boolean as storage_survives_stop,
    any_value("value") filter (term = 'included_disk_gb')::double as included_disk_gb,
    any_value("value") filter (term = 'spot_notice_seconds')::double as spot_notice_seconds,
    any_value("value") filter (term = 'spot_max_lifetime_hours')::double
        as spot_max_lifetime_hours,
    any_value("value") filter (term = 'multi_node_fabric') as multi_node_fabric,
    any_value("value") filter (term = 'multi_node_gbit_per_second')::double
        as multi_node_gbit_per_second,
    any_value("value") filter (term = 'ssh_access')::boolean as has_ssh,
    any_value("value") filter (term = 'docker_access')::boolean as has_docker,
    any_value("value") filter (term = 'jupyter_access')::boolean as has_jupyter,
    any_value("value") filter (term = 'persistent_storage')::boolean as has_persistent_storage,
    -- Prices in dollars of the newest rate: a term has a date, but no history.
    any_value(usd) filter (term = 'storage_price_per_gb_month') as storage_term_usd,
    any_value(usd) filter (term = 'stopped_storage_price_per_gb_month')
        as stopped_term_usd,
    min(usd) filter (
        term in ('network_storage_price_per_gb_month', 'object_storage_price_per_gb_month')
    ) as kept_term_usd,
    min_by(term, usd) filter (
        term in ('network_storage_price_per_gb_month', 'object_storage_price_per_gb_month')
    ) as kept_term,
    any_value(usd) filter (term = 'object_storage_minimum_per_month') as bucket_minimum_usd,
    any_value(usd) filter (term = 'ingress_price_per_gb') as ingress_term_usd,
    any_value(usd) filter (term = 'nat_price_per_gb') as nat_usd_per_gb,
    any_value(usd) filter (term = 'nat_price_per_hour') as nat_usd_per_hour
from (
    select t.*, try_cast(t."value" as double) * fx.usd_per_unit as usd
    from staging.terms_in_force as t
    left join staging.fx_latest as fx on fx.currency = coalesce(t.currency, 'USD')
)
group by offer_id
