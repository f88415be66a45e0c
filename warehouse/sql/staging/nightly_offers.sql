-- The cheapest on-demand seller of each machine type on every day with a live reading.
-- grain: offer_id, observed_at
-- units: USD; USD per GB; seconds; GiB
-- Shaped like current_offers, with the day as the time of sight: what the same job would have cost.
-- The baseline is left out: each of its providers was seen once, and as each came in, the cheapest
-- would seem to fall.
with days as (
    select distinct observed_at::date as "day"
    from staging.outcomes
    where status = 'ok' and run_kind <> 'baseline'
)

select
    s.* exclude (observed_at),
    days."day"::timestamp as observed_at,
    s.price_usd_per_hour as on_demand_usd_per_hour
from days
inner join staging.offer_spans as s
    on
        s.valid_from < days."day" + interval 1 day
        and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
where
    s.market = 'on_demand' and s.gpu is not null and s.is_available is distinct from false
    and not s.is_baseline
qualify
    row_number() over (
        partition by days."day", s.gpu, s.gpu_count order by s.price_usd_per_hour, s.offer_id
    ) = 1
