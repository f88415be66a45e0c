-- The offers worth naming for each job: cheapest, fastest, uninterrupted, per region, older card.
-- grain: job, choice, region_group
-- units: USD; hours; ratio to the cheapest offer on the newest accelerators
with costs as (
    select
        c.*,
        g.released_year,
        g.vram_gb,
        -- The newest of what data centres are built with; a workstation card may be younger.
        max(case when g.gpu_class = 'datacenter-hbm' then g.released_year end)
            over (partition by c.job) as newest_year,
        g.gpu_class
    from marts.cost_per_job as c
    inner join seeds.gpus as g using (gpu)
    where c.is_eligible
),

newest as (
    select job, min(cost_usd) as newest_cost_usd, min_by(gpu, cost_usd) as newest_gpu
    from costs
    where released_year = newest_year and gpu_class = 'datacenter-hbm'
    group by job
),

choices as (
    select 'cheapest' as choice, null as for_region, costs.*, cost_usd as rank_by
    from costs
    union all
    select 'fastest' as choice, null as for_region, costs.*, elapsed_hours as rank_by
    from costs
    union all
    select 'cheapest without interruption' as choice, null as for_region, costs.*,
        cost_usd as rank_by
    from costs
    where market = 'on_demand'
    union all
    select 'cheapest in region' as choice, region_group as for_region, costs.*, cost_usd as rank_by
    from costs
    where region_group is not null
    union all
    -- A card of an earlier generation with memory for large models: at least four years behind.
    select 'best older high-VRAM card' as choice, null as for_region, costs.*, cost_usd as rank_by
    from costs
    where released_year <= newest_year - 4 and vram_gb >= 40
)

select
    choices.job,
    choices.choice,
    choices.for_region as region_group,
    choices.provider,
    choices.sku,
    choices.region,
    choices.market,
    choices.tier,
    choices.gpu,
    choices.gpu_count,
    choices.released_year,
    choices.hours,
    choices.cost_usd_low,
    choices.cost_usd,
    choices.cost_usd_high,
    choices.cost_usd / newest.newest_cost_usd as cost_to_newest_ratio,
    newest.newest_gpu,
    choices.unknown_terms,
    choices.observed_at,
    choices.is_baseline,
    choices.source,
    choices.offer_id
from choices
left join newest using (job)
qualify
    row_number() over (
        partition by choices.job, choices.choice, choices.for_region
        order by choices.rank_by, choices.cost_usd, choices.offer_id
    ) = 1
