"""Print rows as a table for a person, or as CSV or JSON for a program."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]


def plain(value: Any) -> Any:
    """Turn a value into what JSON and CSV can hold: times as ISO UTC, exact amounts as numbers."""
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON knows neither NaN nor infinity
    if isinstance(value, Decimal):
        # Nine places at most: the shortest float that reads back as the same digits.
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return utc.isoformat(timespec="seconds") + "Z"
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float) else str(value)


def flat(value: Any) -> Any:
    """Turn a value into one CSV cell."""
    value = plain(value)
    if isinstance(value, list):
        return "; ".join(str(flat(one)) for one in value)
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else value


def print_rows(rows: Sequence[Row], form: str, columns: Mapping[str, str] | None = None) -> None:
    """Print rows to stdout.

    Args:
        rows: mappings that share their keys.
        form: table, csv or json.
        columns: for a table: which columns, and their headings; all when None.
    """
    if form == "json":
        text = json.dumps([plain(row) for row in rows], indent=2, ensure_ascii=False)
        sys.stdout.write(text + "\n")
    elif form == "csv":
        write_csv(rows)
    else:
        print_table(rows, columns or {key: key for key in columns_of(rows)})


def columns_of(rows: Sequence[Row]) -> Sequence[str]:
    """Return the column names; of a query's result also where it has no row."""
    return list(rows[0]) if rows else getattr(rows, "columns", ())


def write_csv(rows: Sequence[Row]) -> None:
    """Write rows to stdout as CSV with a header."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if columns := columns_of(rows):
        writer.writerow(columns)
    for row in rows:
        writer.writerow([flat(value) for value in row.values()])


def print_table(rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    """Print chosen columns as an aligned table; numbers to the right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Piped output has no width to fit: no value may be folded.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 5000)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for key, heading in columns.items():
        numeric = any(isinstance(row[key], int | float | Decimal) for row in rows)
        table.add_column(heading, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        # Text, not markup: a provider's name is data.
        table.add_row(*(Text(cell(row[key])) for key in columns))
    console.print(table)


def cell(value: Any) -> str:
    """Write one value for a person."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "–"
    return str(value)


def usd(amount: float | None) -> str:
    """Write dollars: cents, and four places where a cent is too coarse."""
    if amount is None:
        return "–"
    return f"${amount:,.4f}" if 0 < abs(amount) < 0.1 else f"${amount:,.2f}"


def age(hours: float | None) -> str:
    """Write an age in the unit that reads best."""
    if hours is None:
        return "–"
    if hours < 1:
        return f"{max(hours, 0) * 60:.0f} min"
    return f"{hours:.0f} h" if hours < 48 else f"{hours / 24:.0f} days"
