"""The fastest way that a job fits a machine, for every job and machine.

For each job and machine the choices are sharding, checkpointing and micro-batch. Memory does not
depend on the card's speed, so each choice is sized once per job and GPU count; the largest
micro-batch that fits is searched by doubling, and the choice with the most tokens per second wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final, NamedTuple

from warehouse.sizing.card import Card
from warehouse.sizing.errors import SizingError
from warehouse.sizing.memory import GIB, Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.overhead import GpuClass, gpu_class
from warehouse.sizing.presets import find_preset, preset_fields
from warehouse.sizing.setup import DTYPE_BYTES, QUANT_BITS, Setup, check_pair, check_precision
from warehouse.sizing.throughput import Throughput, tokens_per_second

SAFETY_LEVEL: Final = 0.9
"""Share of runs that a plan called fitting must fit: the 90th percentile of the device figure."""
_SAFETY_WEIGHT: Final = 1.2816 / 1.6449
"""How far from the likely figure (0) to the 95th percentile (1) that level lies: the ratio of the
normal quantiles at 0.90 and 0.95."""
BATCH_SAMPLES: Final = 64
"""Sequences per optimizer step: the micro-batch never asks for more than this over all GPUs, and
accumulation fills up to it. Published recipes use 16 to 128."""
MAX_MICRO_BATCH: Final = 64
"""No micro-batch beyond this is tried: speed has long stopped growing."""
VRAM_BOUND_GAIN: Final = 1.10
"""A plan is bound by VRAM when twice its micro-batch, which does not fit, would run this much
faster."""

NODES_TRIED: Final = (2, 4, 8, 16)
"""Machines that are joined where one does not hold a job."""
GPUS_TO_JOIN: Final = 8
"""Only machines of so many GPUs are joined: fabrics are sold with full nodes."""
FABRIC_GBPS: Final = 25.0
"""GB/s per GPU and direction between machines: 200 Gbit/s, half of what full nodes with InfiniBand,
EFA or RoCE state (3200 Gbit/s for eight GPUs). Whether an offer has a fabric at all is a term."""

PLAN_COLUMNS: Final = (
    "job", "gpu", "gpu_count", "nodes", "sharding", "micro_batch", "grad_checkpointing",
    "weight_dtype", "optimizer", "vram_weights_gib", "vram_gradients_gib", "vram_optimizer_gib",
    "vram_activations_gib", "vram_logits_gib", "vram_overhead_gib", "vram_needed_gib",
    "vram_usable_gib", "fits", "reason", "bound_by", "tokens_per_s_low", "tokens_per_s",
    "tokens_per_s_high", "hours_low", "hours", "hours_high", "checkpoint_gib",
    "weights_download_gib", "output_gib",
)  # fmt: skip
"""Keys of every plan row. Memory in GiB per GPU, speed in tokens per second of the whole machine,
hours of training without start-up, interruptions or evaluation. `gpu_count` is of one machine,
`nodes` how many of them work together."""


class Job(NamedTuple):
    """A reference job, read and checked."""

    name: str
    model: ModelSpec
    tokens: float
    setup: Setup
    max_micro_batch: int


class Machine(NamedTuple):
    """What is rented: a canonical GPU name, GPUs in all, and the machines that they sit in.

    `network_gbps` is the fabric between machines, GB/s per GPU and direction; None where the
    provider has none for this instance: then several nodes are not eligible.
    """

    gpu: str
    gpu_count: float
    nodes: int = 1
    network_gbps: float | None = None


def _text(row: Mapping[str, object], name: str) -> str:
    value = row.get(name)
    return "" if value is None else str(value).strip()


def _whole(row: Mapping[str, object], name: str, default: int) -> int:
    text = _text(row, name)
    if not text and default:
        return default
    try:
        value = float(text)
    except ValueError:
        raise SizingError(f"{name} is {text!r}, not a number") from None
    if not value >= 1 or value != int(value):
        raise SizingError(f"{name} is {text!r}, not a whole number of at least 1")
    return int(value)


_DEFAULT_RANK: Final = {"prefix": 20, "prompt": 20, "ptuning": 20}
"""Virtual tokens where a job states none."""


def read_job(row: Mapping[str, object], models: Mapping[str, ModelSpec]) -> Job:
    """Read a row of the `jobs` seed: its framework's defaults, and what the row itself says.

    Samples count as packed: a job's tokens are real tokens.

    Raises:
        SizingError: the model or framework is unknown, or a value is missing or impossible.
    """
    name = _text(row, "job")
    model = models.get(_text(row, "model"))
    if model is None:
        raise SizingError(f"{name}: no model {_text(row, 'model')!r} in the models seed")
    method = _text(row, "method") or "lora"
    framework = _text(row, "framework") or "transformers"
    chosen = preset_fields(find_preset(framework), method) | {
        "framework": framework,
        "weight_dtype": _text(row, "weight_dtype") or "bf16",
        "lora_rank": _whole(row, "lora_rank", _DEFAULT_RANK.get(method, 16)),
        "lora_targets": _text(row, "lora_targets") or "all-linear",
        "seq_len": _whole(row, "seq_len", 2048),
        "packing": True,
        "sharding": "none",
    }
    for field in ("quant", "optimizer"):
        if _text(row, field):
            chosen[field] = _text(row, field)
    setup = Setup(**chosen)
    check_pair(model, setup)
    return Job(
        name=name,
        model=model,
        tokens=float(_whole(row, "tokens", 0)),
        setup=setup,
        max_micro_batch=_whole(row, "max_micro_batch", MAX_MICRO_BATCH),
    )


def needed_gib(sized: Estimate) -> float:
    """GiB per GPU that a plan must find free: the device figure at `SAFETY_LEVEL`."""
    _, likely, high = sized.range_gib("device")
    return likely + _SAFETY_WEIGHT * (high - likely)


def _layouts(setup: Setup, gpus: int, nodes: int) -> tuple[Setup, ...]:
    """The ways to spread and checkpoint a job over so many GPUs, fastest kinds first."""
    shardings: tuple[str, ...] = ("none",)
    if gpus > 1:
        shardings = ("ddp", "fsdp") if setup.is_adapter else ("zero2", "fsdp")
    return tuple(
        setup.but(gpus=gpus, nodes=nodes, sharding=sharding, grad_checkpointing=checkpointing)
        for sharding in shardings
        for checkpointing in ("none", "full")
    )


class _Choice(NamedTuple):
    """One layout at the largest micro-batch that fits, or at one when none does."""

    setup: Setup
    sized: Estimate
    needed: float
    fits: bool
    limited: bool


class _Sizer:
    """Sizes one job's layouts, each once."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._needs: dict[tuple[Setup, int, GpuClass], tuple[Estimate, float, Setup]] = {}
        self._layouts: dict[tuple[str, int, int], tuple[Setup, ...]] = {}

    def layouts(self, dtype: str, gpus: int, nodes: int) -> tuple[Setup, ...]:
        key = (dtype, gpus, nodes)
        found = self._layouts.get(key)
        if found is None:
            base = self.job.setup
            if dtype != base.weight_dtype:
                base = base.but(weight_dtype=dtype)
            found = self._layouts[key] = _layouts(base, gpus, nodes)
        return found

    def need(self, layout: Setup, micro: int, gpu: str) -> tuple[Estimate, float, Setup]:
        key = (layout, micro, gpu_class(gpu))
        found = self._needs.get(key)
        if found is None:
            accumulate = max(1, BATCH_SAMPLES // (micro * layout.gpus))
            setup = layout.but(micro_batch=micro, grad_accum=accumulate)
            sized = estimate(self.job.model, setup, gpu)
            found = self._needs[key] = (sized, needed_gib(sized), setup)
        return found

    def choose(self, layout: Setup, usable: float, gpu: str) -> _Choice:
        cap = max(1, min(self.job.max_micro_batch, BATCH_SAMPLES // layout.gpus))
        sized, needed, setup = self.need(layout, 1, gpu)
        if needed > usable:
            return _Choice(setup, sized, needed, False, True)
        micro, limited = 1, False
        while micro * 2 <= cap:
            bigger = self.need(layout, micro * 2, gpu)
            if bigger[1] > usable:
                limited = True
                break
            micro *= 2
            sized, needed, setup = bigger
        return _Choice(setup, sized, needed, True, limited)


def _slice(card: Card, share: float) -> Card:
    """A share of a card: memory, bandwidth, rates and power in proportion."""

    def part(value: float | None) -> float | None:
        return None if value is None else value * share

    return replace(
        card,
        vram_gib_usable=part(card.vram_gib_usable),
        mem_bandwidth_gbps=card.mem_bandwidth_gbps * share,
        bf16_dense_tflops=part(card.bf16_dense_tflops),
        fp16_dense_tflops=part(card.fp16_dense_tflops),
        fp8_dense_tflops=part(card.fp8_dense_tflops),
        int8_dense_tops=part(card.int8_dense_tops),
        fp32_tflops=part(card.fp32_tflops),
        tdp_watts=part(card.tdp_watts),
    )


def dtype_for(setup: Setup, card: Card) -> str:
    """The precision that a job's weights take on a card: fp16 where the card has no bf16."""
    if setup.weight_dtype == "bf16" and not card.bf16_supported:
        return "fp16"
    if setup.weight_dtype == "fp8" and not card.fp8_dense_tflops:
        return "bf16" if card.bf16_supported else "fp16"
    return setup.weight_dtype


def checkpoint_gib(sized: Estimate) -> float:
    """GiB of one full checkpoint: what is trained, and its optimizer states.

    A full fine-tune saves weights and states of every parameter; an adapter run only its own
    (some programs also write the frozen base: a trap, not the rule). States in the precision of
    what is trained, 8-bit optimizers one byte each.
    """
    setup = sized.setup
    trained = sized.trainable_params
    weight_bytes = DTYPE_BYTES[setup.adapter_dtype if setup.is_adapter else setup.weight_dtype]
    if setup.master_weights:
        weight_bytes += 4.0
    copies = {"sgd": 0.0, "adafactor": 0.0, "sgd_momentum": 1.0, "lion": 1.0, "lion8bit": 1.0}
    state_bytes = DTYPE_BYTES[setup.state_dtype] if setup.state_dtype else weight_bytes
    if "8bit" in setup.optimizer:
        state_bytes = 1.0
    elif "4bit" in setup.optimizer:
        state_bytes = 0.5
    return trained * (weight_bytes + copies.get(setup.optimizer, 2.0) * state_bytes) / GIB


def output_gib(sized: Estimate) -> float:
    """GiB of what is taken home: the adapter as it is trained, or all weights in 16 bits."""
    setup = sized.setup
    width = DTYPE_BYTES[setup.adapter_dtype] if setup.is_adapter else 2.0
    return sized.trainable_params * width / GIB


@lru_cache(maxsize=4096)
def weights_download_gib(model: ModelSpec, quant: str) -> float:
    """GiB of base weights fetched before training: the published checkpoint.

    Weights that are packed while loading (nf4, int8) are fetched at full width; GPTQ checkpoints
    are fetched packed.
    """
    if quant.startswith("gptq"):
        inside = model.linear_params
        rest = model.params_total - inside
        return (inside * QUANT_BITS[quant] / 8 + rest * 2.0) / GIB
    width = 4.0 if model.dtype in ("float32", "fp32") else 2.0
    return (model.params_total + model.vision_params) * width / GIB


def _row(job: str, machine: Machine, **values: object) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(PLAN_COLUMNS)
    row.update(
        job=job, gpu=machine.gpu, gpu_count=machine.gpu_count, nodes=machine.nodes, fits=False
    )
    row.update(values)
    return row


def _why_not(machine: Machine, card: Card | None, setup: Setup) -> str | None:
    """Why a machine cannot take a job whatever its memory, or None."""
    if card is None:
        return f"unknown GPU {machine.gpu!r}"
    if not card.vram_gib_usable:
        return f"{card.gpu}: usable memory unknown"
    count = machine.gpu_count
    if count <= 0:
        return f"{count} GPUs"
    if count > 1 and count != int(count):
        return f"{count} GPUs: only whole GPUs can work together"
    if count > 1 and int(count) % machine.nodes:
        return f"{count:g} GPUs do not spread evenly over {machine.nodes} machines"
    if machine.nodes > 1 and machine.network_gbps is None and not card.in_rack_fabric:
        return "several machines without a fabric between them"
    dtype = dtype_for(setup, card)
    changed = setup if dtype == setup.weight_dtype else setup.but(weight_dtype=dtype)
    return check_precision(
        changed,
        card.gpu,
        card.bf16_supported,
        bool(card.fp8_dense_tflops),
        bool(card.int8_dense_tops),
    )


def plan_job(sizer: _Sizer, machine: Machine, card: Card | None) -> dict[str, object]:
    """The fastest plan of one job on one machine, or why there is none."""
    job = sizer.job
    download = weights_download_gib(job.model, job.setup.quant)
    reason = _why_not(machine, card, job.setup)
    if reason is not None or card is None:
        return _row(job.name, machine, reason=reason, weights_download_gib=download)
    if machine.gpu_count < 1:
        card = _slice(card, machine.gpu_count)
    usable = card.vram_gib_usable or 0.0
    dtype = dtype_for(job.setup, card)
    gpus = max(1, int(machine.gpu_count))
    best: tuple[_Choice, Throughput] | None = None
    closest: _Choice | None = None
    for layout in sizer.layouts(dtype, gpus, machine.nodes):
        choice = sizer.choose(layout, usable, card.gpu)
        if not choice.fits:
            if closest is None or choice.needed < closest.needed:
                closest = choice
            continue
        speed = tokens_per_second(
            job.model,
            choice.setup,
            card,
            trainable_params=choice.sized.trainable_params,
            network_gbps=machine.network_gbps,
        )
        if best is None or speed.likely > best[1].likely:
            best = (choice, speed)
    if best is None:
        assert closest is not None
        return _row(
            job.name,
            machine,
            **_described(closest, usable),
            reason=(
                f"needs {closest.needed:.1f} GiB per GPU with {closest.setup.sharding}, "
                f"micro-batch 1 and checkpointing; {card.gpu} has {usable:.1f}"
            ),
            bound_by="vram",
            weights_download_gib=download,
        )
    choice, speed = best
    return _row(
        job.name,
        machine,
        **_described(choice, usable),
        fits=True,
        bound_by=_bound(sizer, choice, speed, card, machine),
        tokens_per_s_low=speed.low * gpus,
        tokens_per_s=speed.likely * gpus,
        tokens_per_s_high=speed.high * gpus,
        hours_low=job.tokens / (speed.high * gpus) / 3600.0,
        hours=job.tokens / (speed.likely * gpus) / 3600.0,
        hours_high=job.tokens / (speed.low * gpus) / 3600.0,
        weights_download_gib=download,
    )


def _bound(sizer: _Sizer, choice: _Choice, speed: Throughput, card: Card, machine: Machine) -> str:
    """What holds a plan back: vram, precision, or the largest cost of a step."""
    if choice.limited:
        _, _, bigger = sizer.need(
            choice.setup.but(micro_batch=1, grad_accum=1), choice.setup.micro_batch * 2, card.gpu
        )
        faster = tokens_per_second(
            sizer.job.model,
            bigger,
            card,
            trainable_params=choice.sized.trainable_params,
            network_gbps=machine.network_gbps,
        )
        if faster.likely > VRAM_BOUND_GAIN * speed.likely:
            return "vram"
    if speed.bound_by == "compute" and choice.setup.weight_dtype != sizer.job.setup.weight_dtype:
        return "precision"
    return speed.bound_by


def _described(choice: _Choice, usable: float) -> dict[str, object]:
    """A choice's own columns; the terms add up to the needed figure."""
    terms = choice.sized.terms_gib()
    named = ("weights", "gradients", "optimizer", "activations", "logits")
    row: dict[str, object] = {f"vram_{name}_gib": terms[name] for name in named}
    row["vram_overhead_gib"] = choice.needed - sum(terms[name] for name in named)
    setup = choice.setup
    row.update(
        sharding=setup.sharding,
        micro_batch=setup.micro_batch,
        grad_checkpointing=setup.grad_checkpointing,
        weight_dtype=setup.weight_dtype,
        optimizer=setup.optimizer,
        vram_needed_gib=choice.needed,
        vram_usable_gib=usable,
        checkpoint_gib=checkpoint_gib(choice.sized),
        output_gib=output_gib(choice.sized),
    )
    return row


def plan_jobs(
    jobs: Iterable[Mapping[str, object]],
    models: Mapping[str, ModelSpec],
    cards: Mapping[str, Card],
    machines: Iterable[tuple[str, float] | Machine],
) -> Iterator[dict[str, object]]:
    """One plan per job and machine, in that order: the fastest that fits, or why none does.

    Args:
        jobs: rows with the columns of the `jobs` seed.
        models: architectures by name, as the jobs name them.
        cards: GPUs by canonical name.
        machines: distinct (canonical GPU, GPU count), or `Machine` for several nodes. A count
            below 1 is a slice of a card: memory and speed in proportion. Where a full machine does
            not hold a job, several of them are tried, joined by a fabric.

    Yields: rows with the keys of `PLAN_COLUMNS`. A job that cannot be read gives its reason on
        every machine; nothing is raised.
    """
    fleet = [m if isinstance(m, Machine) else Machine(m[0], float(m[1])) for m in machines]
    for row in jobs:
        try:
            sizer = _Sizer(read_job(row, models))
        except SizingError as error:
            for machine in fleet:
                yield _row(_text(row, "job"), machine, reason=str(error))
            continue
        for machine in fleet:
            try:
                yield _plan_joined(sizer, machine, cards.get(machine.gpu))
            except SizingError as error:
                yield _row(sizer.job.name, machine, reason=str(error))


def _plan_joined(sizer: _Sizer, machine: Machine, card: Card | None) -> dict[str, object]:
    """Plan on one machine, or on the fewest joined ones that hold the job."""
    alone = plan_job(sizer, machine, card)
    is_short_of_memory = not alone["fits"] and alone["bound_by"] == "vram"
    if not is_short_of_memory or machine.nodes > 1 or machine.gpu_count < GPUS_TO_JOIN:
        return alone
    for nodes in NODES_TRIED:
        joined = Machine(machine.gpu, machine.gpu_count * nodes, nodes, FABRIC_GBPS)
        plan = plan_job(sizer, joined, card)
        if plan["fits"]:
            return plan | {"gpu_count": machine.gpu_count}
    return alone
