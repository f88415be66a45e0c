-- A published file without a single offer is worse than yesterday's.
-- severity: fail
select 'current_prices' as subject, 'no offer is in force' as detail
where not exists (select 1 from staging.current_offers)
