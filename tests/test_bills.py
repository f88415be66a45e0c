"""Bills worked out by hand: one per billing rule, stop rule and transfer rule of the terms.

The job of every bill, unless it says otherwise: 3 h of training; base weights of 40 GB and 5 GB of
data, which a 1 Gbit/s line loads in 0.1 h; 0.1 h of boot; a result of 15 GB; no checkpoint to speak
of. So set-up takes 0.2 h and the machine is held 3.2 h; 60 GB are stored (5 + 40 + 15), 45 GB come
in (5 + 40), 15 GB go out. A month has 730 h.

Prices are 2 USD per hour for the machine unless stated; terms are those of `provider_terms.csv`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.costs import to_rows
from tests.rows import fee, offer, seen
from tests.test_publish import plan_three_hours
from warehouse import seeds
from warehouse.ledger import Ledger
from warehouse.publish import (
    PLAN_COLUMNS,
    load_relations,
    make_plans_table,
    publish,
    register_rows,
)
from warehouse.reader import open_published

GB = 1 / 1.073741824  # GiB
MONTH_DAYS = 730 / 24


@dataclass(frozen=True)
class Bill:
    """An offer, the job's habits, and what each component comes to."""

    name: str
    provider: str
    offer: Mapping[str, Any] = field(default_factory=dict)
    job: Mapping[str, Any] = field(default_factory=dict)
    hours: float = 3.0
    compute: float | None = 0.0
    storage: float | None = 0.0
    egress: float | None = 0.0
    ingress: float | None = 0.0
    idle: float = 0.0
    assumed_hours: float = 0.0
    nat: float | None = 0.0


TWO = {"sessions": 2, "idle_hours": 10}  # two starts, ten hours between them

BILLS = [
    # --- increments and minimums ---
    Bill("aws: per second", "aws",
         # 3.2 h x 2 = 6.40; 60 GB x 3.2/730 x 0.08 = 0.0210; 15 GB within the free 100
         compute=6.40, storage=0.0210),
    Bill("aws: a minimum of 60 s a start", "aws", job={"sessions": 600, "idle_hours": 1},
         hours=0.01,
         # held: 0.01 + 0.2 + 599 x 0.1 = 60.11 h over 600 starts = 360.66 s each: 361 s
         # 600 x 361 / 3600 = 60.1667 h x 2 = 120.33; 60 x (60.11 + 599)/730 x 0.08 = 4.3339
         compute=120.3333, storage=4.33387),
    Bill("azure: per second, disks not priced per GB", "azure",
         compute=6.40, storage=None),
    Bill("gcp: per second after a minute", "gcp",
         # 60 x 3.2/730 x 0.093132 = 0.0245; 15 GB x 0.12 = 1.80
         compute=6.40, storage=0.0245, egress=1.80),
    Bill("coreweave: per minute", "coreweave", hours=3.001,
         # 3.201 h = 192.06 min: 193 min = 3.216667 h x 2 = 6.4333; 60 x 3.201/730 x 0.07 = 0.0184
         compute=6.4333, storage=0.0184, ingress=None),
    Bill("scaleway: per minute", "scaleway", {"region": "fr-par-2", "sku": "H100-1-80G"},
         hours=3.001,
         compute=6.4333, storage=None, egress=None, ingress=None),
    Bill("scaleway: RENDER-S per hour", "scaleway", {"region": "fr-par-1", "sku": "RENDER-S"},
         hours=61 / 60 - 0.2,
         # 61 minutes held are two hours
         compute=4.00, storage=None, egress=None, ingress=None),
    Bill("linode: per hour", "linode", {"region": "us-ord"},
         # 3.2 h are 4 h; 60 x 3.2/730 x 0.10 = 0.0263; 15 GB x 0.005 = 0.075
         compute=8.00, storage=0.0263, egress=0.075, ingress=None),
    Bill("linode: what the plan includes is earned by the hour", "linode",
         {"region": "us-ord", "egress_included_gb_per_month": Decimal(730)},
         # 3.2 h earn 3.2 GB of the 15: 11.8 x 0.005 = 0.059
         compute=8.00, storage=0.0263, egress=0.059, ingress=None),
    Bill("linode: a large allowance covers it all", "linode",
         {"region": "us-ord", "egress_included_gb_per_month": Decimal(16_000)},
         # 3.2 h of 16,000 GB a month are 70 GB
         compute=8.00, storage=0.0263, egress=0.0, ingress=None),
    Bill("linode: every machine of several earns its allowance", "linode",
         {"region": "us-ord", "egress_included_gb_per_month": Decimal(730)}, job={"nodes": 2},
         # 2 x 3.2 GB earned: 8.6 x 0.005 = 0.043; two machines for 4 h
         compute=16.00, storage=0.0263, egress=0.043, ingress=None),
    Bill("linode: dearer in Jakarta", "linode", {"region": "id-cgk"},
         # 60 x 3.2/730 x 0.12 = 0.0316; 15 x 0.015 = 0.225
         compute=8.00, storage=0.0316, egress=0.225, ingress=None),
    Bill("vultr: per hour, 2 TB free", "vultr",
         compute=8.00, storage=None),
    Bill("ovh: per hour", "ovh",
         compute=8.00, storage=None, egress=None, ingress=None),
    Bill("latitude: per hour, 20 TB free and no price beyond", "latitude",
         compute=8.00, storage=None),
    Bill("oci: a bare-metal machine is an hour at least", "oci", {"sku": "BM.GPU4.8"}, hours=0.3,
         # 0.5 h held is one hour
         compute=2.00, storage=None),
    Bill("oci: a virtual machine is a minute at least", "oci", {"sku": "VM.GPU.A10.1"}, hours=0.3,
         compute=1.00, storage=None),
    Bill("hotaisle: eight GPUs for a month at least", "hotaisle", {"sku": "8x MI300X"},
         # 730 h x 2 = 1460, though held for 3.2; the disks come with the machine
         compute=1460.00, storage=0.00, egress=None, ingress=None),
    Bill("together: two minutes on spot", "together", {"market": "spot"}, hours=1e-9,
         # 0.2 h = 720 s = 6 x 120 s
         compute=0.40, storage=None, egress=None, ingress=None),
    Bill("an increment that nobody states: by the second, the rest of the hour assumed", "verda",
         # 3.2 h x 2 = 6.40; 4 h - 3.2 h = 0.8 h x 2 = 1.60 beside what has no price
         compute=6.40, assumed_hours=0.8, storage=60 * 3.2 / 730 * 0.186265, egress=None,
         ingress=None),
    Bill("an increment that the offer states wins", "linode",
         {"region": "us-ord", "billing_increment_seconds": 60, "billing_minimum_seconds": 0},
         # 3.2 h = 192 min
         compute=6.40, storage=0.0263, egress=0.075, ingress=None),
    # --- stops ---
    Bill("aws: a stopped machine costs its storage", "aws", job=TWO,
         # the second start boots only: 3.3 h x 2 = 6.60
         # 60 GB x (3.3 + 10)/730 x 0.08 = 0.0875
         compute=6.60, storage=0.0875),
    Bill("aws: a gap shorter than a boot is kept running", "aws",
         job={"sessions": 2, "idle_hours": 0.05},
         # 3.2 h and 0.05 h idle; 60 x 3.25/730 x 0.08 = 0.0214
         compute=6.40, idle=0.10, storage=0.02137),
    Bill("hyperstack: an ended machine's checkpoint is kept, and loaded again", "hyperstack",
         job=TWO | {"checkpoint_gb": 30},
         # 0.2 + 0.2 + 30 / 0.125 / 3600 = 0.4667 h of set-up: 3.4667 h = 208 min x 2/60 = 6.9333
         # stored 5 + 40 + 2 x 30 + 15 = 120 GB: 120 x 3.4667/730 x 0.0706 = 0.0402
         # kept for ten hours: 30 x 10/730 x 0.0706 = 0.0290
         compute=6.9333, storage=0.069246),
    Bill("runpod: a stopped disk costs twice", "runpod", job=TWO,
         # 60 x 3.3/730 x 0.10 = 0.02712; 60 x 10/730 x 0.20 = 0.16438
         compute=6.60, storage=0.1915),
    Bill("lambda: a stop ends it, all is loaded again", "lambda_labs", job=TWO,
         # 3.4 h = 2 x 102 min x 2 = 6.80; 60 x 3.4/730 x 0.186265 = 0.0521
         compute=6.80, storage=0.0521),
    Bill("lambda: loading again would cost more than ten idle hours", "lambda_labs",
         {"ingress_price_per_gb": Decimal("0.50")}, job=TWO,
         # 45 GB more would cost 22.50, ten hours cost 20.00
         # 60 x 13.2/730 x 0.186265 = 0.20208; 45 x 0.50 = 22.50
         compute=6.40, idle=20.00, storage=0.20208, ingress=22.50),
    Bill("thunder: a stop ends it", "thundercompute", job=TWO,
         # 60 GB lie within the 100 GB that come with it
         compute=6.80, storage=0.0, ingress=None),
    Bill("salad: a stop is free and keeps nothing", "salad", job=TWO,
         compute=6.80, storage=None),
    Bill("hyperstack: full rate while stopped, so end it and load again", "hyperstack", job=TWO,
         # ten idle hours would be 20.00; loading again is 0.2 h in 6.80
         # 60 x 3.4/730 x 0.0706 = 0.0197
         compute=6.80, storage=0.0197),
    Bill("hyperstack: full rate, and a short gap is kept running", "hyperstack",
         job={"sessions": 2, "idle_hours": 0.05},
         # 0.05 h idle is under the 0.1 h of loading: 0.05 x 2 = 0.10; 3.2 h x 2 = 6.40
         # the disk is paid in the gap too: 60 x 3.25/730 x 0.0706 = 0.0189
         compute=6.40, storage=0.018859, idle=0.10),
    Bill("oci: A10 machines stop for their storage", "oci", {"sku": "VM.GPU.A10.1"}, job=TWO,
         compute=6.60, storage=None),
    Bill("oci: other machines bill in full when stopped", "oci", {"sku": "VM.GPU3.1"}, job=TWO,
         compute=6.80, storage=None),
    Bill("digitalocean: powered off bills in full", "digitalocean", job=TWO,
         # 15 GB x 0.009313 = 0.1397
         compute=6.80, storage=None, egress=0.1397),
    Bill("a stop that nobody describes is taken as billed in full", "verda",
         {"billing_increment_seconds": 1}, job=TWO,
         compute=6.80, storage=60 * 3.4 / 730 * 0.186265, egress=None, ingress=None),
    # --- storage and transfer ---
    Bill("aws: a month kept", "aws", job={"keep_days": MONTH_DAYS},
         # on disk while running: 60 x 3.2/730 x 0.08 = 0.0210; then in S3: 60 x 0.023 = 1.38
         compute=6.40, storage=1.4010),
    Bill("vultr: a bucket has a least price, and a stated price counts though the disk's is not",
         "vultr", job={"keep_days": MONTH_DAYS},
         # 60 GB in object storage x 0.018 = 1.08, at least 18 a month
         compute=8.00, storage=18.00),
    Bill("vultr: two started months of a bucket", "vultr", job={"keep_days": MONTH_DAYS + 1},
         compute=8.00, storage=36.00),
    Bill("runpod: what is kept lies on a network volume", "runpod", job={"keep_days": MONTH_DAYS},
         # 60 x 3.2/730 x 0.10 = 0.0263; 60 x 0.07 = 4.20
         compute=6.40, storage=4.2263),
    Bill("vultr: full rate while stopped, ten sessions of one run are one start", "vultr",
         job={"sessions": 10, "idle_hours": 0},
         # kept running: 3.2 h are 4 h; ended ten times it would be ten started hours
         compute=8.00, storage=None),
    Bill("aws: a disk that comes with the machine is paid with it", "aws",
         {"local_disk_gib": Decimal(100)},
         compute=6.40, storage=0.00),
    Bill("aws: a stop clears the machine's own disk, so the data lie elsewhere all along", "aws",
         {"local_disk_gib": Decimal(100)}, job=TWO,
         # 60 GB x (3.3 + 10)/730 x 0.08 = 0.0875
         compute=6.60, storage=0.0875),
    Bill("aws: 200 GB out, the first 100 free", "aws", job={"output_gb": 200},
         # stored 5 + 40 + 200 = 245 GB x 3.2/730 x 0.08 = 0.0859; 100 x 0.09 = 9.00
         compute=6.40, storage=0.0859, egress=9.00),
    Bill("aws: 20 TB out through two tiers", "aws", job={"output_gb": 20_000},
         # (10,240 - 100) x 0.09 + 9,760 x 0.085 = 912.60 + 829.60 = 1742.20
         # 20,045 GB x 3.2/730 x 0.08 = 7.0295
         compute=6.40, storage=7.0295, egress=1742.20),
    Bill("aws: behind a NAT gateway all traffic is paid once more", "aws", job={"behind_nat": True},
         # 45 GB in and 15 GB out x 0.045 = 2.70; 3.2 h are 4 h x 0.045 = 0.18
         compute=6.40, storage=0.0210, nat=2.88),
    Bill("aws: a NAT gateway by the started hour of every start", "aws", hours=2.7,
         job=TWO | {"behind_nat": True},
         # 2.70 for traffic; 3.0 h in two starts of 1.5 h are 4 h x 0.045 = 0.18
         # 60 x (3.0 + 10)/730 x 0.08 = 0.08548
         compute=6.00, storage=0.08548, nat=2.88),
    Bill("aws: a NAT gateway runs on with its machine", "aws", hours=2.9,
         job={"sessions": 2, "idle_hours": 0.05, "behind_nat": True},
         # 3.1 h and 0.05 h idle are 4 h x 0.045; 60 x 3.15/730 x 0.08 = 0.02071
         compute=6.20, idle=0.10, storage=0.02071, nat=2.88),
    Bill("aws: an allowance leaves the gateway's traffic as it is", "aws",
         {"egress_included_gb_per_month": Decimal(16_000)}, job={"behind_nat": True},
         compute=6.40, storage=0.0210, nat=2.88),
    Bill("vultr: a NAT gateway whose price nobody states", "vultr", job={"behind_nat": True},
         compute=8.00, storage=None, nat=None),
    Bill("aws: Sydney has its own price", "aws", {"region": "ap-southeast-2"},
         job={"output_gb": 200},
         # 100 x 0.114
         compute=6.40, storage=0.0859, egress=11.40),
    Bill("vast: the host's own storage and traffic prices", "vast",
         {"storage_price_per_gb_month": Decimal("0.20"), "egress_price_per_gb": Decimal("0.02"),
          "ingress_price_per_gb": Decimal("0.01")},
         # 60 x 3.2/730 x 0.20 = 0.0526; 15 x 0.02 = 0.30; 45 x 0.01 = 0.45
         compute=6.40, storage=0.0526, egress=0.30, ingress=0.45),
    Bill("vast: a stopped disk and kept data at the host's own price", "vast",
         {"storage_price_per_gb_month": Decimal("0.20"), "egress_price_per_gb": Decimal(0),
          "ingress_price_per_gb": Decimal(0)}, job=TWO | {"keep_days": MONTH_DAYS},
         # 60 GB x (3.3 + 10)/730 x 0.20 = 0.21863; 60 x 0.20 = 12.00
         compute=6.60, storage=12.21863),
    Bill("vast: loaded twice where nothing survives", "vast",
         {"ingress_price_per_gb": Decimal("0.01"), "egress_price_per_gb": Decimal(0),
          "storage_price_per_gb_month": Decimal(0)}, job=TWO,
         # Vast keeps the disk of a stopped machine: loaded once
         compute=6.60, storage=0.0, ingress=0.45),
]  # fmt: skip


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bills")
    with Ledger(folder / "ledger.duckdb") as ledger:
        for number, bill in enumerate(BILLS):
            ledger.start_run("live", datetime.now(UTC), "test")
            price = {"price_per_hour": Decimal(2)} | dict(bill.offer)
            row = offer(price.pop("sku", f"machine-{number}"), **price)
            ledger.keep(seen(0, row, provider=bill.provider, scope=f"bill-{number}"))
        publish(
            ledger,
            folder / "prices.duckdb",
            plan_three_hours,
            published_at=datetime.now(UTC),
            version="test",
        )
    return folder


def cost(
    connection: duckdb.DuckDBPyConnection, hours: float, job: Mapping[str, Any], where: str
) -> list[dict[str, Any]]:
    """Cost a hand-made job: its plan and its row in temporary tables, through the one statement."""
    output_gb = job.get("output_gb", 15)
    plan = dict.fromkeys(PLAN_COLUMNS) | {
        "job": "bill", "gpu": "H100-80GB-SXM", "gpu_count": 1.0, "nodes": job.get("nodes", 1),
        "fits": True,
        "hours_low": hours, "hours": hours, "hours_high": hours,
        "checkpoint_gib": job.get("checkpoint_gb", 0) * GB,
        "weights_download_gib": 40 * GB, "output_gib": output_gb * GB,
    }  # fmt: skip
    base = next(r for r in seeds.load("jobs") if r["job"] == "llama-3.1-8b-qlora-10m")
    row = base | {"job": "bill", "dataset_gb": str(job.get("dataset_gb", 5)), "sessions": "1",
                  "idle_hours": "0", "keep_days": "0"}  # fmt: skip
    row |= {k: str(v) for k, v in job.items() if k in row}
    for table in ("bill_plans", "bill_jobs", "bill_hours"):
        connection.execute(f"drop table if exists temp.{table}")
    make_plans_table(connection, "bill_plans", [plan], temporary=True)
    register_rows(connection, "raw_jobs", [row])
    jobs = next(r for r in load_relations() if r.full_name == "seeds.jobs")
    connection.execute(f"create temp table bill_jobs as {jobs.sql}")
    connection.execute(
        "create temp table bill_hours as from marts.hours_of('bill_plans', 'bill_jobs')"
    )
    return to_rows(
        connection.execute(
            f"from marts.cost_of('bill_hours', 'staging.current_offers') where {where}"
        )
    )


@pytest.mark.parametrize("bill", BILLS, ids=lambda b: b.name)
def test_a_bill_worked_out_by_hand(published: Path, bill: Bill) -> None:
    number = BILLS.index(bill)
    with open_published(published) as connection:
        ids = connection.execute(
            "select offer_id from staging.current_offers where scope = ?", [f"bill-{number}"]
        ).fetchall()
        assert len(ids) == 1
        found = cost(connection, bill.hours, bill.job, f"offer_id = '{ids[0][0]}'")[0]
    stated = {
        "compute_usd": bill.compute,
        "storage_usd": bill.storage,
        "egress_usd": bill.egress,
        "ingress_usd": bill.ingress,
        "idle_usd": bill.idle,
        "assumed_hours": bill.assumed_hours,
        "nat_usd": bill.nat,
    }
    for component, expected in stated.items():
        if expected is None:
            assert found[component] is None, component
        else:
            assert found[component] == pytest.approx(expected, abs=6e-5), component
    if bill.nat is None:
        # 60 GB and four started hours, at least at the price of the one who states it.
        assert found["assumed_usd"] > 64 * 0.045
    known = sum(found[c] or 0 for c in stated if c.endswith("_usd"))
    known += found["spot_rework_usd"] + found["assumed_usd"]
    assert found["cost_usd"] == pytest.approx(known)


def test_every_billing_and_stop_rule_of_the_terms_has_a_bill() -> None:
    rules = {
        (r["provider"], r["term"], r["value"])
        for r in seeds.load("provider_terms")
        if r["status"] == "adopted" and r["term"] in ("billing_increment_seconds", "stop_behaviour")
    }
    kinds = {(term, value) for _, term, value in rules}
    billed = {b.provider for b in BILLS}
    covered = {(term, value) for provider, term, value in rules if provider in billed}
    assert kinds == covered


# --- what must hold for any bill ---

Amount = st.floats(0.01, 50, allow_nan=False).map(lambda x: round(x, 4))


@pytest.fixture(scope="module")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Twins that differ in one thing each, sold by a provider without any terms of its own."""
    folder = tmp_path_factory.mktemp("twins")
    terms: dict[str, Any] = {
        "storage_price_per_gb_month": Decimal("0.1"), "ingress_price_per_gb": Decimal("0.01"),
    }  # fmt: skip
    free, paid = Decimal(0), Decimal("0.1")
    rows = []
    for increment in (1, 60, 600, 3600, 7200):
        for price in ("1", "1.5", "3"):
            for out in (free, paid):
                rows.append(
                    offer(f"{increment}s {price} {out}", price, egress_price_per_gb=out,
                          billing_increment_seconds=increment, billing_minimum_seconds=0, **terms)
                )  # fmt: skip
    with Ledger(folder / "ledger.duckdb") as ledger:
        ledger.start_run("live", datetime.now(UTC), "test")
        ledger.keep(seen(0, *rows, fees=[fee("0.1")]))
        publish(
            ledger, folder / "prices.duckdb", plan_three_hours,
            published_at=datetime.now(UTC), version="test",
        )  # fmt: skip
    with open_published(folder) as connection:
        yield connection


def by_sku(connection: duckdb.DuckDBPyConnection, hours: float, **job: Any) -> dict[str, float]:
    return {r["sku"]: r["cost_usd"] for r in cost(connection, hours, job, "true")}


@settings(max_examples=15, deadline=None)
@given(
    hours=Amount,
    out=st.integers(0, 500),
    sessions=st.integers(1, 4),
    idle=st.floats(0, 3).map(lambda x: round(x, 2)),
)
def test_no_bill_falls_when_something_grows(
    scale: duckdb.DuckDBPyConnection, hours: float, out: int, sessions: int, idle: float
) -> None:
    job = {"sessions": sessions, "idle_hours": idle}
    costs = by_sku(scale, hours, output_gb=out, **job)
    assert len(costs) == 30
    increments, prices, ways = (1, 60, 600, 3600, 7200), ("1", "1.5", "3"), ("0", "0.1")
    close = 1e-9
    for i, increment in enumerate(increments):
        for p, price in enumerate(prices):
            for way in ways:
                here = costs[f"{increment}s {price} {way}"]
                if p:
                    assert here >= costs[f"{increment}s {prices[p - 1]} {way}"] - close
                # A longer increment is a multiple of each shorter one here.
                if i:
                    assert here >= costs[f"{increments[i - 1]}s {price} {way}"] - close
            free, paid = (costs[f"{increment}s {price} {way}"] for way in ways)
            assert free <= paid + close
    longer = by_sku(scale, hours * 1.5, output_gb=out, **job)
    further = by_sku(scale, hours, output_gb=out + 50, **job)
    for sku, amount in costs.items():
        assert longer[sku] >= amount - close
        assert further[sku] >= amount - close


# --- spot, several machines, offers that end ---


@pytest.fixture(scope="module")
def market(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """Offers whose terms differ in what only spot, fabrics and ends touch, at 2 USD an hour."""
    folder = tmp_path_factory.mktemp("market")
    now = datetime.now(UTC)
    spot: dict[str, Any] = {"market": "spot", "price_per_hour": Decimal(1)}
    by_provider = {
        # AWS gives two minutes of notice and keeps disks; Salad keeps nothing.
        "aws": [offer("m", "2"), offer("m", **spot)],
        "salad": [offer("m", "2"), offer("m", ingress_price_per_gb=Decimal("0.1"), **spot)],
        "acme": [
            offer("second", billing_increment_seconds=1, **spot),
            offer("hour", billing_increment_seconds=3600, **spot),
            offer("unsaid", **spot),
            offer("ends", "2", expires_at=now + timedelta(hours=3)),
            offer("lasts", "2", expires_at=now + timedelta(hours=30)),
        ],
        "latitude": [offer("g4.rtx6kpro.large", "2"), offer("8x h100", "2")],
        "together": [offer("cluster", "2")],
    }
    with Ledger(folder / "ledger.duckdb") as ledger:
        for provider, rows in by_provider.items():
            ledger.start_run("live", now, "test")
            ledger.keep(seen(0, *rows, provider=provider))
        publish(
            ledger, folder / "prices.duckdb", plan_three_hours, published_at=now, version="test"
        )
    with open_published(folder) as connection:
        yield connection


def bills_of(
    connection: duckdb.DuckDBPyConnection, hours: float = 3.0, **job: Any
) -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = cost(connection, hours, job, "true")
    return {(r["provider"], r["sku"], r["market"]): r for r in rows}


def test_spot_is_compared_with_the_bill_of_its_machine_on_demand(
    market: duckdb.DuckDBPyConnection,
) -> None:
    # AWS stops an on-demand machine between sessions and ends a spot one, which loads all again.
    for sessions, is_worth_it in ((1, True), (40, False)):
        bills = bills_of(market, sessions=sessions, idle_hours=10, dataset_gb=500)
        spot, on_demand = (bills["aws", "m", name] for name in ("spot", "on_demand"))
        assert spot["on_demand_cost_usd"] == pytest.approx(on_demand["cost_usd"])
        assert (spot["cost_usd"] < on_demand["cost_usd"]) == is_worth_it
        assert spot["is_eligible"] == is_worth_it
        assert on_demand["on_demand_cost_usd"] is None


def test_an_interruption_reloads_what_no_disk_kept(market: duckdb.DuckDBPyConnection) -> None:
    bills = bills_of(market, 10.0, checkpoint_gb=20)
    kept, lost = bills["aws", "m", "spot"], bills["salad", "m", "spot"]
    # From the disk: boot, then 60 GB at 1 GiB/s. Over the line: all 45 GB and the checkpoint.
    assert kept["restart_hours"] == pytest.approx(0.1 + 60 * GB / 3600)
    assert lost["restart_hours"] == pytest.approx(0.2 + 20 / 0.125 / 3600)
    assert kept["ingress_gb"] == pytest.approx(45)
    times = (lost["hours"] - lost["setup_hours"]) / (
        1 / lost["interruptions_per_hour"] + lost["restart_hours"]
    )
    assert lost["ingress_gb"] == pytest.approx(45 + times * (45 + 20))


def test_a_save_within_the_notice_loses_no_work_at_best(market: duckdb.DuckDBPyConnection) -> None:
    for checkpoint_gb, is_in_time in ((20, True), (400, False)):
        row = bills_of(market, 10.0, checkpoint_gb=checkpoint_gb)["aws", "m", "spot"]
        work, rate = row["train_hours_low"], row["interruptions_per_hour_low"]
        interval = min(work, (2 * row["save_hours"] / rate) ** 0.5)
        saved = work + math.ceil(work / interval) * row["save_hours"]
        restart = 0.05 + (40 + checkpoint_gb) * GB / 3600
        at_best = saved * (1 + rate * restart)
        run = row["hours_low"] - row["setup_hours_low"]
        assert (run == pytest.approx(at_best)) == is_in_time
        assert run >= at_best - 1e-9


def test_an_unstated_increment_counts_for_every_restart(market: duckdb.DuckDBPyConnection) -> None:
    bills = bills_of(market, 10.0, checkpoint_gb=20)
    second, hour, unsaid = (bills["acme", sku, "spot"] for sku in ("second", "hour", "unsaid"))
    assert unsaid["cost_usd"] == pytest.approx(hour["cost_usd"])
    assert unsaid["cost_usd_high"] == pytest.approx(hour["cost_usd_high"])
    assert unsaid["cost_usd_low"] == pytest.approx(second["cost_usd_low"])
    assert unsaid["compute_usd"] == pytest.approx(second["compute_usd"])
    assert unsaid["spot_rework_usd"] == pytest.approx(second["spot_rework_usd"])


def test_capacity_must_come_back_after_an_interruption(market: duckdb.DuckDBPyConnection) -> None:
    bills = bills_of(market, 10.0, checkpoint_gb=20)
    spot, on_demand = (bills["aws", "m", name] for name in ("spot", "on_demand"))
    assert on_demand["elapsed_hours"] == on_demand["hours"]
    times = (spot["hours"] - spot["setup_hours"]) / (
        1 / spot["interruptions_per_hour"] + spot["restart_hours"]
    )
    assert spot["elapsed_hours"] == pytest.approx(spot["hours"] + times * spot["wait_hours"])
    assert times * spot["wait_hours"] > 1
    for row in bills.values():
        assert row["elapsed_hours_low"] <= row["elapsed_hours"] <= row["elapsed_hours_high"]
        assert row["setup_hours_low"] < row["setup_hours"] < row["setup_hours_high"]


def test_gangs_are_stopped_somewhat_oftener_than_single_machines(
    market: duckdb.DuckDBPyConnection,
) -> None:
    def band(nodes: int) -> list[float]:
        row = bills_of(market, nodes=nodes)["acme", "second", "spot"]
        return [row[f"interruptions_per_hour{end}"] for end in ("_low", "", "_high")]

    prior = next(r for r in seeds.load("spot_priors") if r["provider"] == "*")
    low, likely, high = (float(prior[f"interruptions_per_hour{e}"]) for e in ("_low", "", "_high"))
    assert band(1) == band(4) == pytest.approx([low, likely, high])
    # sqrt(16 / 4) = 2
    assert band(16) == pytest.approx([low, 2 * likely, 2 * high])


def test_an_offer_must_last_as_long_as_the_job(market: duckdb.DuckDBPyConnection) -> None:
    bills = bills_of(market)
    ends, lasts = (bills["acme", sku, "on_demand"] for sku in ("ends", "lasts"))
    assert (ends["is_eligible"], ends["reason"]) == (False, "the offer ends before the job does")
    assert (lasts["is_eligible"], lasts["reason"]) == (True, None)
    # Gaps between sessions count.
    late = bills_of(market, sessions=2, idle_hours=40)["acme", "lasts", "on_demand"]
    assert late["reason"] == "the offer ends before the job does"


def test_several_machines_need_a_fabric_as_fast_as_the_plan(
    market: duckdb.DuckDBPyConnection,
) -> None:
    bills = bills_of(market, nodes=2)
    reasons = {
        ("latitude", "g4.rtx6kpro.large"): None,  # 200 Gbit/s for its one GPU
        ("latitude", "8x h100"): "needs several machines, and no fabric between them is stated",
        ("together", "cluster"): None,
    }
    for (provider, sku), reason in reasons.items():
        assert bills[provider, sku, "on_demand"]["reason"] == reason
    single = bills_of(market, nodes=1)["latitude", "8x h100", "on_demand"]
    assert single["is_eligible"]


def test_a_stop_that_nobody_describes_is_named_where_there_could_be_one(
    market: duckdb.DuckDBPyConnection,
) -> None:
    for sessions, is_named in ((1, False), (2, True)):
        # A gap this short is no stop: the machine runs on.
        row = bills_of(market, sessions=sessions, idle_hours=0.01)["acme", "second", "spot"]
        assert row["starts"] == 1
        assert ("stop behaviour" in row["unknown_terms"]) == is_named
