-- The cheapest compute cost of each reference job on every day with a live reading.
-- grain: job, day
-- units: USD of compute, without storage and transfer; hours
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
        s.gpu_count,
        s.provider,
        s.sku,
        s.region,
        s.market,
        s.price_usd_per_hour,
        s.billing_increment_seconds,
        s.billing_minimum_seconds
    from days
    inner join staging.offer_spans as s
        on
            s.valid_from < days."day" + interval 1 day
            and (s.valid_to is null or s.valid_to >= days."day" + interval 1 day)
    where
        s.market = 'on_demand' and s.gpu is not null and s.is_available is distinct from false
        and not s.is_baseline
    -- One machine type's cheapest seller of the day decides.
    qualify
        row_number() over (
            partition by days."day", s.gpu, s.gpu_count order by s.price_usd_per_hour, s.offer_id
        ) = 1
)

select
    p.job,
    prices."day",
    min(
        marts.billed_hours(
            p.hours, 1, coalesce(prices.billing_minimum_seconds, 0),
            coalesce(prices.billing_increment_seconds, 3600)
        ) * prices.price_usd_per_hour
    ) as compute_usd,
    arg_min(p.hours, p.hours * prices.price_usd_per_hour) as hours,
    arg_min(prices.provider, p.hours * prices.price_usd_per_hour) as provider,
    arg_min(prices.sku, p.hours * prices.price_usd_per_hour) as sku,
    arg_min(prices.region, p.hours * prices.price_usd_per_hour) as region,
    arg_min(p.gpu, p.hours * prices.price_usd_per_hour) as gpu,
    arg_min(p.gpu_count, p.hours * prices.price_usd_per_hour) as gpu_count
from sizing.plans as p
inner join prices using (gpu, gpu_count)
where p.fits
group by p.job, prices."day"
