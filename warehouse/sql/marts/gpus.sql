-- Accelerators: memory, bandwidth and dense peak rates.
-- grain: gpu
-- units: GB and GiB per GPU; dense TFLOPS; GB/s
select * from seeds.gpus
