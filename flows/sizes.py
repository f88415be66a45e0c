"""`tunecost size`: memory by term and phase, what fits which card, and many jobs at once."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from flows.refresh import UsageError, load_cards, load_models
from warehouse.sizing.bulk import size_rows
from warehouse.sizing.fit import Fit, default_dtype, fit_cards
from warehouse.sizing.memory import GIB, TERMS, Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import SAFETY_LEVEL, needed_gib
from warehouse.sizing.presets import make_setup
from warehouse.sizing.setup import Setup
from warehouse.sizing.throughput_rows import size_row

# Columns that tables of measured speed have and tables of measured memory have not.
SPEED_COLUMNS: Final = frozenset({"precision", "flash_attention"})


def build_setup(framework: str, method: str, stated: Mapping[str, Any]) -> Setup:
    """Return a set-up: the framework's defaults with what the user stated in their place.

    Raises:
        SizingError: the framework or a value is none that a run can have.
    """
    changes = {name: value for name, value in stated.items() if value is not None}
    return make_setup(framework, method, **changes)


def describe(
    model: ModelSpec,
    setup: Setup,
    gpu: str | None,
    cards: Sequence[str] = (),
    *,
    is_dtype_asked: bool = True,
) -> dict[str, Any]:
    """Size one job: its memory by term and phase, and every card with the reason for or against.

    Args:
        model: what is trained.
        setup: how.
        gpu: the card whose overhead counts in the breakdown; a typical one when None.
        cards: names of the cards to try; all when empty.
        is_dtype_asked: a card without the set-up's BF16 is refused; else it takes FP16.

    Raises:
        SizingError: the set-up does not suit the model.
    """
    known = load_cards()
    fits = fit_cards(
        model, setup, [known[name] for name in (cards or known)], is_dtype_asked=is_dtype_asked
    )
    if gpu is not None and not is_dtype_asked:
        setup = default_dtype(setup, known[gpu])
    sized = estimate(model, setup, gpu)
    smallest = next((f for f in fits if f.gpus), None)
    return {
        "model": model.hf_id,
        "method": setup.method,
        "framework": setup.framework,
        "params_total": model.params_total,
        "params_trainable": sized.trainable_params,
        "seq_len": setup.seq_len,
        "micro_batch": setup.micro_batch,
        "gpus": setup.gpus,
        "sharding": setup.sharding,
        "grad_checkpointing": setup.grad_checkpointing,
        "optimizer": setup.optimizer,
        "weight_dtype": setup.weight_dtype,
        "quant": setup.quant,
        "peak_phase": sized.peak_phase,
        "peaks_gib": peaks(sized),
        "phases_gib": {
            name: {term: round(size / GIB, 4) for term, size in zip(TERMS, phase, strict=True)}
            | {"total": round(phase.total / GIB, 4)}
            for name, phase in sized.phases.items()
        },
        "safety_level": SAFETY_LEVEL,
        "needed_gib": round(needed_gib(sized), 4),
        "smallest": None if smallest is None else fit_row(smallest),
        "cards": [fit_row(f) for f in fits],
    }


def peaks(sized: Estimate) -> dict[str, dict[str, float]]:
    """Return low, likely and high of every metric."""
    names = ("low", "likely", "high")
    return {
        metric: dict(zip(names, (round(x, 4) for x in sized.range_gib(metric)), strict=True))
        for metric in ("live", "allocated", "reserved", "device")
    }


def fit_row(fit: Fit) -> dict[str, Any]:
    """Lay a fit out as a row."""
    layout = fit.setup
    return {
        "gpu": fit.gpu,
        "usable_gib": fit.usable_gib,
        "gpus": fit.gpus,
        "weight_dtype": layout.weight_dtype if layout else None,
        "sharding": layout.sharding if layout else None,
        "grad_checkpointing": layout.grad_checkpointing if layout else None,
        "needed_gib": None if fit.needed_gib is None else round(fit.needed_gib, 2),
        "largest_micro_batch": fit.largest_micro_batch,
        "largest_seq_len": fit.largest_seq_len,
        "reason": fit.reason,
    }


def size_file(path: Path) -> Iterator[dict[str, Any]]:
    """Size every row of a CSV: memory, or speed for a table of measured speed.

    Raises:
        UsageError: the file cannot be read, or is no CSV with a `model` column.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            reader = csv.DictReader(stream)
            columns = reader.fieldnames or []
            if "model" not in columns:
                raise UsageError(f"{path} has no column 'model' in its first line")
            # Extra cells of a ragged line are dropped, missing ones are empty.
            rows = ({k: v or "" for k, v in row.items() if k is not None} for row in reader)
            models = load_models()
            if set(columns) >= SPEED_COLUMNS:
                cards = load_cards()
                for row in rows:
                    yield row | size_row(row, models, cards)
            else:
                yield from size_rows(rows, models)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path} is not a CSV file in UTF-8 ({error})") from error
