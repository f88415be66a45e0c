-- The terms that hold for each offer, one statement per row with its source and date.
-- grain: offer_id, term
-- units: as stated in unit
select
    offer_id,
    term,
    "value",
    unit,
    currency,
    applies_to,
    source_url,
    source_date
from staging.terms_in_force
