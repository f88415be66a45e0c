"""Print how far predicted speeds lie from published ones, beside two naive baselines.

    python -m benchmarks.throughput_accuracy [EVIDENCE] [--refit]

EVIDENCE is the folder with `throughput_measured.csv`, `mlperf_jobs.csv` and `cost_cases.csv`
(default `../shared/facts` beside the checkout). Errors are |predicted / measured - 1|. Without
`--refit` the shipped constants are used, which have seen these rows; with it (four minutes) two
tables of unseen rows follow: five folds that keep a configuration together, and one source left out
at a time.

Baselines, on the same rows: `median` multiplies each card's peak with the median utilisation of the
other sources' rows of that GPU class and method; `constant` takes 40 % of peak throughout.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.fit_throughput import (
    ROOT,
    Row,
    hold_out,
    hold_out_folds,
    load_rows,
    load_seeds,
)
from warehouse.sizing.fitted import FITTED
from warehouse.sizing.steptime import half_width, peak_flops, step_time
from warehouse.sizing.throughput import judge
from warehouse.sizing.throughput_rows import size_row

CONSTANT_UTILISATION = 0.40
LIKELY = "tokens_per_s_per_gpu_likely"
TOKENS_PER_SAMPLE = {"databricks-dolly-15k": 215.0, "philschmid/dolly-15k-oai-style": 215.0}
"""Mean tokens of a formatted sample: the source packs 15,011 of them into 1,581 of 2048 tokens."""
PROGRAMS = {
    "AnswerDotAI/fsdp_qlora": "fsdp_qlora",
    "fsdp_qlora": "fsdp_qlora",
    "llm.c": "llm.c",
    "philschmid": "HF TRL",
}
"""The program a published cost was run with, by a word of its address."""


def judge_row(row: Row) -> tuple[float, float]:
    """Log error under the shipped constants, and the band's half-width."""
    work, card = row.read
    result = judge(work, card, step_time(work, card, FITTED))
    return float(np.log(result.likely)) - row.target, half_width(work, card, FITTED)


def simple_flops(row: Row) -> float:
    """k x parameters: 6 for trained weights, 4 for frozen ones."""
    shape = row.read.work.shape
    return (4.0 + 2.0 * row.read.work.trained_share) * shape.params_active


def baseline_errors(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Log errors of the naive baselines."""
    peaks = np.array([peak_flops(row.read.card, "bf16") for row in rows])
    flops = np.array([simple_flops(row) for row in rows])
    target = np.array([row.target for row in rows])
    used = np.log(np.exp(target) * flops / peaks)
    classes = [(row.cells["gpu_class"], row.read.work.trained_share) for row in rows]
    sources = [row.cells["source_group"] for row in rows]
    median = np.zeros(len(rows))
    for index in range(len(rows)):
        others = [
            used[other]
            for other in range(len(rows))
            if sources[other] != sources[index] and classes[other] == classes[index]
        ]
        everyone = [u for u, s in zip(used, sources, strict=True) if s != sources[index]]
        median[index] = np.median(others or everyone) - used[index]
    return {"median": median, "constant": np.log(CONSTANT_UTILISATION) - used}


def summarise(name: str, errors: Iterable[float]) -> str:
    """One table line of log errors."""
    logs = np.array(list(errors))
    size = np.abs(np.expm1(logs))
    return (
        f"{name:34s} {len(size):4d}  {np.median(size):6.1%} {np.mean(size):7.1%} "
        f"{np.quantile(size, 0.9):7.1%}  {np.mean(size <= 0.25):6.1%}  "
        f"{np.expm1(np.median(logs)):+6.1%}"
    )


HEADER = f"{'':34s} rows  median    mean     p90  <=25 %    bias"


def print_groups(
    title: str, rows: Sequence[Row], errors: np.ndarray, key: Callable[[Row], str]
) -> None:
    """A table by group."""
    groups: dict[str, list[float]] = defaultdict(list)
    for row, error in zip(rows, errors, strict=True):
        groups[key(row)].append(float(error))
    print(f"\n{title}\n{HEADER}")
    for name in sorted(groups):
        print(summarise(name, groups[name]))


def print_errors(title: str, rows: Sequence[Row], errors: np.ndarray) -> None:
    """All rows, fine-tuning rows, and by method."""
    tuning = np.array([row.cells["method"] != "pretrain" for row in rows])
    print(f"\n{title}\n{HEADER}")
    print(summarise("all rows", errors))
    print(summarise("fine-tuning rows", errors[tuning]))
    for method in ("full", "lora", "qlora", "pretrain"):
        own = np.array([row.cells["method"] == method for row in rows])
        print(summarise(f"  {method}", errors[own]))


def mlperf_row(job: Mapping[str, str]) -> dict[str, str]:
    """An MLPerf job in the columns of measured speeds."""
    lora = job["benchmark"] == "llama2_70b_lora"
    gpu = re.sub(r".*\((?!R\))(.*)\)", r"\1", job["accelerator"])  # Blackwell GPU (GB200) -> GB200
    return {
        "model": "meta-llama/Llama-2-70b-hf" if lora else "meta-llama/Llama-3.1-8B",
        "params_b": "68.98" if lora else "8.03",
        "method": "lora" if lora else "pretrain",
        "gpu_model": gpu,
        "gpus": job["gpus"],
        "nodes": job["nodes"],
        "interconnect": job["interconnect"],
        "precision": "fp8/fp4 mixed (submission dependent)",
        "seq_len": "8192",
        "global_batch": job["global_batch"],
        "sharding": "submission dependent",
        "flash_attention": "True",
        "framework": f"MLPerf Training {job['round']}",
        "basis": "derived_from_time_to_target",
    }


def mlperf_errors(evidence: Path) -> dict[str, list[float]]:
    """Log of predicted over measured GPU-hours to target, by benchmark."""
    models, cards = load_seeds()
    errors: dict[str, list[float]] = defaultdict(list)
    with (evidence / "mlperf_jobs.csv").open(newline="") as file:
        for job in csv.DictReader(file):
            found = size_row(mlperf_row(job), models, cards)
            if found["error"]:
                print(f"{job['id']}: {found['error']}", file=sys.stderr)
                continue
            hours = float(job["tokens_median"]) / float(str(found[LIKELY])) / 3600.0
            errors[job["benchmark"]].append(float(np.log(hours / float(job["gpu_hours"]))))
    return errors


class CostCase(NamedTuple):
    """A published job that was measured: what it cost, and what it should at the same price."""

    name: str
    stated_usd: float
    predicted_usd: float | None
    """None where it cannot be judged."""
    reason: str | None
    """Why not."""


def stated_cost(case: Mapping[str, str]) -> tuple[float, float]:
    """The cost in USD and the price in USD per hour of the whole machine that a case states.

    Of a range the middle counts; a price that is not stated is the cost by the hours.
    """
    low, high = case["stated_low_usd"], case["stated_high_usd"]
    cost = float(case["stated_cost_usd"] or (float(low) + float(high)) / 2)
    price = float(case["price_usd_per_h"] or 0)
    if case["price_basis"] == "gpu":
        price *= int(case["gpus"])
    return cost, price or cost / float(case["hours"])


def cost_cases(evidence: Path) -> list[CostCase]:
    """Every published job whose time was measured, judged at its stated price where it can be."""
    models, cards = load_seeds()
    found = []
    with (evidence / "cost_cases.csv").open(newline="") as file:
        for case in csv.DictReader(file):
            if not case["kind"].startswith("measured"):
                continue
            cost, price = stated_cost(case)
            name = f"{case['id']} {case['gpus']}x {case['gpu']} {case['model'].split('/')[-1]}"
            per_sample = TOKENS_PER_SAMPLE.get(case["dataset"])
            tokens = float(case["dataset_tokens"] or 0)
            if not tokens and per_sample:
                tokens = per_sample * float(case["dataset_samples"] or 0)
            method = case["method"]
            if not tokens:
                reason = f"tokens not stated: {case['dataset_samples'] or '?'} samples of"
                reason += f" {case['dataset']}, length not stated"
                found.append(CostCase(name, cost, None, reason))
                continue
            size = re.search(r"(\d+(?:\.\d+)?)([bBM])\b", case["model"])
            billions = float(size[1]) / (1000.0 if size[2] == "M" else 1.0) if size else 0.0
            batch = re.search(r"batch (\d+)", case["note"])
            program = next((p for w, p in PROGRAMS.items() if w in case["source_url"]), "")
            row = {
                "model": case["model"],
                "params_b": f"{billions}" if billions else "",
                "method": method,
                "gpu_model": case["gpu"],
                "gpus": case["gpus"],
                "nodes": "1",
                "interconnect": "NVLink" if re.search("[AH]100", case["gpu"]) else "cloud host",
                "precision": "bf16",
                "seq_len": case["seq_len"],
                "micro_batch": batch[1] if batch else "",
                "sharding": "FSDP" if int(case["gpus"]) > 1 and method == "qlora" else "",
                "grad_checkpointing": "True" if method == "qlora" else "False",
                "flash_attention": "False" if "no flash" in case["note"] else "True",
                "framework": program,
            }
            sized = size_row(row, models, cards)
            if sized["error"]:
                found.append(CostCase(name, cost, None, str(sized["error"])))
                continue
            rate = float(str(sized[LIKELY])) * int(case["gpus"])
            hours = tokens * float(case["epochs"] or 1) / rate / 3600.0
            found.append(CostCase(name, cost, hours * price, None))
    return found


def main(arguments: Sequence[str]) -> int:
    """Print every table."""
    paths = [argument for argument in arguments if not argument.startswith("--")]
    evidence = Path(paths[0]) if paths else ROOT.parent / "shared" / "facts"
    rows = load_rows(evidence)
    judged = np.array([judge_row(row) for row in rows])
    errors, widths = judged[:, 0], judged[:, 1]
    print_errors("Shipped constants (these rows were fitted)", rows, errors)
    inside = np.mean(np.abs(errors) <= widths)
    print(f"80 % band: covers {inside:.1%}, median half-width {np.median(np.expm1(widths)):.1%}")
    print_groups("By GPU class", rows, errors, lambda row: row.cells["gpu_class"])
    print_groups("By source", rows, errors, lambda row: row.cells["source_group"])
    for name, logs in baseline_errors(rows).items():
        print_errors(f"Baseline: {name}", rows, logs)
    if "--refit" in arguments:
        unseen, _ = hold_out_folds(rows)
        print_errors("Unseen configurations (five folds, refitted)", rows, unseen)
        inside = np.mean(np.abs(unseen) <= widths)
        print(f"80 % band: covers {inside:.1%}")
        away, _ = hold_out(rows, lambda row: row.cells["source_group"])
        print_errors("One source left out (refitted)", rows, away)
        print_groups("  by source", rows, away, lambda row: row.cells["source_group"])
    print(f"\nMLPerf: GPU-hours to target\n{HEADER}")
    for benchmark, logs in mlperf_errors(evidence).items():
        print(summarise(benchmark, logs))
    cases = cost_cases(evidence)
    print("\nPublished jobs that were measured: USD predicted at the stated price, stated, ratio")
    ratios = []
    for case in cases:
        if case.predicted_usd is None:
            print(f"{case.name:50s} {'':8s} {case.stated_usd:8.2f}  {case.reason}")
        else:
            ratios.append(case.predicted_usd / case.stated_usd)
            figures = f"{case.predicted_usd:8.2f} {case.stated_usd:8.2f}  {ratios[-1]:5.2f}"
            print(f"{case.name:50s} {figures}")
    inside = np.mean(np.abs(np.array(ratios) - 1) <= 0.30)
    print(f"within 30 %: {inside:.0%} of {len(ratios)}; not judged: {len(cases) - len(ratios)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
