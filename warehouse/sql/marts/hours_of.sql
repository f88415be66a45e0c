-- The hours and gigabytes on the bill of each job and class of offers: all that prices multiply.
-- grain: job, class_id
-- units: hours; GB; GB-months of 730 hours; interruptions per hour
-- kept: macro(plans, jobs)
with work as (
    select
        p.job,
        p.gpu,
        p.gpu_count,
        p.nodes,
        p.sharding,
        p.micro_batch,
        p.grad_checkpointing,
        p.vram_needed_gib,
        p.vram_usable_gib,
        p.bound_by,
        p.tokens_per_s,
        p.hours_low,
        p.hours,
        p.hours_high,
        j.title,
        j.model,
        j.method,
        j.tokens,
        j.sessions,
        j.keep_days,
        j.idle_hours * (j.sessions - 1) as idle_hours,
        j.checkpoint_minutes / 60 as checkpoint_hours,
        -- Boot and image, then data and base weights over a 1 Gbit/s line.
        0.1 as boot_hours,
        (j.dataset_gb + p.weights_download_gib * 1.073741824) / 0.125 / 3600 as fetch_hours,
        -- A save is written at 1 GiB/s after five seconds of gathering.
        (5 + p.checkpoint_gib) / 3600 as save_hours,
        p.checkpoint_gib * 1.073741824 as checkpoint_gb,
        p.checkpoint_gib * 1.073741824 / 0.125 / 3600 as reload_hours,
        j.dataset_gb
        + (p.weights_download_gib + 2 * p.checkpoint_gib + p.output_gib) * 1.073741824
            as stored_gb,
        j.dataset_gb + p.weights_download_gib * 1.073741824 as load_gb,
        p.output_gib * 1.073741824 as out_gb
    from query_table(plans) as p
    inner join query_table(jobs) as j using (job)
    where p.fits
),

-- What the class states, with the pessimistic side where it states nothing.
ruled as (
    select
        w.*,
        w.boot_hours + w.fetch_hours as restart_hours,
        c.class_id,
        c.is_spot,
        r.interruptions_per_hour_low,
        r.interruptions_per_hour,
        r.interruptions_per_hour_high,
        -- A machine that is ended after so many hours at most is interrupted at least so often.
        coalesce(1 / c.spot_max_lifetime_hours, 0) as least_rate,
        -- An unstated increment is taken as an hour, the dearest usual one.
        coalesce(c.billing_increment_seconds, 3600) as increment_seconds,
        case when c.minimum_applies is distinct from 'once'
            then coalesce(c.billing_minimum_seconds, 0) else 0
        end as minimum_seconds,
        greatest(
            case when c.minimum_applies = 'once'
                then coalesce(c.billing_minimum_seconds, 0) / 3600 else 0
            end,
            coalesce(c.minimum_rental_hours, 0)
        ) as least_hours,
        -- What a stop does; unsaid, it is taken to be billed in full.
        coalesce(c.stop_behaviour, 'full_rate') as stop_rule,
        coalesce(c.storage_survives_stop, false)
        and c.stop_behaviour in ('storage_only', 'double_storage') as is_kept_stored
    from work as w
    inner join staging.offer_classes as c on w.gpu = c.gpu and w.gpu_count = c.gpu_count
    inner join seeds.spot_priors as r on c.spot_prior = r.provider
),

-- Several machines: of independent ones each can be the one that stops, the pessimistic end; gangs
-- of four were really stopped no oftener than single machines, which larger ones are made of.
rated as (
    select
        *,
        greatest(interruptions_per_hour_low, least_rate) as rate_low,
        greatest(
            interruptions_per_hour * greatest(1, nodes / 4), interruptions_per_hour_low, least_rate
        ) as rate,
        greatest(interruptions_per_hour_high * nodes, rate, least_rate) as rate_high,
        marts.billed_hours(
            hours + restart_hours + idle_hours, 1, minimum_seconds, increment_seconds
        ) as kept_running_hours,
        -- What every further start takes: a stopped machine boots, an ended one loads it all again.
        case when is_kept_stored then boot_hours else restart_hours + reload_hours end
            as resume_hours,
        marts.billed_hours(
            hours + restart_hours + (sessions - 1) * resume_hours, sessions, minimum_seconds,
            increment_seconds
        ) as stopping_hours
    from ruled
),

-- A machine is kept running through gaps that cost less than stopping and starting again.
stopped as (
    select *, sessions > 1 and kept_running_hours <= stopping_hours as is_kept_running
    from rated
),

-- A checkpoint at Young's interval, sqrt(2 x save time x mean time between interruptions).
saved as (
    select
        *,
        least(hours_low, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate_low)))
            as interval_hours_low,
        least(hours, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate)))
            as checkpoint_interval_hours,
        least(hours_high, coalesce(checkpoint_hours, sqrt(2 * save_hours / rate_high)))
            as interval_hours_high,
        restart_hours + case when is_kept_running then 0 else (sessions - 1) * resume_hours end
            as setup_hours,
        case when is_kept_running then 1 else sessions end as starts,
        case when is_kept_running then idle_hours else 0 end as idling_hours
    from stopped
),

-- Run hours: what the clock shows beyond set-up. Spot adds the work redone since the last
-- checkpoint.
timed as (
    select
        *,
        case
            when is_spot
                then marts.spot_hours(
                    hours_low, interval_hours_low, save_hours, rate_low, restart_hours
                )
            else hours_low
        end as run_hours_low,
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
                    hours_high, interval_hours_high, save_hours, rate_high, restart_hours
                )
            else hours_high
        end as run_hours_high
    from saved
),

-- Idle hours of a machine that is kept running are rounded with its run, and shown apart.
billed as (
    select
        *,
        greatest(
            least_hours,
            marts.billed_hours(hours + setup_hours, starts, minimum_seconds, increment_seconds)
        ) as billed_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                hours + setup_hours + idling_hours, starts, minimum_seconds, increment_seconds
            )
        ) - billed_hours as billed_idle_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours_low + setup_hours + idling_hours, starts, minimum_seconds,
                increment_seconds
            )
        ) as billed_run_hours_low,
        -- Every interruption is one more start, whose rounding costs half an increment.
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours + setup_hours + idling_hours, starts, minimum_seconds, increment_seconds
            )
        )
        + case when is_spot then rate * run_hours * increment_seconds / 7200 else 0 end
            as billed_run_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours_high + setup_hours + idling_hours, starts, minimum_seconds,
                increment_seconds
            )
        )
        + case when is_spot then rate_high * run_hours_high * increment_seconds / 7200 else 0 end
            as billed_run_hours_high
    from timed
)

select
    job,
    class_id,
    title,
    model,
    method,
    tokens,
    nodes,
    sharding,
    micro_batch,
    grad_checkpointing,
    vram_needed_gib,
    vram_usable_gib,
    bound_by,
    tokens_per_s,
    is_spot,
    sessions,
    starts,
    is_kept_running,
    idle_hours,
    hours_low as train_hours_low,
    hours as train_hours,
    hours_high as train_hours_high,
    setup_hours,
    run_hours_low + setup_hours as hours_low,
    run_hours + setup_hours as hours,
    run_hours_high + setup_hours as hours_high,
    billed_hours,
    billed_run_hours_low - billed_idle_hours as billed_run_hours_low,
    billed_run_hours - billed_idle_hours as billed_run_hours,
    billed_run_hours_high - billed_idle_hours as billed_run_hours_high,
    billed_idle_hours,
    stored_gb,
    -- What a stop or an interruption must not take away cannot lie on the machine's own disk.
    is_spot or (starts > 1 and is_kept_stored) as is_disk_apart,
    stored_gb * (run_hours + setup_hours + idling_hours) / 730 as running_gb_months,
    -- Between the starts of a machine that is ended, the checkpoint is kept elsewhere.
    (
        stored_gb * keep_days * 24
        + case when starts > 1 and not is_kept_stored then checkpoint_gb * idle_hours else 0 end
    ) / 730 as kept_gb_months,
    case when starts > 1 and is_kept_stored then stored_gb * idle_hours / 730 else 0 end
        as stopped_gb_months,
    case stop_rule when 'double_storage' then 2 else 1 end as stopped_price_factor,
    load_gb * case when is_kept_running or is_kept_stored then 1 else sessions end as ingress_gb,
    out_gb as egress_gb,
    case when is_spot then rate_low end as interruptions_per_hour_low,
    case when is_spot then rate end as interruptions_per_hour,
    case when is_spot then rate_high end as interruptions_per_hour_high,
    case when is_spot then checkpoint_interval_hours end as checkpoint_interval_hours,
    case when is_spot then save_hours end as save_hours,
    case when is_spot then restart_hours end as restart_hours
from billed
