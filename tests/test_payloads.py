"""Every recorded case: `payloads/<provider>/<case>/` pages in, `expected.csv` rows out.

A case is a folder in the replay layout. Its `expected.csv` holds every row that `parse` yields:
offers, fees and rejects. Where it is missing it is written and the test fails, until a person has
read it, compared it with the pages and kept it.
"""

import csv
import importlib
import io
from pathlib import Path

import pytest

from scrapers.offer import Fee, Offer
from scrapers.pages import Reject
from scrapers.replay import by_scope, read_pages

PAYLOADS = Path(__file__).parent / "payloads"
CASES = sorted(path for path in PAYLOADS.glob("*/*") if path.is_dir())
FIELDS = [
    "row",
    "scope",
    *Offer.model_fields,
    *(f for f in Fee.model_fields if f not in Offer.model_fields),
    "reason",
]


def parse_case(case: Path) -> str:
    """Return all rows of a case as CSV text, in a stable order."""
    module = importlib.import_module(f"scrapers.providers.{case.parent.name}")
    rows = []
    for scope, pages in by_scope(read_pages(case)).items():
        for item in module.parse(pages):
            kind = type(item).__name__.lower()
            # The request whose answer states a fee is the fee's source.
            assert not isinstance(item, Fee) or item.request in module.REQUESTS
            values = {"reason": item.reason} if isinstance(item, Reject) else item.model_dump()
            rows.append({"row": kind, "scope": scope, **values})
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    for row in sorted(rows, key=lambda r: [str(r.get(f, "")) for f in FIELDS]):
        writer.writerow(
            {
                k: "" if v is None else format(v, "f") if hasattr(v, "as_tuple") else v
                for k, v in row.items()
            }
        )
    return text.getvalue()


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.parent.name}/{c.name}")
def test_case_gives_its_expected_rows(case: Path) -> None:
    found = parse_case(case)
    expected = case / "expected.csv"
    if not expected.exists():
        expected.write_text(found, encoding="utf-8")
        pytest.fail(f"{expected} was missing and has been written: read it, then run again")
    assert found == expected.read_text(encoding="utf-8")
