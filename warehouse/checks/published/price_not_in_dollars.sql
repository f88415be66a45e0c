-- An offer whose currency has no exchange rate cannot be ranked.
-- severity: warn
select provider as subject, format('{} offers in {} without a rate', count(*), currency) as detail
from staging.current_offers
where price_usd_per_hour is null
group by provider, currency
order by provider, currency
