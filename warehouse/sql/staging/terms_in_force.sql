-- Which statement of each term holds for an offer: of the adopted ones the most specific.
-- grain: offer_id, term
-- units: as the term's unit says
with matching as (
    select
        o.offer_id,
        t.*,
        -- A statement about the machine outweighs one about the tier, market or region.
        (t.sku_like is not null)::int * 8
        + (t.tier is not null)::int * 4
        + (t.market is not null)::int * 2
        + (t.region_like is not null)::int as specificity
    from staging.offers as o
    inner join seeds.provider_terms as t using (provider)
    where
        t.status = 'adopted'
        and coalesce(t.from_tier_gb, 0) = 0
        and (t.market is null or t.market = o.market)
        and (t.tier is null or t.tier = o.tier)
        and (t.sku_like is null or o.sku like t.sku_like)
        and (t.region_like is null or o.region like t.region_like)
)

select
    offer_id,
    term,
    unnest(
        max_by(
            {
                'value': "value",
                'unit': unit,
                'currency': currency,
                'applies_to': applies_to,
                'source_url': source_url,
                'source_date': source_date
            },
            specificity
        )
    )
from matching
group by offer_id, term
