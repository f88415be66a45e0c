-- The cheapest offer that was read live of each GPU and market, on every day with such a reading.
-- grain: gpu, market, day
-- units: USD per GPU and hour
-- An offer counts from its first sighting until it is found changed or gone, as at the day's end.
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
from staging.offer_days
-- A slice is no whole GPU.
where market in ('on_demand', 'spot') and gpu_count >= 1
group by gpu, market, "day"
