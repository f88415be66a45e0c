"""Rows of published measurements: free text in, tokens per second out.

The columns are those of `throughput_measured.csv`. What a source states is read as it stands
(sharding `TP4 PP8 CP2`, interconnect `NVLink; 8x HDR IB`, note `unpacked`); what it leaves out is
filled with the defaults named here. Columns that hold a result are never read.
"""

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
from warehouse.sizing.steptime import Shape, Work, step_time
from warehouse.sizing.throughput import (
    ADAPTERS_PER_LAYER,
    default_network_gbps,
    fast_domain,
    framework_key,
    judge,
    shape_of,
    stack_of,
)

UNSTATED_ACCUMULATION: Final = 4.0
"""Micro-batches per optimizer step where a source does not say; four per stage in a pipeline."""
UNSTATED_TOKENS: Final = 4096.0
"""Tokens of a micro-batch where a source does not say: what most runs that do say come to."""
UNSTATED_LENGTH: Final = 512.0
"""Longest sample where a source states no length: the cap of the Alpaca recipes."""
UNPACKED_TOKENS: Final = 200.0
"""Mean tokens of an instruction sample where a source says only that samples are not packed."""
PADDING_GROWTH: Final = 0.5
"""How much longer than the mean the longest sample of a batch is, per doubling of the batch."""
ADAPTER_SHARE: Final = 0.005
"""Trainable share of an adapter run: rank 16 on all linear layers is 0.4 to 0.7 % of a 7B."""
POWER_LIMITED: Final = 0.6
"""Share of board power where a source says that the power was limited and not to what."""
VIRTUAL_LINK: Final = 0.35
"""Share of PCIe bandwidth between GPUs of a virtual machine without peer access (copies go through
host memory)."""
OLD_BOARD_GBPS: Final = 6.0
"""GB/s between cards in the narrow slots of an old board: PCIe 3.0 x8."""
GRAPHED_RELEASE: Final = (26, 6)
"""First Megatron-Bridge release that trains mixtures without waiting for the router's counts."""
FP4_ROUND: Final = (5, 1)
"""First MLPerf Training round whose programs for NVIDIA cards train in fp4 (NVFP4)."""
LARGEST: Final = 1e9
"""No cell holds more: GPUs, tokens of a sample, samples of a batch, billions of parameters."""
SIZE_TOLERANCE: Final = 0.15
"""Log distance between stated and known parameters beyond which a name is another model's."""

_LADDER: Final = (
    (0.125e9, 768),
    (0.35e9, 1024),
    (0.76e9, 1536),
    (1.3e9, 2048),
    (2.7e9, 2560),
    (6.7e9, 4096),
    (13.0e9, 5120),
    (32.5e9, 6656),
    (65.2e9, 8192),
    (175.0e9, 12288),
    (405.0e9, 16384),
)
"""Parameters and width of GPT-3 (arXiv 2005.14165, table 2.1), Llama 1 and 3.1: what a decoder of a
given size looks like when nothing else is known."""
_GUESSED_VOCABULARY: Final = 50_000
_PRECISIONS: Final = (
    ("fp4", "fp4"),
    ("fp8", "fp8"),
    ("int8", "int8"),
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("fp32", "fp32"),
)
METHODS: Final = ("full", "pretrain", "lora", "qlora")
OUTPUT: Final = (
    "tokens_per_s_per_gpu_likely",
    "tokens_per_s_per_gpu_low",
    "tokens_per_s_per_gpu_high",
)


class RowWork(NamedTuple):
    """What a row says, ready for `step_time`."""

    work: Work
    card: Card


def size_row(
    row: Mapping[str, object], models: Mapping[str, ModelSpec], cards: Mapping[str, Card]
) -> dict[str, object]:
    """Size one row that has the columns of `throughput_measured.csv`.

    Args:
        row: the row, values as text or numbers; empty text is a missing value.
        models: architectures by hub name.
        cards: GPUs by canonical name.

    Returns: `tokens_per_s_per_gpu_likely`, `_low` and `_high` (80 % band), in useful tokens per
        second and GPU, and `error` None; or those as None and one line of `error`.
    """
    try:
        work, card = read_row(row, models, cards)
        result = judge(work, card, step_time(work, card, FITTED))
    except SizingError as error:
        return dict.fromkeys(OUTPUT) | {"error": str(error)}
    values = (round(value, 2) for value in (result.likely, result.low, result.high))
    return dict(zip(OUTPUT, values, strict=True)) | {"error": None}


# --- cells ----------------------------------------------------------------------------------


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _number(row: Mapping[str, object], name: str) -> float | None:
    """A positive number, or None where the cell is empty.

    Raises:
        SizingError: the cell holds anything else.
    """
    text = _text(row, name)
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise SizingError(f"{name} is {text!r}, not a number") from None
    if not math.isfinite(value) or value <= 0:
        raise SizingError(f"{name} is {text!r}, not a positive number")
    if value > LARGEST:
        raise SizingError(f"{name} is {text!r}, beyond any run")
    return value


def _count(row: Mapping[str, object], name: str) -> int:
    value = _number(row, name)
    if value is None:
        return 1
    if value != int(value):
        raise SizingError(f"{name} is {_text(row, name)!r}, not a whole number")
    return int(value)


# --- names ----------------------------------------------------------------------------------


def find_card(label: str, cards: Mapping[str, Card]) -> Card:
    """The card that a free-text label means: its exact name, else the same chip.

    `H100-SXM5-80GB` is H100-80GB-SXM, `NVIDIA RTX A6000` is RTX-A6000-48GB. Among cards of one
    chip the one that shares most words wins.

    Raises:
        SizingError: no card has that chip.
    """
    if label in cards:
        return cards[label]
    name = _match_card(label, tuple(cards))
    if name is None:
        raise SizingError(f"unknown GPU {label!r}")
    return cards[name]


@lru_cache(maxsize=4096)
def _match_card(label: str, names: tuple[str, ...]) -> str | None:
    wanted = _card_words(label)
    chip = _chip(wanted)
    best: tuple[float, str] | None = None
    for name in names:
        have = _card_words(name)
        if _chip(have) != chip:
            continue
        score = len(wanted & have) - 0.25 * len(have - wanted)
        if best is None or score > best[0]:
            best = (score, name)
    return best[1] if best else None


@lru_cache(maxsize=4096)
def _card_words(label: str) -> frozenset[str]:
    text = re.sub(
        r"\(r\)|nvidia|geforce|rtx|amd|instinct|intel|tesla|blackwell|ultra|gpu|ai accelerator|dlc",
        " ",
        label.lower(),
    )
    text = re.sub(r"sxm\d", "sxm", text)
    text = re.sub(r"gaudi +(\d)", r"gaudi\1", text)
    return frozenset(re.findall(r"[a-z0-9]+", text))


def _chip(words: frozenset[str]) -> frozenset[str]:
    """What tells one chip from another: all words but those of memory, form and power."""
    # 80gb, sxm, pcie, nvl, hbm2e, 500w
    return frozenset(w for w in words if not re.fullmatch(r"\d+gb|sxm|pcie|nvl|hbm\w*|\d+w", w))


@lru_cache(maxsize=8192)
def _model_key(name: str) -> str:
    """A model's name without publisher, remarks and tuning: Qwen-7B-Chat-Int4 -> qwen7b."""
    text = name.split(" (")[0].rsplit("/", 1)[-1].lower()
    text = re.sub(r"-(chat|instruct|base|hf|it|int4|int8|awq|gptq|bnb-4bit|v\d)(?=-|$)", "", text)
    return re.sub(r"[^a-z0-9.]", "", text)


@lru_cache(maxsize=8192)
def _match_model(name: str, names: tuple[str, ...]) -> str | None:
    wanted = _model_key(name)
    return next((known for known in names if _model_key(known) == wanted), None)


def shape_from_params(params: float, active: float | None = None) -> Shape:
    """Guess a decoder's widths from its parameter count: the nearest rung of published sizes.

    The count itself is kept: layers become fractional. For a mixture, `active` sets the arithmetic
    and `params` the memory and traffic.
    """
    met = active or params
    hidden = min(_LADDER, key=lambda rung: abs(math.log(rung[0] / met)))[1]
    outer = min(float(_GUESSED_VOCABULARY * hidden), 0.4 * met)
    return Shape(
        layers=max(1.0, (met - outer) / (12.0 * hidden**2)),
        layer_params=12.0 * hidden**2,
        hidden=hidden,
        query=hidden,
        key_value=hidden,
        ffn=4 * hidden,
        ffn_matrices=2,
        vocab=int(outer / hidden),
        params=params,
        params_active=met,
    )


def _shape(row: Mapping[str, object], models: Mapping[str, ModelSpec]) -> Shape:
    """The row's model: a known architecture of that name and size, else a guess by size."""
    name = _text(row, "model")
    billions = _number(row, "params_b")
    active = _number(row, "active_params_b")
    known = name if name in models else _match_model(name, tuple(models))
    if known is not None:
        shape = shape_of(models[known])
        if not billions or abs(math.log(billions * 1e9 / shape.params)) <= SIZE_TOLERANCE:
            return shape
    if not billions:
        raise SizingError(f"unknown model {name!r}, and params_b is empty")
    return shape_from_params(billions * 1e9, active * 1e9 if active else None)


# --- layout ---------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How a job is spread: degrees of parallelism, sharding of state, and over how many GPUs."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    shard: str
    shard_gpus: int | None


def _degree(name: str, text: str) -> int:
    found = re.search(rf"(?<![a-z]){name}\s*=?\s*(\d+)", text)
    return max(1, int(found[1])) if found else 1


@lru_cache(maxsize=4096)
def _read_layout(text: str, gpus: int, stack: str) -> _Layout:
    """Read sharding text such as `FSDP0 TP4 PP8 CP2 EP1`, `ZeRO-3`, `tp=2, zero1=4`."""
    lower = text.lower()
    shard = "ddp" if gpus > 1 else "none"
    fsdp = re.search(r"fsdp\s?(\d*)", lower)  # FSDP, FSDP2 (a version), FSDP64 (a group), FSDP0
    group = int(fsdp[1]) if fsdp and fsdp[1] else None
    if fsdp and group != 0:
        shard = "zero3"
    if "grad_op" in lower or "hsdp" in lower:
        shard = "zero2"
    if group == 0 or (stack == "fused" and shard == "ddp"):
        shard = "zero1"  # Megatron's distributed optimizer
    zero = re.search(r"zero-?([123])", lower)
    if zero:
        shard = f"zero{zero[1]}"
    versioned = re.search(r"fsdp2\s+(\d+)", lower)  # FSDP2 16 x TP 8
    if versioned:
        group = int(versioned[1])
    return _Layout(
        tensor=_degree("tp", lower),
        pipeline=_degree("pp", lower),
        context=_degree("(?:cp|sp)", lower),
        expert=min(_degree("ep", lower), gpus),
        shard=shard,
        shard_gpus=group if group is not None and group > 2 else None,
    )


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
    """The checkpointed share of the layers' arithmetic; None where it is not stated.

    Selective checkpointing of operations or of every other layer recomputes about half.
    """
    lower = text.lower()
    if lower in ("true", "full"):
        return 1.0
    if lower in ("false", "none"):
        return 0.0
    return 0.5 if "selective" in lower else None


def _gbps_between_nodes(text: str, card: Card, per_node: float) -> float:
    """GB/s per GPU and direction between machines, from text such as `inter-node 1600 Gbps`."""
    each = re.search(r"(\d+)\s*gb/s/gpu|;\s*(\d+)\s*gbps", text)
    if each:  # 400 Gb/s/GPU; 800 Gbps
        return float(each[1] or each[2]) / 8
    node = re.search(r"(?:inter-node|efa)\s+(\d+)\s*gbps", text)
    if node:
        return float(node[1]) / 8 / per_node
    ports = re.search(r"(\d+)\s*x\s*(\d+)\s*gb", text)
    if ports:  # 4x100 Gb RoCE
        return float(ports[1]) * float(ports[2]) / 8 / per_node
    return default_network_gbps(card)


def _link(text: str, card: Card, gpus: int) -> tuple[float, bool]:
    """GB/s per direction between GPUs of one machine, and whether it is PCIe."""
    if "nvlink" in text and card.interconnect_gbps and "no nvlink" not in text:
        return card.interconnect_gbps / 2, False
    over_pcie = "pcie" in text or (gpus > 1 and not card.has_fast_links)
    if not over_pcie:
        return card.peer_gbps, False
    if "old" in text:
        return OLD_BOARD_GBPS, True
    return card.host_gbps * (VIRTUAL_LINK if "cloud" in text else 1.0), True


def _lengths(row: Mapping[str, object], note: str, micro: float) -> tuple[float, float]:
    """Tokens per sample as processed, and the share of them that is not padding."""
    stated = _number(row, "seq_len")
    cap = stated or UNSTATED_LENGTH
    if stated and "unpacked" not in note:
        return cap, 1.0
    each = re.search(r"about (\d+)(?: tokens)? each", note)
    mean = min(cap, max(1.0, float(each[1])) if each else UNPACKED_TOKENS)
    longest = min(cap, mean * (1.0 + PADDING_GROWTH * math.log2(max(1.0, micro))))
    return longest, mean / longest


def _release(before: str, framework: str) -> tuple[int, int]:
    """The release in a framework's name, such as `Bridge 26.06`; (0, 0) where there is none."""
    found = re.search(rf"{before}(\d+)\.(\d+)", framework.lower())
    return (int(found[1]), int(found[2])) if found else (0, 0)


def read_row(
    row: Mapping[str, object], models: Mapping[str, ModelSpec], cards: Mapping[str, Card]
) -> RowWork:
    """Turn a row with the columns of published measurements into work on a card.

    Raises:
        SizingError: the GPU or the method is unknown, the model is unknown and its size is not
            stated, or a number is not one.
    """
    network_text = _text(row, "interconnect").lower()
    label = _text(row, "gpu_model")
    card = find_card(label, cards)
    if "nvlink" in network_text and "no nvlink" not in network_text and not card.has_fast_links:
        card = find_card(f"{label}-SXM", cards)
    shape = _shape(row, models)
    method = _text(row, "method").lower()
    if method not in METHODS:
        raise SizingError(f"method {method!r} is not one of {', '.join(METHODS)}")
    trained = 0.0 if method in ("lora", "qlora") else 1.0
    framework = _text(row, "framework")
    note = _text(row, "note").lower()
    stack = stack_of(framework)
    if "compile" in note and stack == "eager":
        stack = "compiled"
    elif "eager" in note and stack == "compiled":
        stack = "eager"
    written = _text(row, "precision").lower()
    precision = next((value for key, value in _PRECISIONS if key in written), "bf16")
    if "fp8/fp4" in written:  # an MLPerf submission: what that round's programs train in
        trains_fp4 = card.vendor == "NVIDIA" and _release("v", framework) >= FP4_ROUND
        precision = "fp4" if trains_fp4 else "fp8"
    quant = ""
    if method == "qlora" or "nf4" in written:
        packed = re.search(r"int4|gptq", _text(row, "model").lower())
        quant = "gptq" if packed else "nf4"

    gpus, nodes = _count(row, "gpus"), _count(row, "nodes")
    sharding = _text(row, "sharding")
    layout = _read_layout(sharding, gpus, stack)
    tensor, context, shard = layout.tensor, layout.context, layout.shard
    global_batch = _number(row, "global_batch")
    if "submission" in sharding.lower():
        # what the memory asks for, and what is left where samples are fewer than GPUs
        length = _number(row, "seq_len") or UNSTATED_LENGTH
        tensor = _split_for_memory(shape, card, precision, length, gpus)
        context = max(1, int(gpus / (global_batch or gpus)) // tensor)
        shard = "zero1"
    model_gpus = tensor * layout.pipeline * context
    replicas = max(1.0, gpus / model_gpus)
    micro = _number(row, "micro_batch")
    if micro is None:
        fewest = max(1.0, UNSTATED_TOKENS // (_number(row, "seq_len") or UNSTATED_LENGTH))
        micro = fewest if global_batch is None else max(1.0, min(fewest, global_batch / replicas))
    if global_batch:
        batches = max(1.0, global_batch / (micro * replicas))
    else:
        batches = UNSTATED_ACCUMULATION * layout.pipeline
    length, useful = _lengths(row, note, micro)
    tokens = micro * length

    recompute = _recompute(_text(row, "grad_checkpointing"))
    if recompute is None:
        held = shape.params * (0.6 if quant else 2.0 + 14.0 * trained)
        held /= model_gpus * (replicas if shard == "zero3" else 1.0)
        free = (card.vram_gib_usable or 80.0) * 2**30 - held
        kept = 34.0 * tokens * shape.hidden * shape.layers / model_gpus
        recompute = 1.0 if kept > free and stack != "fused" else 0.0
    trainable = shape.params if trained else ADAPTER_SHARE * shape.params
    if not trained and ("(emb)" in note or "embeddings and lm_head also trained" in note):
        trainable += 2.0 * shape.vocab * shape.hidden

    watts = None
    if "power-limited" in note and card.tdp_watts:
        watts = POWER_LIMITED * card.tdp_watts
    graphed = _release("bridge ", framework) >= GRAPHED_RELEASE
    per_node = max(1.0, gpus / nodes)
    link, over_pcie = _link(network_text, card, gpus)
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
        attended=length,
        tokens_micro=tokens,
        micro_batches=batches,
        useful=useful,
        gpus=gpus,
        tensor=tensor,
        pipeline=layout.pipeline,
        context=context,
        expert=layout.expert,
        shard=shard,
        offload="offload" in sharding.lower() or "cpu offload" in note,
        link_gbps=link,
        network_gbps=_gbps_between_nodes(network_text, card, per_node),
        fast_domain=fast_domain(card, int(per_node)),
        shard_gpus=max(1, min(layout.shard_gpus or int(replicas), int(replicas))),
        over_pcie=over_pcie,
        synchronises=shape.experts > 1 and not graphed,
        adapters_per_layer=0 if trained else ADAPTERS_PER_LAYER,
        watts=watts,
        plain_network=nodes > 1 and stack == "trainer" and "not stated" in network_text,
        evaluated=_text(row, "basis") == "derived_from_time_to_target",
    )
    return RowWork(work, card)
