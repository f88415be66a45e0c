"""The published file: what its relations promise, and how it is put in place."""

import os
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.rows import START, fee, offer, seen
from warehouse import seeds
from warehouse.errors import CheckFailed, Damaged, NotPublished
from warehouse.ledger import Ledger
from warehouse.planned import CACHE, remember
from warehouse.publish import (
    PLAN_COLUMNS,
    load_columns,
    load_relations,
    publish,
    read_relation,
)
from warehouse.reader import open_published

ROOT = Path(__file__).parents[1]
WHEN = datetime(2026, 1, 10, tzinfo=UTC)


def plan_three_hours(machines: Iterable[tuple[str, float]]) -> list[Mapping[str, Any]]:
    """Every job takes three hours on every machine."""
    return [
        dict.fromkeys(PLAN_COLUMNS)
        | {
            "job": row["job"], "gpu": gpu, "gpu_count": count, "nodes": 1, "fits": True,
            "hours_low": 2.0, "hours": 3.0, "hours_high": 4.0, "checkpoint_gib": 1.0,
            "weights_download_gib": 15.0, "output_gib": 0.1,
        }
        for row in seeds.load("jobs")
        for gpu, count in machines
    ]  # fmt: skip


def build(folder: Path, *observations: Any, kinds: tuple[str, ...] = ()) -> Path:
    with Ledger(folder / "ledger.duckdb") as ledger:
        for number, observation in enumerate(observations):
            kind: Any = kinds[number] if kinds else "live"
            ledger.start_run(kind, datetime.now(UTC), "test")
            ledger.keep(observation)
        publish(
            ledger, folder / "prices.duckdb", plan_three_hours, published_at=WHEN, version="test"
        )
    return folder


def query(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    with open_published(folder) as connection:
        return connection.execute(sql).fetchall()


# --- what every relation promises ---


def test_each_grain_is_unique(filled: Path) -> None:
    with open_published(filled) as connection:
        for relation in load_relations():
            if not relation.grain or "(" in relation.kept:
                continue
            total, distinct = connection.execute(
                f"select count(*), count(distinct row({relation.grain})) from {relation.full_name}"
            ).fetchone() or (0, 0)
            assert total == distinct, relation.full_name
            assert total > 0 or relation.full_name == "staging.fees", relation.full_name


def test_every_relation_and_column_is_described(filled: Path) -> None:
    meanings = load_columns()
    with open_published(filled) as connection:
        relations = connection.execute(
            "select schema_name || '.' || table_name, comment from duckdb_tables()"
            " union all select schema_name || '.' || view_name, comment from duckdb_views()"
            " where not internal"
        ).fetchall()
        columns = connection.execute(
            "select table_name, column_name, comment from duckdb_columns()"
            " where schema_name = 'marts' and not internal"
        ).fetchall()
    for name, comment in relations:
        assert comment, name
        assert "grain:" in comment, name
        assert "units:" in comment, name
    undescribed = {(t, c) for t, c, comment in columns if not comment and t != "publication"}
    assert undescribed == set()
    used = {column for _, column, _ in columns}
    assert set(meanings) - used == set(), "meanings of columns that no mart has"


def test_every_mart_is_documented() -> None:
    text = (ROOT / "docs" / "tables.md").read_text()
    for relation in load_relations():
        if relation.schema == "marts":
            assert f"marts.{relation.name}" in text, relation.full_name


def test_marts_do_not_read_the_ledger_nor_staging_the_marts() -> None:
    for relation in load_relations():
        if relation.schema == "marts":
            assert not re.search(r"\bledger\.", relation.sql), relation.full_name
        else:
            assert not re.search(r"\bmarts\.", relation.sql), relation.full_name


def test_a_header_that_is_not_complete_is_refused() -> None:
    with pytest.raises(ValueError, match="header needs"):
        read_relation("marts", "x.sql", "-- A sentence.\nselect 1")


# --- interpretation ---


def test_currencies_are_converted_at_a_dated_rate_and_the_quote_stays(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("eur", "2", currency="EUR"), offer("usd", "2")))
    rows = dict(query(tmp_path, "select sku, price_usd_per_hour from marts.current_prices"))
    rate = next(float(r["units_per_eur"]) for r in seeds.load("fx_rates") if r["currency"] == "USD")
    assert rows["usd"] == 2.0
    assert rows["eur"] == pytest.approx(2 * rate)
    quotes = query(tmp_path, "select distinct price_per_hour from marts.current_prices")
    assert quotes == [(Decimal(2),)]


def test_a_moving_rate_is_no_price_change(tmp_path: Path) -> None:
    eur = offer(
        "eur",
        "2",
        currency="EUR",
        storage_price_per_gb_month=Decimal("0.1"),
        ingress_price_per_gb=Decimal("0.01"),
        egress_price_per_gb=Decimal("0.02"),
    )
    with Ledger(tmp_path / "ledger.duckdb") as ledger:
        for day, rate in ((0, "1.00"), (1, "1.50")):
            ledger.start_run("live", datetime.now(UTC), "test")
            ledger.keep(seen(day, eur))
            ledger.keep_rates(
                [
                    {
                        "rate_date": datetime(2026, 1, 1 + day, tzinfo=UTC).date(),
                        "currency": "USD",
                        "units_per_eur": Decimal(rate),
                    }
                ],
                WHEN,
            )
        publish(
            ledger, tmp_path / "prices.duckdb", plan_three_hours, published_at=WHEN, version="t"
        )
    assert query(tmp_path, "select count(*) from marts.price_history") == [(1,)]
    assert query(tmp_path, "select price_usd_per_hour from marts.current_prices") == [(3.0,)]
    others = "storage_usd_per_gb_month, stopped_usd_per_gb_month, kept_usd_per_gb_month"
    others += ", ingress_usd_per_gb, egress_usd_per_gb"
    now = query(tmp_path, f"select {others} from staging.current_offers")
    assert now == [pytest.approx((0.15, 0.15, 0.15, 0.015, 0.03))]
    # What was paid on a past day does not move with today's rate.
    told = "select price_usd_per_hour from marts.prices_as_of('2026-01-01 12:00'::timestamp)"
    assert query(tmp_path, told) == [(2.0,)]
    assert query(tmp_path, told.replace("01-01", "01-02")) == [(3.0,)]
    days = """select price_usd_per_gpu_hour from marts.gpu_price_history order by "day" limit 2"""
    assert query(tmp_path, days) == [(2.0,), (3.0,)]
    nights = """
        select "day", compute_usd from marts.cost_per_job_history
        where job = 'llama-3.1-8b-qlora-10m' order by "day" limit 2
    """
    first, second = (compute for _, compute in query(tmp_path, nights))
    assert second == pytest.approx(1.5 * first)


def test_a_price_without_an_exchange_rate_is_shown_and_not_ranked(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("a", "2", currency="XAU"), offer("b", "2")))
    shown = "select price_per_hour, price_usd_per_hour from marts.current_prices where sku = 'a'"
    assert query(tmp_path, shown) == [(Decimal(2), None)]
    assert bill(tmp_path, "a", "is_eligible") is False
    assert bill(tmp_path, "a", "reason") == "no exchange rate for its currency"
    assert bill(tmp_path, "a", "cost_usd") is None
    assert bill(tmp_path, "b", "is_eligible") is True


def test_an_unknown_gpu_is_shown_and_never_guessed(tmp_path: Path) -> None:
    build(
        tmp_path,
        seen(0, offer("new", gpu_label="GX900", gpu_memory_gib=None),
             offer("vague", gpu_label="A100 SXM4", gpu_memory_gib=None),
             offer("slice", gpu_label="L4", gpu_count=Decimal("0.125"), gpu_memory_gib=Decimal(3)),
             offer("known")),
    )  # fmt: skip
    rows = dict(query(tmp_path, "select sku, gpu from marts.current_prices"))
    assert rows["new"] is None
    assert rows["vague"] is None
    assert rows["known"] == "H100-80GB-SXM"
    assert rows["slice"] == "L4-24GB"
    costed = query(tmp_path, "select distinct sku from marts.cost_per_job")
    assert ("new",) not in costed
    cheapest = query(tmp_path, "select gpu from marts.cheapest_gpus")
    assert ("L4-24GB",) not in cheapest  # a slice is no whole GPU


def test_spans_tell_a_price_a_gap_and_a_return(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("a", "1"), offer("b")), seen(1, offer("a", "1.1"), offer("b")),
          seen(2, offer("b")), seen(3, offer("a", "1.1"), offer("b")))  # fmt: skip
    spans = query(
        tmp_path,
        "select price_per_hour::double, day(valid_from), day(valid_to) from marts.price_history"
        " where sku = 'a' order by valid_from",
    )
    assert spans == [(1.0, 1, 2), (1.1, 2, 3), (1.1, 4, None)]
    as_of = "select count(*) from marts.prices_as_of('2026-01-03 12:00'::timestamp) where sku='a'"
    assert query(tmp_path, as_of) == [(0,)]


def test_the_baseline_falls_silent_once_its_scope_answers(tmp_path: Path) -> None:
    build(
        tmp_path,
        seen(5, offer("old"), offer("both", "9")),
        seen(5, offer("other"), scope="elsewhere"),
        seen(3, offer("both", "2")),
        kinds=("baseline", "baseline", "live"),
    )
    rows = query(
        tmp_path,
        "select sku, is_baseline, price_per_hour::double, day(observed_at)"
        " from marts.current_prices order by sku",
    )
    # The live answer is older than the baseline's date, and counts all the same.
    assert rows == [("both", False, 2.0, 4), ("other", True, 1.0, 6)]


def test_ages_come_from_the_last_good_answer(tmp_path: Path) -> None:
    build(
        tmp_path,
        seen(0, offer("a"), offer("b")),
        seen(1, offer("a"), truncated=True),
        seen(2, status="failed", error="TimedOut: acme.example"),
    )
    rows = query(tmp_path, "select sku, day(observed_at) from marts.current_prices order by sku")
    assert rows == [("a", 2), ("b", 1)]
    health = query(
        tmp_path, "select health, last_error, day(newest_ok_at) from marts.provider_health"
    )
    assert health == [("failed", "TimedOut: acme.example", 2)]


@pytest.mark.parametrize(
    ("second", "kinds", "health"),
    [
        (seen(1, offer("b"), scope="two"), ("live", "live"), "ok"),
        (seen(1, offer("b"), scope="two", truncated=True), ("live", "live"), "cut short"),
        (seen(1, offer("b"), scope="two"), ("live", "baseline"), "partly baseline"),
        (seen(1, offer("b"), scope="two", truncated=True), ("baseline", "live"), "partly baseline"),
        (seen(1, offer("b"), scope="two"), ("baseline", "baseline"), "baseline"),
        (seen(1, scope="two", status="failed", error="x"), ("live", "live"), "failed"),
        (seen(1, scope="two", status="skipped", error="x"), ("live", "live"), "skipped"),
    ],
)
def test_health_is_the_worst_that_holds_for_any_scope(
    tmp_path: Path, second: Any, kinds: tuple[str, ...], health: str
) -> None:
    build(tmp_path, seen(0, offer("a"), scope="one"), second, kinds=kinds)
    assert query(tmp_path, "select health from marts.provider_health") == [(health,)]


def test_storage_and_traffic_come_from_the_offer_its_region_or_anywhere(tmp_path: Path) -> None:
    build(
        tmp_path,
        seen(
            0,
            offer("own", storage_price_per_gb_month=Decimal("0.5"),
                  egress_price_per_gb=Decimal("0.2")),
            offer("regional"),
            offer("global", region="eu-2"),
            fees=[
                fee("0.1"),
                fee("0.3", product="fast disk"),
                fee("0.2", region="global"),
                fee("0", kind="egress", product="traffic", unit="gb", region="global"),
                fee("0.09", kind="egress", product="traffic", unit="gb", region="global",
                    from_tier_gb=Decimal(10)),
            ],
        ),
    )  # fmt: skip
    storage = dict(
        query(tmp_path, "select sku, storage_usd_per_gb_month from marts.current_prices")
    )
    assert storage == {"own": 0.5, "regional": 0.1, "global": 0.2}
    egress = dict(
        query(
            tmp_path,
            "select sku, egress_usd from marts.cost_per_job where job = 'llama-3.1-8b-qlora-10m'",
        )
    )
    # 0.1 GiB out: within the free first tier, or by the offer's own price.
    assert egress["regional"] == 0
    assert egress["own"] == pytest.approx(0.1 * 1.073741824 * 0.2)


def test_every_price_beside_the_hourly_one_names_its_source(filled: Path) -> None:
    rows = query(
        filled,
        """
        with priced as (
            select offer_id,
                unnest(['storage', 'storage stopped', 'storage kept', 'ingress', 'egress']) as item,
                unnest([
                    storage_usd_per_gb_month, stopped_usd_per_gb_month, kept_usd_per_gb_month,
                    ingress_usd_per_gb, coalesce(egress_usd_per_gb, egress_schedule_id::double)
                ]) as price
            from staging.current_offers
        )
        select item, price is not null as is_priced, source is not null as is_sourced,
            source_date is not null as is_dated, count(*)
        from priced left join marts.price_sources using (offer_id, item)
        group by all
        """,
    )
    assert {item for item, *_ in rows} == {
        "storage", "storage stopped", "storage kept", "ingress", "egress"
    }  # fmt: skip
    for item, is_priced, is_sourced, is_dated, offers in rows:
        assert is_priced == is_sourced == is_dated, (item, is_priced, offers)
        assert offers > 5


def test_a_listed_price_names_the_page_that_states_it(tmp_path: Path) -> None:
    def fetched(request: str, page: int) -> dict[str, Any]:
        return {"provider": "acme", "request": request, "page": page,
                "url": f"https://acme.example/{request}?page={page}",
                "fetched_at": WHEN.replace(tzinfo=None)}  # fmt: skip

    fees = [
        fee("0.1", request="disks"),
        fee("0.02", kind="object_storage", product="bucket", request="buckets"),
        fee("0.05", kind="egress", product="traffic", unit="gb"),
    ]
    old = fetched("disks", 1) | {
        "url": "https://acme.example/old",
        "fetched_at": WHEN.replace(year=2020, tzinfo=None),
    }
    pages = [old, fetched("disks", 1), fetched("disks", 2), fetched("buckets", 1)]
    build(tmp_path, seen(3, offer(), fees=fees, fetches=pages, source_url="https://acme.example/"))
    rows = query(tmp_path, "from marts.price_sources select item, product, source, source_date")
    day = "2026-01-04"
    assert sorted(rows) == [
        ("egress", "traffic", "https://acme.example/", day),
        ("storage", "disk", "https://acme.example/disks?page=1", day),
        ("storage kept", "bucket", "https://acme.example/buckets?page=1", day),
        ("storage stopped", "disk", "https://acme.example/disks?page=1", day),
    ]


def test_traffic_is_billed_by_the_tiers_of_one_product(tmp_path: Path) -> None:
    traffic = {"kind": "egress", "unit": "gb"}
    fees = [
        fee("0.12", product="usual routing", **traffic),
        fee("0.08", product="usual routing", from_tier_gb=Decimal(1000), **traffic),
        fee("0.01", product="cheap routing", **traffic),
        fee("0.10", product="cheap routing", from_tier_gb=Decimal(500), **traffic),
    ]
    build(
        tmp_path,
        seen(0, offer(), fees=fees),
        # The same tiers with an allowance of 100 GB are another schedule.
        seen(0, offer(), fees=fees, provider="aws"),
    )
    tiers = query(
        tmp_path,
        "select product, from_tier_gb, usd_per_gb, count(distinct schedule_id), count(*)"
        " from staging.egress_tiers group by all order by from_tier_gb",
    )
    assert tiers == [("usual routing", 0, 0.12, 2, 2), ("usual routing", 1000, 0.08, 2, 2)]


def test_each_storage_price_is_that_of_its_purpose_and_term(tmp_path: Path) -> None:
    local = fee("0.01", kind="local_storage", product="scratch")
    build(
        tmp_path,
        seen(0, offer("a"), fees=[fee("0.1"), local]),
        seen(0, offer("b", storage_price_per_gb_month=Decimal("0.3")), provider="runpod"),
    )
    told = {
        row[:2]: row[2:]
        for row in query(
            tmp_path,
            "select provider, item, product, source_date"
            " from marts.price_sources inner join staging.current_offers using (offer_id)"
            " where item like 'storage%'",
        )
    }
    # A disk that goes with its machine is for work, not for keeping.
    assert told["acme", "storage"][0] == "scratch"
    assert told["acme", "storage kept"][0] == "disk"
    assert told["runpod", "storage"] == ("the offer's own price", "2026-01-01")
    assert told["runpod", "storage stopped"][0] == "stopped_storage_price_per_gb_month"
    assert told["runpod", "storage kept"][0] == "network_storage_price_per_gb_month"
    prices = query(
        tmp_path,
        "select storage_usd_per_gb_month, stopped_usd_per_gb_month, kept_usd_per_gb_month"
        " from staging.current_offers order by provider",
    )
    assert prices == [(0.01, 0.01, 0.1), (0.3, 0.2, 0.07)]


def test_a_term_is_told_as_stated_by_its_first_tier(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer(), provider="aws"))
    told = query(tmp_path, "from marts.offer_terms select term, value, currency")
    terms = {term: (value, currency) for term, value, currency in told}
    assert terms["egress_price_per_gb"] == ("0.09", "USD")
    assert terms["stop_behaviour"] == ("storage_only", None)


def test_what_has_ended_is_no_price_of_a_later_day(tmp_path: Path) -> None:
    ends = offer("a", "1", expires_at=START + timedelta(days=2, hours=12))
    begins = offer("b", "2", effective_at=START + timedelta(days=1, hours=12))
    build(tmp_path, *(seen(day, ends, begins) for day in range(5)))
    days = query(
        tmp_path,
        'select day("day"), sku from marts.gpu_price_history order by "day"',
    )
    assert days == [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "b")]
    nights = query(
        tmp_path,
        'select day("day"), sku from marts.cost_per_job_history'
        " where job = 'llama-3.1-8b-qlora-10m' order by \"day\"",
    )
    assert nights == days


# --- the bill ---


def bill(folder: Path, sku: str, column: str) -> Any:
    rows = query(
        folder,
        f"select {column} from marts.cost_per_job"
        f" where job = 'llama-3.1-8b-qlora-10m' and sku = '{sku}'",
    )
    return rows[0][0]


SETUP_HOURS = 0.1 + (0.04 + 15.0 * 1.073741824) / 0.125 / 3600
"""Boot, 0.04 GB of data and 15 GiB of weights at 1 Gbit/s: 0.1 h + 129.17 s."""


def test_hours_are_rounded_as_billed(tmp_path: Path) -> None:
    build(
        tmp_path,
        seen(
            0,
            offer("second", "1", billing_increment_seconds=1),
            offer("minute", "1", billing_increment_seconds=60),
            offer("hour", "1", billing_increment_seconds=3600),
            offer("day", "1", billing_increment_seconds=1, billing_minimum_seconds=86400),
            offer("unsaid", "1"),
        ),
    )
    # 3 h + 0.1 h + 129.169 s = 11289.169 s: 11290 s, 189 min, 4 h; a day at least.
    assert bill(tmp_path, "second", "compute_usd") == pytest.approx(11290 / 3600)
    assert bill(tmp_path, "minute", "compute_usd") == pytest.approx(189 / 60)
    assert bill(tmp_path, "hour", "compute_usd") == 4
    assert bill(tmp_path, "day", "compute_usd") == 24
    # Not stated, it can be the second or the hour: what lies between is assumed, and not in low.
    assert bill(tmp_path, "unsaid", "compute_usd") == pytest.approx(11290 / 3600)
    assert bill(tmp_path, "unsaid", "assumed_hours") == pytest.approx(4 - 11290 / 3600)
    for bound in ("cost_usd", "cost_usd_high"):
        assert bill(tmp_path, "unsaid", bound) == pytest.approx(bill(tmp_path, "hour", bound))
    assert bill(tmp_path, "unsaid", "cost_usd_low") == bill(tmp_path, "second", "cost_usd_low")
    assert "billing increment" in bill(tmp_path, "unsaid", "unknown_terms")
    assert bill(tmp_path, "hour", "assumed_hours") == 0
    assert bill(tmp_path, "second", "hours") == pytest.approx(3 + SETUP_HOURS)


@pytest.mark.parametrize(
    ("hours", "starts", "minimum", "increment", "billed"),
    [
        (1.0, 1, 0, 3600, 1.0),
        (1.001, 1, 0, 3600, 2.0),
        (1.0 + 1e-11, 1, 0, 3600, 1.0),
        (0.5, 1, 0, 3600, 1.0),
        (61 / 60, 1, 0, 3600, 2.0),
        (61 / 60, 1, 0, 60, 61 / 60),
        (0.001, 1, 60, 1, 1 / 60),
        (3.0, 3, 0, 3600, 3.0),
        (3.1, 3, 0, 3600, 6.0),
        (0.1, 2, 3600, 60, 2.0),
    ],
)
def test_billed_hours(
    filled: Path, hours: float, starts: int, minimum: int, increment: int, billed: float
) -> None:
    sql = f"select marts.billed_hours({hours}, {starts}, {minimum}, {increment})"
    assert query(filled, sql)[0][0] == pytest.approx(billed)


# Worked values of expected billed hours without the first start, from the closed form of Daly 2006:
# (work, interval, save, rate, restart) -> hours.
SPOT = [
    (4, 0.5, 5 / 3600, 0.05, 0.10, 4.0821),
    (4, 0.5, 5 / 3600, 0.50, 0.10, 4.7866),
    (12, 1.0, 0.05, 0.10, 0.25, 13.6174),
    (12, 1.0, 0.10, 0.30, 0.25, 16.8116),
    (48, 2.0, 0.25, 0.10, 0.75, 65.0993),
    (4, 4.0, 5 / 3600, 0.30, 0.10, 7.9705),
]


@pytest.mark.parametrize(("work", "interval", "save", "rate", "restart", "expected"), SPOT)
def test_spot_hours_equal_the_closed_form(
    filled: Path,
    work: float,
    interval: float,
    save: float,
    rate: float,
    restart: float,
    expected: float,
) -> None:
    sql = f"select marts.spot_hours({work}, {interval}, {save}, {rate}, {restart})"
    assert query(filled, sql)[0][0] == pytest.approx(expected, abs=2e-4)


def test_an_unknown_price_is_null_and_ranked_with_the_pessimistic_side(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("bare", billing_increment_seconds=1)))
    assert bill(tmp_path, "bare", "storage_usd") is None
    assert bill(tmp_path, "bare", "transfer_usd") is None
    assumed = bill(tmp_path, "bare", "assumed_usd")
    assert assumed > 0
    assert bill(tmp_path, "bare", "cost_usd") == pytest.approx(
        bill(tmp_path, "bare", "compute_usd") + assumed
    )
    assert bill(tmp_path, "bare", "cost_usd_low") < bill(tmp_path, "bare", "cost_usd")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"market": "reserved", "commitment_months": 12}, "sold only with a commitment"),
        ({"is_available": False}, "sold out when last seen"),
        ({"expires_at": WHEN}, "the offer has ended, or has not begun"),
        (
            {"effective_at": datetime(2099, 1, 1, tzinfo=UTC)},
            "the offer has ended, or has not begun",
        ),
    ],
)
def test_what_cannot_be_rented_now_is_not_recommended(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    build(tmp_path, seen(0, offer("a", **change)))
    assert bill(tmp_path, "a", "reason") == reason
    assert bill(tmp_path, "a", "is_eligible") is False


def test_an_offer_that_has_ended_is_nobodys_cheapest(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("a", "1", expires_at=WHEN), offer("b", "2")))
    cheapest = query(
        tmp_path, "select sku, price_usd_per_gpu_hour, offers from marts.cheapest_gpus"
    )
    assert cheapest == [("b", 2.0, 1)]


def test_what_a_free_first_tier_precedes_has_its_price(tmp_path: Path) -> None:
    bucket = {"kind": "object_storage", "product": "bucket"}
    fees = [fee("0.10"), fee("0", **bucket), fee("0.02", from_tier_gb=Decimal(5), **bucket),
            fee("0.01", from_tier_gb=Decimal(1000), **bucket)]  # fmt: skip
    build(tmp_path, seen(0, offer("a"), fees=fees))
    columns = "purpose, product, usd_per_gb_month"
    rows = query(tmp_path, f"select {columns} from staging.storage_prices order by purpose")
    assert rows == [("keep", "bucket", 0.02), ("work", "disk", 0.10)]


def test_spot_dearer_than_on_demand_is_never_recommended(tmp_path: Path) -> None:
    terms: dict[str, Any] = {"billing_increment_seconds": 1}
    build(
        tmp_path,
        seen(0, offer("a", "1", **terms), offer("a", "1.2", market="spot", **terms),
             offer("b", "1", **terms), offer("b", "0.3", market="spot", **terms),
             # Spot is listed by zone and tier where on-demand is not: the same machine still.
             offer("c", "1", **terms), offer("c", "1.2", market="spot", zone="eu-1a", **terms),
             offer("d", "1", **terms), offer("d", "1.2", market="spot", tier="flex", **terms),
             # Another region's on-demand price says nothing.
             # Cheaper by less than its interruptions cost.
             offer("f", "1", **terms), offer("f", "0.99", market="spot", **terms),
             offer("e", "1", **terms),
             offer("e", "1.2", market="spot", region="eu-2", **terms)),
    )  # fmt: skip
    rows = query(
        tmp_path,
        "select sku, is_eligible from marts.cost_per_job"
        " where job = 'llama-3.1-8b-qlora-10m' and market = 'spot' order by sku",
    )
    assert rows == [
        ("a", False), ("b", True), ("c", False), ("d", False), ("e", True), ("f", False)
    ]  # fmt: skip


def test_the_best_offers_are_the_best(filled: Path) -> None:
    job = "job = 'llama-3.1-8b-qlora-10m'"
    best = {
        (choice, group): (offer, cost, hours)
        for choice, group, offer, cost, hours in query(
            filled,
            "select choice, region_group, offer_id, cost_usd, hours"
            f" from marts.best_offers where {job}",
        )
    }
    costs = query(
        filled,
        "select cost_usd, hours, market, region_group, gpu from marts.cost_per_job"
        f" where {job} and is_eligible",
    )
    assert best["cheapest", None][1] == min(c[0] for c in costs)
    assert best["fastest", None][2] == min(c[1] for c in costs)
    uninterrupted = min(c[0] for c in costs if c[2] == "on_demand")
    assert best["cheapest without interruption", None][1] == uninterrupted
    for group in {c[3] for c in costs} - {None}:
        assert best["cheapest in region", group][1] == min(c[0] for c in costs if c[3] == group)
    older = [g["gpu"] for g in seeds.load("gpus")
             if g["released_year"] and int(g["released_year"]) <= 2021
             and float(g["vram_gb"]) >= 40]  # fmt: skip
    expected = min(c[0] for c in costs if c[4] in older)
    assert best["best older high-VRAM card", None][1] == expected


# --- putting it in place ---


def test_a_failed_check_leaves_the_last_file(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer("a")))
    before = (tmp_path / "prices.duckdb").stat().st_ino
    with pytest.raises(CheckFailed, match="no_offers"):
        build(tmp_path, seen(1))
    assert (tmp_path / "prices.duckdb").stat().st_ino == before
    assert [p.name for p in tmp_path.glob(".*")] == []


def test_the_last_few_files_are_kept(tmp_path: Path) -> None:
    for day in range(6):
        build(tmp_path, seen(day, offer("a", str(1 + day / 10))))
        os.utime(tmp_path / "prices.duckdb", (1_750_000_000 + day, 1_750_000_000 + day))
    kept = sorted((tmp_path / "previous").iterdir())
    assert len(kept) == 3


def test_a_work_file_of_a_killed_run_is_swept_up(tmp_path: Path) -> None:
    leftover = tmp_path / ".prices.duckdb.99999.work"
    leftover.write_bytes(b"half")
    build(tmp_path, seen(0, offer("a")))
    assert not leftover.exists()


def test_no_file_and_a_damaged_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(NotPublished):
        open_published(tmp_path)
    (tmp_path / "prices.duckdb").write_bytes(b"x" * 9000)
    with pytest.raises(Damaged):
        open_published(tmp_path)


def test_a_file_of_another_version_is_named(tmp_path: Path) -> None:
    build(tmp_path, seen(0, offer()))
    for change in ("update marts.publication set layout = 'other'",
                   "alter table marts.publication drop column layout"):  # fmt: skip
        with duckdb.connect(tmp_path / "prices.duckdb") as older:
            older.execute(change)
        with pytest.raises(NotPublished, match=r"built by another version.*refresh --offline"):
            open_published(tmp_path)


def test_only_new_machine_types_are_planned(tmp_path: Path) -> None:
    asked: list[list[tuple[str, float]]] = []

    def plan(machines: Any) -> list[Mapping[str, Any]]:
        asked.append(list(machines))
        return plan_three_hours(machines)

    first = list(remember(plan, tmp_path)([("H100-80GB-SXM", 1.0)]))
    again = list(remember(plan, tmp_path)([("H100-80GB-SXM", 1.0), ("L4-24GB", 1.0)]))
    assert asked == [[("H100-80GB-SXM", 1.0)], [("L4-24GB", 1.0)]]
    assert [r["job"] for r in again[: len(first)]] == [r["job"] for r in first]
    (tmp_path / CACHE).write_bytes(b"damaged")
    list(remember(plan, tmp_path)([("L4-24GB", 1.0)]))
    assert asked[-1] == [("L4-24GB", 1.0)]
