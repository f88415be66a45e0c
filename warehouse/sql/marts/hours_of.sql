-- The hours and gigabytes on the bill of each job and class of offers: all that prices multiply.
-- grain: job, class_id, is_kept_running
-- units: hours; GB; GB-months of 730 hours; interruptions per hour; USD of traffic
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
        p.weight_dtype,
        p.optimizer,
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
        j.quant,
        j.framework,
        j.tokens,
        j.sessions,
        j.keep_days,
        j.idle_hours * (j.sessions - 1) as idle_hours,
        j.checkpoint_minutes / 60 as checkpoint_hours,
        j.behind_nat,
        -- Data and base weights come over a line of 1 Gbit/s.
        (j.dataset_gb + p.weights_download_gib * 1.073741824) / 0.125 / 3600 as fetch_hours,
        -- A save is written at 1 GiB/s after five seconds of gathering.
        (5 + p.checkpoint_gib) / 3600 as save_hours,
        p.checkpoint_gib * 1.073741824 as checkpoint_gb,
        p.checkpoint_gib * 1.073741824 / 0.125 / 3600 as reload_hours,
        -- A disk that outlived an interruption is read as fast as it is written.
        (p.weights_download_gib + p.checkpoint_gib) / 3600 as reread_hours,
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
        c.class_id,
        c.terms_id,
        c.on_demand_terms_id,
        c.is_spot,
        r.interruptions_per_hour_low,
        r.interruptions_per_hour,
        r.interruptions_per_hour_high,
        r.wait_hours_low,
        r.wait_hours,
        r.wait_hours_high,
        -- A machine that is ended after so many hours at most is interrupted at least so often.
        coalesce(1 / c.spot_max_lifetime_hours, 0) as least_rate,
        -- An increment that is not stated can be a second; the dearest usual one is an hour.
        coalesce(c.billing_increment_seconds, 1) as least_increment_seconds,
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
        -- A stop that nobody describes is taken to be billed in full, so nobody stops there.
        coalesce(
            c.storage_survives_stop and c.stop_behaviour in ('storage_only', 'double_storage'),
            false
        ) as is_kept_stored,
        -- Spot data lie on a disk of their own; where no such disk is stated, all is loaded again.
        coalesce(c.has_persistent_storage, c.storage_survives_stop, false) as is_disk_kept,
        c.spot_notice_seconds,
        c.egress_schedule_id,
        c.egress_included_gb_per_month
    from work as w
    inner join staging.offer_classes as c on w.gpu = c.gpu and w.gpu_count = c.gpu_count
    inner join seeds.spot_priors as r on c.spot_prior = r.provider
),

-- Several machines: gangs of four were really stopped 0.12 to 0.57 times an hour, about as often as
-- single ones, and gangs of sixteen 0.49 to 0.60 times: far less often than if each of them stopped
-- on its own.
rated as (
    select
        *,
        greatest(1, sqrt(nodes / 4)) as gang_factor,
        greatest(interruptions_per_hour_low, least_rate) as rate_low,
        greatest(interruptions_per_hour * gang_factor, least_rate) as rate,
        greatest(interruptions_per_hour_high * gang_factor, least_rate) as rate_high,
        -- Boot and image take 3 to 15 minutes, likely 6; the line gives 0.5 to 5 Gbit/s, likely 1.
        0.05 + fetch_hours / 5 as start_hours_low,
        0.1 + fetch_hours as start_hours,
        0.25 + fetch_hours * 2 as start_hours_high,
        -- What every further start takes: a stopped machine boots, an ended one loads it all again.
        case when is_kept_stored then 0.05 else start_hours_low + reload_hours / 5 end
            as resume_hours_low,
        case when is_kept_stored then 0.1 else start_hours + reload_hours end as resume_hours,
        case when is_kept_stored then 0.25 else start_hours_high + reload_hours * 2 end
            as resume_hours_high,
        -- What an interruption of spot takes.
        case when is_disk_kept then 0.05 + reread_hours else start_hours_low + reload_hours / 5 end
            as restart_hours_low,
        case when is_disk_kept then 0.1 + reread_hours else start_hours + reload_hours end
            as restart_hours,
        case when is_disk_kept then 0.25 + reread_hours else start_hours_high + reload_hours * 2 end
            as restart_hours_high
    from ruled
),

-- Between sessions a machine is kept running, or it is stopped or ended and started again: a row for
-- each way, of which the price of an offer decides.
ways as (
    select
        *,
        case when is_kept_running then 1 else sessions end as starts,
        case when is_kept_running then idle_hours else 0 end as idling_hours,
        start_hours_low + (starts - 1) * resume_hours_low as setup_hours_low,
        start_hours + (starts - 1) * resume_hours as setup_hours,
        start_hours_high + (starts - 1) * resume_hours_high as setup_hours_high
    from rated
    inner join (values (false), (true)) as way (is_kept_running) on sessions > 1 or not is_kept_running
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
            as interval_hours_high
    from ways
),

-- Run hours: what the clock shows beyond set-up. Spot adds the work redone since the last
-- checkpoint.
timed as (
    select
        *,
        case
            -- A run that saves within the notice loses no work, at best: it only starts again.
            when is_spot and save_hours * 3600 <= spot_notice_seconds
                then (hours_low + ceil(hours_low / interval_hours_low) * save_hours)
                * (1 + rate_low * restart_hours_low)
            when is_spot
                then marts.spot_hours(
                    hours_low, interval_hours_low, save_hours, rate_low, restart_hours_low
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
                    hours_high, interval_hours_high, save_hours, rate_high, restart_hours_high
                )
            else hours_high
        end as run_hours_high
    from saved
),

-- How often a run is interrupted: what spot_hours says, without the hours of each time.
interrupted as (
    select
        *,
        case when is_spot then run_hours_low / (1 / rate_low + restart_hours_low) else 0 end
            as interruptions_low,
        case when is_spot then run_hours / (1 / rate + restart_hours) else 0 end as interruptions,
        case when is_spot then run_hours_high / (1 / rate_high + restart_hours_high) else 0 end
            as interruptions_high
    from timed
),

-- Idle hours of a machine that is kept running are rounded with its run, and shown apart. Every
-- interruption is one more start, whose rounding costs half an increment.
billed as (
    select
        *,
        greatest(
            least_hours,
            marts.billed_hours(
                hours + setup_hours, starts, minimum_seconds, least_increment_seconds
            )
        ) as billed_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                hours + setup_hours + idling_hours, starts, minimum_seconds,
                least_increment_seconds
            )
        ) - billed_hours as billed_idle_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours_low + setup_hours_low + idling_hours, starts, minimum_seconds,
                least_increment_seconds
            )
        ) as paid_hours_low,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours + setup_hours + idling_hours, starts, minimum_seconds,
                least_increment_seconds
            )
        ) + interruptions * least_increment_seconds / 7200 as paid_hours,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours + setup_hours + idling_hours, starts, minimum_seconds, increment_seconds
            )
        ) + interruptions * increment_seconds / 7200 as paid_hours_assumed,
        greatest(
            least_hours,
            marts.billed_hours(
                run_hours_high + setup_hours_high + idling_hours, starts, minimum_seconds,
                increment_seconds
            )
        )
        + interruptions_high * increment_seconds / 7200 as paid_hours_high
    from interrupted
),

-- What moves: the result out, beyond what the machine's own allowance earned by the hour.
moved as (
    select
        *,
        (run_hours + setup_hours + idling_hours) / 730 as running_months,
        load_gb * case when is_kept_running or is_kept_stored then 1 else sessions end
        + case when is_spot and not is_disk_kept then interruptions * (load_gb + checkpoint_gb)
            else 0
        end as ingress_gb,
        greatest(0, out_gb - coalesce(egress_included_gb_per_month, 0) * running_months * nodes)
            as billed_egress_gb
    from billed
),

-- What that costs by the tiers of each schedule.
traffic as (
    select
        m.job,
        m.class_id,
        m.is_kept_running,
        -- Beyond the last tier that is stated, the price is not known.
        case when any_value(m.billed_egress_gb) <= max(t.to_tier_gb) then sum(
            greatest(
                0,
                least(m.billed_egress_gb, t.to_tier_gb)
                - greatest(t.from_tier_gb, t.free_gb_per_month)
            )
            * t.usd_per_gb
        ) end as tiered_egress_usd
    from moved as m
    inner join (
        select distinct schedule_id, from_tier_gb, to_tier_gb, usd_per_gb, free_gb_per_month
        from staging.egress_tiers
    ) as t on m.egress_schedule_id = t.schedule_id
    group by m.job, m.class_id, m.is_kept_running
),

hours_billed as materialized (
    select
        b.job,
        b.class_id,
        b.terms_id,
        b.on_demand_terms_id,
        b.title,
        b.model,
        b.method,
        b.quant,
        b.framework,
        b.optimizer,
        b.weight_dtype,
        b.tokens,
        b.nodes,
        b.sharding,
        b.micro_batch,
        b.grad_checkpointing,
        b.vram_needed_gib,
        b.vram_usable_gib,
        b.bound_by,
        b.tokens_per_s,
        b.is_spot,
        b.sessions,
        b.starts,
        b.is_kept_running,
        b.idle_hours,
        b.hours_low as train_hours_low,
        b.hours as train_hours,
        b.hours_high as train_hours_high,
        b.setup_hours_low,
        b.setup_hours,
        b.setup_hours_high,
        b.run_hours_low + b.setup_hours_low as hours_low,
        b.run_hours + b.setup_hours as hours,
        b.run_hours_high + b.setup_hours_high as hours_high,
        -- Until capacity is there again after an interruption nothing is billed, but time goes by.
        case when b.is_spot then b.wait_hours_low end as wait_hours_low,
        case when b.is_spot then b.wait_hours end as wait_hours,
        case when b.is_spot then b.wait_hours_high end as wait_hours_high,
        b.run_hours_low + b.setup_hours_low + b.idle_hours + b.interruptions_low * b.wait_hours_low
            as elapsed_hours_low,
        b.run_hours + b.setup_hours + b.idle_hours + b.interruptions * b.wait_hours as elapsed_hours,
        b.run_hours_high + b.setup_hours_high + b.idle_hours
        + b.interruptions_high * b.wait_hours_high as elapsed_hours_high,
        b.billed_hours,
        b.billed_idle_hours,
        case when b.is_spot then greatest(0, b.paid_hours - b.billed_hours - b.billed_idle_hours) else 0
        end as rework_hours,
        greatest(0, b.paid_hours_assumed - b.paid_hours) as assumed_hours,
        b.paid_hours_low * b.nodes as machine_hours_low,
        (
            greatest(b.paid_hours, b.billed_hours + b.billed_idle_hours)
            + greatest(0, b.paid_hours_assumed - b.paid_hours)
        ) * b.nodes as machine_hours,
        b.paid_hours_high * b.nodes as machine_hours_high,
        b.stored_gb,
        -- What a stop or an interruption must not take away cannot lie on the machine's own disk.
        b.is_spot or (b.starts > 1 and b.is_kept_stored) as is_disk_apart,
        -- The disk of a spot machine is paid while it waits, too.
        b.running_months + b.interruptions * b.wait_hours / 730 as disk_months,
        -- Between the starts of a machine that is ended, the checkpoint is kept elsewhere.
        (
            b.stored_gb * b.keep_days * 24
            + case
                when b.starts > 1 and not b.is_kept_stored then b.checkpoint_gb * b.idle_hours else 0
            end
        ) / 730 as kept_gb_months,
        -- A bucket that has a least price is paid by started months.
        ceil(b.keep_days * 24 / 730) as kept_months,
        case when b.starts > 1 and b.is_kept_stored then b.stored_gb * b.idle_hours / 730 else 0 end
            as stopped_gb_months,
        b.ingress_gb,
        b.out_gb as egress_gb,
        b.billed_egress_gb,
        t.tiered_egress_usd,
        -- Behind a NAT gateway all traffic is paid once more, and the gateway by the started hour.
        b.behind_nat,
        case when b.behind_nat then b.ingress_gb + b.out_gb else 0 end as nat_gb,
        case
            when b.behind_nat
                then marts.billed_hours(
                    b.run_hours + b.setup_hours + b.idling_hours, b.starts, 0, 3600
                )
            else 0
        end as nat_hours,
        case when b.is_spot then b.rate_low end as interruptions_per_hour_low,
        case when b.is_spot then b.rate end as interruptions_per_hour,
        case when b.is_spot then b.rate_high end as interruptions_per_hour_high,
        case when b.is_spot then b.checkpoint_interval_hours end as checkpoint_interval_hours,
        case when b.is_spot then b.save_hours end as save_hours,
        case when b.is_spot then b.restart_hours end as restart_hours
    from moved as b
    left join traffic as t using (job, class_id, is_kept_running)
)

select
    h.* exclude (terms_id, on_demand_terms_id),
    -- The other way between sessions.
    other.machine_hours as other_machine_hours,
    other.disk_months as other_disk_months,
    other.is_disk_apart as other_is_disk_apart,
    other.stopped_gb_months as other_stopped_gb_months,
    other.kept_gb_months as other_kept_gb_months,
    other.ingress_gb as other_ingress_gb,
    other.nat_gb as other_nat_gb,
    other.nat_hours as other_nat_hours,
    -- The same machine on demand, stopped between sessions or kept running.
    stopped.machine_hours as on_demand_machine_hours,
    stopped.disk_months as on_demand_disk_months,
    stopped.is_disk_apart as on_demand_is_disk_apart,
    stopped.stopped_gb_months as on_demand_stopped_gb_months,
    stopped.kept_gb_months as on_demand_kept_gb_months,
    stopped.ingress_gb as on_demand_ingress_gb,
    stopped.nat_gb as on_demand_nat_gb,
    stopped.nat_hours as on_demand_nat_hours,
    kept.machine_hours as on_demand_running_machine_hours,
    kept.disk_months as on_demand_running_disk_months,
    kept.kept_gb_months as on_demand_running_kept_gb_months,
    kept.ingress_gb as on_demand_running_ingress_gb,
    kept.nat_gb as on_demand_running_nat_gb,
    kept.nat_hours as on_demand_running_nat_hours
from hours_billed as h
left join hours_billed as other
    on h.job = other.job and h.class_id = other.class_id
    and h.is_kept_running <> other.is_kept_running
left join hours_billed as stopped
    on h.job = stopped.job and h.on_demand_terms_id = stopped.terms_id
    and stopped.on_demand_terms_id is null and not stopped.is_kept_running
left join hours_billed as kept
    on h.job = kept.job and h.on_demand_terms_id = kept.terms_id
    and kept.on_demand_terms_id is null and kept.is_kept_running
