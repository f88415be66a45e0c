"""The ledger keeps only changes and forgets nothing: any snapshot can be read back from it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rows import START, fee, offer, seen
from warehouse.errors import Damaged, DataFolderError, LedgerBusy
from warehouse.ledger import Kept, Ledger, Observation

STATE = """
    select o.sku, c.price_per_hour
    from (
        select * from ledger.price_changes where observed_at <= ?
        qualify row_number() over (
            partition by offer_id order by observed_at desc, run_id desc) = 1
    ) as c
    inner join (select distinct offer_id, sku from ledger.offers) as o using (offer_id)
    where not c.is_withdrawn
    order by o.sku
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.duckdb") as opened:
        yield opened


def keep(ledger: Ledger, observation: Observation, kind: Any = "live") -> Kept:
    ledger.start_run(kind, datetime.now(UTC), "test")
    return ledger.keep(observation)


def state_at(ledger: Ledger, day: float) -> dict[str, Decimal]:
    at = (START + timedelta(days=day)).replace(tzinfo=None)
    return dict(ledger.connection.execute(STATE, [at]).fetchall())


def changes(ledger: Ledger) -> int:
    rows = ledger.connection.execute("select count(*) from ledger.price_changes").fetchall()
    return int(rows[0][0])


def test_an_unchanged_night_writes_an_outcome_and_no_price(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer("a", "1"), offer("b", "2")))
    assert changes(ledger) == 2
    assert keep(ledger, seen(1, offer("b", "2"), offer("a", "1"))) == Kept("ok")
    assert changes(ledger) == 2
    outcomes = ledger.connection.execute("select count(*) from ledger.outcomes").fetchall()
    assert outcomes == [(2,)]


def test_a_missing_offer_is_withdrawn_by_an_ok_run_and_not_by_a_failed_one(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer("a"), offer("b")))
    keep(ledger, seen(1, status="failed", error="Unreachable: no route"))
    assert state_at(ledger, 1) == {"a": 1, "b": 1}
    kept = keep(ledger, seen(2, offer("a")))
    assert (kept.changes, kept.withdrawals) == (0, 1)
    assert state_at(ledger, 2) == {"a": 1}


def test_a_truncated_listing_withdraws_nothing_and_restates_what_it_shows(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer("a"), offer("b")))
    keep(ledger, seen(1, offer("a"), truncated=True))
    assert state_at(ledger, 1) == {"a": 1, "b": 1}
    told = ledger.connection.execute(
        "select max(observed_at) from ledger.price_changes group by offer_id order by 1"
    ).fetchall()
    assert [t.day for (t,) in told] == [1, 2]


@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("price_per_hour", Decimal("1.000000001")),
        ("currency", "EUR"),
        ("is_available", False),
        ("billing_increment_seconds", 60),
        ("storage_price_per_gb_month", Decimal("0.05")),
        ("egress_price_per_gb", Decimal(0)),
        ("interruption_rate_monthly", Decimal("0.2")),
        ("expires_at", START),
    ],
)
def test_every_term_that_moves_is_a_change(ledger: Ledger, term: str, value: Any) -> None:
    keep(ledger, seen(0, offer()))
    assert keep(ledger, seen(1, offer(**{term: value}))).changes == 1


def test_a_corrected_fact_does_not_touch_the_price(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer(vcpus=Decimal(8))))
    assert keep(ledger, seen(1, offer(vcpus=Decimal(16)))).changes == 0
    rows = ledger.connection.execute("select vcpus from ledger.offers order by run_id").fetchall()
    assert rows == [(8,), (16,)]


def test_keys_tell_apart_what_users_must_tell_apart(ledger: Ledger) -> None:
    keep(
        ledger,
        seen(
            0,
            offer(),
            offer(market="spot"),
            offer(tier="community"),
            offer(zone="eu-1a"),
            offer(region="eu-2"),
            offer(market="reserved", commitment_months=12),
        ),
    )
    assert changes(ledger) == 6


def test_fees_are_kept_as_changes_too(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer(), fees=[fee("0.1"), fee("0.09", from_tier_gb=Decimal(10240))]))
    keep(ledger, seen(1, offer(), fees=[fee("0.2"), fee("0.09", from_tier_gb=Decimal(10240))]))
    rows = ledger.connection.execute(
        "select from_tier_gb::integer as tier, price::double from ledger.fee_changes"
        " order by observed_at, tier"
    ).fetchall()
    assert rows == [(0, 0.1), (10240, 0.09), (0, 0.2)]


# Prices move by less than what holds a scope for confirmation.
Nights = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.dictionaries(st.sampled_from("abcd"), st.integers(100, 102), min_size=1),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda night: night[0],
)


@settings(max_examples=15, deadline=None)
@given(nights=Nights)
def test_whatever_the_order_of_arrival_each_snapshot_reads_back(
    nights: list[tuple[int, dict[str, int]]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Late answers (a backfill, a reparse) neither leak forward nor are overwritten backward."""
    folder = tmp_path_factory.mktemp("ledger")
    with Ledger(folder / "ledger.duckdb") as ledger:
        for day, snapshot in nights:
            keep(ledger, seen(day, *(offer(sku, str(price)) for sku, price in snapshot.items())))
        for day, snapshot in nights:
            assert state_at(ledger, day) == snapshot
        for day in range(31):
            before = [night for night in nights if night[0] <= day]
            expected = max(before)[1] if before else {}
            assert state_at(ledger, day) == expected


def test_a_correction_of_the_same_moment_wins(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer("a", "100")))
    keep(ledger, seen(1, offer("a", "100")))
    keep(ledger, seen(0, offer("a", "1")), kind="reparse")
    assert state_at(ledger, 0) == {"a": 1}
    assert state_at(ledger, 1) == {"a": 100}
    keep(ledger, seen(1, offer("a", "1")), kind="reparse")
    assert state_at(ledger, 1) == {"a": 1}


def many(count: int, price: str) -> list[dict[str, Any]]:
    return [offer(f"sku{n}", price) for n in range(count)]


def test_a_collapse_is_held_until_the_next_run_confirms_it(ledger: Ledger) -> None:
    keep(ledger, seen(0, *many(20, "1")))
    held = keep(ledger, seen(1, *many(5, "1")))
    assert held.status == "held"
    assert "5 offers, 20 the last time" in str(held.error)
    assert len(state_at(ledger, 1)) == 20
    assert keep(ledger, seen(2, *many(5, "1"))).status == "ok"
    assert len(state_at(ledger, 2)) == 5


def test_a_jump_is_held_confirmed_or_forgotten(ledger: Ledger) -> None:
    keep(ledger, seen(0, *many(4, "98.32")))
    assert keep(ledger, seen(1, *many(4, "55.04"))).status == "held"
    # Back to normal the next night: the doubt is gone, and nothing was written of it.
    assert keep(ledger, seen(2, *many(4, "98.32"))) == Kept("ok")
    assert keep(ledger, seen(3, *many(4, "55.04"))).status == "held"
    # Another surprise is no confirmation.
    assert keep(ledger, seen(4, *many(4, "1"))).status == "held"
    assert keep(ledger, seen(5, *many(4, "1"))).status == "ok"


def test_a_doubt_is_confirmed_by_what_is_alike_not_by_the_digit(ledger: Ledger) -> None:
    """A market's prices drift: the next night's need not be the held ones exactly."""
    keep(ledger, seen(0, *many(10, "4")))
    assert keep(ledger, seen(1, *many(10, "2"))).status == "held"
    assert keep(ledger, seen(2, *many(11, "2.15"))).status == "ok"
    assert keep(ledger, seen(3, *many(11, "1"))).status == "held"
    # A tenth more than the held price is too far off to confirm it.
    assert keep(ledger, seen(4, *many(11, "1.2"))).status == "held"


def test_what_stays_is_believed_in_the_end(ledger: Ledger) -> None:
    keep(ledger, seen(0, *many(4, "100")))
    statuses = [
        keep(ledger, seen(day, *many(4, price))).status
        for day, price in ((1, "10"), (2, "20"), (3, "30"), (4, "40"))
    ]
    assert statuses == ["held", "held", "held", "ok"]


def test_the_same_night_read_twice_confirms_nothing(ledger: Ledger) -> None:
    keep(ledger, seen(0, *many(4, "4")))
    for _ in range(3):
        assert keep(ledger, seen(1, *many(4, "1")), kind="replay").status == "held"


def test_a_reparse_corrects_every_night_and_is_never_held(ledger: Ledger) -> None:
    """A parser that read the price of eight GPUs as that of one, put right."""
    for day in range(4):
        keep(ledger, seen(day, *many(5, f"{16 + day}")))
    before = ledger.connection.execute("select count(*) from ledger.held_offers").fetchall()
    for day in range(4):
        price = str(Decimal(16 + day) / 8)
        assert keep(ledger, seen(day, *many(5, price)), kind="reparse").status == "ok"
    for day in range(4):
        assert set(state_at(ledger, day).values()) == {Decimal(16 + day) / 8}
    after = ledger.connection.execute("select count(*) from ledger.held_offers").fetchall()
    assert before == after == [(0,)]


def test_a_late_answer_leaks_not_past_a_later_complete_one(ledger: Ledger) -> None:
    """Nights that were cut short in between neither stop it nor are taken for complete."""
    keep(ledger, seen(0, offer("a"), offer("b")))
    keep(ledger, seen(2, offer("a"), truncated=True))
    keep(ledger, seen(3, offer("a"), offer("b")))
    keep(ledger, seen(1, offer("a", "1.1"), offer("c")))  # arrives last
    assert state_at(ledger, 0) == {"a": 1, "b": 1}
    assert state_at(ledger, 1) == {"a": Decimal("1.1"), "c": 1}
    assert state_at(ledger, 2) == {"a": 1, "c": 1}
    assert state_at(ledger, 3) == {"a": 1, "b": 1}


def test_a_late_page_knows_nothing_better_of_an_offer_seen_since(ledger: Ledger) -> None:
    facts = """
        select sku, vcpus::integer from ledger.offers
        qualify row_number() over (partition by offer_id order by run_id desc) = 1 order by sku
    """
    keep(ledger, seen(5, offer("a", vcpus=Decimal(16))))
    keep(ledger, seen(1, offer("a", vcpus=Decimal(8)), offer("b", vcpus=Decimal(4))))
    assert ledger.connection.execute(facts).fetchall() == [("a", 16), ("b", 4)]
    keep(ledger, seen(1, offer("a", vcpus=Decimal(8)), offer("b", vcpus=Decimal(2))), "reparse")
    assert ledger.connection.execute(facts).fetchall() == [("a", 8), ("b", 2)]


def test_the_baseline_is_no_measure_for_the_first_live_night(ledger: Ledger) -> None:
    keep(ledger, seen(0, *many(20, "1")), kind="baseline")
    assert keep(ledger, seen(1, *many(3, "9"))).status == "ok"


def test_a_failure_while_writing_keeps_nothing_of_the_scope(ledger: Ledger) -> None:
    keep(ledger, seen(0, offer("a")))
    broken = seen(1, offer("a", "2"), rejects=[{"reason": object()}])
    with pytest.raises(Exception, match="object"):
        keep(ledger, broken)
    assert state_at(ledger, 1) == {"a": 1}
    assert ledger.connection.execute("select count(*) from ledger.outcomes").fetchall() == [(1,)]


def test_exact_money_and_utc_survive(ledger: Ledger) -> None:
    odd = offer("a", "1.386666667", expires_at=datetime.fromisoformat("2026-02-01T01:00:00+02:00"))
    keep(ledger, seen(0, odd))
    row = ledger.connection.execute(
        "select price_per_hour, expires_at from ledger.price_changes"
    ).fetchone()
    assert row == (Decimal("1.386666667"), datetime(2026, 1, 31, 23))  # noqa: DTZ001


def test_a_naive_time_is_refused(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="without a zone"):
        keep(ledger, seen(0, offer(), observed_at=datetime(2026, 1, 1)))  # noqa: DTZ001


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    path.write_bytes(b"not a database at all" * 400)
    with pytest.raises(Damaged, match=r"ledger\.duckdb cannot be read"):
        Ledger(path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_file_of_an_older_version_gains_the_columns_that_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "ledger.duckdb"
    with Ledger(path) as ledger:
        keep(ledger, seen(0, offer(), fees=[fee("0.1", request="disks")]))
    with duckdb.connect(path) as older:
        older.execute("alter table fee_changes drop column request")
    with Ledger(path) as ledger:
        keep(ledger, seen(1, offer(), fees=[fee("0.2", request="disks")]))
        rows = ledger.connection.execute(
            "select price::double, request from ledger.fee_changes order by observed_at"
        ).fetchall()
    assert rows == [(0.1, None), (0.2, "disks")]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataFolderError, match="--data DIR"):
        Ledger(tmp_path / "file" / "data" / "ledger.duckdb")


def test_a_second_writer_is_told_to_wait(tmp_path: Path) -> None:
    import subprocess
    import sys

    path = tmp_path / "ledger.duckdb"
    script = (
        "import sys; from pathlib import Path; from warehouse.ledger import Ledger\n"
        "with Ledger(Path(sys.argv[1])): print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        with pytest.raises(LedgerBusy, match="in use by another tunecost"):
            Ledger(path)
        other.communicate("")
