-- The cheapest offer that was read live of each GPU and market, on every day with such a reading.
-- grain: gpu, market, day
-- units: USD per GPU and hour
-- An offer counts from its first sighting until it is found changed or gone, as at the day's end.
-- The baseline is left out: each of its providers was seen once, and as each came in, the cheapest
-- would seem to fall.
with days as (
    select distinct observed_at::date as "day"
    from staging.outcomes
    where status = 'ok' and run_kind <> 'baseline'
),

prices as (
    select
        days."day",
        s.gpu,
        s.market,
        s.provider,
        s.provider_name,
        s.sku,
        s.region,
        -- In the dollars of that day, so that the past is never rewritten.
        s.price_per_hour::double / s.gpu_count * coalesce(
            case when s.currency = 'USD' then 1.0 end, fx.usd_per_unit, s.usd_per_unit
        ) as price_usd_per_gpu_hour
    from days
    inner join staging.offer_spans as s
        on
            s.valid_from < days."day" + interval 1 day
            and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
    asof left join staging.fx_rates as fx
        on s.currency = fx.currency and days."day" >= fx.rate_date
    -- A slice is no whole GPU, and an offer that is sold out cannot be rented.
    where
        s.market in ('on_demand', 'spot')
        and not s.is_baseline
        and s.gpu is not null
        and s.gpu_count >= 1
        and s.is_available is distinct from false
)

select
    gpu,
    market,
    "day",
    count(*) as offers,
    count(distinct provider) as providers,
    min(price_usd_per_gpu_hour) as price_usd_per_gpu_hour,
    arg_min(provider, price_usd_per_gpu_hour) as provider,
    arg_min(provider_name, price_usd_per_gpu_hour) as provider_name,
    arg_min(sku, price_usd_per_gpu_hour) as sku,
    arg_min(region, price_usd_per_gpu_hour) as region
from prices
group by gpu, market, "day"
