"""The fitted constants of the step-time model.

Written by `python -m benchmarks.fit_throughput --write` from the published measurements in
`throughput_measured.csv`; meaning and units: `steptime.Constants`. Never edited by hand.
"""

from __future__ import annotations

from typing import Final

from warehouse.sizing.steptime import Constants

FITTED: Final = Constants(
    matmul=0.8173,
    hidden_half=263.5,
    fp8=0.8051,
    fp4=0.5569,
    int8=0.701,
    attention=0.4658,
    attention_hopper=0.3056,
    attention_fused=0.5159,
    watts=1.09,
    overlap_trainer=1.449,
    ridge=0.4802,
    nf4=17.84,
    gptq=23.21,
    overlap=1.757,
    launch_overlap=2.929,
    head_exposed=0.4085,
    plain_network=1.983,
    link_share=0.6261,
    pcie_share=0.3435,
    moe_seconds=0.004555,
    network_share=0.9769,
    tensor_exposed=0.4376,
    context_exposed=0.2536,
    expert_exposed=0.5197,
    moe=0.6651,
    interleave=4.031,
    straggler=0.004501,
    adapter_seconds=9.316e-05,
    adapter_traffic=0.7246,
    step_seconds=0.0513,
    traffic={
        "compiled": 0.5931,
        "eager": 1.238,
        "fused": 0.7663,
        "trainer": 1.531,
    },
    logits={
        "compiled": 13.02,
        "eager": 19.37,
        "fused": 9.233,
        "trainer": 20.53,
    },
    layer_seconds={
        "compiled": 0.0005656,
        "eager": 0.001004,
        "fused": 0.0002898,
        "trainer": 0.004603,
    },
    stack={
        "compiled": 0.9748,
        "eager": 0.901,
        "fused": 0.9786,
        "trainer": 0.7606,
    },
    architecture={
        "ada-gddr": 1.188,
        "ampere-gddr": 1.223,
        "ampere-hbm": 1.093,
        "blackwell-hbm": 0.8905,
        "cdna-hbm": 0.7693,
        "hopper-hbm": 0.927,
    },
    framework={
        "colossal-ai": 1.051,
        "fms-fsdp": 0.9875,
        "fsdp_qlora": 1.086,
        "hf accelerate": 1.203,
        "hf peft method comparison": 1.07,
        "hf trainer": 1.05,
        "hf trl": 0.8581,
        "internevo": 0.8666,
        "lit-gpt": 0.8988,
        "llama-factory": 0.953,
        "llm-foundry": 0.9986,
        "llm.c": 1.093,
        "megatron-bridge": 1.114,
        "mlperf": 1.112,
        "nanogpt": 0.7818,
        "nemo": 1.093,
        "nemo automodel": 0.9708,
        "nemo-megatron": 0.7693,
        "torchao": 1.06,
        "torchtitan": 0.9159,
        "torchtune": 1.146,
        "xtuner": 1.079,
    },
)
