-- Every offer's price over time: one row from when it was seen to when it changed or went.
-- grain: offer_id, valid_from
-- units: price_per_hour in the offer's currency, whole machine; UTC
-- kept: table
with live as (
    select distinct c.offer_id
    from ledger.price_changes as c
    inner join ledger.runs as r using (run_id)
    where r.kind <> 'baseline'
),

told as (
    select
        c.*,
        r.kind = 'baseline' as is_baseline,
        s.baseline_until
    from ledger.price_changes as c
    inner join ledger.runs as r using (run_id)
    inner join staging.scopes as s using (provider, scope)
    where
        r.kind <> 'baseline'
        or (
            (s.baseline_until is null or c.observed_at < s.baseline_until)
            -- Seen live, an offer needs no baseline, whatever that one's date.
            and (c.offer_id not in (select offer_id from live) or s.baseline_until is not null)
        )
    -- Of two statements about one moment the later run's counts.
    qualify
        row_number() over (partition by c.offer_id, c.observed_at order by c.run_id desc) = 1
),

-- A row that only restates what held before (after a truncated listing) is no change.
compared as (
    select
        *,
        row(
            is_withdrawn, price_per_hour, currency, upfront, is_available,
            billing_increment_seconds, billing_minimum_seconds, storage_price_per_gb_month,
            egress_price_per_gb, ingress_price_per_gb, interruption_rate_monthly, is_baseline
        ) as terms,
        max(observed_at) over (partition by offer_id) as last_told_at,
        -- Dates of validity move without a price moving: those told last hold.
        last_value(effective_at) over whole as last_effective_at,
        last_value(expires_at) over whole as last_expires_at
    from told
    window whole as (
        partition by offer_id order by observed_at
        rows between unbounded preceding and unbounded following
    )
),

changes as (
    select *
    from compared
    qualify
        terms is distinct from
        lag(terms) over (partition by offer_id order by observed_at)
),

spans as (
    select
        *,
        lead(observed_at) over (partition by offer_id order by observed_at) as next_at
    from changes
)

select
    offer_id,
    provider,
    scope,
    observed_at as valid_from,
    case
        when is_baseline and baseline_until is not null
            then least(coalesce(next_at, baseline_until), baseline_until)
        else next_at
    end as valid_to,
    last_told_at,
    price_per_hour,
    currency,
    upfront,
    is_available,
    billing_increment_seconds,
    billing_minimum_seconds,
    storage_price_per_gb_month,
    egress_price_per_gb,
    ingress_price_per_gb,
    interruption_rate_monthly,
    case when next_at is null then last_effective_at else effective_at end as effective_at,
    case when next_at is null then last_expires_at else expires_at end as expires_at,
    is_baseline,
    run_id
from spans
where not is_withdrawn
