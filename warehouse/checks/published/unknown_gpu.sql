-- GPU labels that no alias knows: shown with their prices, left out of cost per job.
-- severity: warn
select provider as subject, format('{} ({} offers)', gpu_label, count(*)) as detail
from staging.current_offers
where gpu is null
group by provider, gpu_label
order by count(*) desc, provider, gpu_label
