-- The bill of jobs on offers, component by component, likely and with its band.
-- grain: job, offer_id
-- units: USD; hours; GB; interruptions per hour
-- kept: macro(hours_relation, offers_relation)
-- The two name relations shaped like marts.job_hours and staging.current_offers, so that a custom
-- job and a past night are costed by the same statement as the reference jobs.
-- What depends on the offer alone: a price that is not stated is taken at the pessimistic side.
with offers as (
    select
        o.*,
        g.*,
        coalesce(o.storage_usd_per_gb_month, g.storage_guess) as disk_price,
        coalesce(o.stopped_usd_per_gb_month, g.storage_guess) as stopped_price,
        coalesce(o.kept_usd_per_gb_month, g.storage_guess) as kept_price,
        -- A bucket can have a least price a month.
        coalesce(o.kept_minimum_usd_per_month, 0) as least_kept_price,
        coalesce(o.ingress_usd_per_gb, g.ingress_guess) as ingress_price,
        coalesce(o.nat_usd_per_gb, g.nat_gb_guess) as nat_gb_price,
        coalesce(o.nat_usd_per_hour, g.nat_hour_guess) as nat_hour_price,
        coalesce(o.included_disk_gb, 0) as own_disk_gb,
        coalesce(o.asked_at, make_timestamp(epoch_us(now()))) as moment,
        staging.is_in_force(o.effective_at, o.expires_at, moment) as is_in_force,
        epoch(o.expires_at - moment) / 3600 as hours_left
    from query_table(offers_relation) as o
    cross join staging.price_guesses as g
),

bills as (
    select
        h.*,
        o.* exclude (class_id),
        h.nodes * o.price_usd_per_hour as usd_per_hour,
        -- Disk that comes with the machine is paid with it while it runs.
        h.disk_months
        * greatest(0, h.stored_gb - case when h.is_disk_apart then 0 else o.own_disk_gb end)
            as disk_gb_months,
        coalesce(o.egress_usd_per_gb * h.billed_egress_gb, h.tiered_egress_usd) as egress_usd,
        h.ingress_gb * o.ingress_usd_per_gb as ingress_usd,
        case
            when h.behind_nat
                then h.nat_gb * o.nat_usd_per_gb + h.nat_hours * o.nat_usd_per_hour
            else 0
        end as nat_usd,
        -- What is stated, and how much storage nobody prices.
        disk_gb_months * coalesce(o.storage_usd_per_gb_month, 0)
        + h.stopped_gb_months * coalesce(o.stopped_usd_per_gb_month, 0)
        + greatest(
            h.kept_gb_months * coalesce(o.kept_usd_per_gb_month, 0),
            h.kept_months * o.least_kept_price
        ) as priced_storage_usd,
        case when o.storage_usd_per_gb_month is null then disk_gb_months else 0 end
        + case when o.stopped_usd_per_gb_month is null then h.stopped_gb_months else 0 end
        + case when o.kept_usd_per_gb_month is null then h.kept_gb_months else 0 end
            as unpriced_gb_months,
        coalesce(egress_usd, h.billed_egress_gb * o.egress_guess) as likely_egress_usd,
        h.machine_hours * o.price_usd_per_hour
        + disk_gb_months * o.disk_price
        + h.stopped_gb_months * o.stopped_price
        + greatest(h.kept_gb_months * o.kept_price, h.kept_months * o.least_kept_price)
        + likely_egress_usd
        + h.ingress_gb * o.ingress_price
        + h.nat_gb * o.nat_gb_price + h.nat_hours * o.nat_hour_price as cost_usd,
        -- The same between sessions the other way: kept running, or stopped.
        h.other_machine_hours * o.price_usd_per_hour
        + h.other_disk_months
        * greatest(0, h.stored_gb - case when h.other_is_disk_apart then 0 else o.own_disk_gb end)
        * o.disk_price
        + h.other_stopped_gb_months * o.stopped_price
        + greatest(h.other_kept_gb_months * o.kept_price, h.kept_months * o.least_kept_price)
        + likely_egress_usd
        + h.other_ingress_gb * o.ingress_price
        + h.other_nat_gb * o.nat_gb_price + h.other_nat_hours * o.nat_hour_price
            as other_way_cost_usd,
        -- The same machine on demand, as that is billed: spot that costs no less is never worth it.
        least(
            h.on_demand_machine_hours * o.on_demand_usd_per_hour
            + h.on_demand_disk_months
            * greatest(
                0, h.stored_gb - case when h.on_demand_is_disk_apart then 0 else o.own_disk_gb end
            )
            * o.disk_price
            + h.on_demand_stopped_gb_months * o.stopped_price
            + greatest(
                h.on_demand_kept_gb_months * o.kept_price, h.kept_months * o.least_kept_price
            )
            + h.on_demand_ingress_gb * o.ingress_price
            + h.on_demand_nat_gb * o.nat_gb_price + h.on_demand_nat_hours * o.nat_hour_price,
            h.on_demand_running_machine_hours * o.on_demand_usd_per_hour
            + h.on_demand_running_disk_months * greatest(0, h.stored_gb - o.own_disk_gb)
            * o.disk_price
            + greatest(
                h.on_demand_running_kept_gb_months * o.kept_price,
                h.kept_months * o.least_kept_price
            )
            + h.on_demand_running_ingress_gb * o.ingress_price
            + h.on_demand_running_nat_gb * o.nat_gb_price
            + h.on_demand_running_nat_hours * o.nat_hour_price
        ) + likely_egress_usd as on_demand_cost_usd,
        not h.is_spot or coalesce(cost_usd < on_demand_cost_usd, true) as is_spot_worth_it,
        o.hours_left is null or h.elapsed_hours < o.hours_left as is_long_enough,
        -- The plans take 200 Gbit/s per GPU between machines (warehouse/sizing/plans.py).
        h.nodes <= 1
        or (
            o.multi_node_fabric is not null
            and coalesce(o.multi_node_gbit_per_second >= 200 * o.gpu_count, true)
        ) as is_joined
    from offers as o
    inner join query_table(hours_relation) as h on o.class_id = h.class_id
)

select
    job,
    title,
    model,
    method,
    quant,
    framework,
    optimizer,
    weight_dtype,
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
    elapsed_hours_low,
    elapsed_hours,
    elapsed_hours_high,
    setup_hours_low,
    setup_hours,
    setup_hours_high,
    train_hours_low,
    train_hours,
    train_hours_high,
    billed_hours,
    least(
        cost_usd,
        machine_hours_low * price_usd_per_hour
        + priced_storage_usd
        + coalesce(egress_usd, 0) + coalesce(ingress_usd, 0) + coalesce(nat_usd, 0)
    ) as cost_usd_low,
    cost_usd,
    greatest(cost_usd, cost_usd + (machine_hours_high - machine_hours) * price_usd_per_hour) as cost_usd_high,
    billed_hours * usd_per_hour as compute_usd,
    rework_hours * usd_per_hour as spot_rework_usd,
    billed_idle_hours * usd_per_hour as idle_usd,
    case
        when unpriced_gb_months = 0
            or unpriced_gb_months < disk_gb_months + stopped_gb_months + kept_gb_months
            then priced_storage_usd
    end as storage_usd,
    egress_usd + ingress_usd + nat_usd as transfer_usd,
    egress_usd,
    ingress_usd,
    nat_usd,
    assumed_hours * usd_per_hour
    + unpriced_gb_months * storage_guess
    + case when egress_usd is null then billed_egress_gb * egress_guess else 0 end
    + case when ingress_usd is null then ingress_gb * ingress_guess else 0 end
    + case when nat_usd is null then nat_gb * nat_gb_price + nat_hours * nat_hour_price else 0 end
        as assumed_usd,
    assumed_hours,
    is_disk_apart,
    disk_gb_months,
    stopped_gb_months,
    kept_gb_months,
    storage_usd_per_gb_month,
    stopped_usd_per_gb_month,
    kept_usd_per_gb_month,
    kept_minimum_usd_per_month,
    kept_months,
    egress_gb,
    billed_egress_gb,
    ingress_gb,
    behind_nat,
    nat_gb,
    nat_hours,
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
    wait_hours_low,
    wait_hours,
    wait_hours_high,
    list_filter(
        [
            case when billing_increment_seconds is null then 'billing increment' end,
            case when unpriced_gb_months > 0 then 'storage price' end,
            case when egress_usd is null then 'egress price' end,
            case when ingress_usd_per_gb is null then 'ingress price' end,
            case when nat_usd is null then 'NAT price' end,
            case when sessions > 1 and stop_behaviour is null then 'stop behaviour' end,
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
        when not is_long_enough then 'the offer ends before the job does'
        when nodes > 1 and multi_node_fabric is null
            then 'needs several machines, and no fabric between them is stated'
        when not is_joined then 'needs several machines, and the network between them is too slow'
        when not is_spot_worth_it then 'spot would cost no less than on-demand'
    end as reason,
    -- Cost of the same machine on demand; NULL for other markets than spot.
    on_demand_cost_usd,
    is_rentable
    and is_in_force
    and price_usd_per_hour is not null
    and is_long_enough
    and is_joined
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
from bills
-- Of the two ways between sessions the cheaper; of equal ones the machine runs on.
where
    other_machine_hours is null
    or coalesce(
        cost_usd < other_way_cost_usd or (cost_usd = other_way_cost_usd and is_kept_running),
        not is_kept_running
    )
