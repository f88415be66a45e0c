"""What to ask (Get, Post) and what came back (Page): pure data.

Request names are public: they are the file names of the replay layout,
`<provider>/<request-name>[.N].<json|html|csv|xml>[.gz]`, N = page from 1. The part of a name
after its first hyphen is the *scope* that the request belongs to (`servers-fr-par-1` belongs to
scope `fr-par-1`); a name without one is shared by all scopes of its provider.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, Literal, NoReturn, Protocol, TypeVar, cast

from pydantic import ValidationError
from selectolax.lexbor import LexborHTMLParser

from scrapers.errors import NotTheFormat, UnknownShape
from scrapers.offer import Fee, Offer, Reject, Row

Media = Literal["json", "html", "csv", "xml"]


@dataclass(frozen=True)
class Provider:
    """Who it is. `keys` are the environment variables without which it is skipped."""

    slug: str
    name: str
    pricing_url: str
    keys: tuple[str, ...] = ()
    optional_keys: tuple[str, ...] = ()
    """Variables that add to what is collected.

    A request that needs one is left out where it is not set, or where the request fails; the other
    requests still count, as a listing cut short.
    """
    seconds_between_calls: float = 0.25
    """Pace for this source's hosts; raise it where the source answers 429 to bursts."""


@dataclass(frozen=True)
class Get:
    """A GET. `bearer_env` names the variable whose value goes into the Authorization header.

    Where a source wants its key elsewhere, a header or parameter value may hold `${NAME}`, NAME
    being one of the provider's `keys`.
    """

    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_env: str | None = None
    media: Media = "json"


@dataclass(frozen=True)
class Post:
    """A POST of a JSON body, for sources whose query is one. Must be safe to repeat."""

    url: str
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    bearer_env: str | None = None
    media: Media = "json"


Request = Get | Post
PLACEHOLDER: Final = re.compile(r"\$\{([A-Z][A-Z0-9_]*)\}")  # ${GCP_API_KEY}


def keys_of(request: Request) -> set[str]:
    """Return the names of the variables whose values a request sends."""
    params = request.params.values() if isinstance(request, Get) else ()
    named = {request.bearer_env} if request.bearer_env else set()
    return named.union(*map(PLACEHOLDER.findall, (*request.headers.values(), *params)))


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


@dataclass(frozen=True)
class Page:
    """One answer. The bytes are in `body`, or in the file `path` when too big to hold."""

    name: str
    number: int = 1
    body: bytes | None = None
    path: Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Response headers with lower-case names; empty for a replayed page."""

    @contextlib.contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Stream the bytes, decompressed, without holding them.

        Raises:
            NotTheFormat: the archive file is damaged.
        """
        try:
            if self.body is not None:
                yield BytesIO(self.body)
            elif self.path is not None and self.path.suffix == ".gz":
                with gzip.open(self.path, "rb") as unpacked:
                    yield cast("IO[bytes]", unpacked)
            elif self.path is not None:
                with self.path.open("rb") as stream:
                    yield stream
            else:
                raise NotTheFormat(f"{self.name}: page has no bytes")
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise NotTheFormat(f"{self.name}: damaged gzip data ({error})") from error

    def bytes(self) -> bytes:
        """Return all bytes, decompressed."""
        with self.open() as stream:
            return stream.read()

    def text(self) -> str:
        """Decode as UTF-8, with or without a byte order mark.

        Raises:
            NotTheFormat: the bytes are not UTF-8.
        """
        try:
            return self.bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise NotTheFormat(f"{self.name}: not UTF-8 text") from error

    def json(self) -> Any:
        """Parse as JSON; every number with a fraction is a Decimal, and NaN is refused.

        Raises:
            NotTheFormat: it is not JSON (truncated, or an HTML page).
        """
        text = self.text()
        try:
            return json.loads(text, parse_float=Decimal, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            start = " ".join(text[:60].split())
            raise NotTheFormat(
                f"{self.name} page {self.number}: not JSON, starts with {start!r}"
            ) from error

    def html(self) -> LexborHTMLParser:
        """Parse as HTML."""
        return LexborHTMLParser(self.text())


Pages = Mapping[str, Sequence[Page]]


class Source(Protocol):
    """What a provider module offers: three names, rarely a fourth."""

    PROVIDER: Provider
    REQUESTS: Mapping[str, Request]

    def parse(self, pages: Pages) -> Iterable[Row | Reject]:
        """Copy what the pages of one scope (and the shared ones) say."""
        ...


T = TypeVar("T")


def scope_of(request_name: str) -> str:
    """Return the scope that a request belongs to: what follows the first hyphen, or ''.

    >>> scope_of("servers-fr-par-1"), scope_of("catalog")
    ('fr-par-1', '')
    """
    return request_name.partition("-")[2]


def pages_of(pages: Pages, kind: str) -> list[Page]:
    """Return the pages of the request `kind`, scoped or not, in order.

    `pages_of(pages, "servers")` gives those of `servers` and of `servers-<any scope>`.
    """
    return [p for name, some in pages.items() if name.partition("-")[0] == kind for p in some]


def require(mapping: Any, key: str, where: str) -> Any:
    """Return `mapping[key]`, or say which key of the known form is missing.

    Raises:
        UnknownShape: not a mapping, or without the key.
    """
    if not isinstance(mapping, Mapping) or key not in mapping:
        raise UnknownShape(f"{where}: no {key!r} where the documented form has one")
    return mapping[key]


def attempt(raw: Any, build: Callable[[], Row]) -> Row | Reject:
    """Build one row, or the reject that says why it cannot be.

    Only errors that a malformed *row* causes are caught: the contract's ValidationError and the
    look-up or arithmetic errors of reading a value that is not there or not a number.
    """
    try:
        return build()
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(str(part) for part in first["loc"]) or "row"
        return refuse(f"invalid {at}", raw, first["msg"])
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        return refuse("unreadable row", raw, f"{type(error).__name__}: {error}")


def priced(raw: Any, price: Any, build: Callable[[], Row]) -> Row | Reject:
    """Build a row that has a price, or refuse it: null or zero never means free.

    `price` is the value as the source states it, before any arithmetic.
    """
    if price is None:
        return refuse("no price", raw)
    if price == 0:
        return refuse("zero price", raw)
    return attempt(raw, build)


def once_each(rows: Iterable[Row | Reject]) -> Iterator[Row | Reject]:
    """Pass the rows of one source row on, but each reason for refusal only once.

    One malformed source row that would have become many rows is one reject, not many.
    """
    reasons = set()
    for row in rows:
        if isinstance(row, Reject):
            if row.reason in reasons:
                continue
            reasons.add(row.reason)
        yield row


def stated_by(request: str, rows: Iterable[Row | Reject]) -> Iterator[Row | Reject]:
    """Pass rows on, and note on each fee the request whose answer states it."""
    for row in rows:
        yield row.model_copy(update={"request": request}) if isinstance(row, Fee) else row


def read_table(name: str) -> list[dict[str, str]]:
    """Read a CSV file that lies beside the provider modules: one dict per row, column -> text."""
    text = files("scrapers").joinpath("providers", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def refuse(reason: str, raw: Any, detail: str = "") -> Reject:
    """Make a Reject with a bounded excerpt of the source row."""
    excerpt = raw if isinstance(raw, str) else json.dumps(raw, default=str, ensure_ascii=False)
    return Reject(reason=" ".join(reason.split())[:200], detail=detail[:500], raw=excerpt[:2000])


__all__ = [
    "PLACEHOLDER",
    "Get",
    "Media",
    "Offer",
    "Page",
    "Pages",
    "Post",
    "Provider",
    "Reject",
    "Request",
    "Row",
    "Source",
    "attempt",
    "keys_of",
    "once_each",
    "pages_of",
    "priced",
    "read_table",
    "refuse",
    "require",
    "scope_of",
]
