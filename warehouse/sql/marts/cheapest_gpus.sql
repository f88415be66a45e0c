-- The cheapest offer of each GPU and market, per GPU-hour.
-- grain: gpu, market
-- units: USD per GPU and hour; GiB
select
    gpu,
    market,
    count(*) as offers,
    count(distinct provider) as providers,
    min(price_usd_per_gpu_hour) as price_usd_per_gpu_hour,
    median(price_usd_per_gpu_hour) as median_usd_per_gpu_hour,
    arg_min(provider, price_usd_per_gpu_hour) as provider,
    arg_min(provider_name, price_usd_per_gpu_hour) as provider_name,
    arg_min(sku, price_usd_per_gpu_hour) as sku,
    arg_min(region, price_usd_per_gpu_hour) as region,
    arg_min(gpu_count, price_usd_per_gpu_hour) as gpu_count,
    arg_min(observed_at, price_usd_per_gpu_hour) as observed_at,
    arg_min(age_hours, price_usd_per_gpu_hour) as age_hours,
    arg_min(is_baseline, price_usd_per_gpu_hour) as is_baseline,
    arg_min(source, price_usd_per_gpu_hour) as source
from marts.current_prices
-- A slice is no whole GPU, and an offer that is sold out cannot be rented.
where gpu is not null and gpu_count >= 1 and is_available is distinct from false
group by gpu, market
