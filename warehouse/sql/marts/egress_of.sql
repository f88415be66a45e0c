-- What taking each job's result home costs from each provider's region, by its tiers.
-- grain: job, place_id
-- units: USD
-- kept: macro(plans)
with results as (
    select job, max(output_gib) * 1.073741824 as egress_gb
    from query_table(plans)
    where fits
    group by job
)

select
    r.job,
    t.place_id,
    -- Beyond the last tier that is stated, the price is not known.
    case when max(r.egress_gb) <= max(t.to_tier_gb) then sum(
        greatest(
            0,
            least(r.egress_gb, t.to_tier_gb) - greatest(t.from_tier_gb, t.free_gb_per_month)
        )
        * t.usd_per_gb
    ) end as tiered_usd
from results as r
cross join staging.egress_tiers as t
group by r.job, t.place_id
