"""Checks: each file is one SELECT that returns bad rows, and says how bad that is.

`incoming/*.sql` look at one scope's new rows (`incoming`) beside the state before (`state`) and
run before anything is kept; `published/*.sql` look at the file about to be published. The first
line of a file is a sentence, the second its severity:

- `fail`: the scope fails, or nothing is published;
- `hold`: the scope's rows wait until the next run confirms them;
- `warn`: it is noted and shown.

A row's columns are `subject` (which offer or provider) and `detail` (what is wrong).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Literal, cast

import duckdb

Severity = Literal["fail", "hold", "warn"]


@dataclass(frozen=True)
class Check:
    """One file of a folder of checks."""

    name: str
    sentence: str
    severity: Severity
    sql: str


@dataclass(frozen=True)
class Finding:
    """What a check found: how many rows, and the first of them in words."""

    check: str
    severity: Severity
    rows: int
    detail: str


def load_checks(folder: Literal["incoming", "published"]) -> list[Check]:
    """Return the checks of a folder, by name.

    Raises:
        ValueError: a file has no sentence or an unknown severity.
    """
    checks = []
    for path in sorted(resources.files(__name__).joinpath(folder).iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".sql"):
            continue
        sql = path.read_text(encoding="utf-8")
        first, second = (line.removeprefix("-- ") for line in sql.splitlines()[:2])
        severity = second.removeprefix("severity: ")
        if severity not in ("fail", "hold", "warn"):
            raise ValueError(f"{path.name}: the second line must be '-- severity: fail|hold|warn'")
        checks.append(Check(path.name[:-4], first, cast("Severity", severity), sql))
    return checks


def run_checks(
    connection: duckdb.DuckDBPyConnection, folder: Literal["incoming", "published"]
) -> list[Finding]:
    """Run every check of a folder on the connection; return what was found."""
    findings = []
    for check in load_checks(folder):
        rows = connection.execute(check.sql).fetchall()
        if rows:
            some = "; ".join(f"{subject}: {detail}" for subject, detail in rows[:3])
            more = f" … and {len(rows) - 3} more" if len(rows) > 3 else ""
            findings.append(Finding(check.name, check.severity, len(rows), some + more))
    return findings
