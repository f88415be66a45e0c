-- Dollars per unit of each currency and day, from the fetched reference rates and the seed.
-- grain: rate_date, currency
-- units: USD per unit
-- kept: table
with stated as (
    select rate_date, currency, units_per_eur::double as units_per_eur, 1 as preference
    from ledger.fx_rates
    union all
    select rate_date, currency, units_per_eur, 2 as preference
    from seeds.fx_rates
),

-- One rate a day and currency: the fetched one before the seed's.
rates as (
    select rate_date, currency, units_per_eur
    from stated
    qualify row_number() over (partition by rate_date, currency order by preference) = 1
),

dollars as (
    select rate_date, units_per_eur as usd_per_eur
    from rates
    where currency = 'USD'
)

select rates.rate_date, rates.currency, dollars.usd_per_eur / rates.units_per_eur as usd_per_unit
from rates inner join dollars using (rate_date)
union all
select rate_date, 'EUR' as currency, usd_per_eur as usd_per_unit
from dollars
