-- Every offer that was for sale on a day with a live reading, as it stood at the day's end.
-- grain: offer_id, day
-- units: USD; USD per GB; seconds; GiB
-- In the dollars of that day, so that the past is never rewritten. The baseline is left out: each of
-- its providers was seen once, and as each came in, the cheapest would seem to fall.
with days as (
    select distinct observed_at::date as "day"
    from staging.outcomes
    where status = 'ok' and run_kind <> 'baseline'
),

standing as (
    select days."day", s.*
    from days
    inner join staging.offer_spans as s
        on
            s.valid_from < days."day" + interval 1 day
            and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
    where
        not s.is_baseline
        and s.gpu is not null
        and s.is_available is distinct from false
        and staging.is_in_force(s.effective_at, s.expires_at, days."day" + interval 1 day)
)

select
    s.* replace (
        s.price_per_hour::double * coalesce(
            case when s.currency = 'USD' then 1.0 end, fx.usd_per_unit, s.usd_per_unit
        ) as price_usd_per_hour,
        s.price_per_hour::double / s.gpu_count * coalesce(
            case when s.currency = 'USD' then 1.0 end, fx.usd_per_unit, s.usd_per_unit
        ) as price_usd_per_gpu_hour
    )
from standing as s
asof left join staging.fx_rates as fx
    on s.currency = fx.currency and s."day" >= fx.rate_date
