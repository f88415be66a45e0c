-- Each provider: how its scopes did last, how old its prices are and what was refused.
-- grain: provider
-- units: hours of age; counts
with scopes as (
    select
        provider,
        count(*) as scopes,
        count(*) filter (last_status = 'ok' and not is_baseline) as scopes_ok,
        count(*) filter (last_status = 'failed') as scopes_failed,
        count(*) filter (last_status = 'held') as scopes_held,
        count(*) filter (last_status = 'skipped') as scopes_skipped,
        count(*) filter (is_truncated) as scopes_truncated,
        count(*) filter (is_baseline) as scopes_baseline,
        bool_and(is_baseline) as is_baseline,
        max(last_ok_at) as newest_ok_at,
        min(last_ok_at) as oldest_ok_at,
        max(last_attempt_at) filter (not is_baseline or last_status <> 'ok') as last_attempt_at,
        arg_max(last_error, last_attempt_at) filter (last_error is not null) as last_error,
        sum(last_rejects) as rejects
    from staging.scopes
    group by provider
),

listed as (
    select provider, count(*) as offers, count(*) filter (gpu is null) as offers_unknown_gpu
    from marts.current_prices
    group by provider
)

select
    scopes.provider,
    coalesce(p.provider_name, scopes.provider) as provider_name,
    case
        when scopes.scopes_failed > 0 then 'failed'
        when scopes.scopes_held > 0 then 'held'
        when scopes.is_baseline then 'baseline'
        when scopes.scopes_skipped > 0 then 'skipped'
        when scopes.scopes_baseline > 0 then 'partly baseline'
        when scopes.scopes_truncated > 0 then 'cut short'
        else 'ok'
    end as health,
    scopes.scopes,
    scopes.scopes_ok,
    scopes.scopes_failed,
    scopes.scopes_held,
    scopes.scopes_skipped,
    scopes.scopes_truncated,
    scopes.scopes_baseline,
    coalesce(listed.offers, 0) as offers,
    coalesce(listed.offers_unknown_gpu, 0) as offers_unknown_gpu,
    scopes.rejects,
    scopes.is_baseline,
    scopes.oldest_ok_at,
    scopes.newest_ok_at,
    epoch(make_timestamp(epoch_us(now())) - scopes.oldest_ok_at) / 3600 as age_hours,
    scopes.last_attempt_at,
    scopes.last_error,
    p.pricing_url
from scopes
left join listed using (provider)
left join seeds.providers as p using (provider)
