"""What a run takes beside its tensors: allocator slack, CUDA context, communication.

Three steps lead from the bytes of live tensors to what nvidia-smi shows, each with the median of
measured runs and a spread:

    allocated = live + work spaces of cuBLAS and rounding to 512 bytes
    reserved  = allocated + what the caching allocator holds and cannot reuse
    device    = reserved + CUDA context and kernels + communication buffers

What cannot be reused grows with the logits (the largest blocks, which a later phase splits), with
the blocks of the backward pass and, when state is sharded, with the units gathered ahead. The
constants of `SMALL` and `LARGE` are fitted (least absolute relative error) to runs that report two
of the figures: 43 on a T4, 124 on A100s; `benchmarks/sizing_accuracy.py` prints what they leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from warehouse.sizing.setup import Setup

WORKSPACE_GIB: Final = 0.02
"""cuBLAS takes 8 to 32 MiB per handle and stream (`CUBLAS_WORKSPACE_CONFIG`)."""
ALLOCATED_SHARE: Final = 1.01
"""Live bytes that `memory_allocated` counts more: blocks are rounded to 512 bytes, and tensors that
the rules do not name (masks, positions, loss scalars) live beside those that they do."""


@dataclass(frozen=True)
class GpuClass:
    """Overhead of one class of card.

    Attributes:
        reserved_gib: held by the allocator whatever runs.
        per_logit_bytes: held per token and vocabulary entry, where logits are built.
        per_fused_logit_bytes: the same where a fused kernel overwrites them: copies made before it
            are freed early, but their blocks do not serve again.
        backward: held per byte that lives in the backward pass.
        unit: held per byte of a gathered unit, when state is sharded.
        step: held per byte of the optimiser step's temporaries.
        context_gib: CUDA context, kernels and libraries of one GPU.
        many_gib: communication buffers more from four GPUs on.
    """

    reserved_gib: float
    per_logit_bytes: float
    per_fused_logit_bytes: float
    backward: float
    unit: float
    step: float
    context_gib: float
    many_gib: float


SMALL: Final = GpuClass(0.02, 0.6, 0.6, 0.42, 2.0, 0.25, 0.14, 1.5)
LARGE: Final = GpuClass(0.5, 0.7, 6.0, 0.09, 2.1, 0.12, 3.4, 1.6)
WORKSTATION: Final = replace(LARGE, context_gib=1.2)
"""Cards of 8 to 48 GB for desks and inference: the context as published (0.5 to 0.9 GiB) and some
margin, since no run on them tells both figures."""
WORKSTATION_CARDS: Final = frozenset({"rtx", "gtx", "a10", "a10g", "a16", "a40", "a2", "l4", "l40",
                                      "l40s", "a4000", "a4500", "a5000", "a6000"})  # fmt: skip
SMALL_CARDS: Final = frozenset({"t4", "v100", "p100", "p40", "p4", "k80", "m60"})

SPREAD: Final = {
    "live": (0.985, 1.02),
    "allocated": (0.92, 1.1),
    "reserved": (0.8, 1.28),
    "device": (0.855, 1.16),
}
"""5th and 95th percentile of measured over predicted, by metric (calibrated on held-out frameworks,
see the benchmark)."""


@dataclass(frozen=True)
class Dynamic:
    """What moves during a step, in GiB: the sources of allocator slack.

    Attributes:
        logits: elements of the logits of one forward pass, in units of 2^30; 0 where none is built.
        fused_logits: the same where a fused kernel overwrites them; then `logits` is 0.
        backward: activations and temporaries of the backward pass.
        unit: the gathered unit.
        step: temporaries of the optimiser step.
        slack: what samples of varying length leave in the cache.
        gap: how far the forward pass lies below the peak: room in which blocks of the logits that
            do not serve again cost nothing.
    """

    logits: float
    fused_logits: float
    backward: float
    unit: float
    step: float
    slack: float
    gap: float


def gpu_class(gpu: str | None) -> GpuClass:
    """The class of a card by its name; a data-centre card where none is given."""
    words = (gpu or "").lower().replace("-", " ").split()
    if SMALL_CARDS.intersection(words):
        return SMALL
    return WORKSTATION if WORKSTATION_CARDS.intersection(words) else LARGE


def spread(
    live_gib: float, dynamic: Dynamic, metric: str, setup: Setup, gpu: str | None
) -> tuple[float, float, float]:
    """Low, likely and high peak for a metric, from the bytes of live tensors.

    Args:
        live_gib: the peak of live tensors.
        dynamic: the sources of allocator slack.
        metric: "live", "allocated", "reserved" or "device".
        setup: the set-up; its GPU count decides communication buffers.
        gpu: the card's name, or None.

    Returns:
        The 5th percentile, the median and the 95th percentile in GiB.
    """
    low, high = SPREAD[metric]
    likely = likely_gib(live_gib, dynamic, metric, setup, gpu_class(gpu))
    return likely * low, likely, likely * high


def likely_gib(
    live_gib: float, dynamic: Dynamic, metric: str, setup: Setup, card: GpuClass
) -> float:
    """The median peak in GiB for a metric on a class of card.

    Args:
        live_gib: the peak of live tensors.
        dynamic: the sources of allocator slack.
        metric: "live", "allocated", "reserved" or "device".
        setup: the set-up.
        card: the constants of the class.
    """
    if metric == "live":
        return live_gib
    likely = live_gib * ALLOCATED_SHARE + WORKSPACE_GIB
    if metric == "allocated":
        return likely
    held = (
        card.per_logit_bytes * dynamic.logits
        + card.per_fused_logit_bytes * dynamic.fused_logits
        + dynamic.slack
    )
    likely += (
        card.reserved_gib
        + max(0.0, held - dynamic.gap)
        + card.backward * dynamic.backward
        + card.unit * dynamic.unit
        + card.step * dynamic.step
    )
    if metric == "reserved":
        return likely
    return likely + card.context_gib + (card.many_gib if setup.gpus >= 4 else 0.0)
