"""Build the file that people open: ledger + seeds + plans in, read-only `prices.duckdb` out.

The published file is a pure function of the ledger, the seeds, the sizing model and `sql/`, so it
can be deleted at any time. It is built beside the old one and put in its place by one rename
after the checks pass: a reader sees the old night or the new one, never half of either.

`sql/`: folder = schema, file = relation, one SELECT each. A file's header is

    -- A sentence.
    -- grain: the columns that are unique together
    -- units: of its measures
    -- kept: table | view | macro(arguments) | function(arguments)      (optional; view by default)

and is stored as the relation's comment; `columns.csv` holds the one meaning of each column name.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from importlib import resources
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa

from warehouse import seeds
from warehouse.checks import Finding, run_checks
from warehouse.errors import CheckFailed, Damaged, DataFolderError
from warehouse.ledger import Ledger, naive
from warehouse.reader import ROW_GROUP_ROWS, layout

PREVIOUS_KEPT: Final = 3
SCHEMAS: Final = ("seeds", "staging", "sizing", "marts")
SEEDS: Final = (
    "gpus",
    "gpu_aliases",
    "models",
    "jobs",
    "provider_terms",
    "fx_rates",
    "providers",
    "regions",
    "spot_priors",
)
PLANS: Final = "sizing.plans"

# One row per job and machine type: what `plan` yields (see warehouse/sizing/plans.py).
PLAN_COLUMNS: Final = {
    "job": pa.string(),
    "gpu": pa.string(),
    "gpu_count": pa.float64(),
    "nodes": pa.int32(),
    "sharding": pa.string(),
    "micro_batch": pa.int32(),
    "grad_checkpointing": pa.string(),
    "weight_dtype": pa.string(),
    "optimizer": pa.string(),
    "vram_weights_gib": pa.float64(),
    "vram_gradients_gib": pa.float64(),
    "vram_optimizer_gib": pa.float64(),
    "vram_activations_gib": pa.float64(),
    "vram_logits_gib": pa.float64(),
    "vram_overhead_gib": pa.float64(),
    "vram_needed_gib": pa.float64(),
    "vram_usable_gib": pa.float64(),
    "fits": pa.bool_(),
    "reason": pa.string(),
    "bound_by": pa.string(),
    "tokens_per_s_low": pa.float64(),
    "tokens_per_s": pa.float64(),
    "tokens_per_s_high": pa.float64(),
    "hours_low": pa.float64(),
    "hours": pa.float64(),
    "hours_high": pa.float64(),
    "checkpoint_gib": pa.float64(),
    "weights_download_gib": pa.float64(),
    "output_gib": pa.float64(),
}

# Jobs and machines in, plan rows out: the seam to the sizing model.
Planner = Callable[[Sequence[tuple[str, float]]], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class Relation:
    """One file of `sql/`."""

    schema: str
    name: str
    sql: str
    sentence: str
    grain: str
    units: str
    kept: str
    """table, view, macro(…) or function(…)."""

    @property
    def full_name(self) -> str:
        """Schema and name, as SQL writes them."""
        return f"{self.schema}.{self.name}"

    @property
    def arguments(self) -> str:
        """What a macro or function takes, or ''."""
        return self.kept.partition("(")[2].rstrip(")")

    def references(self) -> set[str]:
        """Return the relations that the statement reads, as schema.name."""
        return set(re.findall(rf"\b(?:{'|'.join(SCHEMAS)})\.\w+", self.sql)) - {self.full_name}

    def statement(self) -> str:
        """Return the DDL that makes it."""
        what = self.kept.partition("(")[0]
        if what == "macro":
            return f"create macro {self.full_name}({self.arguments}) as table {self.sql}"
        if what == "function":
            return f"create macro {self.full_name}({self.arguments}) as {self.sql}"
        return f"create {what} {self.full_name} as {self.sql}"


def load_relations() -> list[Relation]:
    """Return every relation of `sql/`, in the order in which they can be made.

    Raises:
        ValueError: a header is incomplete.
        graphlib.CycleError: two relations read each other.
    """
    found: dict[str, Relation] = {}
    root = resources.files("warehouse").joinpath("sql")
    for schema in ("seeds", "staging", "marts"):
        for path in sorted(root.joinpath(schema).iterdir(), key=lambda p: p.name):
            relation = read_relation(schema, path.name, path.read_text(encoding="utf-8"))
            found[relation.full_name] = relation
    order = TopologicalSorter(
        {name: {r for r in relation.references() if r in found} for name, relation in found.items()}
    )
    ordered = [found[name] for name in order.static_order()]
    return sorted(ordered, key=lambda relation: SCHEMAS.index(relation.schema))


def read_relation(schema: str, file_name: str, text: str) -> Relation:
    """Read one file's header and statement.

    Raises:
        ValueError: a used header line is missing.
    """
    lines = text.splitlines()
    fields = {"kept": "view", "grain": ""}
    body = 1
    for line in lines[1:4]:
        match = re.fullmatch(r"-- (grain|units|kept): (.+)", line)
        if match is None:
            break
        fields[match[1]] = match[2]
        body += 1
    if not lines[0].startswith("-- ") or "units" not in fields:
        raise ValueError(f"{schema}/{file_name}: the header needs a sentence, grain: and units:")
    return Relation(
        schema=schema,
        name=file_name.removesuffix(".sql"),
        sql="\n".join(lines[body:]),
        sentence=lines[0].removeprefix("-- "),
        grain=fields["grain"],
        units=fields["units"],
        kept=fields["kept"],
    )


def load_columns() -> dict[str, str]:
    """Return the one meaning of each column name of the marts."""
    text = resources.files("warehouse").joinpath("sql", "columns.csv").read_text(encoding="utf-8")
    return {row["column"]: row["meaning"] for row in csv.DictReader(text.splitlines())}


def publish(
    ledger: Ledger, target: Path, plan: Planner, *, published_at: datetime, version: str
) -> list[Finding]:
    """Build the published file and swap it in; return what the checks noted.

    Raises:
        CheckFailed: a check with severity `fail` found rows; the old file stays.
        DataFolderError: the file cannot be written.
    """
    work = target.with_name(f".{target.name}.{os.getpid()}.work")
    for leftover in target.parent.glob(f".{target.name}.*.work*"):
        leftover.unlink(missing_ok=True)
    connection = ledger.connection
    try:
        connection.execute(
            f"attach '{str(work).replace(chr(39), chr(39) * 2)}' as prices"
            f" (row_group_size {ROW_GROUP_ROWS})"
        )
        try:
            connection.execute("use prices")
            _build(connection, plan, published_at, version)
            findings = run_checks(connection, "published")
        finally:
            connection.execute("use memory")
            connection.execute("detach prices")
        if failed := [f for f in findings if f.severity == "fail"]:
            words = "; ".join(f"{f.check} ({f.detail})" for f in failed)
            raise CheckFailed(f"nothing was published, the last file stays: {words}")
        _swap(work, target)
    except (OSError, duckdb.IOException) as error:
        line = str(error).splitlines()[0].replace(str(target.parent), ".")
        if "corrupt" in line.lower():
            raise Damaged(
                f"{ledger.path} is damaged ({line[:160]}); move it away and run `tunecost refresh`"
                " (archived payloads: `tunecost reparse`)"
            ) from error
        raise DataFolderError(
            f"cannot write {target} ({line}); make room, or choose another folder with --data DIR"
        ) from error
    finally:
        for leftover in (work, Path(f"{work}.wal")):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)
    return findings


def _build(
    connection: duckdb.DuckDBPyConnection, plan: Planner, published_at: datetime, version: str
) -> None:
    for schema in SCHEMAS:
        connection.execute(f"create schema {schema}")
    for name in SEEDS:
        register_rows(connection, f"raw_{name}", seeds.load(name))
    _register_identities(connection)
    meanings = load_columns()
    planned = False
    for relation in load_relations():
        if not planned and relation.schema == "marts":
            _write_plans(connection, plan)
            planned = True
        connection.execute(relation.statement())
        _comment(connection, relation, meanings)
    connection.execute(
        "create table marts.publication as"
        " select ?::timestamp as published_at, ? as version, ? as layout",
        [naive(published_at), version, layout()],
    )
    connection.execute(
        "comment on table marts.publication is "
        "'When this file was built and by which version.\ngrain: published_at\nunits: UTC'"
    )


def _register_identities(connection: duckdb.DuckDBPyConnection) -> None:
    """Look up once what each provider's label means; a slice's memory says nothing of its card."""
    labels = connection.execute(
        """
        select distinct provider, gpu_label, gpu_memory_gib, gpu_count < 1 as is_slice
        from ledger.offers
        """
    ).fetchall()
    rows = [
        {
            "provider": provider,
            "gpu_label": label,
            "gpu_memory_gib": memory,
            "is_slice": is_slice,
            "gpu": seeds.resolve_gpu(
                label, None if is_slice or memory is None else float(memory), provider
            ),
        }
        for provider, label, memory, is_slice in labels
    ]
    schema = pa.schema(
        {
            "provider": pa.string(),
            "gpu_label": pa.string(),
            "gpu_memory_gib": pa.decimal128(18, 9),
            "is_slice": pa.bool_(),
            "gpu": pa.string(),
        }
    )
    connection.register("identity_rows", pa.Table.from_pylist(rows, schema=schema))
    connection.execute("create or replace temp table raw_identities as from identity_rows")
    connection.unregister("identity_rows")


def _write_plans(connection: duckdb.DuckDBPyConnection, plan: Planner) -> None:
    machines = connection.execute(
        """
        select distinct gpu, gpu_count from staging.current_offers
        where gpu is not null order by all
        """
    ).fetchall()
    make_plans_table(connection, PLANS, plan(machines))


def plan_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Lay plan rows out in the columns of `sizing.plans`."""
    plain = [
        {
            name: str(value) if kind == pa.string() and (value := row[name]) is not None
            else row[name]
            for name, kind in PLAN_COLUMNS.items()
        }
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(plain, schema=pa.schema(PLAN_COLUMNS))


def make_plans_table(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    temporary: bool = False,
) -> None:
    """Make a relation shaped like `sizing.plans` from plan rows."""
    connection.register("plan_rows", plan_table(rows))
    kind = "temp table" if temporary else "table"
    connection.execute(f"create {kind} {name} as select * from plan_rows")
    connection.unregister("plan_rows")
    if not temporary:
        connection.execute(
            f"comment on table {name} is 'How each job runs on each machine type on sale.\n"
            "grain: job, gpu, gpu_count\nunits: GiB per GPU; tokens per second; hours'"
        )


def register_rows(
    connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Mapping[str, str]]
) -> None:
    """Make a temporary table of text columns from rows that are not empty; '' becomes NULL."""
    columns = {n: pa.array([row[n] or None for row in rows], pa.string()) for n in rows[0]}
    connection.register("text_rows", pa.table(columns))
    connection.execute(f"create or replace temp table {name} as from text_rows")
    connection.unregister("text_rows")


def _comment(
    connection: duckdb.DuckDBPyConnection, relation: Relation, meanings: Mapping[str, str]
) -> None:
    kind = relation.kept.partition("(")[0]
    if kind not in ("table", "view"):
        return
    text = f"{relation.sentence}\ngrain: {relation.grain}\nunits: {relation.units}"
    quoted = text.replace("'", "''")
    connection.execute(f"comment on {kind} {relation.full_name} is '{quoted}'")
    if relation.schema == "marts":
        columns = connection.execute(f"describe {relation.full_name}").fetchall()
        for column, *_ in columns:
            meaning = meanings.get(column, "").replace("'", "''")
            connection.execute(
                f"comment on column {relation.full_name}.\"{column}\" is '{meaning}'"
            )


def _swap(work: Path, target: Path) -> None:
    """Put the new file in place of the old one, and keep the last few old ones beside it."""
    if target.exists():
        kept = target.parent / "previous"
        kept.mkdir(exist_ok=True)
        stamp = datetime.fromtimestamp(target.stat().st_mtime, UTC).strftime("%Y%m%dT%H%M%SZ")
        old = kept / f"{target.stem}-{stamp}{target.suffix}"
        if not old.exists():
            os.link(target, old)
        for surplus in sorted(kept.glob(f"{target.stem}-*{target.suffix}"))[:-PREVIOUS_KEPT]:
            surplus.unlink()
    with work.open("rb") as stream:
        os.fsync(stream.fileno())
    work.replace(target)
