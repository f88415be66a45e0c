-- The cheapest on-demand seller of each machine type, billing class and place, day by day.
-- grain: offer_id, observed_at
-- units: USD; USD per GB; seconds; GiB
-- Shaped like current_offers, with the day as the time of sight, in that day's dollars: what the
-- same job would have cost. Only days with a live reading.
-- The baseline is left out: each of its providers was seen once, and as each came in, the cheapest
-- would seem to fall.
with days as (
    select distinct observed_at::date as "day"
    from staging.outcomes
    where status = 'ok' and run_kind <> 'baseline'
)

select
    s.* exclude (observed_at) replace (
        s.price_per_hour::double * coalesce(
            case when s.currency = 'USD' then 1.0 end, fx.usd_per_unit, s.usd_per_unit
        ) as price_usd_per_hour
    ),
    days."day"::timestamp as observed_at,
    days."day"::timestamp as asked_at,
    null::double as on_demand_usd_per_hour
from days
inner join staging.offer_spans as s
    on
        s.valid_from < days."day" + interval 1 day
        and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
asof left join staging.fx_rates as fx
    on s.currency = fx.currency and days."day" >= fx.rate_date
where
    s.market = 'on_demand' and s.gpu is not null and s.is_available is distinct from false
    and not s.is_baseline
qualify
    row_number() over (
        partition by days."day", s.class_id, s.place_id order by s.price_usd_per_hour, s.offer_id
    ) = 1
