-- The terms that hold for each offer: of the adopted statements the most specific one.
-- grain: offer_id
-- units: seconds; price per GB in the term's currency; GB
-- kept: table
with matching as (
    select
        o.offer_id,
        t.term,
        t."value" as stated,
        -- max_by would pass over a missing currency and take another statement's.
        coalesce(t.currency, 'USD') as currency,
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
    max_by(stated, specificity) filter (term = 'billing_increment_seconds')::integer
        as billing_increment_seconds,
    max_by(stated, specificity) filter (term = 'billing_minimum_seconds')::integer
        as billing_minimum_seconds,
    max_by(stated, specificity) filter (term = 'minimum_applies') as minimum_applies,
    max_by(stated, specificity) filter (term = 'minimum_rental_hours')::double
        as minimum_rental_hours,
    max_by(stated, specificity) filter (term = 'commitment_required')::boolean
        as commitment_required,
    max_by(stated, specificity) filter (term = 'stop_behaviour') as stop_behaviour,
    max_by(stated, specificity) filter (term = 'storage_survives_stop')::boolean
        as storage_survives_stop,
    max_by(stated, specificity) filter (term = 'storage_price_per_gb_month')::double
        as storage_price_per_gb_month,
    max_by(currency, specificity) filter (term = 'storage_price_per_gb_month') as storage_currency,
    max_by(stated, specificity) filter (term = 'stopped_storage_price_per_gb_month')::double
        as stopped_storage_price_per_gb_month,
    least(
        max_by(stated, specificity) filter (term = 'network_storage_price_per_gb_month')::double,
        max_by(stated, specificity) filter (term = 'object_storage_price_per_gb_month')::double
    ) as kept_storage_price_per_gb_month,
    coalesce(
        max_by(currency, specificity) filter (term = 'network_storage_price_per_gb_month'),
        max_by(currency, specificity) filter (term = 'object_storage_price_per_gb_month')
    ) as kept_storage_currency,
    max_by(stated, specificity) filter (term = 'included_disk_gb')::double as included_disk_gb,
    max_by(stated, specificity) filter (term = 'egress_price_per_gb')::double
        as egress_price_per_gb,
    max_by(currency, specificity) filter (term = 'egress_price_per_gb') as egress_currency,
    max_by(stated, specificity) filter (term = 'egress_free_gb_per_month')::double
        as egress_free_gb_per_month,
    max_by(stated, specificity) filter (term = 'ingress_price_per_gb')::double
        as ingress_price_per_gb,
    max_by(currency, specificity) filter (term = 'ingress_price_per_gb') as ingress_currency,
    max_by(currency, specificity) filter (term = 'stopped_storage_price_per_gb_month')
        as stopped_storage_currency,
    max_by(stated, specificity) filter (term = 'spot_notice_seconds')::double
        as spot_notice_seconds,
    max_by(stated, specificity) filter (term = 'spot_max_lifetime_hours')::double
        as spot_max_lifetime_hours,
    max_by(stated, specificity) filter (term = 'multi_node_fabric') as multi_node_fabric,
    max_by(stated, specificity) filter (term = 'ssh_access')::boolean as has_ssh,
    max_by(stated, specificity) filter (term = 'docker_access')::boolean as has_docker,
    max_by(stated, specificity) filter (term = 'jupyter_access')::boolean as has_jupyter,
    max_by(stated, specificity) filter (term = 'persistent_storage')::boolean
        as has_persistent_storage
from matching
group by offer_id
