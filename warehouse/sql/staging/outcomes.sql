-- What every scope answered in every run.
-- grain: run_id, provider, scope
-- units: seconds; UTC
-- kept: table
select
    o.run_id,
    r.kind as run_kind,
    o.provider,
    o.scope,
    o.status,
    o.observed_at,
    o.recorded_at,
    o.offers,
    o.fees,
    o.rejects,
    o.duplicates,
    o.truncated as is_truncated,
    o.error,
    o.seconds,
    o.source_url
from ledger.outcomes as o
inner join ledger.runs as r using (run_id)
