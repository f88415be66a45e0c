"""Compare predicted training memory with traced and measured runs, beside a naive baseline.

    python -m benchmarks.sizing_accuracy [EVIDENCE] [--worst N] [--fit]

EVIDENCE is a folder with `vram_traced.csv`, `vram_measured.csv` and `models.csv`; by default
`../shared/facts` beside the checkout. Printed are, for traced and for measured rows, the median,
mean and 90th percentile of the absolute error, the share under-predicted by more than 5 %, and how
often the stated 90 % interval holds the truth; by kind, framework, method and sharding. Measured
rows count when their unit is certain, their grade is A or B and, unless they tell allocated bytes,
the run was not near its card's capacity. Averages are taken per framework first, then over
frameworks, since two suites hold over half of the rows.

Left out, the constants of the overhead and the spread are fitted to all other frameworks, and what
a preset was fitted to on this framework is set aside. `--fit` prints the constants fitted to all.

The naive baseline is what most calculators do: weights, gradients and two moments in their bytes,
one hidden state of every layer, no logits, and a fifth on top.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from warehouse.sizing import overhead
from warehouse.sizing.bulk import STRETCH, find_model
from warehouse.sizing.errors import SizingError
from warehouse.sizing.memory import Estimate, estimate
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.rows import METRIC, is_trace, setup_from_row
from warehouse.sizing.setup import DTYPE_BYTES, QUANT_BITS

GIB_PER_GB = 1e9 / 2**30
PUBLISHED_CONTEXT_GIB = 0.9
"""CUDA context with all kernels loaded on an A100 (stas00/ml-engineering)."""
PUBLISHED_MANY_GIB = 1.5
"""Process groups and NCCL buffers of several GPUs: 1 to 2 GiB (same source)."""
EVIDENCE = Path(__file__).resolve().parents[2] / "shared" / "facts"


@dataclass(frozen=True)
class Case:
    """One run: what was asked, what came out, what is predicted."""

    row: dict[str, str]
    truth_gib: float
    metric: str
    found: Estimate
    predicted_gib: float
    low_gib: float
    high_gib: float

    @property
    def error(self) -> float:
        """Relative error, positive when too high."""
        return self.predicted_gib / self.truth_gib - 1

    @property
    def framework(self) -> str:
        """Name of the framework, or of the trace."""
        return self.row.get("framework") or "trace"


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_models(folder: Path) -> dict[str, ModelSpec]:
    """Every architecture of the models table, by lower-case name."""
    specs = [ModelSpec.from_row(row) for row in read_rows(folder / "models.csv")]
    return {spec.hf_id.lower(): spec for spec in specs}


def scored(row: dict[str, str]) -> bool:
    """Whether a row counts: certain unit, grade A or B, not held back by the card's capacity."""
    if is_trace(row):
        return True
    free = row["near_capacity"] == "no" or row["kind"] == "allocated"
    return row["unit_certain"] == "yes" and row["quality"] in {"A", "B"} and free


def make_cases(
    rows: Iterable[dict[str, str]], models: dict[str, ModelSpec]
) -> tuple[list[Case], list[str]]:
    """Predict every scored row; also the reasons why some cannot be sized."""
    cases, refused = [], []
    for row in rows:
        if not scored(row):
            continue
        trace = is_trace(row)
        metric = "live" if trace else METRIC[row["kind"].lower()]
        truth = float(row["peak_gib"]) if trace else float(row["peak_gb_si"]) * GIB_PER_GB
        try:
            found = estimate(
                find_model(row, models), setup_from_row(row), row.get("gpu_model"), STRETCH
            )
        except SizingError as error:
            refused.append(f"{row.get('id', row['model'])}: {error}")
            continue
        low, likely, high = found.range_gib(metric)
        cases.append(Case(row, truth, metric, found, likely, low, high))
    return cases, refused


def naive_gib(case: Case) -> float:
    """Weights, gradients and moments, one hidden state per layer, a fifth on top."""
    model, setup = case.found.model, case.found.setup
    width = DTYPE_BYTES[setup.weight_dtype]
    weights = model.params_total * (QUANT_BITS[setup.quant] / 8 if setup.quant != "none" else width)
    trained = case.found.trainable_params * (16 if setup.is_adapter else 3 * width + 2)
    shards = setup.gpus if setup.sharding in {"fsdp", "zero3"} else 1
    hidden = 2 * setup.tokens * model.hidden_size * model.num_layers
    return 1.2 * ((weights + trained) / shards + hidden) / 2**30


@dataclass(frozen=True)
class Score:
    """Errors of a group, in per cent."""

    median: float
    mean: float
    p90: float
    under: float
    covered: float


def score(cases: Sequence[Case], predict: Callable[[Case], float] | None = None) -> Score:
    """Errors over the rows of one group."""
    values = [(predict(c) if predict else c.predicted_gib) / c.truth_gib - 1 for c in cases]
    sizes = sorted(abs(v) for v in values)
    inside = [c.low_gib <= c.truth_gib <= c.high_gib for c in cases]
    return Score(
        100 * statistics.median(sizes),
        100 * statistics.mean(sizes),
        100 * sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))],
        100 * statistics.mean(v < -0.05 for v in values),
        100 * statistics.mean(inside),
    )


def macro(cases: Sequence[Case], predict: Callable[[Case], float] | None = None) -> Score:
    """Errors averaged over frameworks."""
    scores = [score(group, predict) for group in by(cases, lambda c: c.framework).values()]
    return Score(
        *(
            statistics.mean(getattr(s, name) for s in scores)
            for name in ("median", "mean", "p90", "under", "covered")
        )
    )


def by(cases: Iterable[Case], key: Callable[[Case], str]) -> dict[str, list[Case]]:
    """Group cases."""
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[key(case)].append(case)
    return dict(sorted(groups.items()))


# --- leaving one framework out ----------------------------------------------------------------


def fit_overhead(cases: Sequence[Case], large: bool) -> overhead.GpuClass:
    """Constants of one class of card by least absolute relative error, frameworks weighed alike."""
    start = overhead.LARGE if large else overhead.SMALL
    chosen = [
        c
        for c in cases
        if c.metric in {"reserved", "device"}
        and (overhead.gpu_class(c.row.get("gpu_model")) is not overhead.SMALL) == large
    ]
    counts = {k: len(v) for k, v in by(chosen, lambda c: c.framework + c.metric).items()}
    if len(chosen) < 10:
        return start
    weights = np.array([1 / counts[c.framework + c.metric] for c in chosen])
    truth = np.array([c.truth_gib for c in chosen])
    moving = [c.found.dynamic for c in chosen]
    floor = np.array([
        c.found.peak.total / 2**30 * overhead.ALLOCATED_SHARE + overhead.WORKSPACE_GIB
        for c in chosen
    ])  # fmt: skip
    logits = np.array([[m.logits, m.fused_logits] for m in moving])
    slack, gap = np.array([m.slack for m in moving]), np.array([m.gap for m in moving])
    others = np.array([
        [
            1.0, m.backward, m.unit, m.step, float(c.metric == "device"),
            float(c.metric == "device" and c.found.setup.gpus >= 4),
        ]
        for m, c in zip(moving, chosen, strict=True)
    ])  # fmt: skip
    prior = np.array([
        start.per_logit_bytes, start.per_fused_logit_bytes, start.reserved_gib, start.backward,
        start.unit, start.step, PUBLISHED_CONTEXT_GIB, PUBLISHED_MANY_GIB,
    ])  # fmt: skip
    free = np.concatenate([logits, others], axis=1).any(axis=0)  # the rest stays as published

    def full(values: np.ndarray) -> np.ndarray:
        made = prior.copy()
        made[free] = np.abs(values)
        return made

    def loss(values: np.ndarray) -> float:
        made = full(values)
        held = np.maximum(0.0, logits @ made[:2] + slack - gap)
        predicted = floor + held + others @ made[2:]
        return float((weights * np.abs(predicted / truth - 1)).sum() / weights.sum())

    values = prior[free]
    for _ in range(4):
        values = minimize(loss, values, method="Nelder-Mead", options={"maxiter": 4000}).x
    logit, fused, reserved, *rest = (float(v) for v in full(values))
    return overhead.GpuClass(reserved, logit, fused, *rest)


def fit_spread(cases: Sequence[Case], metric: str) -> tuple[float, float]:
    """5th and 95th percentile of truth over prediction; many rows of a framework count less."""
    chosen = [c for c in cases if c.metric == metric]
    if len(chosen) < 20:
        return overhead.SPREAD[metric]
    counts = {k: len(v) for k, v in by(chosen, lambda c: c.framework).items()}
    pairs = sorted((c.truth_gib / c.predicted_gib, counts[c.framework] ** -0.5) for c in chosen)
    total, reached = sum(w for _, w in pairs), 0.0
    low = high = pairs[0][0]
    for ratio, weight in pairs:
        reached += weight / total
        if reached <= 0.05:
            low = ratio
        if reached <= 0.95:
            high = ratio
    return low, high


def leave_out(cases: Sequence[Case]) -> list[Case]:
    """Predict each framework with constants fitted to the others, its fitted slack set aside."""
    made: list[Case] = []
    for name, group in by(cases, lambda c: c.framework).items():
        others = [c for c in cases if c.framework != name]
        fitted = {large: fit_overhead(others, large) for large in (True, False)}
        spreads = {m: fit_spread(others, m) for m in ("allocated", "reserved", "device")}
        for c in group:
            setup = replace(c.found.setup, allocator_slack=0.0)
            found = replace(c.found, setup=setup)
            card = fitted[overhead.gpu_class(c.row.get("gpu_model")) is not overhead.SMALL]
            likely = overhead.likely_gib(
                found.peak.total / 2**30, found.dynamic, c.metric, setup, card
            )
            low, high = spreads[c.metric]
            made.append(
                replace(
                    c,
                    found=found,
                    predicted_gib=likely,
                    low_gib=likely * low,
                    high_gib=likely * high,
                )
            )
    return made


# --- printing ---------------------------------------------------------------------------------

HEAD = f"{'':44}{'n':>5}{'median':>8}{'mean':>8}{'p90':>8}{'under':>8}{'inside':>8}{'naive':>9}"


def line(label: str, cases: Sequence[Case], s: Score, naive: Score) -> str:
    """One row of a table, in per cent; `naive` is the baseline's median."""
    return (
        f"{label[:43]:44}{len(cases):5d}{s.median:8.2f}{s.mean:8.2f}{s.p90:8.2f}"
        f"{s.under:8.1f}{s.covered:8.1f}{naive.median:9.1f}"
    )


def table(title: str, cases: Sequence[Case], key: Callable[[Case], str]) -> None:
    """Print one table of groups."""
    print(f"\n{title}\n{HEAD}")
    for name, group in by(cases, key).items():
        print(line(name, group, score(group), score(group, naive_gib)))


def summary(title: str, cases: Sequence[Case]) -> None:
    """Print the figures that count, averaged over frameworks."""
    print(f"\n{title} (averaged over frameworks)\n{HEAD}")
    parts: list[tuple[str, Callable[[Case], bool]]] = [
        ("allocated, one GPU", lambda c: c.metric == "allocated" and c.found.setup.gpus == 1),
        ("allocated, sharded", lambda c: c.metric == "allocated" and c.found.setup.gpus > 1),
        ("reserved", lambda c: c.row["kind"] == "reserved"),
        ("device (nvidia-smi)", lambda c: c.metric == "device"),
        ("all kinds", lambda c: True),
    ]
    for label, keep in parts:
        group = [c for c in cases if keep(c)]
        if group:
            print(line(label, group, macro(group), macro(group, naive_gib)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every table; 1 when the evidence is not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("evidence", nargs="?", type=Path, default=EVIDENCE)
    parser.add_argument("--worst", type=int, default=0, help="also print the N worst rows")
    parser.add_argument("--fit", action="store_true", help="print constants fitted to all rows")
    options = parser.parse_args(arguments)
    needed = ("models.csv", "vram_traced.csv", "vram_measured.csv")
    missing = [name for name in needed if not (options.evidence / name).is_file()]
    if missing:
        print(f"no evidence: {options.evidence} has no {', '.join(missing)}", file=sys.stderr)
        return 1
    models = read_models(options.evidence)
    traced, no_trace = make_cases(read_rows(options.evidence / "vram_traced.csv"), models)
    measured, no_size = make_cases(read_rows(options.evidence / "vram_measured.csv"), models)
    print(f"{len(traced)} traced and {len(measured)} measured rows; errors in per cent")
    for reason in (*no_trace, *no_size):
        print(f"not sized: {reason}")
    table("Traced: live tensor bytes, by method", traced, lambda c: c.row["method"])
    print(line("all", traced, score(traced), score(traced, naive_gib)))
    summary("Measured", measured)
    table("By kind", measured, lambda c: c.row["kind"])
    table("By framework", measured, lambda c: c.framework)
    table("By method", measured, lambda c: c.row["method"])
    table(
        "By sharding",
        measured,
        lambda c: f"{c.found.setup.sharding} on {min(c.found.setup.gpus, 8)}",
    )
    held_out = leave_out(measured)
    summary("Measured, leaving one framework out", held_out)
    table("Leaving one framework out, by framework", held_out, lambda c: c.framework)
    if options.fit:
        print(f"\nlarge cards: {fit_overhead(measured, True)}")
        print(f"small cards: {fit_overhead(measured, False)}")
        for metric in ("allocated", "reserved", "device"):
            print(f"spread of {metric}: {fit_spread(measured, metric)}")
    for c in sorted(measured, key=lambda c: -abs(c.error))[: options.worst]:
        print(
            f"{100 * c.error:+7.1f} {c.row['id']:16} {c.row['model'][:30]:31} {c.row['method']:8} "
            f"{c.metric:10} {c.truth_gib:7.2f} {c.predicted_gib:7.2f} {c.found.peak_phase}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
