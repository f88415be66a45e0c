"""The append-only store: what was asked, what came back, and every price change since.

Only changes are written. An observation of a scope at a time says which offers exist and what
they cost; it is compared with the state that the ledger holds for that time, and the differences
become rows of `price_changes` (a withdrawal where an offer is gone). Spans, ages and the current
state are derived by `sql/`. No update, no delete, no keys or sequences: the same statements run
on DuckLake.

Times are naive UTC in the tables and aware at this module's edges. `run_id` sorts by time, so
that of two statements about the same moment the later run's counts (a corrected parser).
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import duckdb
import pyarrow as pa

from warehouse.checks import Finding, run_checks
from warehouse.errors import Damaged, DataFolderError, LedgerBusy

RunKind = Literal["live", "replay", "reparse", "baseline"]
Status = Literal["ok", "failed", "skipped", "held"]

HELD_NIGHTS: Final = 3
"""A scope that was held so often in a row is believed."""
_MONEY = "decimal(18,9)"
# The key: what makes two rows the same offer. `offer_id` is their hash.
OFFER_KEY: Final = ("sku", "region", "zone", "market", "tier", "commitment_months")
# Facts that rarely change; a change writes a new row of `offers`, the latest run's counts.
OFFER_FACTS: Final = {
    "gpu_label": "varchar",
    "gpu_count": _MONEY,
    "gpu_memory_gib": _MONEY,
    "vcpus": _MONEY,
    "memory_gib": _MONEY,
    "local_disk_gib": _MONEY,
    "interconnect": "varchar",
    "egress_included_gb_per_month": _MONEY,
}
# What a price change records; any difference is a change.
OFFER_TERMS: Final = {
    "price_per_hour": _MONEY,
    "currency": "varchar",
    "upfront": _MONEY,
    "is_available": "boolean",
    "billing_increment_seconds": "integer",
    "billing_minimum_seconds": "integer",
    "storage_price_per_gb_month": _MONEY,
    "egress_price_per_gb": _MONEY,
    "ingress_price_per_gb": _MONEY,
    "interruption_rate_monthly": _MONEY,
    "effective_at": "timestamp",
    "expires_at": "timestamp",
}
FEE_KEY: Final = ("kind", "product", "fee_region", "from_tier_gb", "size_gb")
FEE_TERMS: Final = {
    "price": _MONEY,
    "unit": "varchar",
    "currency": "varchar",
    "effective_at": "timestamp",
    "request": "varchar",
}
# Kept with a change, but none by itself: the page that a fee stands on may move.
NO_CHANGE: Final = {"request"}
_KEY_TYPES: Final = {
    "commitment_months": "integer",
    "from_tier_gb": _MONEY,
    "size_gb": _MONEY,
}


def _columns(names: Sequence[str], types: Mapping[str, str] = _KEY_TYPES) -> str:
    return ", ".join(f"{name} {types.get(name, 'varchar')}" for name in names)


TABLES: Final = {
    "runs": "run_id varchar, kind varchar, started_at timestamp, version varchar",
    "outcomes": (
        "run_id varchar, provider varchar, scope varchar, status varchar, observed_at timestamp,"
        " recorded_at timestamp, offers integer, fees integer, rejects integer,"
        " duplicates integer, truncated boolean, error varchar, seconds double, source_url varchar"
    ),
    "findings": (
        "run_id varchar, provider varchar, scope varchar, check_name varchar, severity varchar,"
        ' "rows" integer, detail varchar'
    ),
    "fetches": (
        "run_id varchar, provider varchar, request varchar, page integer, url varchar,"
        " status integer, sha256 varchar, size_bytes bigint, archive_path varchar,"
        " fetched_at timestamp, from_cache boolean"
    ),
    "rejects": (
        "run_id varchar, provider varchar, scope varchar, reason varchar, detail varchar,"
        " raw varchar"
    ),
    "offers": (
        "offer_id varchar, run_id varchar, provider varchar, scope varchar,"
        f" {_columns(OFFER_KEY)}, {_columns(tuple(OFFER_FACTS), OFFER_FACTS)}"
    ),
    "price_changes": (
        "offer_id varchar, run_id varchar, provider varchar, scope varchar,"
        f" observed_at timestamp, is_withdrawn boolean,"
        f" {_columns(tuple(OFFER_TERMS), OFFER_TERMS)}"
    ),
    "held_offers": (
        "run_id varchar, provider varchar, scope varchar, offer_id varchar,"
        f" price_per_hour {_MONEY}"
    ),
    "fee_changes": (
        "fee_id varchar, run_id varchar, provider varchar, scope varchar, observed_at timestamp,"
        f" is_withdrawn boolean, {_columns(FEE_KEY)}, {_columns(tuple(FEE_TERMS), FEE_TERMS)}"
    ),
    "fx_rates": (
        "run_id varchar, rate_date date, currency varchar, units_per_eur decimal(18,9),"
        " observed_at timestamp"
    ),
}

_ARROW: Final = {
    "varchar": pa.string(),
    "integer": pa.int32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us"),
    "double": pa.float64(),
    "bigint": pa.int64(),
    "date": pa.date32(),
    _MONEY: pa.decimal128(18, 9),
}


@dataclass(frozen=True)
class Observation:
    """What one scope said at one time, ready to be kept: plain data from the collector.

    `offers` and `fees` are mappings with the fields of the row contract; `status` ok, failed or
    skipped. A truncated listing withdraws nothing.
    """

    provider: str
    scope: str
    status: Literal["ok", "failed", "skipped"]
    observed_at: datetime
    offers: Sequence[Mapping[str, Any]] = ()
    fees: Sequence[Mapping[str, Any]] = ()
    rejects: Sequence[Mapping[str, Any]] = ()
    fetches: Sequence[Mapping[str, Any]] = ()
    duplicates: int = 0
    truncated: bool = False
    error: str | None = None
    seconds: float = 0.0
    source_url: str | None = None


@dataclass(frozen=True)
class Kept:
    """The ledger's verdict on an observation, and how many rows it wrote."""

    status: Status
    changes: int = 0
    withdrawals: int = 0
    error: str | None = None
    findings: tuple[Finding, ...] = ()


def naive(time: datetime) -> datetime:
    """Turn an aware time into the naive UTC that the tables hold.

    Raises:
        ValueError: the time has no zone.
    """
    if time.tzinfo is None:
        raise ValueError("a time without a zone cannot be kept")
    return time.astimezone(UTC).replace(tzinfo=None)


def first(result: duckdb.DuckDBPyConnection) -> tuple[Any, ...] | None:
    """Return a result's first row and finish it: DuckDB 2 refuses work beside an open result."""
    rows = result.fetchall()
    return rows[0] if rows else None


def connect() -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB in UTC, to attach files to."""
    connection = duckdb.connect(":memory:")
    connection.execute("set timezone = 'UTC'")
    connection.execute("set enable_progress_bar = false")
    # Names in SQL mean tables, never Python variables (and the search for these costs time).
    connection.execute("set python_enable_replacements = false")
    return connection


def attach(
    connection: duckdb.DuckDBPyConnection, path: Path, name: str, *, read_only: bool
) -> None:
    """Attach a database file.

    Raises:
        LedgerBusy: another process is writing to it.
        Damaged: it is not a readable database.
        DataFolderError: it, or its folder, cannot be opened as asked.
    """
    mode = " (read_only)" if read_only else ""
    try:
        connection.execute(f"attach '{str(path).replace(chr(39), chr(39) * 2)}' as {name}{mode}")
    except duckdb.Error as error:
        # The path is in the message: its own words must not be read as the fault.
        line = str(error).splitlines()[0].replace(str(path), path.name)
        if "Could not set lock" in line or "Conflicting lock" in line:
            raise LedgerBusy(
                f"{path} is in use by another tunecost; wait until it has finished, then try again"
            ) from error
        # DuckDB reports a refused open as an I/O error with the operating system's words.
        if "permission" in line.lower() or "read-only" in line.lower():
            raise DataFolderError(
                f"cannot write to {path.parent}; choose another folder with --data DIR"
            ) from error
        raise Damaged(
            f"{path} cannot be read as a tunecost database ({line[:160]}); move it away and run"
            " `tunecost refresh` (archived payloads: `tunecost reparse`)"
        ) from error


class Ledger:
    """An open ledger. Use as a context manager; one process writes at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run_id: str = ""
        self._kind: str = ""
        self._is_writing = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFolderError(
                f"cannot create {path.parent} ({error.strerror}); choose another folder with"
                " --data DIR"
            ) from error
        self.connection = connect()
        attach(self.connection, path, "ledger", read_only=False)
        try:
            for table, columns in TABLES.items():
                self.connection.execute(f"create table if not exists ledger.{table} ({columns})")
                self._add_columns(table, columns)
        except duckdb.Error as error:
            self.connection.close()
            raise Damaged(f"{path} cannot be used ({str(error).splitlines()[0]})") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def _add_columns(self, table: str, columns: str) -> None:
        """Give a table of an older version the columns that it lacks: NULL in its rows."""
        self.connection.execute(f"create or replace temp table wanted ({columns})")
        described = "select column_name, column_type from (describe {})"
        known = dict(self.connection.execute(described.format(f"ledger.{table}")).fetchall())
        for name, kind in self.connection.execute(described.format("wanted")).fetchall():
            if name not in known:
                self.connection.execute(f'alter table ledger.{table} add column "{name}" {kind}')

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write everything in the outermost block, or nothing."""
        if self._is_writing:
            yield
            return
        self.connection.execute("begin transaction")
        self._is_writing = True
        try:
            yield
        except BaseException:
            self.connection.execute("rollback")
            raise
        finally:
            self._is_writing = False
        self.connection.execute("commit")

    def start_run(self, kind: RunKind, started_at: datetime, version: str) -> str:
        """Open a run and return its id, which sorts by time."""
        self.run_id = f"{naive(started_at):%Y%m%dT%H%M%S%f}Z-{secrets.token_hex(3)}"
        self._kind = kind
        self._insert(
            "runs",
            [{"kind": kind, "started_at": naive(started_at), "version": version}],
        )
        return self.run_id

    def scopes_seen(self) -> dict[tuple[str, str], int]:
        """Return, per provider and scope with an ok run that was not the baseline, its offers."""
        rows = self.connection.execute(
            """
            select o.provider, o.scope, arg_max(o.offers + o.fees, (o.observed_at, o.run_id))
            from ledger.outcomes as o inner join ledger.runs as r using (run_id)
            where o.status = 'ok' and r.kind <> 'baseline'
            group by all
            """
        ).fetchall()
        return {(provider, scope): n for provider, scope, n in rows}

    def scopes_known(self) -> dict[tuple[str, str], datetime]:
        """Return each provider and scope's newest ok outcome, baseline included (naive UTC)."""
        rows = self.connection.execute(
            """
            select provider, scope, max(observed_at) from ledger.outcomes
            where status = 'ok' group by provider, scope
            """
        ).fetchall()
        return {(provider, scope): seen for provider, scope, seen in rows}

    def keep(self, seen: Observation) -> Kept:
        """Write one scope's observation whole, or not at all; only changes are written.

        The incoming checks run first: a `fail` keeps no row, a `hold` keeps the prices aside
        until the next run shows the same.
        """
        with self.transaction():
            kept = self._keep_rows(seen) if seen.status == "ok" else Kept(seen.status)
            error = kept.error or seen.error
            self._insert(
                "outcomes",
                [
                    {
                        "provider": seen.provider,
                        "scope": seen.scope,
                        "status": kept.status,
                        "observed_at": naive(seen.observed_at),
                        "recorded_at": naive(datetime.now(UTC)),
                        "offers": len(seen.offers),
                        "fees": len(seen.fees),
                        "rejects": len(seen.rejects),
                        "duplicates": seen.duplicates,
                        "truncated": seen.truncated,
                        "error": error,
                        "seconds": seen.seconds,
                        "source_url": seen.source_url,
                    }
                ],
            )
            where = {"provider": seen.provider, "scope": seen.scope}
            self._insert("rejects", [where | dict(reject) for reject in seen.rejects])
            self._insert("fetches", [dict(fetch) for fetch in seen.fetches])
            self._insert(
                "findings",
                [
                    where
                    | {"check_name": f.check, "severity": f.severity, "rows": f.rows}
                    | {"detail": f.detail}
                    for f in kept.findings
                ],
            )
        return kept

    def keep_rates(self, rates: Sequence[Mapping[str, Any]], observed_at: datetime) -> int:
        """Write the reference rates of days that the ledger does not hold yet; return how many."""
        with self.transaction():
            known = set(
                self.connection.execute(
                    "select rate_date, currency from ledger.fx_rates"
                ).fetchall()
            )
            fresh = [r for r in rates if (r["rate_date"], r["currency"]) not in known]
            self._insert("fx_rates", [dict(r) | {"observed_at": naive(observed_at)} for r in fresh])
        return len(fresh)

    # -- writing ----------------------------------------------------------------------------

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        types = dict(part.split() for part in TABLES[table].replace('"', "").split(", "))
        schema = pa.schema([(name, _ARROW[kind]) for name, kind in types.items()])
        full = [{"run_id": self.run_id} | dict(row) for row in rows]
        batch = pa.Table.from_pylist([{n: r.get(n) for n in types} for r in full], schema=schema)
        self.connection.register("batch", batch)
        self.connection.execute(f"insert into ledger.{table} by name select * from batch")
        self.connection.unregister("batch")

    def _keep_rows(self, seen: Observation) -> Kept:
        self._stage("incoming", seen, seen.offers, OFFER_KEY, OFFER_FACTS | OFFER_TERMS, "offer_id")
        self._stage_state("state", "price_changes", "offer_id", seen)
        findings = tuple(run_checks(self.connection, "incoming"))
        failed = [f for f in findings if f.severity == "fail"]
        if failed:
            return Kept("failed", error=_words(failed), findings=findings)
        held = [f for f in findings if f.severity == "hold"]
        # A reparse reads again, on purpose, what was kept before: it is never a surprise.
        if held and self._kind != "reparse" and not self._confirms(seen):
            self.connection.execute(
                """
                insert into ledger.held_offers
                select ?, provider, scope, offer_id, price_per_hour from incoming
                """,
                [self.run_id],
            )
            return Kept("held", error="held for confirmation: " + _words(held), findings=findings)
        later = self._later_outcome(seen)
        self._write_facts(is_late=self._kind != "reparse" and later is not None)
        changes, withdrawals = self._write_changes(
            "incoming", "state", "price_changes", "offer_id", OFFER_TERMS, (), seen, later
        )
        if not seen.fees and not self._ever_had_fees(seen):
            return Kept("ok", changes, withdrawals, findings=findings)
        fees = [{**fee, "fee_region": fee["region"]} for fee in seen.fees]
        self._stage("incoming_fees", seen, fees, FEE_KEY, FEE_TERMS, "fee_id")
        self._stage_state("state_fees", "fee_changes", "fee_id", seen)
        more, gone = self._write_changes(
            "incoming_fees", "state_fees", "fee_changes", "fee_id", FEE_TERMS, FEE_KEY, seen, later
        )
        return Kept("ok", changes + more, withdrawals + gone, findings=findings)

    def _ever_had_fees(self, seen: Observation) -> bool:
        rows = self.connection.execute(
            "select 1 from ledger.fee_changes where provider = ? and scope = ? limit 1",
            [seen.provider, seen.scope],
        )
        return first(rows) is not None

    def _stage(
        self,
        name: str,
        seen: Observation,
        rows: Sequence[Mapping[str, Any]],
        key: tuple[str, ...],
        values: Mapping[str, str],
        id_name: str,
    ) -> None:
        """Lay the new rows in a temporary table, with the hash of their key."""
        types = {k: _KEY_TYPES.get(k, "varchar") for k in key} | dict(values)
        schema = pa.schema([(n, _ARROW[t]) for n, t in types.items()])
        plain = [
            {n: naive(v) if isinstance(v := row.get(n), datetime) else v for n in types}
            for row in rows
        ]
        self.connection.register("batch", pa.Table.from_pylist(plain, schema=schema))
        # chr(31), the unit separator, cannot occur in a key; chr(0)-like absence is spelt out.
        parts = ", ".join(f"coalesce({k}::varchar, chr(30))" for k in key)
        self.connection.execute(
            f"""
            create or replace temp table {name} as
            select
                left(sha256(concat_ws(chr(31), ?, ?, {parts})), 20) as {id_name},
                ? as provider, ? as scope, *
            from batch
            """,
            [seen.provider, seen.scope, seen.provider, seen.scope],
        )
        self.connection.unregister("batch")

    def _stage_state(self, name: str, table: str, id_name: str, seen: Observation) -> None:
        """Lay the scope's state at the observation's time in a temporary table.

        The baseline is no observation of ours: live rows are never compared with it.
        """
        self.connection.execute(
            f"""
            create or replace temp table {name} as
            select c.*
            from ledger.{table} as c inner join ledger.runs as r using (run_id)
            where
                c.provider = ? and c.scope = ? and c.observed_at <= ?
                and (r.kind <> 'baseline' or ?)
            qualify
                row_number() over (
                    partition by c.{id_name} order by c.observed_at desc, c.run_id desc
                ) = 1
            """,
            [seen.provider, seen.scope, naive(seen.observed_at), self._kind == "baseline"],
        )

    def _confirms(self, seen: Observation) -> bool:
        """Tell whether this observation confirms the doubt of the scope's last one.

        The last one before it was held, lists about as many offers (within 20 %), and of the offers
        in both four in five cost about the same (within 10 %): prices on a market move from night
        to night, the surprise need not repeat to the digit. After three held nights the scope is
        believed in any case: what stays is no slip of one night.
        """
        where = {
            "provider": seen.provider,
            "scope": seen.scope,
            "at": naive(seen.observed_at),
            "nights": HELD_NIGHTS,
        }
        before = self.connection.execute(
            """
            select run_id, status, offers from ledger.outcomes
            where
                provider = $provider and scope = $scope and observed_at < $at
                and status in ('ok', 'held')
            order by observed_at desc, run_id desc limit $nights
            """,
            where,
        ).fetchall()
        if not before or before[0][1] != "held":
            return False
        if len(before) == HELD_NIGHTS and all(status == "held" for _, status, _ in before):
            return True
        run_id, _, count = before[0]
        if abs(count - len(seen.offers)) > 0.2 * max(count, len(seen.offers)):
            return False
        row = first(
            self.connection.execute(
                """
                select
                    count(*),
                    count(*) filter (
                        abs(i.price_per_hour - h.price_per_hour) <= 0.1 * h.price_per_hour
                    )
                from incoming as i inner join ledger.held_offers as h using (offer_id)
                where h.run_id = ? and h.provider = ? and h.scope = ?
                """,
                [run_id, seen.provider, seen.scope],
            )
        )
        shared, alike = row if row else (0, 0)
        return bool(alike >= 0.8 * shared)

    def _write_facts(self, *, is_late: bool) -> None:
        """Write the slow facts of offers where they are new or differ; the latest run's count.

        An old page that comes late knows nothing better of an offer that was seen since; only a
        reparse corrects.
        """
        facts = (*OFFER_KEY, *OFFER_FACTS)
        same = " and ".join(f"known.{c} is not distinct from incoming.{c}" for c in facts)
        columns = ", ".join(facts)
        self.connection.execute(
            f"""
            insert into ledger.offers by name
            select offer_id, ? as run_id, provider, scope, {columns}
            from incoming
            where not exists (
                select 1 from (
                    select * from ledger.offers
                    where offer_id in (select offer_id from incoming)
                    qualify row_number() over (partition by offer_id order by run_id desc) = 1
                ) as known
                where known.offer_id = incoming.offer_id and (? or ({same}))
            )
            """,
            [self.run_id, is_late],
        )

    def _later_outcome(self, seen: Observation) -> datetime | None:
        """Return the time of the scope's next complete listing after this one, or None."""
        row = first(
            self.connection.execute(
                """
                select min(o.observed_at)
                from ledger.outcomes as o inner join ledger.runs as r using (run_id)
                where
                    o.provider = ? and o.scope = ? and o.status = 'ok' and o.observed_at > ?
                    and not o.truncated and r.kind <> 'baseline'
                """,
                [seen.provider, seen.scope, naive(seen.observed_at)],
            )
        )
        return row[0] if row else None

    def _write_changes(
        self,
        incoming: str,
        state: str,
        table: str,
        id_name: str,
        terms: Mapping[str, str],
        carried: tuple[str, ...],
        seen: Observation,
        later: datetime | None,
    ) -> tuple[int, int]:
        """Write what differs from the state; return the counts of changes and withdrawals.

        A truncated listing withdraws nothing, and restates every row that it does show: the age
        of the others must not be reset by it. An observation older than a later one of the scope
        must not leak past it, so the state before is restated at the later time.
        """
        at = naive(seen.observed_at)
        columns = ", ".join((*carried, *terms))
        nulls = ", ".join((*carried, *(f"null as {c}" for c in terms)))
        stated = ", ".join(f"i.{c}" for c in (*carried, *terms))
        compared = [c for c in terms if c not in NO_CHANGE]
        moved = " or ".join(f"s.{c} is distinct from i.{c}" for c in compared)
        self.connection.execute(
            f"""
            create or replace temp table fresh as
            select i.{id_name}, false as is_withdrawn, {stated}
            from {incoming} as i left join {state} as s using ({id_name})
            where ? or s.{id_name} is null or s.is_withdrawn or {moved}
            union all by name
            select {id_name}, true as is_withdrawn, {nulls}
            from {state}
            where
                not is_withdrawn and not ?
                and {id_name} not in (select {id_name} from {incoming})
            """,
            [seen.truncated, seen.truncated],
        )
        if later is not None:
            self.connection.execute(
                f"""
                insert into ledger.{table} by name
                select
                    f.{id_name}, ? as run_id, ? as provider, ? as scope, ? as observed_at,
                    coalesce(s.is_withdrawn, true) as is_withdrawn,
                    {", ".join(f"f.{c}" for c in carried) + ", " if carried else ""}
                    {", ".join(f"s.{c}" for c in terms)}
                from fresh as f left join {state} as s using ({id_name})
                where
                    not exists (
                        select 1 from ledger.{table} as c
                        where
                            c.{id_name} = f.{id_name}
                            and c.observed_at > ? and c.observed_at <= ?
                    )
                """,
                [self.run_id, seen.provider, seen.scope, later, at, later],
            )
        self.connection.execute(
            f"""
            insert into ledger.{table} by name
            select
                {id_name}, ? as run_id, ? as provider, ? as scope, ? as observed_at,
                is_withdrawn, {columns}
            from fresh
            """,
            [self.run_id, seen.provider, seen.scope, at],
        )
        counts = first(
            self.connection.execute(
                "select count(*) filter (not is_withdrawn), count(*) filter (is_withdrawn)"
                " from fresh"
            )
        )
        return (int(counts[0]), int(counts[1])) if counts else (0, 0)


def _words(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{f.check} ({f.detail})" for f in findings)
