"""Open the published file: read-only, in UTC."""

from __future__ import annotations

from pathlib import Path

import duckdb

from warehouse.errors import Damaged, NotPublished

PUBLISHED = "prices.duckdb"
LEDGER = "ledger.duckdb"
ROW_GROUP_ROWS = 8192
"""DuckDB scans one row group per core: its own 122,880 rows would leave all but one idle."""


def open_published(data: Path) -> duckdb.DuckDBPyConnection:
    """Open the data folder's published file.

    Raises:
        NotPublished: there is none yet.
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
        connection.execute("select 1 from marts.publication")
    except duckdb.Error as error:
        line = str(error).splitlines()[0][:160]
        raise Damaged(
            f"{path} cannot be read ({line}); delete it and run `tunecost refresh`: it is built"
            " from the ledger"
        ) from error
    return connection
