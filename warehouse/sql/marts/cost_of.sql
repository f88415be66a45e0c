-- The bill of jobs on every offer in force, component by component, likely and with its band.
-- grain: job, offer_id
-- units: USD; hours; GB; interruptions per hour
-- kept: macro(plans, jobs)
-- `plans` and `jobs` name relations shaped like sizing.plans and seeds.jobs, so that a custom job
-- is costed by the very same statement as the reference jobs.
with work as (
    select
        p.*,
        j.title,
        j.model,
        j.method,
        j.tokens,
        j.dataset_gb,
        j.keep_days,
        j.sessions,
        j.idle_hours * (j.sessions - 1) as idle_hours,
        -- Boot and image, then the base weights over a 1 Gbit/s line.
        0.1 as boot_hours,
        p.weights_download_gib * 1.073741824 / 0.125 / 3600 as fetch_hours,
        -- A save is written at 1 GiB/s after five seconds of gathering.
        (5 + p.checkpoint_gib) / 3600 as save_hours,
        j.dataset_gb
        + (p.weights_download_gib + 2 * p.checkpoint_gib + p.output_gib) * 1.073741824
            as stored_gb,
        j.dataset_gb + p.weights_download_gib * 1.073741824 as ingress_gb,
        p.output_gib * 1.073741824 as egress_gb
    from query_table(plans) as p
    inner join query_table(jobs) as j using (job)
),

egress as (
    select
        t.provider,
        t.region,
        w.job,
        w.egress_gb,
        sum(
            greatest(
                0,
                least(w.egress_gb, t.to_tier_gb) - greatest(t.from_tier_gb, t.free_gb_per_month)
            )
            * t.usd_per_gb
        ) as egress_usd
    from (select distinct job, egress_gb from work) as w
    cross join staging.egress_tiers as t
    group by all
),

-- What an unstated price could be: dearer than nine in ten of those that are stated.
pessimistic as (
    select
        quantile_cont(storage_usd_per_gb_month, 0.9) as storage_usd_per_gb_month,
        (select quantile_cont(usd_per_gb, 0.9) from staging.egress_tiers) as egress_usd_per_gb,
        quantile_cont(ingress_usd_per_gb, 0.9) as ingress_usd_per_gb
    from (
        select
            max(storage_usd_per_gb_month) as storage_usd_per_gb_month,
            max(ingress_usd_per_gb) as ingress_usd_per_gb
        from staging.current_offers
        group by provider
    )
),

machines as (
    select
        o.*,
        w.* exclude (gpu, gpu_count, reason),
        w.reason as unfit_reason,
        o.market = 'spot' as is_spot,
        coalesce(known.interruptions_per_hour_low, any_.interruptions_per_hour_low) as rate_low,
        coalesce(known.interruptions_per_hour, any_.interruptions_per_hour) as rate,
        coalesce(known.interruptions_per_hour_high, any_.interruptions_per_hour_high) as rate_high,
        -- An unstated increment is taken as an hour, the dearest usual one.
        coalesce(o.billing_increment_seconds, 3600) as increment_seconds,
        coalesce(o.billing_minimum_seconds, 0) as minimum_seconds,
        w.boot_hours + w.fetch_hours
        + (w.sessions - 1)
        * (w.boot_hours + case when o.storage_survives_stop then 0 else w.fetch_hours end)
            as setup_hours,
        coalesce(o.egress_usd_per_gb * w.egress_gb, e.egress_usd) as egress_usd,
        -- Where no price at all is stated: a dear hyperscaler's list.
        coalesce(pessimistic.storage_usd_per_gb_month, 0.25) as storage_guess,
        coalesce(pessimistic.egress_usd_per_gb, 0.12) as egress_guess,
        coalesce(pessimistic.ingress_usd_per_gb, 0.01) as ingress_guess
    from staging.current_offers as o
    inner join work as w on o.gpu = w.gpu and o.gpu_count = w.gpu_count
    cross join pessimistic
    left join egress as e
        on
            o.provider = e.provider and o.region = e.region
            and w.job = e.job and w.egress_gb = e.egress_gb
    left join seeds.spot_priors as known on o.provider = known.provider
    left join seeds.spot_priors as any_ on any_.provider = '*'
),

-- Held hours: what runs on the clock. Spot adds the work redone since the last checkpoint, at
-- Young's interval, sqrt(2 x save time x mean time between interruptions).
held as (
    select
        *,
        least(hours, sqrt(2 * save_hours / rate)) as checkpoint_interval_hours,
        case
            when is_spot
                then marts.spot_hours(
                    hours, checkpoint_interval_hours, save_hours, rate, boot_hours + fetch_hours
                )
            else hours
        end as run_hours,
        case
            when is_spot
                then marts.spot_hours(
                    hours_low, least(hours_low, sqrt(2 * save_hours / rate_low)), save_hours,
                    rate_low, boot_hours + fetch_hours
                )
            else hours_low
        end as run_hours_low,
        case
            when is_spot
                then marts.spot_hours(
                    hours_high, least(hours_high, sqrt(2 * save_hours / rate_high)), save_hours,
                    rate_high, boot_hours + fetch_hours
                )
            else hours_high
        end as run_hours_high,
        -- Every interruption is one more start, whose rounding costs half an increment.
        case when is_spot then rate * run_hours * increment_seconds / 7200.0 else 0 end
            as rounding_hours
    from machines
    where fits
),

priced as (
    select
        *,
        marts.billed_hours(hours + setup_hours, sessions, minimum_seconds, increment_seconds)
            as billed_hours,
        billed_hours * price_usd_per_hour as compute_usd,
        case
            when is_spot
                then greatest(0, (
                    marts.billed_hours(
                        run_hours + setup_hours, sessions, minimum_seconds, increment_seconds
                    ) + rounding_hours
                ) * price_usd_per_hour - compute_usd)
            else 0
        end as spot_rework_usd,
        marts.billed_hours(
            run_hours_low + setup_hours, sessions, minimum_seconds, increment_seconds
        ) * price_usd_per_hour as running_usd_low,
        (
            marts.billed_hours(
                run_hours_high + setup_hours, sessions, minimum_seconds, increment_seconds
            )
            + case when is_spot then rate_high * run_hours_high * increment_seconds / 7200.0 else 0
            end
        ) * price_usd_per_hour as running_usd_high,
        -- A provider that bills a stopped machine in full: keep it, or end it and load again.
        case
            when idle_hours = 0 or stop_behaviour is distinct from 'full_rate' then 0
            else least(
                idle_hours, (sessions - 1) * fetch_hours
            ) * price_usd_per_hour
        end as idle_usd,
        -- Disk that comes with the machine is paid with it while it runs.
        stored_gb
        * (
            case
                when coalesce(local_disk_gib, 0) * 1.073741824 >= stored_gb then 0
                else run_hours + setup_hours
            end
            + idle_hours
            * case stop_behaviour
                when 'double_storage' then 2
                when 'full_rate' then 0
                when 'free' then 0
                when 'terminates' then 0
                else 1
            end
            + keep_days * 24
        )
        / 730 as storage_gb_months,
        storage_gb_months * storage_usd_per_gb_month as storage_usd,
        ingress_gb
        * case when storage_survives_stop is not false then 1 else sessions end
            as loaded_gb,
        loaded_gb * ingress_usd_per_gb as ingress_usd
    from held
),

summed as (
    select
        *,
        case when storage_usd is null then storage_gb_months * storage_guess else 0 end
        + case when egress_usd is null then egress_gb * egress_guess else 0 end
        + case when ingress_usd is null then loaded_gb * ingress_guess else 0 end
            as assumed_usd,
        coalesce(storage_usd, 0) + coalesce(egress_usd, 0) + coalesce(ingress_usd, 0) + idle_usd
            as extras_usd,
        compute_usd + spot_rework_usd + extras_usd + assumed_usd as cost_usd,
        marts.billed_hours(
            hours + setup_hours, sessions, minimum_seconds, increment_seconds
        ) * on_demand_usd_per_hour + extras_usd + assumed_usd as on_demand_cost_usd
    from priced
)

select
    job,
    title,
    model,
    method,
    tokens,
    provider,
    provider_name,
    region,
    country,
    continent,
    "zone",
    sku,
    market,
    tier,
    gpu,
    gpu_count,
    gpu_label,
    interconnect,
    sharding,
    micro_batch,
    grad_checkpointing,
    vram_needed_gib,
    vram_usable_gib,
    bound_by,
    tokens_per_s,
    -- The clock time of the job: set-up, training and, on spot, work redone.
    run_hours_low + setup_hours as hours_low,
    run_hours + setup_hours as hours,
    run_hours_high + setup_hours as hours_high,
    setup_hours,
    billed_hours,
    least(cost_usd, running_usd_low + extras_usd) as cost_usd_low,
    cost_usd,
    greatest(cost_usd, running_usd_high + extras_usd + assumed_usd) as cost_usd_high,
    compute_usd,
    spot_rework_usd,
    idle_usd,
    storage_usd,
    egress_usd + ingress_usd as transfer_usd,
    egress_usd,
    ingress_usd,
    assumed_usd,
    case when is_spot then rate end as interruptions_per_hour,
    case when is_spot then checkpoint_interval_hours end as checkpoint_interval_hours,
    list_filter(
        [
            case when billing_increment_seconds is null then 'billing increment' end,
            case when storage_usd_per_gb_month is null then 'storage price' end,
            case when egress_usd is null then 'egress price' end,
            case when ingress_usd_per_gb is null then 'ingress price' end,
            case when sessions > 1 and stop_behaviour is null then 'stop behaviour' end
        ],
        lambda term: term is not null
    ) as unknown_terms,
    case
        when market in ('reserved', 'capacity_block') then 'sold only with a commitment'
        when is_available = false then 'sold out when last seen'
        when is_spot and cost_usd >= on_demand_cost_usd then 'spot would cost no less than on-demand'
    end as reason,
    reason is null as is_eligible,
    price_per_hour,
    currency,
    price_usd_per_hour,
    is_available,
    storage_survives_stop,
    has_ssh,
    has_docker,
    has_jupyter,
    has_persistent_storage,
    observed_at,
    epoch(make_timestamp(epoch_us(now())) - observed_at) / 3600 as age_hours,
    is_baseline,
    source_url as source,
    offer_id
from summed
