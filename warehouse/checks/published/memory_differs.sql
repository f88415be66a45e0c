-- A stated memory that is far from the card's: total for per-card, host RAM for VRAM, wrong card.
-- severity: warn
select
    o.provider as subject,
    format('{}: {} GiB stated, {} GB by the sheet', o.gpu_label, o.gpu_memory_gib, g.vram_gb)
        as detail
from staging.offers as o
inner join seeds.gpus as g using (gpu)
where
    o.gpu_count >= 1
    and o.gpu_memory_gib is not null
    and abs(o.gpu_memory_gib - g.vram_gb) > 0.12 * g.vram_gb
group by all
order by all
