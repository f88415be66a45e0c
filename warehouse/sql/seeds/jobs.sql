-- Reference fine-tuning jobs: model, method and how much is trained.
-- grain: job
-- units: tokens trained in all; GB of data; days and hours kept
-- kept: table
select
    job,
    title,
    model,
    method,
    tokens::bigint as tokens,
    seq_len::integer as seq_len,
    lora_rank::integer as lora_rank,
    lora_targets,
    quant,
    weight_dtype,
    optimizer,
    framework,
    coalesce(dataset_gb::double, 0) as dataset_gb,
    coalesce(keep_days::double, 0) as keep_days,
    coalesce(sessions::integer, 1) as sessions,
    coalesce(idle_hours::double, 0) as idle_hours,
    checkpoint_minutes::double as checkpoint_minutes,
    coalesce(behind_nat::boolean, false) as behind_nat,
    note,
    source
from temp.raw_jobs
