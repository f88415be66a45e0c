-- What an unstated price could be: dearer than nine in ten providers that charge one.
-- grain: storage_guess
-- units: USD per GB and month; USD per GB; USD per hour
-- kept: table
-- Where nobody states a price at all: a dear hyperscaler's list.
select
    coalesce(quantile_cont(storage_usd_per_gb_month, 0.9), 0.25) as storage_guess,
    coalesce(
        quantile_cont(ingress_usd_per_gb, 0.9) filter (ingress_usd_per_gb > 0), 0.01
    ) as ingress_guess,
    coalesce(quantile_cont(nat_usd_per_gb, 0.9), 0.06) as nat_gb_guess,
    coalesce(quantile_cont(nat_usd_per_hour, 0.9), 0.06) as nat_hour_guess,
    coalesce(
        (
            select quantile_cont(usd_per_gb, 0.9)
            from (
                select max(usd_per_gb) as usd_per_gb
                from staging.egress_tiers
                group by provider
            )
        ),
        0.12
    ) as egress_guess
from (
    select
        median(storage_usd_per_gb_month) as storage_usd_per_gb_month,
        median(ingress_usd_per_gb) as ingress_usd_per_gb,
        median(nat_usd_per_gb) as nat_usd_per_gb,
        median(nat_usd_per_hour) as nat_usd_per_hour
    from staging.current_offers
    group by provider
)
