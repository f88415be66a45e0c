-- The cheapest seller of each machine type, billing class and place, day by day.
-- grain: offer_id, observed_at
-- units: USD; USD per GB; seconds; GiB
-- Shaped like current_offers, with the day as the time of sight: what the same job would have cost.
select
    * exclude ("day") replace ("day"::timestamp as observed_at),
    "day" + interval 1 day as asked_at,
    null::double as on_demand_usd_per_hour,
    null::ubigint as on_demand_terms_id,
    hash(terms_id, null::ubigint) as class_id
from staging.offer_days
where market in ('on_demand', 'spot')
qualify
    row_number() over (
        partition by "day", terms_id, provider, region order by price_usd_per_hour, offer_id
    ) = 1
