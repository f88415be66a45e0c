-- Every scope: when it last answered well, and what its last attempt gave.
-- grain: provider, scope
-- units: UTC
-- kept: table
with answered as (
    select
        provider,
        scope,
        min(observed_at) filter (status = 'ok' and run_kind <> 'baseline') as first_live_at,
        -- Once a scope has answered in full, its bundled baseline no longer speaks for it; nor does
        -- a marketplace's after any answer: its asks are single machines, not list prices.
        min(observed_at) filter (
            status = 'ok' and run_kind <> 'baseline'
            and (not is_truncated or p.provider_kind = 'marketplace')
        ) as baseline_until,
        max(observed_at) filter (status = 'ok' and run_kind <> 'baseline') as last_live_at,
        max(observed_at) filter (status = 'ok' and run_kind <> 'baseline' and not is_truncated)
            as last_complete_at,
        max(observed_at) filter (status = 'ok' and run_kind = 'baseline') as baseline_at
    from staging.outcomes
    left join seeds.providers as p using (provider)
    group by provider, scope
),

last_try as (
    select provider, scope, status, error, recorded_at, rejects, offers, is_truncated, source_url
    from staging.outcomes
    qualify
        -- What was asked last: neither the baseline nor a second reading of old pages is an answer.
        row_number() over (
            partition by provider, scope
            order by run_kind = 'baseline', run_kind = 'reparse', observed_at desc, run_id desc
        ) = 1
)

select
    a.provider,
    a.scope,
    a.first_live_at,
    a.baseline_until,
    coalesce(a.last_live_at, a.baseline_at) as last_ok_at,
    case when a.first_live_at is null then a.baseline_at else a.last_complete_at end
        as last_complete_at,
    a.first_live_at is null and a.baseline_at is not null as is_baseline,
    t.status as last_status,
    t.error as last_error,
    t.recorded_at as last_attempt_at,
    t.offers as last_offers,
    t.rejects as last_rejects,
    t.is_truncated,
    t.source_url
from answered as a
inner join last_try as t using (provider, scope)
