-- Storage, traffic and address prices in force, one tier a row.
-- grain: fee_id
-- units: price in currency per unit; tiers in GB per month
-- kept: table
with fetched as (
    select provider, request, arg_max(url, fetched_at) as url
    from ledger.fetches
    where url <> '' and page = 1
    group by provider, request
)

select
    c.fee_id,
    c.provider,
    c.scope,
    c.kind as fee_kind,
    c.product,
    c.fee_region as region,
    c.from_tier_gb,
    c.size_gb,
    c.price,
    c.unit,
    c.currency,
    c.observed_at as valid_from,
    s.last_ok_at as observed_at,
    -- A scope asks several pages: the one that states the fee.
    coalesce(f.url, s.source_url) as source_url
from ledger.fee_changes as c
inner join staging.scopes as s using (provider, scope)
left join fetched as f using (provider, request)
qualify
    row_number() over (partition by c.fee_id order by c.observed_at desc, c.run_id desc) = 1
    and not c.is_withdrawn
