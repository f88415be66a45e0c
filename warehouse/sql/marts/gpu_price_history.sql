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
)

select
    s.gpu,
    s.market,
    days."day",
    count(*) as offers,
    count(distinct s.provider) as providers,
    min(s.price_usd_per_gpu_hour) as price_usd_per_gpu_hour,
    arg_min(s.provider, s.price_usd_per_gpu_hour) as provider,
    arg_min(s.provider_name, s.price_usd_per_gpu_hour) as provider_name,
    arg_min(s.sku, s.price_usd_per_gpu_hour) as sku,
    arg_min(s.region, s.price_usd_per_gpu_hour) as region
from days
inner join staging.offer_spans as s
    on
        s.valid_from < days."day" + interval 1 day
        and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
-- A slice is no whole GPU, and an offer that is sold out cannot be rented.
where
    s.market in ('on_demand', 'spot')
    and not s.is_baseline
    and s.gpu is not null
    and s.gpu_count >= 1
    and s.is_available is distinct from false
group by s.gpu, s.market, days."day"
