-- The prices that held at a moment (UTC), as seen by the runs before it, in that day's dollars.
-- grain: offer_id
-- units: USD for the whole machine or one GPU per hour; UTC
-- kept: macro(at_time)
select
    h.* replace (
        coalesce(h.price_per_hour::double * fx.usd_per_unit, h.price_usd_per_hour)
            as price_usd_per_hour,
        coalesce(
            h.price_per_hour::double * fx.usd_per_unit / h.gpu_count, h.price_usd_per_gpu_hour
        ) as price_usd_per_gpu_hour
    )
from marts.price_history as h
left join (
    select currency, arg_max(usd_per_unit, rate_date) as usd_per_unit
    from staging.fx_rates
    where rate_date <= at_time::date
    group by currency
) as fx on h.currency = fx.currency and h.currency <> 'USD'
where h.valid_from <= at_time and (h.valid_to is null or h.valid_to > at_time)
