"""Snapshots for people without a database: CSV or Parquet files with a `datapackage.json`.

The same data gives the same bytes: rows are sorted by all their columns, ages (which change while
nothing else does) are left out, and no time of writing is recorded. A text that a spreadsheet
would run as a formula is written with an apostrophe before it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import pyarrow.parquet as pq

from warehouse.errors import DataFolderError

Form = Literal["csv", "parquet"]

RELATIONS: Final = {
    "current_prices": "marts.current_prices",
    "provider_terms": "marts.provider_terms",
    "cost_per_job": "marts.cost_per_job",
}
VOLATILE: Final = ("age_hours",)
"""Columns that depend on the moment of asking."""

# =SUM(…), +1, -1, @name, or a leading tab or return: what spreadsheets take for a formula
# (OWASP, CSV injection). Numbers are not texts and keep their sign.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")

_TYPES: Final = {
    "VARCHAR": "string",
    "BOOLEAN": "boolean",
    "INTEGER": "integer",
    "BIGINT": "integer",
    "DOUBLE": "number",
    "DATE": "date",
    "TIMESTAMP": "datetime",
}
"""DuckDB's types -> those of the Table Schema standard."""


def export_snapshots(connection: duckdb.DuckDBPyConnection, folder: Path, form: Form) -> list[Path]:
    """Write the snapshots to a folder, all or none, and return their paths.

    Raises:
        DataFolderError: the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as work:
            written = [
                _write(connection, Path(work), name, relation, form)
                for name, relation in RELATIONS.items()
            ]
            package = Path(work) / "datapackage.json"
            text = json.dumps(_describe(connection, Path(work), form), indent=2)
            package.write_text(text + "\n", encoding="utf-8")
            targets = []
            for path in (*written, package):
                target = folder / path.name
                shutil.move(path, target)
                targets.append(target)
    except OSError as error:
        raise DataFolderError(f"cannot write to {folder} ({error.strerror})") from error
    return targets


def neutralise(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would run.

    >>> neutralise("=1+1"), neutralise("H100")
    ("'=1+1", 'H100')
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def _columns(connection: duckdb.DuckDBPyConnection, relation: str) -> list[tuple[str, str]]:
    described = connection.execute(f"describe {relation}").fetchall()
    return [(name, kind) for name, kind, *_ in described if name not in VOLATILE]


def _write(
    connection: duckdb.DuckDBPyConnection, folder: Path, name: str, relation: str, form: Form
) -> Path:
    columns = ", ".join(f'"{column}"' for column, _ in _columns(connection, relation))
    path = folder / f"{name}.{form}"
    query = f"select {columns} from {relation} order by all"
    if form == "parquet":
        # No time of writing in it, and the rows sorted: equal data are equal bytes.
        pq.write_table(connection.sql(query).to_arrow_table(), path, compression="zstd")
        return path
    result = connection.execute(query)
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([column[0] for column in result.description or ()])
        while rows := result.fetchmany(10_000):
            writer.writerows([_cell(value) for value in row] for row in rows)
    return path


def _cell(value: Any) -> str | int | float:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, datetime):
        return value.isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list):
        return neutralise("; ".join(map(str, value)))
    return neutralise(str(value))


def _describe(connection: duckdb.DuckDBPyConnection, folder: Path, form: Form) -> dict[str, Any]:
    """Describe the files as a Data Package (specs.frictionlessdata.io), columns included."""
    resources = []
    for name, relation in RELATIONS.items():
        schema, table = relation.split(".")
        comments = dict(
            connection.execute(
                "select column_name, comment from duckdb_columns()"
                " where schema_name = ? and table_name = ?",
                [schema, table],
            ).fetchall()
        )
        content = (folder / f"{name}.{form}").read_bytes()
        fields = [
            {
                "name": column,
                "type": "number" if kind.startswith("DECIMAL") else _TYPES.get(kind, "string"),
                "description": comments.get(column) or "",
            }
            for column, kind in _columns(connection, relation)
        ]
        resources.append(
            {
                "name": name.replace("_", "-"),
                "path": f"{name}.{form}",
                "format": form,
                "mediatype": "text/csv" if form == "csv" else "application/vnd.apache.parquet",
                "encoding": "utf-8",
                "bytes": len(content),
                "hash": f"sha256:{hashlib.sha256(content).hexdigest()}",
                "schema": {"fields": fields, "missingValues": [""]},
            }
        )
    return {
        "name": "tunecost-snapshot",
        "title": "GPU prices, terms and cost per fine-tuning job",
        "resources": resources,
    }
