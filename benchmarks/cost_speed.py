"""How fast bills are ranked: one job, and sixty, against 61,000 offers.

    .venv/bin/python -m benchmarks.cost_speed [--offers 61000] [--jobs 60]

The offers are the bundled baseline's real rows, repeated under other names until there are enough.
The baseline named in the ratios is the naive price list: hours times price, sorted, in the same
database. Prints the median of several runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import duckdb

from flows.refresh import plan_reference_jobs, read_offer
from warehouse import seeds
from warehouse.ledger import Ledger, Observation
from warehouse.publish import publish
from warehouse.reader import open_published

NAIVE = """
    select o.offer_id, p.job, p.hours * o.price_usd_per_hour as cost_usd
    from sizing.plans as p inner join staging.current_offers as o using (gpu, gpu_count)
    where p.fits and {where}
    qualify row_number() over (partition by p.job order by cost_usd) <= 20
"""
BILL = """
    select job, offer_id, cost_usd
    from marts.cost_per_job
    where is_eligible and {where}
    qualify row_number() over (partition by job order by cost_usd) <= 20
"""


def fill(folder: Path, wanted: int) -> int:
    """Publish a file with so many offers; return how many."""
    rows = seeds.load("baseline_offers")
    copies = -(-wanted // len(rows))
    total = 0
    with Ledger(folder / "ledger.duckdb") as ledger:
        ledger.start_run("replay", datetime.now(UTC), "benchmark")
        for (provider, scope), some in groupby(rows, lambda r: (r["provider"], r["scope"])):
            offers = [read_offer(row).model_dump() for row in some]
            many = [
                offer | {"sku": f"{offer['sku']} #{copy}"} for copy in range(copies)
                for offer in offers
            ]  # fmt: skip
            total += len(many)
            ledger.keep(Observation(provider, scope, "ok", datetime.now(UTC), offers=many))
        publish(
            ledger, folder / "prices.duckdb", plan_reference_jobs,
            published_at=datetime.now(UTC), version="benchmark",
        )  # fmt: skip
    return total


def median_seconds(run: Callable[[], object], times: int = 7) -> float:
    """Return the median time of several runs after one to warm up."""
    run()
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def compare(connection: duckdb.DuckDBPyConnection, name: str, where: str) -> None:
    """Time the bill beside the naive list and print both."""
    naive = median_seconds(lambda: connection.execute(NAIVE.format(where=where)).fetchall())
    bill = median_seconds(lambda: connection.execute(BILL.format(where=where)).fetchall())
    print(f"{name:24} bill {bill * 1000:8.0f} ms   hours x price {naive * 1000:8.0f} ms   "
          f"ratio {bill / naive:5.1f}")  # fmt: skip


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offers", type=int, default=61_000)
    parser.add_argument("--jobs", type=int, default=60)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total = fill(Path(folder), arguments.offers)
        names = [row["job"] for row in seeds.load("jobs")][: arguments.jobs]
        chosen = ", ".join(f"'{name}'" for name in names)
        with open_published(Path(folder)) as connection:
            print(f"{total} offers, {len(names)} jobs")
            compare(connection, "one job, top 20", "job = 'llama-3.1-8b-qlora-10m'")
            compare(connection, f"{len(names)} jobs, top 20 each", f"job in ({chosen})")


if __name__ == "__main__":
    main()
