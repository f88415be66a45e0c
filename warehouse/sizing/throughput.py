"""Tokens per second of a training job: likely, and an 80 % band.

A set-up on a card becomes `Work`, `steptime` times it, and the reciprocal is the rate. Tokens are
those processed: where samples are padded, the user's own are fewer.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final, NamedTuple

from warehouse.sizing.card import Card
from warehouse.sizing.errors import NotSupported
from warehouse.sizing.fitted import FITTED
from warehouse.sizing.memory import estimate, lora_targets
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.setup import Setup
from warehouse.sizing.steptime import (
    Shape,
    StepTime,
    Work,
    flops_per_token,
    half_width,
    peak_flops,
    step_time,
)


@lru_cache(maxsize=1024)
def shape_of(spec: ModelSpec) -> Shape:
    """The widths that set a model's arithmetic.

    In an encoder-decoder a token meets one of the two stacks: their mean is taken.
    """
    layers = spec.num_layers + spec.decoder_layers
    weights = 0.0
    ffn = 0.0
    for block, count in spec.blocks:
        for linear in block.linears:
            elements = linear.weights
            if linear.role == "expert":
                elements = elements // linear.copies * spec.experts_per_token
            weights += count * elements
    if not weights:
        weights = float(spec.params_total)
    if spec.decoder_layers:
        weights /= 2.0
    matrices = 3 if spec.traits.gated else 2
    ffn = float(spec.intermediate_size)
    if spec.is_moe:
        ffn = spec.moe_intermediate_size * spec.experts_per_token + spec.shared_intermediate_size
    return Shape(
        layers=layers,
        layer_params=weights / layers,
        hidden=spec.hidden_size,
        query=spec.q_dim,
        key_value=spec.kv_dim,
        ffn=int(ffn),
        ffn_matrices=matrices,
        vocab=spec.vocab_size,
        params=float(spec.params_total),
        params_active=float(spec.params_active),
        experts=max(1, spec.experts),
        experts_active=max(1, spec.experts_per_token),
    )


# --- programs --------------------------------------------------------------------------------

_STACKS: Final = (
    ("compiled", (
        "automodel", "torchtitan", "fms", "torchao", "nanogpt", "lit-gpt", "litgpt", "unsloth",
        "torchtune",
    )),
    ("trainer", (
        "trainer", "transformers", "trl", "peft", "llama-factory", "fsdp_qlora", "accelerate",
        "axolotl", "swift", "deepspeed",
    )),
    ("fused", ("nemo", "megatron", "mlperf", "internevo", "llm.c")),
)  # fmt: skip
"""Which class of program a framework is (`steptime.STACKS`), by a word of its name; first match."""
_SAME_PROGRAM: Final = {
    "transformers": "trainer",
    "trl": "trainer",
    "lit-gpt": "litgpt",
    "deepspeed": "trainer",
}
_SHORTENED: Final = ("mlperf", "llama-factory", "nemo automodel", "peft")


@lru_cache(maxsize=4096)
def stack_of(framework: str) -> str:
    """Which class of training program a framework is; eager kernels where it is unknown."""
    text = framework.lower()
    for stack, names in _STACKS:
        if any(name in text for name in names):
            return stack
    return "eager"


@lru_cache(maxsize=4096)
def framework_key(framework: str) -> str:
    """A program's own name, without version, remarks or plug-ins.

    `Megatron-Bridge 26.06` is megatron-bridge, `HF Trainer + DeepSpeed` is trainer.
    """
    # ends at a plug-in (+, /), a remark in brackets or a version number
    name = re.split(r"[+/(]|\s\d", framework.lower(), maxsplit=1)[0].strip()
    name = name.removeprefix("hf ")
    for short in _SHORTENED:
        if name.startswith(short):
            return short
    return _SAME_PROGRAM.get(name, name)


# --- any job --------------------------------------------------------------------------------


class Throughput(NamedTuple):
    """What one GPU of a job gets through.

    Attributes:
        low, likely, high: useful tokens per second and GPU; an 80 % band, never above the peak.
        bound_by: the largest cost of a step: compute, memory_bandwidth, launches, dequantise,
            interconnect, pipeline or optimizer.
        mfu: share of the card's dense peak, in the precision that ran, that the arithmetic takes;
            recompute not counted.
        flops_per_token: that arithmetic.
    """

    low: float
    likely: float
    high: float
    bound_by: str
    mfu: float
    flops_per_token: float


def judge(work: Work, card: Card, time: StepTime) -> Throughput:
    """Turn a step's time into a rate with its band, capped by the card's peak."""
    products, scores = flops_per_token(work)
    peak = peak_flops(card, work.precision)
    half = peak_flops(card, "bf16")
    ceiling = work.useful / (products / peak + scores / max(half, peak))
    likely = min(work.useful / time.total, ceiling)
    spread = half_width(work, card, FITTED)
    costs = {
        "compute": time.arithmetic + time.attention,
        "memory_bandwidth": time.traffic,
        "launches": time.launches,
        "dequantise": time.dequantise,
        "interconnect": time.links,
        "optimizer": time.optimizer,
        "pipeline": time.bubble * (time.arithmetic + time.attention + time.traffic),
    }
    no_recompute, no_recompute_scores = flops_per_token(work._replace(recompute=0.0))
    flops = no_recompute + no_recompute_scores
    return Throughput(
        low=likely * math.exp(-spread),
        likely=likely,
        high=min(likely * math.exp(spread), ceiling),
        bound_by=max(costs, key=lambda name: costs[name]),
        mfu=likely / work.useful * flops / peak,
        flops_per_token=flops,
    )


def default_network_gbps(card: Card) -> float:
    """GB/s per GPU and direction between machines, as clouds usually build it.

    One 400 Gbit/s port per GPU from Hopper on, 200 Gbit/s before.
    """
    return 25.0 if card.generation in ("ampere", "volta", "turing", "pascal") else 50.0


def fast_domain(card: Card, per_node: int) -> int:
    """GPUs that meet over the fast links: one machine's, or a rack's where it has one fabric."""
    return max(1, per_node, RACK_GPUS if card.in_rack_fabric else 0)


RACK_GPUS: Final = 72
"""GPUs that share one NVLink fabric in an NVL72 rack (NVIDIA GB200 NVL72 data sheet)."""
ADAPTERS_PER_LAYER: Final = 7
"""q, k, v, o, gate, up, down: what all-linear means in a Llama-like layer."""


_QUANTS: Final = {
    "none": "",
    "nf4": "nf4",
    "nf4-dq": "nf4",
    "int4": "nf4",
    "mxfp4": "nf4",
    "int8": "int8",
    "gptq-int4": "gptq",
    "gptq-int8": "gptq",
}
_RECOMPUTED: Final = {"none": 0.0, "full": 1.0, "selective": 0.5}


def _adapters_per_layer(model: ModelSpec, setup: Setup) -> int:
    """Modules that a method adds to one layer: one per LoRA target, two bottlenecks, none else."""
    if setup.method in ("lora", "qlora", "dora"):
        targets = len(lora_targets(model, setup.lora_targets))
        return 2 * targets if setup.method == "dora" else targets
    return {"adapter": 2, "adapter_v2": ADAPTERS_PER_LAYER, "ia3": 3}.get(setup.method, 0)


def work_of(
    model: ModelSpec,
    setup: Setup,
    card: Card,
    *,
    trainable_params: float | None = None,
    network_gbps: float | None = None,
) -> Work:
    """Lay a set-up out on its GPUs for `step_time`.

    Args:
        model: the architecture.
        setup: method, precision, batch and sharding.
        card: the GPU, which sets links and precisions.
        trainable_params: parameters the optimizer updates; counted from the set-up when None.
        network_gbps: GB/s per GPU and direction between machines; a card's usual cloud fabric
            when None (400 Gbit/s per GPU from Hopper on, 200 before).

    Raises:
        NotSupported: the model has no vocabulary, so that nothing is counted in tokens; or the
            layers are merely spread over GPUs that wait for each other (device_map).
        SizingError: the set-up does not fit the model.
    """
    if not model.is_text:
        raise NotSupported(f"{model.hf_id} is no text model: its speed is not known in tokens")
    if setup.sharding == "device_map" and setup.gpus > 1:
        raise NotSupported("device_map runs one GPU at a time; use ddp or fsdp")
    shape = shape_of(model)
    trained = trainable_params
    if trained is None:
        trained = float(estimate(model, setup).trainable_params)
    share = 0.0 if setup.is_adapter else min(1.0, trained / shape.params)
    if setup.method in ("full", "galore", "qgalore"):
        share = 1.0
    precision = setup.activation_dtype
    if precision == "bf16" and not card.bf16_supported:
        precision = "fp16"
    replicas = max(1, setup.gpus // setup.tensor_parallel)
    stack = stack_of(setup.framework)
    if setup.compile and stack in ("eager", "trainer"):
        stack = "compiled"
    return Work(
        shape=shape,
        stack=stack,
        framework=framework_key(setup.framework),
        trained_share=share,
        trainable_params=trained,
        quant=_QUANTS[setup.quant],
        precision=precision,
        recompute=_RECOMPUTED[setup.grad_checkpointing],
        flash=setup.attention != "eager",
        attended=float(setup.seq_len),
        tokens_micro=float(setup.tokens),
        micro_batches=float(setup.grad_accum),
        useful=1.0,
        gpus=setup.gpus,
        tensor=setup.tensor_parallel,
        pipeline=1,
        context=1,
        expert=1,
        shard="zero3" if setup.sharding == "fsdp" else setup.sharding,
        offload="params" in setup.offload or "optimizer" in setup.offload,
        link_gbps=card.peer_gbps,
        network_gbps=default_network_gbps(card) if network_gbps is None else network_gbps,
        fast_domain=fast_domain(card, setup.gpus_per_node),
        shard_gpus=replicas,
        over_pcie=not card.has_fast_links,
        synchronises=shape.experts > 1,
        adapters_per_layer=_adapters_per_layer(model, setup),
        watts=None,
        plain_network=False,
        evaluated=False,
    )


def tokens_per_second(
    model: ModelSpec,
    setup: Setup,
    card: Card,
    *,
    trainable_params: float | None = None,
    network_gbps: float | None = None,
) -> Throughput:
    """Tokens per second and GPU of a set-up on a card: low, likely, high (80 %).

    Args: as `work_of`.

    Raises:
        SizingError: the card's peak is unknown, or as `work_of`.
    """
    work = work_of(model, setup, card, trainable_params=trainable_params, network_gbps=network_gbps)
    return judge(work, card, step_time(work, card, FITTED))
