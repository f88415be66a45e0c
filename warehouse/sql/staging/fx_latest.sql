-- The newest known dollar value of each currency.
-- grain: currency
-- units: USD per unit
-- kept: table
with known as (
    select currency, usd_per_unit, rate_date
    from staging.fx_rates
    qualify row_number() over (partition by currency order by rate_date desc) = 1
)

select currency, usd_per_unit, rate_date
from known
where currency <> 'USD'
union all
select 'USD' as currency, 1.0::double as usd_per_unit, null::date as rate_date
