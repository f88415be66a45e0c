"""The fitted constants of the step-time model.

Written by `python -m benchmarks.fit_throughput --write` from the published measurements in
`throughput_measured.csv`; meaning and units: `steptime.Constants`. Never edited by hand.
"""

from __future__ import annotations

from typing import Final

from warehouse.sizing.steptime import Constants

FITTED: Final = Constants(
    matmul=0.8162,
    hidden_half=260.8,
    fp8=0.8046,
    fp4=0.5563,
    int8=0.7003,
    attention=0.4658,
    attention_hopper=0.3061,
    attention_fused=0.5159,
    watts=1.091,
    overlap_trainer=1.449,
    ridge=0.4791,
    nf4=17.64,
    gptq=23.19,
    overlap=1.757,
    launch_overlap=2.924,
    head_exposed=0.4084,
    plain_network=1.981,
    link_share=0.6265,
    pcie_share=0.3459,
    moe_seconds=0.004555,
    network_share=0.9751,
    tensor_exposed=0.4357,
    context_exposed=0.2539,
    expert_exposed=0.5207,
    moe=0.6646,
    interleave=4.029,
    straggler=0.00458,
    adapter_seconds=9.295e-05,
    adapter_traffic=0.7201,
    step_seconds=0.05071,
    traffic={
        "compiled": 0.591,
        "eager": 1.244,
        "fused": 0.7662,
        "trainer": 1.537,
    },
    logits={
        "compiled": 12.98,
        "eager": 19.47,
        "fused": 9.237,
        "trainer": 20.55,
    },
    layer_seconds={
        "compiled": 0.0005656,
        "eager": 0.001004,
        "fused": 0.0002899,
        "trainer": 0.004608,
    },
    stack={
        "compiled": 0.9726,
        "eager": 0.8992,
        "fused": 0.9796,
        "trainer": 0.7614,
    },
    architecture={
        "ada-gddr": 1.187,
        "ampere-gddr": 1.223,
        "ampere-hbm": 1.091,
        "blackwell-hbm": 0.8905,
        "cdna-hbm": 0.7701,
        "hopper-hbm": 0.9267,
    },
    framework={
        "accelerate": 1.202,
        "colossal-ai": 1.052,
        "fms-fsdp": 0.9689,
        "fsdp_qlora": 1.088,
        "internevo": 0.8674,
        "litgpt": 0.9018,
        "llama-factory": 0.9547,
        "llm-foundry": 1.002,
        "llm.c": 1.092,
        "megatron-bridge": 1.114,
        "mlperf": 1.112,
        "nanogpt": 0.7824,
        "nemo": 1.093,
        "nemo automodel": 0.9744,
        "nemo-megatron": 0.7698,
        "peft": 1.07,
        "torchao": 1.06,
        "torchtitan": 0.9121,
        "torchtune": 1.149,
        "trainer": 1.053,
        "trl": 0.857,
        "xtuner": 1.082,
    },
)
