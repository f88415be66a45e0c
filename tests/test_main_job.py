"""The main job from end to end: provider answers in, ranked costs out."""

import csv
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from flows.refresh import Summary, refresh, reparse
from scrapers.collect import discover
from scrapers.offer import Offer
from scrapers.replay import by_scope, read_pages
from tests.captures import FILES, arrange
from tests.conftest import lay_replay
from tests.evidence import SHARED, needs_evidence
from warehouse import seeds
from warehouse.ledger import Ledger
from warehouse.planned import CACHE
from warehouse.reader import LEDGER, open_published


def test_every_recorded_scope_is_kept(night: tuple[Path, Summary]) -> None:
    _, summary = night
    assert summary.results
    assert {r.status for r in summary.results} == {"ok"}, summary.results
    assert {r.provider for r in summary.results} == set(FILES)


def test_what_a_parser_says_is_what_people_read(filled: Path, replay_dir: Path) -> None:
    """No price is lost, converted or rounded between the page and `marts.price_history`."""
    with open_published(filled) as connection:
        for slug, source in discover().items():
            if not (replay_dir / slug).is_dir():
                continue
            parsed: dict[tuple[str, ...], set[Decimal]] = {}
            for pages in by_scope(read_pages(replay_dir / slug)).values():
                for row in source.parse(pages):
                    if isinstance(row, Offer):
                        key = (row.sku, row.region, row.market, row.gpu_label, row.currency)
                        parsed.setdefault(key, set()).add(row.price_per_hour)
            read: dict[tuple[str, ...], set[Decimal]] = {}
            for *key, price in connection.execute(
                "select sku, region, market, gpu_label, currency, price_per_hour"
                " from marts.price_history"
                " where provider = ? and not is_baseline and valid_to is null",
                [slug],
            ).fetchall():
                read.setdefault(tuple(key), set()).add(price)
            # A row that contradicts another of its key is refused, never one of the two kept.
            assert read.keys() <= parsed.keys()
            assert all(prices <= parsed[key] for key, prices in read.items())
            assert len(read) >= 0.5 * len(parsed) > 0


def test_live_answers_replace_the_baseline_of_their_scope_only(filled: Path) -> None:
    with open_published(filled) as connection:
        rows = connection.execute(
            "select provider, scope, bool_or(is_baseline), bool_and(is_baseline),"
            " min(observed_at), count(*) from staging.current_offers group by all"
        ).fetchall()
    live = {(p, s): seen for p, s, some, _, seen, _ in rows if not some}
    assert {p for p, _ in live} == set(FILES)
    assert set(live.values()) == {datetime(2026, 11, 30, 3)}  # noqa: DTZ001
    dated = {
        (r["provider"], r["scope"]): datetime.fromisoformat(r["observed_at"]).replace(tzinfo=None)
        for r in seeds.load("baseline_offers")
    }
    baseline = {(p, s): seen for p, s, _, every, seen, _ in rows if every}
    # Every other scope keeps its own date: the baseline is never re-stamped.
    assert baseline == {where: seen for where, seen in dated.items() if where not in live}


def test_baseline_scopes_are_those_of_the_modules() -> None:
    """Else a live answer could not replace them."""
    from scrapers.collect import scopes_of

    modules = discover()
    for row in seeds.load("baseline_offers"):
        if row["provider"] in modules:
            assert row["scope"] in scopes_of(modules[row["provider"]].REQUESTS), row


def test_the_default_job_is_ranked(filled: Path) -> None:
    with open_published(filled) as connection:
        rows = connection.execute(
            "select cost_usd_low, cost_usd, cost_usd_high, hours_low, hours, hours_high,"
            " compute_usd, spot_rework_usd, idle_usd, coalesce(storage_usd, 0),"
            " coalesce(egress_usd, 0), coalesce(ingress_usd, 0), assumed_usd"
            " from marts.cost_per_job"
            " where job = 'llama-3.1-8b-qlora-10m' and is_eligible"
        ).fetchall()
    assert len(rows) > 200
    for low, likely, high, hours_low, hours, hours_high, *parts in rows:
        assert 0 < low <= likely <= high
        assert 0 < hours_low <= hours <= hours_high
        assert likely == pytest.approx(sum(parts))


def test_a_second_identical_night_writes_no_price(
    data: Path, night: tuple[Path, Summary], replay_dir: Path
) -> None:
    filled, first = night
    assert first.baseline_offers > 0
    assert sum(r.changes for r in first.results) > 0
    shutil.copytree(filled, data, dirs_exist_ok=True)
    again = refresh(data, replay_dir=replay_dir)
    assert again.baseline_offers == 0
    assert sum(r.changes + r.withdrawals for r in again.results) == 0


def test_history_survives_a_failure_and_a_return(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "replay"
    lay_replay(folder)
    page = folder / "linode" / "types.json"
    text = page.read_text()
    seen_at = folder / "linode" / "observed_at"

    def night_of(day: int, answer: str) -> Summary:
        seen_at.write_text(f"2026-11-{day:02d}T03:00:00Z")
        page.write_text(answer)
        return refresh(data, ["linode"], replay_dir=folder)

    first = night_of(1, text)
    broken = night_of(2, "<html>maintenance</html>")
    assert broken.failed()
    with open_published(data) as connection:
        ill = connection.execute(
            "select health, newest_ok_at, last_error from marts.provider_health"
            " where provider = 'linode'"
        ).fetchone()
    assert ill is not None
    assert ill[:2] == ("failed", datetime(2026, 11, 1, 3))  # noqa: DTZ001
    assert "HTML" in ill[2] or "html" in ill[2]
    healed = night_of(3, text)
    assert sum(r.changes + r.withdrawals for r in healed.results) == 0
    with open_published(data) as connection:
        health = connection.execute(
            "select health, newest_ok_at, offers from marts.provider_health"
            " where provider = 'linode'"
        ).fetchone()
        assert health is not None
        assert health[0] == "ok"
        assert health[2] == sum(r.offers for r in first.results)
        spans = connection.execute(
            "select count(*), count(valid_to), min(valid_from) from marts.price_history"
            " where provider = 'linode' and not is_baseline"
        ).fetchone()
        assert spans is not None
        assert spans[1:] == (0, datetime(2026, 11, 1, 3))  # noqa: DTZ001
        as_of = connection.execute(
            "select count(*) from marts.prices_as_of('2026-11-02'::timestamp)"
            " where provider = 'linode'"
        ).fetchone()
        assert as_of == (spans[0],)


def test_a_reparse_of_the_archive_changes_nothing_while_the_parsers_agree(
    data: Path, replay_dir: Path
) -> None:
    archived = data / "payloads" / "20261130T030000000000Z-aaaaaa"
    archived.parent.mkdir(parents=True)
    lay_replay(archived)
    first = reparse(data)
    assert sum(r.changes for r in first.results) > 0
    second = reparse(data)
    assert sum(r.changes + r.withdrawals for r in second.results) == 0


def test_killed_at_any_moment_the_next_run_works(fresh: Path, replay_dir: Path) -> None:
    """A kill may lose the run, never the file: it is absent or whole."""
    command = [sys.executable, "-m", "flows", "refresh", "--replay", str(replay_dir)]
    environ = os.environ | {"TUNECOST_DATA": str(fresh)}
    for after_seconds in (0.4, 1.2, 2, 2.8, 3.6, 4.4):
        with subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            with suppress(subprocess.TimeoutExpired):
                process.wait(after_seconds)
            process.kill()
        if (fresh / "prices.duckdb").exists():
            with open_published(fresh) as connection:
                assert connection.execute("select count(*) from marts.current_prices").fetchone()
        with Ledger(fresh / LEDGER):  # neither damaged nor locked
            pass
    summary = refresh(fresh, replay_dir=replay_dir)
    assert not summary.failed()
    assert not list(fresh.glob(".prices*"))
    with open_published(fresh) as connection:
        live = connection.execute(
            "select count(distinct provider) from marts.price_history where not is_baseline"
        ).fetchone()
    assert live == (len(FILES),)


# --- against independent figures ---


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory, filled: Path) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    data = folder / "data"
    data.mkdir()
    shutil.copy(filled / CACHE, data)
    summary = refresh(data, replay_dir=arrange(folder / "replay"))
    assert {r.status for r in summary.results} == {"ok"}, summary.results
    return data


def published(data: Path, provider: str, market: str) -> dict[tuple[str, str], Decimal]:
    with open_published(data) as connection:
        rows = connection.execute(
            "select region, sku, price_per_hour from marts.current_prices"
            " where provider = ? and market = ? and tier is null and not is_baseline",
            [provider, market],
        ).fetchall()
    return {(region, sku): price for region, sku, price in rows}


@needs_evidence
def test_azure_on_demand_equals_what_karpenter_generated(captured: Path) -> None:
    path = SHARED / "payloads/azure/expected/karpenter_ondemand_n_series_2026-06-18.csv"
    with path.open(newline="") as stream:
        stated = {
            (r["armRegionName"], r["armSkuName"]): Decimal(r["on_demand_usd_per_hour"])
            for r in csv.DictReader(stream)
        }
    ours = published(captured, "azure", "on_demand")
    both = stated.keys() & ours.keys()
    print(f"azure: {len(both)} of {len(ours)} prices compared with Karpenter's")
    assert len(both) >= 30
    assert {k: ours[k] for k in both} == {k: stated[k] for k in both}


@needs_evidence
def test_google_machines_equal_what_karpenter_generated(captured: Path) -> None:
    """Google's page of October against Karpenter's sums of SKUs of August, in Iowa."""
    path = SHARED / "payloads/gcp/expected/karpenter_gcp_accelerated_2026-08-03.csv"
    with path.open(newline="") as stream:
        stated = {
            (r["region"], r["machine_type"]): Decimal(r["usd_per_hour"])
            for r in csv.DictReader(stream)
            if r["kind"] == "on_demand"
        }
    ours = published(captured, "gcp", "on_demand")
    both = {k for k in stated.keys() & ours.keys() if k not in SCALED_BY_KARPENTER}
    equal = {k for k in both if ours[k] == round(stated[k], 9)}
    print(f"gcp: {len(equal)} of {len(both)} prices equal Karpenter's, the others to 0.0001 %")
    assert (len(equal), len(both)) == (13, 22)
    assert all(abs(ours[k] - stated[k]) < stated[k] / 1_000_000 for k in both)


# Google prices a fraction of a G4 by eighths of a GPU, Karpenter by scaling the whole machine.
SCALED_BY_KARPENTER = {("us-central1", f"g4-standard-{n}") for n in (6, 12, 24)}


@needs_evidence
def test_aws_spot_prices_are_those_of_the_feed(captured: Path) -> None:
    path = SHARED / "payloads/aws/spot_json_trimmed_2026-08-10.json"
    feed = json.loads(path.read_text(encoding="utf-8"))
    stated = {
        (block["region"], size["size"]): Decimal(size["valueColumns"][0]["prices"]["USD"])
        for block in feed["config"]["regions"]
        for group in block["instanceTypes"]
        for size in group["sizes"]
        if group["type"].startswith("gpu")
    }
    assert published(captured, "aws", "spot") == stated
    print(f"aws: {len(stated)} spot prices equal the feed's")
    assert len(stated) == 85


@needs_evidence
def test_aws_on_demand_equals_karpenter_and_a_tracker(captured: Path) -> None:
    """AWS's pricing page of September against two other ways to its list."""
    folder = SHARED / "payloads/aws/expected"
    with (folder / "karpenter_ondemand_accelerated.csv").open(newline="") as stream:
        karpenter = {
            (r["region"], r["instance_type"]): Decimal(r["on_demand_price_per_hour"])
            for r in csv.DictReader(stream)
        }
    with (folder / "gpu_pricing_raw_2026-06-15.csv").open(newline="") as stream:
        tracker = {
            (r["region"], r["sku"]): Decimal(r["total_hourly_usd"])
            for r in csv.DictReader(stream)
            if (r["provider"], r["price_tier"]) == ("AWS EC2", "on_demand")
        }
    ours = published(captured, "aws", "on_demand")
    assert len(ours) == 51
    both, tracked = karpenter.keys() & ours.keys(), tracker.keys() & ours.keys()
    print(f"aws: {len(both)} prices equal Karpenter's, {len(tracked)} a tracker's")
    assert {k: ours[k] for k in both} == {k: karpenter[k] for k in both}
    assert all(abs(ours[k] - tracker[k]) <= Decimal("0.00005") for k in tracked)  # four places
    assert (len(both), len(tracked)) == (10, 14)


# What the independent tracker took for GPUs of Oracle's cloud and is not, or names otherwise.
NOT_OCI_COMPUTE = {
    "B110965": "L40S of Compute Cloud@Customer",
    "B111454": "L40S of Compute Cloud@Customer, resource commitment",
    "B111455": "L40S of Compute Cloud@Customer",
    "B109480": "H100T, a card that no alias of ours names",
}
OTHER_NAME = {"B110979": "GB200", "B112140": "GB300"}


@needs_evidence
def test_oci_prices_per_gpu_equal_an_independent_snapshot(captured: Path) -> None:
    path = SHARED / "payloads/oci/expected/gpu_pricing_raw_2026-06-15.csv"
    with path.open(newline="") as stream:
        stated = {
            (OTHER_NAME.get(r["sku"], r["gpu_type"].split()[0]), float(r["per_gpu_hourly_usd"]))
            for r in csv.DictReader(stream)
            if r["sku"] not in NOT_OCI_COMPUTE
        }
    with open_published(captured) as connection:
        ours = {
            (gpu.split("-")[0], price)
            for gpu, price in connection.execute(
                "select distinct gpu, price_usd_per_gpu_hour from marts.current_prices"
                " where provider = 'oci' and market = 'on_demand' and not is_baseline"
                " and gpu is not null"
            ).fetchall()
        }
    print(f"oci: {len(stated)} GPU prices compared")
    assert len(stated) >= 7
    assert stated <= ours


@needs_evidence
def test_no_captured_row_is_free_windows_or_a_total(captured: Path) -> None:
    with open_published(captured) as connection:
        extremes = connection.execute(
            "select min(price_usd_per_gpu_hour), max(price_usd_per_gpu_hour)"
            " from marts.current_prices where not is_baseline and market in ('on_demand', 'spot')"
        ).fetchone()
    assert extremes is not None
    # An Inferentia chip on spot; a B300 of AWS in São Paulo, 281.13 USD for eight.
    assert 0.04 < extremes[0] < extremes[1] < 36


def test_a_damaged_published_file_can_be_deleted_and_built_again(data: Path, filled: Path) -> None:
    shutil.copytree(filled, data, dirs_exist_ok=True)
    (data / "prices.duckdb").unlink()
    refresh(data, offline=True)
    query = "select offer_id, price_usd_per_hour from marts.current_prices order by all"
    with open_published(data) as ours, open_published(filled) as theirs:
        assert ours.execute(query).fetchall() == theirs.execute(query).fetchall()


def test_a_reader_keeps_its_night_while_the_next_is_published(data: Path, filled: Path) -> None:
    shutil.copy(filled / "prices.duckdb", data)
    reader = duckdb.connect(str(data / "prices.duckdb"), read_only=True)
    try:
        before = reader.execute("select count(*) from marts.current_prices").fetchone()
        refresh(data, offline=True)
        assert reader.execute("select count(*) from marts.current_prices").fetchone() == before
    finally:
        reader.close()
    with open_published(data) as connection:
        assert connection.execute("select count(*) from marts.current_prices").fetchone() != before
