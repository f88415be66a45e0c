-- Every offer ever seen, with the GPU that its label means (NULL when unknown) and its country.
-- grain: offer_id
-- units: GiB; GPUs
-- kept: table
with latest as (
    select *
    from ledger.offers
    qualify row_number() over (partition by offer_id order by run_id desc) = 1
),

-- A label that is ambiguous in memory matches only with the memory stated: never guessed.
candidates as (
    select
        latest.offer_id,
        alias.gpu,
        alias.provider is not null as is_specific
    from latest
    inner join temp.raw_labels as label using (gpu_label)
    inner join seeds.gpu_aliases as alias
        on
            alias.label_norm = label.label_norm
            and (alias.provider is null or alias.provider = latest.provider)
            and (
                alias.memory_gib_min is null
                or coalesce(label.memory_gib, latest.gpu_memory_gib)
                between alias.memory_gib_min and alias.memory_gib_max
            )
    qualify dense_rank() over (partition by latest.offer_id order by is_specific desc) = 1
),

identified as (
    select offer_id, min(gpu) as gpu
    from candidates
    group by offer_id
    having count(distinct gpu) = 1
)

select
    latest.offer_id,
    latest.provider,
    latest.scope,
    latest.sku,
    latest.region,
    latest."zone",
    latest.market,
    latest.tier,
    latest.commitment_months,
    latest.gpu_label,
    identified.gpu,
    latest.gpu_count,
    latest.gpu_memory_gib,
    latest.vcpus,
    latest.memory_gib,
    latest.local_disk_gib,
    latest.interconnect,
    regions.country,
    regions.city,
    regions.continent,
    regions.region_group
from latest
left join identified using (offer_id)
left join seeds.regions as regions
    on latest.provider = regions.provider and latest.region = regions.region
