"""Damage a recorded answer the way sources do, and state what a parser may then do."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from hypothesis import strategies as st

from scrapers.errors import SourceError
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Page, Pages

DROP = object()
VALUES = [
    DROP, None, 0, 0.0, -1, -0.25, 1, 8, 10**30, 1e300, 1e-300, True, False,
    "", "text", " text ", "1.5", "NaN", [], {}, [None], {"id": None},
]  # fmt: skip
damage = st.lists(
    st.tuples(st.integers(0, 1_000_000), st.sampled_from(VALUES)), min_size=1, max_size=4
)


def apply(document: Any, changes: list[tuple[int, Any]]) -> Any:
    """Return a copy in which some members are dropped or replaced."""
    document = copy.deepcopy(document)
    for position, value in changes:
        slots = list(_slots(document))
        if not slots:
            break
        holder, key = slots[position % len(slots)]
        if value is DROP:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(value)
    return document


def _slots(node: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            yield node, key
            yield from _slots(node[key])


def page_of(name: str, document: Any, number: int = 1) -> Page:
    return Page(name=name, number=number, body=json.dumps(document).encode())


def assert_typed(parse: Callable[[Pages], Any], pages: Pages) -> None:
    """Assert that parsing gives rows that are valid, rejects, or one of our own errors."""
    try:
        rows = list(parse(pages))
    except SourceError:
        return
    for row in rows:
        assert isinstance(row, Offer | Fee | Reject)
        if isinstance(row, Offer):
            assert row.price_per_hour > 0
            assert row.gpu_count > 0
