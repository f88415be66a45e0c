-- One in ten of the offers, and at least three, moved by more than 40 % since last time.
-- severity: hold
with moves as (
    select
        incoming.sku,
        incoming.region,
        incoming.market,
        state.price_per_hour as before,
        incoming.price_per_hour as fresh,
        -- Another currency is another price list: it waits for confirmation too.
        incoming.currency is distinct from state.currency
        or abs(incoming.price_per_hour - state.price_per_hour) > 0.4 * state.price_per_hour
            as jumped
    from incoming
    inner join state using (offer_id)
    -- A spot price may halve overnight; a list price that does wants a second look.
    where not state.is_withdrawn and incoming.market <> 'spot'
)

select
    format('{} {}', sku, region) as subject,
    format('{} to {} per hour', before, fresh) as detail
from moves
where
    jumped
    and (select count_if(jumped) >= 3 and count_if(jumped) * 10 >= count(*) from moves)
order by subject
