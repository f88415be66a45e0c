"""Which cards a set-up fits: the fewest of each, the largest micro-batch and sequence on them.

Fit is decided on the device figure at the safety level of `plans.needed_gib`, against the card's
usable memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from warehouse.sizing.card import Card
from warehouse.sizing.errors import SizingError
from warehouse.sizing.memory import Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import dtype_for, needed_gib
from warehouse.sizing.setup import Setup, check_precision

COUNTS: Final = (1, 2, 4, 8)
"""GPUs of one machine that are tried."""
MAX_MICRO_BATCH: Final = 1024
MAX_SEQ_LEN: Final = 1 << 20
"""Where a model states no positions, no longer sequence is tried."""


@dataclass(frozen=True)
class Fit:
    """How a job fits one kind of card, or why it does not.

    Attributes:
        gpu: the card.
        usable_gib: memory of one card that a process can use.
        gpus: the fewest that fit, of `COUNTS`; None when none does.
        setup: how they hold it.
        needed_gib: per card, at the safety level.
        largest_micro_batch: at the set-up's sequence length.
        largest_seq_len: at a micro-batch of one.
        reason: why it does not fit; None when it does.
    """

    gpu: str
    usable_gib: float
    gpus: int | None = None
    setup: Setup | None = None
    needed_gib: float | None = None
    largest_micro_batch: int | None = None
    largest_seq_len: int | None = None
    reason: str | None = None

    @property
    def total_gib(self) -> float:
        """Memory of all cards together: what makes one set-up smaller than another."""
        return self.usable_gib * (self.gpus or 0)


def fit_cards(
    model: ModelSpec, setup: Setup, cards: Iterable[Card], *, is_dtype_asked: bool = True
) -> list[Fit]:
    """Fit a job on every card, the smallest total memory first, cards that cannot last.

    Args:
        model: what is trained.
        setup: how; its GPU count, sharding and checkpointing are where the search starts.
        cards: the cards to try.
        is_dtype_asked: the user asked for this precision, so a card without it does not fit; else
            it is a default, and a card without BF16 takes FP16, as in `plans`.
    """
    found = [
        _fit_card(model, setup if is_dtype_asked else default_dtype(setup, card), card)
        for card in cards
        if card.vram_gib_usable
    ]
    return sorted(found, key=lambda f: (f.gpus is None, f.total_gib, f.usable_gib, f.gpu))


def layouts(setup: Setup) -> Iterator[Setup]:
    """Yield the ways to lay a job over 1, 2, 4 and 8 GPUs, the simplest first."""
    checkpointing = dict.fromkeys((setup.grad_checkpointing, "full"))
    for gpus in COUNTS:
        if gpus == 1:
            shardings: tuple[str, ...] = ("none",)
        else:
            shardings = tuple(dict.fromkeys((setup.sharding, "ddp", "zero2", "zero3", "fsdp")))
        for sharding in shardings:
            if (sharding == "none") != (gpus == 1) or sharding == "device_map":
                continue
            for kept in checkpointing:
                yield setup.but(gpus=gpus, nodes=1, sharding=sharding, grad_checkpointing=kept)


def default_dtype(setup: Setup, card: Card) -> Setup:
    """Return the set-up in the precision that a card takes by default."""
    dtype = dtype_for(setup, card)
    return setup if dtype == setup.weight_dtype else setup.but(weight_dtype=dtype)


def _fit_card(model: ModelSpec, setup: Setup, card: Card) -> Fit:
    usable = card.vram_gib_usable or 0.0
    refusal = check_precision(
        setup,
        card.gpu,
        card.bf16_supported,
        bool(card.fp8_dense_tflops),
        bool(card.int8_dense_tops),
    )
    if refusal:
        return Fit(card.gpu, usable, reason=refusal)
    closest: Estimate | None = None
    for candidate in layouts(setup):
        sized = estimate(model, candidate, card.gpu)
        if closest is None or needed_gib(sized) < needed_gib(closest):
            closest = sized
        if needed_gib(sized) <= usable:
            return Fit(
                card.gpu,
                usable,
                gpus=candidate.gpus,
                setup=candidate,
                needed_gib=needed_gib(sized),
                largest_micro_batch=_largest(
                    lambda n, c=candidate: _holds(model, c.but(micro_batch=n), card),  # type: ignore[misc]
                    MAX_MICRO_BATCH,
                ),
                largest_seq_len=_largest(
                    lambda n, c=candidate: _holds(  # type: ignore[misc]
                        model, c.but(micro_batch=1, seq_len=n), card
                    ),
                    model.max_position or MAX_SEQ_LEN,
                ),
            )
    assert closest is not None
    terms = {k: v for k, v in closest.terms_gib().items() if v > 0}
    largest = max(terms, key=lambda name: terms[name])
    layout = closest.setup
    return Fit(
        card.gpu,
        usable,
        needed_gib=needed_gib(closest),
        reason=(
            f"needs {needed_gib(closest):.1f} GiB per GPU on {layout.gpus} with {layout.sharding},"
            f" has {usable:.1f}; most goes to {largest} ({terms[largest]:.1f} GiB)"
        ),
    )


def _holds(model: ModelSpec, setup: Setup, card: Card) -> bool:
    try:
        return needed_gib(estimate(model, setup, card.gpu)) <= (card.vram_gib_usable or 0.0)
    except SizingError:
        return False


def _largest(holds: Callable[[int], bool], limit: int) -> int | None:
    """Return the largest n up to the limit that holds, by doubling and halving; None for none."""
    if not holds(1):
        return None
    low, high = 1, 2
    while high <= limit and holds(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
