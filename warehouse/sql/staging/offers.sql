-- Every offer ever seen, with the GPU that its label means (NULL when unknown) and its country.
-- grain: offer_id
-- units: GiB; GPUs
-- kept: table
with latest as (
    select *
    from ledger.offers
    qualify row_number() over (partition by offer_id order by run_id desc) = 1
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
    -- What the label means was looked up by seeds.resolve_gpu, the one place with that rule.
    known.gpu,
    latest.gpu_count,
    latest.gpu_memory_gib,
    latest.vcpus,
    latest.memory_gib,
    latest.local_disk_gib,
    latest.interconnect,
    latest.egress_included_gb_per_month,
    regions.country,
    regions.city,
    regions.continent,
    regions.region_group
from latest
left join temp.raw_identities as known
    on
        latest.provider = known.provider
        and latest.gpu_label = known.gpu_label
        and latest.gpu_memory_gib is not distinct from known.gpu_memory_gib
        and (latest.gpu_count < 1) = known.is_slice
left join seeds.regions as regions
    on latest.provider = regions.provider and latest.region = regions.region
