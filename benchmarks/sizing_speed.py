"""How many jobs a second are sized, sped and planned on one core.

    .venv/bin/python -m benchmarks.sizing_speed

The baseline named in the ratios is the back-of-the-envelope rule on the same rows: 16 bytes per
trained parameter and 2 per frozen one for memory, 6 FLOPs per parameter and token at 40 % of the
card's peak for speed. Prints the best of three runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from flows.refresh import load_cards, load_models
from warehouse import seeds
from warehouse.sizing.bulk import size_rows
from warehouse.sizing.plans import plan_jobs
from warehouse.sizing.throughput_rows import size_row


def best_rate(run: Callable[[], Iterable[Any]], rows: int, times: int = 3) -> float:
    """Return rows a second, the best of several runs."""
    best = 0.0
    for _ in range(times):
        started = time.perf_counter()
        for _row in run():
            pass
        best = max(best, rows / (time.perf_counter() - started))
    return best


def main() -> None:
    """Run the benchmark."""
    models, cards = load_models(), load_cards()
    names = [m for m, spec in models.items() if spec.is_text]
    memory_rows = [
        {
            "model": name, "method": method, "weight_dtype": "bf16", "lora_rank": "16",
            "lora_targets": "all-linear", "optimizer": "adamw", "attention": "flash",
            "grad_checkpointing": "True", "seq_len": str(length), "micro_batch": "1",
            "framework": "transformers", "kind": "reserved",
        }
        for name in names for method in ("full", "lora") for length in (512, 1024, 2048)
    ]  # fmt: skip
    speed_rows = [
        {
            "model": name, "params_b": str(models[name].params_total / 1e9), "method": "lora",
            "gpu_model": gpu, "gpus": "1", "precision": "bf16", "seq_len": "1024",
            "micro_batch": "1",
        }
        for name in names for gpu in ("H100-80GB-SXM", "A100-80GB-SXM", "L4-24GB")
    ]  # fmt: skip
    machines = [(gpu, count) for gpu in list(cards)[:50] for count in (1.0, 8.0)]
    jobs = seeds.load("jobs")[:60]
    rates = (
        ("memory, rows", lambda: size_rows(memory_rows, models), len(memory_rows)),
        ("speed, rows", lambda: (size_row(r, models, cards) for r in speed_rows), len(speed_rows)),
        ("plans, 60 jobs x 100", lambda: plan_jobs(jobs, models, cards, machines),
         len(jobs) * len(machines)),
    )  # fmt: skip

    def rule() -> Iterable[tuple[float, float]]:
        peak = 989.4e12
        for row in memory_rows:
            params = models[row["model"]].params_total
            yield (16.0 if row["method"] == "full" else 2.0) * params, 0.4 * peak / (6 * params)

    baseline = best_rate(rule, len(memory_rows))
    print(f"{'envelope rule, rows':24} {baseline:12,.0f} a second")
    for name, run, rows in rates:
        rate = best_rate(run, rows)
        print(f"{name:24} {rate:12,.0f} a second   ratio to the rule 1 : {baseline / rate:,.0f}")


if __name__ == "__main__":
    main()
