"""Open the published file: read-only, in UTC."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from pathlib import Path

import duckdb

from warehouse.errors import Damaged, NotPublished

PUBLISHED = "prices.duckdb"
LEDGER = "ledger.duckdb"
ROW_GROUP_ROWS = 8192
"""DuckDB scans one row group per core: its own 122,880 rows would leave all but one idle."""


@cache
def layout() -> str:
    """Return what tells the relations of `sql/` from those of another version: a hash of them."""
    digest = hashlib.sha256()
    root = resources.files("warehouse").joinpath("sql")
    for schema in ("seeds", "staging", "marts"):
        for path in sorted(root.joinpath(schema).iterdir(), key=lambda p: p.name):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def open_published(data: Path) -> duckdb.DuckDBPyConnection:
    """Open the data folder's published file.

    Raises:
        NotPublished: there is none yet, or one whose tables are those of another version.
        Damaged: it cannot be read.
    """
    path = data / PUBLISHED
    if not path.exists():
        raise NotPublished(f"there are no prices in {data} yet; run `tunecost refresh` first")
    try:
        connection = duckdb.connect()
        # A file opened by itself is scanned as if its row groups were of the usual size.
        connection.execute(
            f"attach '{str(path).replace(chr(39), chr(39) * 2)}' as prices"
            f" (read_only, row_group_size {ROW_GROUP_ROWS})"
        )
        connection.execute("use prices")
        connection.execute("set timezone = 'UTC'")
        connection.execute("set enable_progress_bar = false")
        # Names in SQL mean tables and files, never Python variables.
        connection.execute("set python_enable_replacements = false")
        # A file of a version before the stamp has no such column.
        stamp = connection.execute(
            "select layout from (from marts.publication"
            " union all by name select null::varchar as layout where false)"
        ).fetchall()
    except duckdb.Error as error:
        line = str(error).splitlines()[0][:160]
        raise Damaged(
            f"{path} cannot be read ({line}); delete it and run `tunecost refresh`: it is built"
            " from the ledger"
        ) from error
    if stamp != [(layout(),)]:
        connection.close()
        raise NotPublished(
            f"{path} was built by another version of tunecost; run `tunecost refresh --offline`"
            " to build it again from the ledger"
        )
    return connection
