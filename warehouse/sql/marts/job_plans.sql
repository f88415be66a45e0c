-- How each reference job runs on each machine type on sale: memory by term, speed, hours.
-- grain: job, gpu, gpu_count
-- units: GiB per GPU; tokens per second of the whole machine; hours
select * from sizing.plans
