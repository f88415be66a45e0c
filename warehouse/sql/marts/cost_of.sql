-- The bill of jobs on offers, component by component, likely and with its band.
-- grain: job, offer_id
-- units: USD; hours; GB; interruptions per hour
-- kept: macro(hours_relation, egress_relation, offers_relation)
-- The three name relations shaped like marts.job_hours, marts.job_egress and staging.current_offers,
-- so that a custom job and a past night are costed by the same statement as the reference jobs.
with components as (
    select
        h.*,
        o.* exclude (class_id),
        h.nodes * o.price_usd_per_hour as usd_per_hour,
        h.billed_hours * h.nodes * o.price_usd_per_hour as compute_usd,
        greatest(0, h.billed_run_hours - h.billed_hours) * h.nodes * o.price_usd_per_hour
            as spot_rework_usd,
        h.billed_idle_hours * h.nodes * o.price_usd_per_hour as idle_usd,
        -- Disk that comes with the machine is paid with it while it runs.
        h.running_gb_months
        * case
            when h.is_disk_apart then 1
            else greatest(0, 1 - coalesce(o.included_disk_gb, 0) / h.stored_gb)
        end as disk_gb_months,
        coalesce(
            o.stopped_storage_usd_per_gb_month, o.storage_usd_per_gb_month * h.stopped_price_factor
        ) as stopped_usd_per_gb_month,
        coalesce(o.egress_usd_per_gb * h.egress_gb, e.tiered_usd) as egress_usd,
        h.ingress_gb * o.ingress_usd_per_gb as ingress_usd,
        g.storage_guess,
        g.egress_guess,
        g.ingress_guess,
        coalesce(o.asked_at, make_timestamp(epoch_us(now()))) as moment
    from query_table(offers_relation) as o
    inner join query_table(hours_relation) as h on o.class_id = h.class_id
    cross join staging.price_guesses as g
    left join query_table(egress_relation) as e on o.place_id = e.place_id and h.job = e.job
),

stored as (
    select
        *,
        -- What is not stored needs no price; what has none is assumed, the rest is not.
        case when storage_usd_per_gb_month is null then disk_gb_months else 0 end
        + case when stopped_usd_per_gb_month is null then stopped_gb_months else 0 end
        + case when kept_usd_per_gb_month is null then kept_gb_months else 0 end
            as unpriced_gb_months,
        case
            when unpriced_gb_months < disk_gb_months + stopped_gb_months + kept_gb_months
                or unpriced_gb_months = 0
                then disk_gb_months * coalesce(storage_usd_per_gb_month, 0)
                + stopped_gb_months * coalesce(stopped_usd_per_gb_month, 0)
                + kept_gb_months * coalesce(kept_usd_per_gb_month, 0)
        end as storage_usd,
        -- Spot that costs no less than the same machine on demand is never worth its stops.
        not is_spot
        or on_demand_usd_per_hour is null
        or billed_run_hours * price_usd_per_hour < billed_hours * on_demand_usd_per_hour
            as is_spot_worth_it,
        coalesce(expires_at > moment, true) and coalesce(effective_at <= moment, true)
            as is_in_force
    from components
),

assumed as (
    select
        *,
        -- What is not stated is taken at the pessimistic side, and shown.
        unpriced_gb_months * storage_guess
        + case when egress_usd is null then egress_gb * egress_guess else 0 end
        + case when ingress_usd is null then ingress_gb * ingress_guess else 0 end
            as assumed_usd,
        coalesce(storage_usd, 0) + coalesce(egress_usd, 0) + coalesce(ingress_usd, 0)
            as stated_extras_usd
    from stored
),

summed as (
    select
        *,
        compute_usd + spot_rework_usd + idle_usd + stated_extras_usd + assumed_usd as cost_usd
    from assumed
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
    nodes,
    gpu_label,
    interconnect,
    sharding,
    micro_batch,
    grad_checkpointing,
    vram_needed_gib,
    vram_usable_gib,
    bound_by,
    tokens_per_s,
    hours_low,
    hours,
    hours_high,
    setup_hours,
    train_hours_low,
    train_hours,
    train_hours_high,
    billed_hours,
    least(
        cost_usd,
        (billed_run_hours_low + billed_idle_hours) * usd_per_hour + stated_extras_usd
    ) as cost_usd_low,
    cost_usd,
    greatest(
        cost_usd,
        (billed_run_hours_high + billed_idle_hours) * usd_per_hour
        + stated_extras_usd + assumed_usd
    ) as cost_usd_high,
    compute_usd,
    spot_rework_usd,
    idle_usd,
    storage_usd,
    egress_usd + ingress_usd as transfer_usd,
    egress_usd,
    ingress_usd,
    assumed_usd,
    is_disk_apart,
    disk_gb_months,
    stopped_gb_months,
    kept_gb_months,
    storage_usd_per_gb_month,
    stopped_usd_per_gb_month,
    kept_usd_per_gb_month,
    egress_gb,
    ingress_gb,
    sessions,
    starts,
    is_kept_running,
    idle_hours,
    coalesce(stop_behaviour, 'not stated') as stop_behaviour,
    interruptions_per_hour_low,
    interruptions_per_hour,
    interruptions_per_hour_high,
    checkpoint_interval_hours,
    save_hours,
    restart_hours,
    list_filter(
        [
            case when billing_increment_seconds is null then 'billing increment' end,
            case when unpriced_gb_months > 0 then 'storage price' end,
            case when egress_usd is null then 'egress price' end,
            case when ingress_usd_per_gb is null then 'ingress price' end,
            case when starts > 1 and stop_behaviour is null then 'stop behaviour' end,
            case when is_spot and spot_prior = '*' then 'interruption rate' end
        ],
        lambda term: term is not null
    ) as unknown_terms,
    case
        when market in ('reserved', 'capacity_block') or commitment_required
            then 'sold only with a commitment'
        when not is_available then 'sold out when last seen'
        when price_usd_per_hour is null then 'no exchange rate for its currency'
        when not is_in_force then 'the offer has ended, or has not begun'
        when nodes > 1 and multi_node_fabric is null
            then 'needs several machines, and no fabric between them is stated'
        when not is_spot_worth_it then 'spot would cost no less than on-demand'
    end as reason,
    is_rentable
    and is_in_force
    and price_usd_per_hour is not null
    and (nodes <= 1 or multi_node_fabric is not null)
    and is_spot_worth_it as is_eligible,
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
