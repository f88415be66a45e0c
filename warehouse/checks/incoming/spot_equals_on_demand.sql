-- Every spot price of the scope equals the on-demand price: spot was probably not observed.
-- severity: warn
with pairs as (
    select spot.price_per_hour = demand.price_per_hour as same
    from incoming as spot
    inner join incoming as demand
        on
            spot.sku = demand.sku
            and spot.region = demand.region
            and spot.zone is not distinct from demand.zone
            and spot.tier is not distinct from demand.tier
    where spot.market = 'spot' and demand.market = 'on_demand'
)

select
    'spot' as subject,
    format('all {} spot prices equal on-demand', count(*)) as detail
from pairs
having count(*) >= 5 and bool_and(same)
