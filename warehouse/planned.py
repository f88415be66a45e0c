"""Remember plans between nights: they depend on seeds and sizing alone, not on prices.

A night adds a machine type or two; planning every job on all of them again takes seconds. The
cache is keyed by what the plans are made from, so a changed seed or formula empties it by itself,
and it can be deleted at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.publish import PLAN_COLUMNS, Planner, plan_table

CACHE = "plans.parquet"
_MADE_FROM = b"made_from"
_SEEDS = ("jobs.csv", "models.csv", "gpus.csv")


def remember(plan: Planner, folder: Path) -> Planner:
    """Return a planner that asks `plan` only for machine types that the folder's cache lacks."""

    def plan_missing(machines: Sequence[tuple[str, float]]) -> Iterable[Mapping[str, Any]]:
        made_from = fingerprint()
        known = _read(folder / CACHE, made_from)
        missing = [machine for machine in machines if machine not in known]
        for row in plan_table(plan(missing)).to_pylist():
            known.setdefault((row["gpu"], row["gpu_count"]), []).append(row)
        if missing:
            _write(folder / CACHE, made_from, known)
        return [row for machine in machines for row in known.get(machine, [])]

    return plan_missing


def fingerprint() -> bytes:
    """Return a hash of everything that plans are made from: formulas and seeds."""
    digest = hashlib.sha256()
    package = resources.files("warehouse")
    files = [*_sources(package.joinpath("sizing"))]
    files += [package.joinpath("seeds", name) for name in _SEEDS]
    for path in files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest().encode()


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for path in sorted(folder.iterdir(), key=lambda p: p.name):
        if path.name.endswith((".py", ".csv")):
            yield path


def _read(path: Path, made_from: bytes) -> dict[tuple[str, float], list[dict[str, Any]]]:
    """Return the remembered plans by machine type; none from another origin or a damaged file."""
    try:
        table = pq.read_table(path, page_checksum_verification=True)
    except (OSError, pa.ArrowException):
        return {}
    if (table.schema.metadata or {}).get(_MADE_FROM) != made_from:
        return {}
    known: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        known.setdefault((row["gpu"], row["gpu_count"]), []).append(row)
    return known


def _write(
    path: Path, made_from: bytes, known: Mapping[tuple[str, float], list[dict[str, Any]]]
) -> None:
    schema = pa.schema(PLAN_COLUMNS, metadata={_MADE_FROM: made_from})
    rows = [row for some in known.values() for row in some]
    work = path.with_suffix(".work")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), work, write_page_checksum=True)
    work.replace(path)
