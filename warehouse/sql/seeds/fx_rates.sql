-- Euro reference rates of the European Central Bank, the fallback for days that were not fetched.
-- grain: rate_date, currency
-- units: units of the currency per euro
-- kept: table
select
    rate_date::date as rate_date,
    currency,
    units_per_eur::double as units_per_eur,
    source_url
from temp.raw_fx_rates
