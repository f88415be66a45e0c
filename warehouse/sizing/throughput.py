"""Tokens per second of a training job: likely, and an 80 % band."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from warehouse.sizing.card import Card
from warehouse.sizing.errors import SizingError
from warehouse.sizing.fitted import FITTED
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.setup import Setup
from warehouse.sizing.steptime import (
    Shape,
    StepTime,
    Work,
    flops_per_token,
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


_LADDER: Final = (
    (0.125e9, 12, 768),
    (0.35e9, 24, 1024),
    (0.76e9, 24, 1536),
    (1.3e9, 24, 2048),
    (2.7e9, 32, 2560),
    (6.7e9, 32, 4096),
    (13.0e9, 40, 5120),
    (32.5e9, 60, 6656),
    (65.2e9, 80, 8192),
    (175.0e9, 96, 12288),
    (405.0e9, 126, 16384),
)
"""Parameters, layers, width of GPT-3 (arXiv 2005.14165, table 2.1), Llama 1 and 3.1: what a decoder
of a given size looks like when nothing else is known."""


def shape_from_params(params: float, active: float | None = None, vocab: int = 50_000) -> Shape:
    """Guess a decoder's widths from its parameter count: the nearest rung of published sizes.

    The count itself is kept: layers become fractional.
    """
    nearest = min(_LADDER, key=lambda rung: abs(math.log(rung[0] / params)))
    hidden = nearest[2]
    outer = min(vocab * hidden, 0.4 * params)
    layers = max(1.0, ((active or params) - outer) / (12.0 * hidden**2))
    return Shape(
        layers=layers,
        layer_params=12.0 * hidden**2,
        hidden=hidden,
        query=hidden,
        key_value=hidden,
        ffn=4 * hidden,
        ffn_matrices=2,
        vocab=int(outer / hidden),
        params=params,
        params_active=active or params,
    )


# --- rows of measurements -------------------------------------------------------------------

_PRECISIONS: Final = (
    ("nvfp4", "fp4"),
    ("fp8/fp4", "fp8"),
    ("fp8", "fp8"),
    ("int8", "int8"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
)

_UNSTATED_ACCUMULATION: Final = 4.0
"""Micro-batches per optimizer step where a source does not say."""

_FUSED = ("nemo", "megatron", "mlperf", "internevo", "llm.c")
_COMPILED = (
    "automodel", "torchtitan", "fms", "torchao", "nanogpt", "lit-gpt", "litgpt", "unsloth",
    "torchtune",
)  # fmt: skip
_TRAINER = (
    "trainer",
    "trl",
    "peft",
    "llama-factory",
    "fsdp_qlora",
    "accelerate",
    "axolotl",
    "swift",
)


def stack_of(framework: str, note: str = "") -> str:
    """Which class of training program a framework is."""
    text = framework.lower()
    for names, stack in ((_COMPILED, "compiled"), (_TRAINER, "trainer"), (_FUSED, "fused")):
        if any(name in text for name in names):
            return stack
    return "eager"


_NAMED: Final = ("mlperf", "llama-factory", "nemo automodel")


def framework_key(framework: str) -> str:
    """A program's own name, without version, remarks or plug-ins.

    `Megatron-Bridge 26.06` is megatron-bridge, `HF Trainer + DeepSpeed` is hf trainer.
    """
    first = re.split(r"[+/(]|\s\d", framework.lower(), maxsplit=1)[0].strip()
    for name in _NAMED:
        if first.startswith(name):
            return name
    return first


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _float(row: Mapping[str, object], name: str) -> float | None:
    text = _text(row, name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise SizingError(f"{name} is {text!r}, not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise SizingError(f"{name} is {text!r}, not a positive number")
    return value


def _degree(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.IGNORECASE)
    return int(found[1]) if found else 1


@lru_cache(maxsize=4096)
def _words(label: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+\d*[a-z]*|\d+gb|\d+", label.lower()))


def find_card(label: str, cards: Mapping[str, Card]) -> Card | None:
    """The card a free-text label means: exact name, else the same chip with the best match."""
    return _find_card(label, cards)


def _find_card(label: str, cards: Mapping[str, Card]) -> Card | None:
    if label in cards:
        return cards[label]
    wanted = _card_words(label)
    best: tuple[float, str] | None = None
    for name in cards:
        have = _card_words(name)
        chip = _chip(wanted)
        if chip != _chip(have):
            continue
        score = len(wanted & have) - 0.25 * len(have - wanted)
        if best is None or score > best[0]:
            best = (score, name)
    return cards[best[1]] if best else None


@lru_cache(maxsize=4096)
def _card_words(label: str) -> frozenset[str]:
    text = label.lower().replace("nvidia", " ").replace("rtx", " ").replace("geforce", " ")
    text = re.sub(r"sxm\d", "sxm", text)
    return frozenset(re.findall(r"[a-z0-9]+", text))


def _chip(words: frozenset[str]) -> frozenset[str]:
    """What tells one chip from another: everything but memory, form and vendor words."""
    return frozenset(
        word
        for word in words
        if not re.fullmatch(r"\d+gb|sxm|pcie|nvl|hbm\w*|\d+w|amd|instinct|intel|tesla", word)
    )


def _gbps_between_nodes(text: str, card: Card, per_node: float) -> float:
    """GB/s per GPU and direction between machines."""
    lower = text.lower()
    found = re.search(r"(\d+)\s*gb/s/gpu", lower)
    if found:
        return float(found[1]) / 8
    found = re.search(r"(?:inter-node|efa)\s+(\d+)\s*gbps", lower)
    if found:
        return float(found[1]) / 8 / per_node
    found = re.search(r"(\d+)\s*x\s*(\d+)\s*gb", lower)
    if found:
        return float(found[1]) * float(found[2]) / 8 / per_node
    found = re.search(r";\s*(\d+)\s*gbps", lower)
    if found:
        return float(found[1]) / 8
    return 50.0 if card.architecture_key not in ("ampere-hbm", "volta-hbm") else 25.0


class RowWork(NamedTuple):
    """What a row of measurements says, ready for `step_time`."""

    work: Work
    card: Card


def find_model(name: str, models: Mapping[str, ModelSpec]) -> ModelSpec | None:
    """The model a row means: exact id, else the same name without publisher and tuning suffix."""
    if name in models:
        return models[name]
    wanted = _model_key(name)
    for hf_id in models:
        if _model_key(hf_id) == wanted:
            return models[hf_id]
    return None


@lru_cache(maxsize=8192)
def _model_key(name: str) -> str:
    text = name.split(" (")[0].rsplit("/", 1)[-1].lower()
    text = re.sub(r"-(chat|instruct|base|hf|it|int4|int8|awq|gptq|bnb-4bit|v\d)(?=-|$)", "", text)
    return re.sub(r"[^a-z0-9.]", "", text)


def read_row(
    row: Mapping[str, object], models: Mapping[str, ModelSpec], cards: Mapping[str, Card]
) -> RowWork:
    """Turn a row with the columns of published measurements into work on a card."""
    label = _text(row, "gpu_model")
    if "nvlink" in _text(row, "interconnect").lower() and "sxm" not in label.lower():
        label += "-SXM"
    card = _find_card(label, cards)
    if card is None:
        raise SizingError(f"unknown GPU {_text(row, 'gpu_model')!r}")
    name = _text(row, "model")
    spec = find_model(name, models)
    billions = _float(row, "params_b")
    active_b = _float(row, "active_params_b")
    shape: Shape
    if spec is not None:
        shape = shape_of(spec)
        if billions and abs(math.log(billions * 1e9 / shape.params)) > 0.15:
            shape = shape_from_params(billions * 1e9, active_b * 1e9 if active_b else None)
    elif billions:
        shape = shape_from_params(billions * 1e9, active_b * 1e9 if active_b else None)
    else:
        raise SizingError(f"unknown model {name!r} and no params_b")
    method = _text(row, "method").lower()
    if method not in ("full", "lora", "qlora", "pretrain"):
        raise SizingError(f"unknown method {method!r}")
    framework = _text(row, "framework")
    note = _text(row, "note").lower()
    stack = stack_of(framework, note)
    if "torch.compile" in note or "+compile" in note:
        stack = "compiled" if stack == "eager" else stack
    if "eager" in note:
        stack = "eager"
    label = _text(row, "precision").lower()
    precision = next((value for key, value in _PRECISIONS if key in label), "bf16")
    quant = ""
    if method == "qlora" or "nf4" in label:
        quant = "gptq" if "int4" in name.lower() or "gptq" in name.lower() else "nf4"
    gpus = int(_float(row, "gpus") or 1)
    nodes = int(_float(row, "nodes") or 1)
    sharding = _text(row, "sharding")
    tensor = _degree(r"(?<![a-z])tp\s*=?\s*(\d+)", sharding)
    pipeline = _degree(r"(?<![a-z])pp\s*=?\s*(\d+)", sharding)
    context = _degree(r"(?<![a-z])(?:cp|sp)\s*=?\s*(\d+)", sharding)
    expert = _degree(r"(?<![a-z])ep\s*=?\s*(\d+)", sharding)
    lower = sharding.lower()
    shard = "ddp" if gpus > 1 else "none"
    found = re.search(r"fsdp(\d*)", lower)
    if found and found[1] != "0":
        shard = "zero3"
    if "grad_op" in lower:
        shard = "zero2"
    if "hsdp" in lower:
        shard = "zero2"
    if "fsdp0" in lower or (stack == "fused" and shard == "ddp"):
        shard = "zero1"
    found = re.search(r"zero-?(\d)", lower)
    if found:
        shard = f"zero{found[1]}"
    seq = _float(row, "seq_len") or 512.0
    global_batch = _float(row, "global_batch")
    micro = _float(row, "micro_batch")
    if "submission" in lower:
        # not stated: what the memory asks for and what is left when samples are fewer than GPUs
        tensor = _split_for_memory(shape, card, precision, seq, gpus)
        split = max(float(tensor), gpus / (global_batch or gpus))
        context = max(1, int(split // tensor))
        shard = "zero1"
    model_gpus = tensor * pipeline * context
    replicas = max(1.0, gpus / model_gpus)
    if micro is None:
        micro = max(1.0, min(4.0, (global_batch or replicas) / replicas))
    batches = 1.0
    if global_batch:
        batches = max(1.0, global_batch / (micro * replicas))
    else:
        batches = max(_UNSTATED_ACCUMULATION, 4.0 * pipeline if pipeline > 1 else 1.0)
    useful = 1.0
    tokens = micro * seq
    attended = seq
    unpacked = "unpacked" in note
    if unpacked or not _text(row, "seq_len"):
        # alpaca-like samples: about 100-250 tokens; a batch is as long as its longest sample
        mean = min(seq, 200.0)
        each = re.search(r"about (\d+)(?: tokens)? each", note)
        if each:
            mean = float(each[1])
        longest = min(seq, mean * (1.0 + 0.5 * math.log2(max(1.0, micro))))
        useful = mean / longest if longest else 1.0
        tokens = micro * longest
        attended = longest
    trained = 0.0 if method in ("lora", "qlora") else 1.0
    recompute = _recompute(_text(row, "grad_checkpointing"))
    if recompute is None:
        held = shape.params * (0.6 if quant else 2.0 + 14.0 * trained)
        held /= model_gpus * (replicas if shard == "zero3" else 1.0)
        free = (card.vram_gib_usable or 80.0) * 2**30 - held
        needed = 34.0 * tokens / context * shape.hidden * shape.layers / (tensor * pipeline)
        recompute = 1.0 if needed > free and stack != "fused" else 0.0
    adapters = 0 if trained else 7
    trainable = shape.params if trained else 0.01 * shape.params**0.95
    if not trained and ("(emb)" in note or "embeddings and lm_head also trained" in note):
        trainable += 2.0 * shape.vocab * shape.hidden
    text = _text(row, "interconnect")
    found = re.search(r"fsdp\D{0,1}(\d+)", lower)
    shard_gpus = int(found[1]) if found and found[1] not in ("0", "1", "2") else int(replicas)
    shard_gpus = max(1, min(shard_gpus, int(replicas)))
    stated = re.search(r"(\d+)\s*W\b", _text(row, "gpu_model"))
    watts = float(stated[1]) if stated else None
    if "power-limited" in note and card.tdp_watts:
        watts = POWER_LIMITED * card.tdp_watts
    release = re.search(r"(\d\d)\.(\d\d)", framework)
    graphs = release is not None and (int(release[1]), int(release[2])) >= (26, 6)
    per_node = max(1.0, gpus / nodes)
    link = card.peer_gbps
    over_pcie = "pcie" in text.lower() or (
        gpus > 1 and not card.has_fast_links and "nvlink" not in text.lower()
    )
    if over_pcie:
        link = card.host_gbps
    elif "nvlink" in text.lower() and card.interconnect_gbps:
        link = card.interconnect_gbps / 2
    if "old motherboard" in text.lower():
        link = 6.0
    elif over_pcie and "cloud" in text.lower():
        link *= VIRTUAL_LINK
    fast = int(per_node)
    if card.architecture_key == "blackwell-hbm" and card.gpu.startswith("GB"):
        fast = 72
    network = _gbps_between_nodes(text, card, per_node)
    work = Work(
        shape=shape,
        stack=stack,
        framework=framework_key(framework),
        trained_share=trained,
        trainable_params=trainable,
        quant=quant,
        precision=precision,
        recompute=recompute,
        flash=_text(row, "flash_attention").lower() != "false",
        attended=attended,
        tokens_micro=tokens,
        micro_batches=batches,
        useful=useful,
        gpus=gpus,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        expert=min(expert, gpus),
        shard=shard,
        offload="offload" in lower,
        link_gbps=link,
        network_gbps=network,
        fast_domain=max(1, fast),
        shard_gpus=shard_gpus,
        over_pcie=over_pcie,
        synchronises=shape.experts > 1 and not graphs,
        adapters_per_layer=adapters,
        watts=watts,
        plain_network=nodes > 1 and stack == "trainer" and "not stated" in text.lower(),
    )
    return RowWork(work, card)


def _split_for_memory(shape: Shape, card: Card, precision: str, tokens: float, gpus: int) -> int:
    """The tensor-parallel degree at which weights and activations of one sample fit a card.

    One or two bytes per parameter and 34 bytes per token, layer and width (Korthikanti et al.
    arXiv 2205.05198: flash attention, nothing recomputed), both divided by the degree.
    """
    width = 1.0 if precision in ("fp8", "fp4") and card.fp8_dense_tflops else 2.0
    held = width * shape.params + 34.0 * tokens * shape.hidden * shape.layers
    usable = 0.9 * (card.vram_gib_usable or 80.0) * 2**30
    degree = 1
    while held / degree > usable and degree < 8 and degree * 2 <= gpus:
        degree *= 2
    return degree


def _recompute(text: str) -> float | None:
    """The checkpointed share of the layers' arithmetic; None where it is not stated."""
    lower = text.lower()
    if lower in ("true", "full"):
        return 1.0
    if lower in ("false", "none"):
        return 0.0
    if "every 2nd" in lower:
        return 0.5
    if "op" in lower:
        return 0.5
    if "selective" in lower:
        return 0.6
    return None


def size_row(
    row: Mapping[str, object], models: Mapping[str, ModelSpec], cards: Mapping[str, Card]
) -> dict[str, object]:
    """Size one row that has the columns of `throughput_measured.csv`.

    Returns `tokens_per_s_per_gpu_likely`, `_low` and `_high` (80 % band), in useful tokens per
    second and GPU; or those as None with one line of `error`. Columns that hold results
    (`tokens_per_s_*`, `mfu_*`, `tflops_per_gpu`) are never read.
    """
    try:
        read = read_row(row, models, cards)
        time = step_time(read.work, read.card, FITTED)
    except SizingError as error:
        return {
            "tokens_per_s_per_gpu_likely": None,
            "tokens_per_s_per_gpu_low": None,
            "tokens_per_s_per_gpu_high": None,
            "error": str(error),
        }
    result = _judge(read.work, read.card, time)
    return {
        "tokens_per_s_per_gpu_likely": round(result.likely, 2),
        "tokens_per_s_per_gpu_low": round(result.low, 2),
        "tokens_per_s_per_gpu_high": round(result.high, 2),
        "error": None,
    }


# --- any job --------------------------------------------------------------------------------


class Throughput(NamedTuple):
    """What one GPU of a job gets through.

    `low`, `likely` and `high` are useful tokens per second and GPU, an 80 % band; `bound_by` is
    the largest cost: compute, memory_bandwidth, launches, dequantise, interconnect, pipeline or
    optimizer; `mfu` is the share of the card's dense peak (in the precision that ran) that useful
    arithmetic takes, recompute not counted; `flops_per_token` counts that arithmetic.
    """

    low: float
    likely: float
    high: float
    bound_by: str
    mfu: float
    flops_per_token: float


def _judge(work: Work, card: Card, time: StepTime) -> Throughput:
    """Turn a step's time into a rate with its band, capped by the card's peak."""
    products, scores = flops_per_token(work)
    peak = peak_flops(card, work.precision)
    half = peak_flops(card, "bf16")
    ceiling = work.useful / (products / peak + scores / max(half, peak))
    likely = min(work.useful / time.total, ceiling)
    spread = spread_of(work)
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


def spread_of(work: Work) -> float:
    """Half-width of the 80 % band, in natural log."""
    spread = 0.18 if work.framework in FITTED.framework else 0.30
    if work.useful < 1.0:
        spread *= 1.5
    if work.over_pcie and work.gpus > 1:
        spread *= 1.3
    return spread


RACK_GPUS: Final = 72
"""GPUs that share one NVLink fabric in an NVL72 rack (NVIDIA GB200 NVL72 data sheet)."""
ADAPTERS_PER_LAYER: Final = 7
"""q, k, v, o, gate, up, down: what all-linear means in a Llama-like layer."""


POWER_LIMITED: Final = 0.6
"""Share of board power where a source says that the power was limited and not to what."""
VIRTUAL_LINK: Final = 0.35
"""Share of PCIe bandwidth between GPUs of a virtual machine without peer access (copies go through
host memory)."""


def count_trainable(model: ModelSpec, setup: Setup) -> int:
    """Parameters the optimizer updates.

    LoRA-like methods: rank x (d_in + d_out) per targeted matrix (arXiv 2106.09685). Methods that
    train a part of the layers at a time (freeze, lisa, badam: two layers; llamapro: an eighth);
    other adapters about 0.5 % of the model.
    """
    if setup.method in ("full", "galore", "qgalore"):
        return model.params_total
    if setup.method in ("freeze", "lisa", "badam"):
        return 2 * sum(b.params * n for b, n in model.blocks) // max(1, model.num_layers)
    if setup.method == "llamapro":
        return sum(b.params * n for b, n in model.blocks) // 8
    if setup.method not in ("lora", "qlora", "dora"):
        return model.params_total // 200
    names = {part.strip() for part in re.split(r"[|,]", setup.lora_targets)}
    every = "all-linear" in names
    short = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    names |= {short[name] for name in names if name in short}
    count = 0
    for linear, layers in model.linears():
        if not linear.module:
            continue
        chosen = (
            every or linear.name in names or ("attention" in names and linear.role == "attention")
        )
        if chosen:
            count += layers * linear.copies * setup.lora_rank * (linear.d_in + linear.d_out)
    return count or model.params_total // 200


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
_SHARDS: Final = {"fsdp": "zero3", "device_map": "none"}
_SETUP_PRECISIONS: Final = {"bf16": "bf16", "fp16": "fp16", "fp32": "fp32", "fp8": "fp8"}


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
        SizingError: the model has no layers to time.
    """
    shape = shape_of(model)
    trained = trainable_params
    if trained is None:
        trained = float(count_trainable(model, setup))
    share = 0.0 if setup.is_adapter else min(1.0, trained / shape.params)
    if setup.method in ("full", "galore", "qgalore"):
        share = 1.0
    tokens = float(setup.seq_len * setup.micro_batch)
    useful, attended = 1.0, float(setup.seq_len)
    precision = _SETUP_PRECISIONS[setup.activation_dtype]
    if precision == "bf16" and not card.bf16_supported:
        precision = "fp16"
    shard = _SHARDS.get(setup.sharding, setup.sharding)
    replicas = max(1, setup.gpus // setup.tensor_parallel)
    compiled = setup.compile
    stack = stack_of(setup.framework)
    if compiled and stack in ("eager", "trainer"):
        stack = "compiled"
    per_node = setup.gpus_per_node
    fast = max(1, per_node)
    if card.in_rack_fabric:
        fast = max(fast, RACK_GPUS)
    recompute = {"none": 0.0, "full": 1.0, "selective": 0.5}[setup.grad_checkpointing]
    adapters = ADAPTERS_PER_LAYER if setup.is_adapter else 0
    network = network_gbps
    if network is None:
        network = 50.0 if card.architecture_key not in ("ampere-hbm", "volta-hbm") else 25.0
    return Work(
        shape=shape,
        stack=stack,
        framework=framework_key(setup.framework),
        trained_share=share,
        trainable_params=trained,
        quant=_QUANTS[setup.quant],
        precision=precision,
        recompute=recompute,
        flash=setup.attention != "eager",
        attended=attended,
        tokens_micro=tokens,
        micro_batches=float(setup.grad_accum),
        useful=useful,
        gpus=setup.gpus,
        tensor=setup.tensor_parallel,
        pipeline=1,
        context=1,
        expert=1,
        shard=shard,
        offload="params" in setup.offload,
        link_gbps=card.peer_gbps,
        network_gbps=network,
        fast_domain=fast,
        shard_gpus=replicas,
        over_pcie=not card.has_fast_links,
        synchronises=shape.experts > 1,
        adapters_per_layer=adapters,
        watts=None,
        plain_network=False,
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
        SizingError: the card's peak is unknown, or the model has nothing to time.
    """
    work = work_of(model, setup, card, trainable_params=trainable_params, network_gbps=network_gbps)
    return _judge(work, card, step_time(work, card, FITTED))
