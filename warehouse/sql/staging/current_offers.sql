-- The offers in force, each with the on-demand price of the same machine beside it.
-- grain: offer_id
-- units: USD; USD per GB; seconds; GiB
-- kept: table
with current as (
    select *
    from staging.offer_spans
    where valid_to is null
),

on_demand as (
    select provider, sku, region, "zone", tier, min(price_usd_per_hour) as price_usd_per_hour
    from current
    where market = 'on_demand'
    group by all
)

select
    current.*,
    on_demand.price_usd_per_hour as on_demand_usd_per_hour
from current
left join on_demand
    on
        current.provider = on_demand.provider
        and current.sku = on_demand.sku
        and current.region = on_demand.region
        and current."zone" is not distinct from on_demand."zone"
        and current.tier is not distinct from on_demand.tier
