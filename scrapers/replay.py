"""Read recorded answers from a folder: the layout of the payload archive, of tests and of --replay.

DIR/<provider>/<request-name>[.N].<json|html|csv|xml>[.gz]      N = page, from 1
DIR/<provider>/observed_at                                      optional: one ISO time
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from scrapers.errors import SourceError
from scrapers.pages import Page, Pages, scope_of

# offers-H100_SXM.2.json.gz -> name "offers-H100_SXM", page "2", media "json", ".gz"
_FILE = re.compile(
    r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_-]*?)(?:\.(?P<page>[1-9]\d*))?"
    r"\.(?P<media>json|html|csv|xml)(?P<gz>\.gz)?"
)


def file_name(request_name: str, page: int, media: str) -> str:
    """Return the (uncompressed) file name of one recorded page."""
    return f"{request_name}.{page}.{media}"


def read_pages(folder: Path) -> dict[str, list[Page]]:
    """Return the recorded pages of one provider's folder by request name, in page order.

    Other files (SOURCE.md, observed_at, expected.csv's neighbours) are left alone.

    Raises:
        SourceError: the same page is there twice, or a page is missing between others.
    """
    found: dict[str, dict[int, Page]] = {}
    for path in sorted(folder.iterdir()):
        match = _FILE.fullmatch(path.name)
        if match is None or path.name == "expected.csv" or not path.is_file():
            continue
        name, number = match["name"], int(match["page"] or 1)
        if number in found.setdefault(name, {}):
            raise SourceError(f"{folder}: page {number} of {name} is there twice")
        found[name][number] = Page(name=name, number=number, path=path)
    for name, numbered in found.items():
        if set(numbered) != set(range(1, len(numbered) + 1)):
            raise SourceError(
                f"{folder}: a page of {name} is missing ({sorted(numbered)} are there)"
            )
    return {name: [numbered[n] for n in sorted(numbered)] for name, numbered in found.items()}


def read_observed_at(folder: Path) -> datetime | None:
    """Return when the recorded pages were seen, or None when the folder does not say.

    Raises:
        SourceError: the file does not hold one ISO time with a zone.
    """
    path = folder / "observed_at"
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8").strip()
    try:
        seen = datetime.fromisoformat(text)
    except ValueError as error:
        raise SourceError(f"{path}: {text[:40]!r} is not an ISO time") from error
    if seen.tzinfo is None:
        raise SourceError(f"{path}: {text!r} has no time zone; write e.g. 2026-08-22T00:00:00Z")
    return seen.astimezone(UTC)


def by_scope(pages: Pages) -> dict[str, Pages]:
    """Split pages into scopes; each scope also gets the shared ones.

    Without any scoped request there is one scope, ''.
    """
    shared = {name: some for name, some in pages.items() if not scope_of(name)}
    scopes = sorted({scope_of(name) for name in pages} - {""})
    if not scopes:
        return {"": shared}
    return {
        scope: shared | {name: some for name, some in pages.items() if scope_of(name) == scope}
        for scope in scopes
    }
