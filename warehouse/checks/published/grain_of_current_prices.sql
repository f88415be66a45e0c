-- One row per offer: two would count a machine twice.
-- severity: fail
select offer_id as subject, format('{} rows', count(*)) as detail
from staging.current_offers
group by offer_id
having count(*) > 1
