-- Accelerators: memory, bandwidth and dense peak rates, each row with its source.
-- grain: gpu
-- units: GB and GiB per GPU; dense TFLOPS; GB/s
-- kept: table
select
    gpu,
    vendor,
    architecture,
    compute_capability,
    vram_gb::double as vram_gb,
    vram_gib_usable::double as vram_gib_usable,
    memory_type,
    mem_bandwidth_gbps::double as mem_bandwidth_gbps,
    bf16_dense_tflops::double as bf16_dense_tflops,
    fp16_dense_tflops::double as fp16_dense_tflops,
    fp8_dense_tflops::double as fp8_dense_tflops,
    int8_dense_tops::double as int8_dense_tops,
    fp32_tflops::double as fp32_tflops,
    bf16_supported = 'yes' as bf16_supported,
    interconnect,
    interconnect_gbps_total_bidir_per_gpu::double as interconnect_gbps_total_bidir_per_gpu,
    pcie_gen,
    tdp_watts::double as tdp_watts,
    "class" as gpu_class,
    released_year::integer as released_year,
    source_url,
    note
from temp.raw_gpus
