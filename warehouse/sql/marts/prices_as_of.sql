-- The prices that held at a moment (UTC), as seen by the runs before it.
-- grain: offer_id
-- units: USD for the whole machine or one GPU per hour; UTC
-- kept: macro(at_time)
select *
from marts.price_history
where valid_from <= at_time and (valid_to is null or valid_to > at_time)
