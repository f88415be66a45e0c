"""Derive the constants of the step-time model again from published measurements.

    python -m benchmarks.fit_throughput [EVIDENCE] [--write]

EVIDENCE is the folder with `throughput_measured.csv` (default `../shared/facts` beside the
checkout). Every constant starts at the prior in `steptime.Constants` and is moved in log space by
robust least squares, held back by the width of its prior (`PRIORS`): a constant that the data do
not reach stays where physics put it. Rows weigh less where their source has many.

The band's width is fitted to residuals of rows that a fit has not seen: five folds that never split
one configuration (source, method, model, GPU, GPU count, precision, length); what an unknown
program or architecture adds comes from leaving out one source or one architecture at a time.
`--write` writes `warehouse/sizing/fitted.py`; takes about five minutes.
"""

from __future__ import annotations

import csv
import math
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares, minimize

from warehouse.sizing.card import Card
from warehouse.sizing.errors import SizingError
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.steptime import STACKS, Constants, spread_traits, step_time
from warehouse.sizing.throughput_rows import RowWork, read_row

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT / "warehouse" / "seeds"
FITTED_FILE = ROOT / "warehouse" / "sizing" / "fitted.py"

PRIORS = {
    "matmul": 0.1, "hidden_half": 0.7, "fp8": 0.2, "fp4": 0.2, "int8": 0.2, "attention": 0.2,
    "attention_hopper": 0.2, "attention_fused": 0.2, "watts": 0.08, "pcie_share": 0.3,
    "moe_seconds": 0.5, "ridge": 0.5, "nf4": 0.4, "gptq": 0.7, "overlap": 0.2,
    "overlap_trainer": 0.15, "launch_overlap": 0.3, "head_exposed": 0.5, "plain_network": 0.3,
    "link_share": 0.3, "network_share": 0.2, "tensor_exposed": 0.5, "context_exposed": 0.7,
    "expert_exposed": 0.5, "moe": 0.3, "interleave": 0.4, "straggler": 0.7,
    "adapter_seconds": 0.7, "adapter_traffic": 0.5, "step_seconds": 0.5,
}  # fmt: skip
"""Constants and the standard deviation of their prior, in natural log."""
STACK_PRIORS = {"traffic": 0.3, "layer_seconds": 0.5, "stack": 0.15, "logits": 0.4}
ARCHITECTURE_PRIOR = 0.15
FRAMEWORK_PRIOR = 0.12
NOISE = 0.08
"""Log error of a good measurement: residuals within it count quadratically, beyond it linearly."""
COVERAGE = 0.81
"""Share of unseen residuals that the band is scaled to cover: 80 % with a little reserve."""
FOLDS = 5
SPREAD_PRIOR = 0.5


class Row(NamedTuple):
    """A measured row, what it was read as, and the log of its tokens per second and GPU."""

    cells: Mapping[str, str]
    read: RowWork
    target: float


class Parameter(NamedTuple):
    """A constant to fit: its field, its key where the field is a mapping, its prior's width."""

    field: str
    key: str | None
    width: float


def load_seeds() -> tuple[dict[str, ModelSpec], dict[str, Card]]:
    """Models and cards of the seeds, by name."""
    with (SEEDS / "models.csv").open(newline="") as file:
        models = {row["hf_id"]: ModelSpec.from_row(row) for row in csv.DictReader(file)}
    with (SEEDS / "gpus.csv").open(newline="") as file:
        cards = {row["gpu"]: Card.from_row(row) for row in csv.DictReader(file)}
    return models, cards


def load_rows(evidence: Path) -> list[Row]:
    """Measured rows that can be read; the others are named on stderr."""
    models, cards = load_seeds()
    rows = []
    with (evidence / "throughput_measured.csv").open(newline="") as file:
        for cells in csv.DictReader(file):
            try:
                read = read_row(cells, models, cards)
            except SizingError as error:
                print(f"{cells['id']}: {error}", file=sys.stderr)
                continue
            rows.append(Row(cells, read, math.log(float(cells["tokens_per_s_per_gpu"]))))
    return rows


def list_parameters(rows: Sequence[Row]) -> list[Parameter]:
    """Every constant that these rows can move."""
    found = [Parameter(name, None, width) for name, width in PRIORS.items()]
    for stack in STACKS:
        found += [Parameter(name, stack, width) for name, width in STACK_PRIORS.items()]
    architectures = sorted({row.read.card.architecture_key for row in rows})
    found += [Parameter("architecture", name, ARCHITECTURE_PRIOR) for name in architectures]
    programs = sorted({row.read.work.framework for row in rows})
    found += [Parameter("framework", name, FRAMEWORK_PRIOR) for name in programs]
    return found


def apply(base: Constants, parameters: Sequence[Parameter], logs: Sequence[float]) -> Constants:
    """The constants moved by these logarithms."""
    changes: dict[str, Any] = {}
    for (name, key, _), log in zip(parameters, logs, strict=True):
        if key is None:
            changes[name] = getattr(base, name) * math.exp(log)
        else:
            values = changes.setdefault(name, dict(getattr(base, name)))
            values[key] = values.get(key, 1.0) * math.exp(log)
    return replace(base, **changes)


def residuals(fit: Constants, rows: Sequence[Row]) -> np.ndarray:
    """Log of predicted over measured, per row."""
    return np.array([
        math.log(r.read.work.useful / step_time(r.read.work, r.read.card, fit).total) - r.target
        for r in rows
    ])  # fmt: skip


def fit_constants(rows: Sequence[Row], evaluations: int = 15) -> Constants:
    """Fit every constant to these rows, from the priors."""
    base = Constants()
    parameters = list_parameters(rows)
    widths = np.array([parameter.width for parameter in parameters])
    counts = Counter(row.cells["source_group"] for row in rows)
    weights = np.array([counts[row.cells["source_group"]] ** -0.25 for row in rows])
    weights /= weights.mean()

    def errors(logs: np.ndarray) -> np.ndarray:
        error = residuals(apply(base, parameters, logs), rows) * weights / NOISE
        robust = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error**2) - 1.0))  # pseudo-Huber
        return np.concatenate([robust, logs / widths])

    start = np.zeros(len(parameters))
    found = least_squares(errors, start, x_scale=widths, max_nfev=evaluations)
    return apply(base, parameters, found.x)


def configuration(row: Row) -> tuple[str, ...]:
    """What must not be split between a fit and its check."""
    names = ("source_group", "method", "model", "gpu_model", "gpus", "precision", "seq_len")
    return tuple(row.cells[name] for name in names)


def hold_out(
    rows: Sequence[Row], group: Callable[[Row], Any], evaluations: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of each group under a fit to all others, and whether its program was known then."""
    out = np.zeros(len(rows))
    known = np.zeros(len(rows), dtype=bool)
    groups = [group(row) for row in rows]
    for name in sorted(set(groups)):
        others = [row for row, of in zip(rows, groups, strict=True) if of != name]
        own = [index for index, of in enumerate(groups) if of == name]
        fit = fit_constants(others, evaluations)
        out[own] = residuals(fit, [rows[index] for index in own])
        known[own] = [rows[index].read.work.framework in fit.framework for index in own]
    return out, known


def hold_out_folds(rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Residuals over `FOLDS` folds that keep a configuration together."""
    return hold_out(rows, lambda row: zlib.crc32(repr(configuration(row)).encode()) % FOLDS)


def fit_spread(
    rows: Sequence[Row],
    errors: np.ndarray,
    known: np.ndarray,
    away: np.ndarray,
    strange: np.ndarray,
) -> dict[str, float]:
    """Log half-width of the band by trait, from residuals of rows that the fit has not seen.

    Args:
        rows: the rows.
        errors: their residuals over folds.
        known: whether a fold's fit knew the program.
        away: their residuals with their whole source left out.
        strange: their residuals with every row of their card's architecture left out.
    """
    traits = [
        spread_traits(row.read.work, row.read.card, known_program=bool(k), known_card=True)
        for row, k in zip(rows, known, strict=True)
    ]
    names = [name for name in traits[0] if name not in ("unknown", "new_card")]
    table = np.array([[trait[name] for name in names] for trait in traits])
    size = np.abs(errors) + 0.01

    def loss(logs: np.ndarray) -> float:
        widths = table @ logs
        held = 0.5 * np.sum((logs[1:] / SPREAD_PRIOR) ** 2)
        return float(np.sum(size * np.exp(-widths) + widths) + held)

    start = np.zeros(len(names))
    start[0] = math.log(0.1)
    logs = minimize(loss, start).x
    widths = np.exp(table @ logs)
    seen = np.quantile(np.abs(errors[known]) / widths[known], COVERAGE)
    logs[0] += math.log(seen)
    fitted = dict(zip(names, logs, strict=True))
    for name, unseen in (("unknown", away), ("new_card", strange)):
        wider = np.quantile(np.abs(unseen) / (widths * seen), COVERAGE)
        fitted[name] = max(0.0, math.log(wider))
    return fitted


def write_constants(fit: Constants, path: Path) -> None:
    """Write the constants as a module."""
    lines = [
        '"""The fitted constants of the step-time model.',
        "",
        "Written by `python -m benchmarks.fit_throughput --write` from the published measurements",
        "in `throughput_measured.csv`; meaning: `steptime.Constants`. Not edited by hand.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Final",
        "",
        "from warehouse.sizing.steptime import Constants",
        "",
        "FITTED: Final = Constants(",
    ]
    for name in (item.name for item in fields(fit)):
        value = getattr(fit, name)
        if isinstance(value, float):
            lines.append(f"    {name}={float(f'{value:.4g}')!r},")
            continue
        lines.append(f"    {name}={{")
        lines += [f'        "{key}": {float(f"{v:.4g}")!r},' for key, v in sorted(value.items())]
        lines.append("    },")
    lines.append(")")
    path.write_text("\n".join(lines) + "\n")


def describe(errors: np.ndarray) -> str:
    """Median error, share within 25 %, bias."""
    size = np.abs(np.expm1(errors))
    within = np.mean(size <= 0.25)
    bias = np.expm1(np.median(errors))
    return f"median {np.median(size):6.1%}  within 25 % {within:6.1%}  bias {bias:+6.1%}"


def main(arguments: Sequence[str]) -> int:
    """Fit, report, and write when asked."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    evidence = Path(paths[0]) if paths else ROOT.parent / "shared" / "facts"
    rows = load_rows(evidence)
    fit = fit_constants(rows)
    print(f"{len(rows)} rows, in-source  {describe(residuals(fit, rows))}")
    errors, known = hold_out_folds(rows)
    print(f"{FOLDS} folds, unseen          {describe(errors)}")
    away, _ = hold_out(rows, lambda row: row.cells["source_group"])
    print(f"source left out         {describe(away)}")
    strange, _ = hold_out(rows, lambda row: row.read.card.architecture_key)
    print(f"architecture left out   {describe(strange)}")
    fit = replace(fit, spread=fit_spread(rows, errors, known, away, strange))
    if "--write" in arguments:
        write_constants(fit, FITTED_FILE)
        print(f"wrote {FITTED_FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
