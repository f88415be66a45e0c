-- Where the prices on an offer's bill beside the hourly one were stated, and when.
-- grain: offer_id, item
-- units: none
with priced as (
    select
        offer_id,
        provider,
        region,
        source_url,
        observed_at::date::varchar as seen,
        unnest([
            'storage', 'storage stopped', 'storage kept', 'ingress', 'egress', 'NAT traffic',
            'NAT hours'
        ]) as item,
        unnest([
            storage_price_from,
            stopped_price_from,
            kept_price_from,
            ingress_price_from,
            case when egress_usd_per_gb is not null then 'offer' else 'tiers' end,
            'nat_price_per_gb',
            'nat_price_per_hour'
        ]) as price_from
    from staging.current_offers
),

tiers as (
    select
        provider,
        region,
        any_value(product) as product,
        any_value(source_url) as source_url,
        any_value(seen) as seen
    from staging.egress_tiers
    group by provider, region
)

select
    p.offer_id,
    p.item,
    coalesce(tiers.product, listed.product, t.term, 'the offer''s own price') as product,
    coalesce(tiers.source_url, listed.source_url, t.source_url, p.source_url) as source,
    coalesce(tiers.seen, listed.observed_at::date::varchar, t.source_date, p.seen) as source_date
from priced as p
left join tiers
    on p.price_from = 'tiers' and p.provider = tiers.provider and p.region = tiers.region
left join staging.storage_prices as listed
    on p.price_from = listed.purpose and p.provider = listed.provider and p.region = listed.region
left join staging.terms_in_force as t on p.offer_id = t.offer_id and p.price_from = t.term
where p.price_from = 'offer' or tiers.provider is not null or listed.purpose is not null
    or t.term is not null
