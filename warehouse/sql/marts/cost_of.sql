-- The bill of jobs on offers, component by component, likely and with its band.
-- grain: job, offer_id
-- units: USD; hours; GB; interruptions per hour
-- kept: macro(plans, jobs, offers)
-- The three name relations shaped like sizing.plans, seeds.jobs and staging.current_offers, so that
-- a custom job and a past night are costed by the very same statement as the reference jobs today.
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
        j.checkpoint_minutes / 60 as checkpoint_hours,
        -- Boot and image, then the base weights over a 1 Gbit/s line.
        0.1 as boot_hours,
        p.weights_download_gib * 1.073741824 / 0.125 / 3600 as fetch_hours,
        -- A save is written at 1 GiB/s after five seconds of gathering.
        (5 + p.checkpoint_gib) / 3600 as save_hours,
        j.dataset_gb
        + (p.weights_download_gib + 2 * p.checkpoint_gib + p.output_gib) * 1.073741824
            as stored_gb,
        j.dataset_gb + p.weights_download_gib * 1.073741824 as load_gb,
        p.output_gib * 1.073741824 as egress_gb
    from query_table(plans) as p
    inner join query_table(jobs) as j using (job)
    where p.fits
),

egress as (
    select
        t.provider,
        t.region,
        w.job,
        w.egress_gb,
        -- Beyond the last tier that is stated, the price is not known.
        case when w.egress_gb <= max(t.to_tier_gb) then sum(
            greatest(
                0,
                least(w.egress_gb, t.to_tier_gb) - greatest(t.from_tier_gb, t.free_gb_per_month)
            )
            * t.usd_per_gb
        ) end as egress_usd
    from (select distinct job, egress_gb from work) as w
    cross join staging.egress_tiers as t
    group by t.provider, t.region, w.job, w.egress_gb
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
        o.market = 'spot' as is_spot,
        known.provider is not null as is_rate_known,
        -- A machine that is ended after so many hours at most is interrupted at least so often.
        greatest(
            coalesce(known.interruptions_per_hour_low, any_.interruptions_per_hour_low),
            coalesce(1 / o.spot_max_lifetime_hours, 0)
        ) as rate_low,
        greatest(
            coalesce(known.interruptions_per_hour, any_.interruptions_per_hour), rate_low
        ) as rate,
        greatest(
            coalesce(known.interruptions_per_hour_high, any_.interruptions_per_hour_high), rate
        ) as rate_high,
        -- An unstated increment is taken as an hour, the dearest usual one.
        coalesce(o.billing_increment_seconds, 3600) as increment_seconds,
        case when o.minimum_applies is distinct from 'once'
            then coalesce(o.billing_minimum_seconds, 0) else 0
        end as start_minimum_seconds,
        greatest(
            case when o.minimum_applies = 'once'
                then coalesce(o.billing_minimum_seconds, 0) / 3600.0 else 0
            end,
            coalesce(o.minimum_rental_hours, 0)
        ) as least_hours,
        -- What a stop does; unsaid, it is taken to be billed in full.
        coalesce(o.stop_behaviour, 'full_rate') as stop_rule,
        -- Where a stopped machine is billed in full it is ended instead when that is cheaper: the
        -- data are loaded again, which takes fetch_hours on the clock.
        stop_rule = 'full_rate' and w.idle_hours <= (w.sessions - 1) * w.fetch_hours
            as is_kept_running,
        coalesce(o.storage_survives_stop, false)
        and stop_rule in ('storage_only', 'double_storage') as is_kept_stored,
        w.boot_hours + w.fetch_hours
        + (w.sessions - 1) * case
            when is_kept_running then 0
            when is_kept_stored then w.boot_hours
            else w.boot_hours + w.fetch_hours
        end as setup_hours,
        case
            when o.egress_usd_per_gb is not null then o.egress_usd_per_gb * w.egress_gb
            else e.egress_usd
        end as egress_usd,
        -- Where no price at all is stated: a dear hyperscaler's list.
        coalesce(pessimistic.storage_usd_per_gb_month, 0.25) as storage_guess,
        coalesce(pessimistic.egress_usd_per_gb, 0.12) as egress_guess,
        coalesce(pessimistic.ingress_usd_per_gb, 0.01) as ingress_guess
    from query_table(offers) as o
    inner join work as w on o.gpu = w.gpu and o.gpu_count = w.gpu_count
    cross join pessimistic
    left join egress as e
        on
            o.provider = e.provider and o.region = e.region
            and w.job = e.job and w.egress_gb = e.egress_gb
    left join seeds.spot_priors as known on o.provider = known.provider
    left join seeds.spot_priors as any_ on any_.provider = '*'
),

-- Run hours: what the clock shows beyond set-up. Spot adds the work redone since the last
-- checkpoint, at Young's interval, sqrt(2 x save time x mean time between interruptions).
held as (
    select
        *,
        least(hours, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate)))
            as checkpoint_interval_hours,
        boot_hours + fetch_hours as restart_hours,
        case
            when is_spot
                then marts.spot_hours(
                    hours, checkpoint_interval_hours, save_hours, rate, restart_hours
                )
            else hours
        end as run_hours,
        case
            when is_spot
                then marts.spot_hours(
                    hours_low,
                    least(hours_low, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate_low))),
                    save_hours, rate_low, restart_hours
                )
            else hours_low
        end as run_hours_low,
        case
            when is_spot
                then marts.spot_hours(
                    hours_high,
                    least(hours_high, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate_high))),
                    save_hours, rate_high, restart_hours
                )
            else hours_high
        end as run_hours_high
    from machines
),

priced as (
    select
        *,
        greatest(
            least_hours,
            marts.billed_hours(
                hours + setup_hours, sessions, start_minimum_seconds, increment_seconds
            )
        ) as billed_hours,
        billed_hours * price_usd_per_hour as compute_usd,
        -- Every interruption is one more start, whose rounding costs half an increment.
        case
            when is_spot
                then greatest(0, price_usd_per_hour * (
                    greatest(
                        least_hours,
                        marts.billed_hours(
                            run_hours + setup_hours, sessions, start_minimum_seconds,
                            increment_seconds
                        )
                    )
                    + rate * run_hours * increment_seconds / 7200
                ) - compute_usd)
            else 0
        end as spot_rework_usd,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours_low + setup_hours, sessions, start_minimum_seconds, increment_seconds
            )
        ) * price_usd_per_hour as running_usd_low,
        (
            greatest(
                least_hours,
                marts.billed_hours(
                    run_hours_high + setup_hours, sessions, start_minimum_seconds,
                    increment_seconds
                )
            )
            + case when is_spot then rate_high * run_hours_high * increment_seconds / 7200 else 0
            end
        ) * price_usd_per_hour as running_usd_high,
        case when is_kept_running then idle_hours * price_usd_per_hour else 0 end as idle_usd,
        -- Disk that comes with the machine is paid with it while it runs.
        stored_gb / 730 * (
            case
                when coalesce(local_disk_gib, 0) * 1.073741824 >= stored_gb then 0
                else run_hours + setup_hours
            end
            + keep_days * 24
        ) as storage_gb_months,
        case when is_kept_stored then stored_gb / 730 * idle_hours else 0 end
            as stopped_gb_months,
        storage_gb_months * storage_usd_per_gb_month
        + stopped_gb_months * coalesce(
            stopped_storage_usd_per_gb_month,
            storage_usd_per_gb_month * case stop_rule when 'double_storage' then 2 else 1 end
        ) as storage_usd,
        load_gb * case when is_kept_running or is_kept_stored then 1 else sessions end
            as ingress_gb,
        ingress_gb * ingress_usd_per_gb as ingress_usd
    from held
),

summed as (
    select
        *,
        case when storage_usd is null
            then (storage_gb_months + stopped_gb_months) * storage_guess else 0
        end
        + case when egress_usd is null then egress_gb * egress_guess else 0 end
        + case when ingress_usd is null then ingress_gb * ingress_guess else 0 end
            as assumed_usd,
        coalesce(storage_usd, 0) + coalesce(egress_usd, 0) + coalesce(ingress_usd, 0) + idle_usd
            as extras_usd,
        compute_usd + spot_rework_usd + extras_usd + assumed_usd as cost_usd,
        greatest(
            least_hours,
            marts.billed_hours(
                hours + setup_hours, sessions, start_minimum_seconds, increment_seconds
            )
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
    region_group,
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
    hours as train_hours,
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
    storage_gb_months + stopped_gb_months as storage_gb_months,
    egress_gb,
    ingress_gb,
    sessions,
    coalesce(stop_behaviour, 'not stated') as stop_behaviour,
    case when is_spot then rate_low end as interruptions_per_hour_low,
    case when is_spot then rate end as interruptions_per_hour,
    case when is_spot then rate_high end as interruptions_per_hour_high,
    case when is_spot then checkpoint_interval_hours end as checkpoint_interval_hours,
    case when is_spot then save_hours end as save_hours,
    case when is_spot then restart_hours end as restart_hours,
    list_filter(
        [
            case when billing_increment_seconds is null then 'billing increment' end,
            case when storage_usd_per_gb_month is null then 'storage price' end,
            case when egress_usd is null then 'egress price' end,
            case when ingress_usd_per_gb is null then 'ingress price' end,
            case when sessions > 1 and stop_behaviour is null then 'stop behaviour' end,
            case when is_spot and not is_rate_known then 'interruption rate' end
        ],
        lambda term: term is not null
    ) as unknown_terms,
    case
        when market in ('reserved', 'capacity_block') or commitment_required
            then 'sold only with a commitment'
        when is_available = false then 'sold out when last seen'
        when nodes > 1 and multi_node_fabric is null
            then 'needs several machines, and no fabric between them is stated'
        when is_spot and cost_usd >= on_demand_cost_usd
            then 'spot would cost no less than on-demand'
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
