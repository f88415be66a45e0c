-- Two prices of one offer at the same moment.
-- severity: fail
select offer_id as subject, format('{} begins before the span from {} ends', next_from, valid_from) as detail
from (
    select
        offer_id, valid_from, valid_to,
        lead(valid_from) over (partition by offer_id order by valid_from) as next_from
    from staging.price_spans
)
where next_from is not null and (valid_to is null or valid_to > next_from)
