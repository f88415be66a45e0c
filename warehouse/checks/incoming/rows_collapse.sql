-- The scope lists fewer than half of the offers that it listed last time.
-- severity: hold
select
    'listing' as subject,
    format('{} offers, {} the last time', fresh.n, before.n) as detail
from
    (select count(*) as n from incoming) as fresh,
    (select count(*) as n from state where not is_withdrawn) as before
where before.n >= 10 and fresh.n * 2 < before.n
