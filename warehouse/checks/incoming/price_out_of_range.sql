-- A GPU for under a cent or over 100 dollars an hour is a unit mistake.
-- severity: warn
select
    format('{} {} {}', sku, region, market) as subject,
    format('{} {} per hour for {} GPU', price_per_hour, currency, gpu_count) as detail
from incoming
where
    currency in ('USD', 'EUR', 'GBP', 'CHF')
    and (
        price_per_hour / greatest(gpu_count, 1) > 100
        or price_per_hour / gpu_count < 0.01
    )
order by subject
