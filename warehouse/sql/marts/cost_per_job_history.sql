-- What each reference job would have cost on every day with a live reading, on the cheapest offer.
-- grain: job, market, day
-- units: USD; hours
select
    job,
    market,
    observed_at::date as "day",
    min(cost_usd) as cost_usd,
    arg_min(cost_usd_low, cost_usd) as cost_usd_low,
    arg_min(cost_usd_high, cost_usd) as cost_usd_high,
    arg_min(compute_usd, cost_usd) as compute_usd,
    arg_min(hours, cost_usd) as hours,
    arg_min(provider, cost_usd) as provider,
    arg_min(sku, cost_usd) as sku,
    arg_min(region, cost_usd) as region,
    arg_min(gpu, cost_usd) as gpu,
    arg_min(gpu_count, cost_usd) as gpu_count
from marts.cost_of('marts.job_hours', 'staging.nightly_offers')
where is_eligible
group by job, market, observed_at::date
