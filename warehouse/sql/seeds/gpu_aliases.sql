-- How providers write a GPU's name: a normalised label, with the memory window that settles it.
-- grain: provider, label_norm, memory_gib_min, gpu
-- units: GiB per GPU
-- kept: table
select
    provider,
    label_norm,
    memory_gib_min::double as memory_gib_min,
    memory_gib_max::double as memory_gib_max,
    gpu,
    example_label,
    source
from temp.raw_gpu_aliases
