"""One provider, start to end: fetch or replay its pages, parse them, and judge each scope.

A scope is what succeeds or fails together: a provider, or one region (or GPU) of a provider that
is asked part by part. Whatever goes wrong ends as an Outcome, never as an exception, so one scope
cannot spoil another.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import pkgutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

import scrapers.providers
from scrapers.archive import UNFINISHED
from scrapers.errors import (
    EmptyReply,
    Incomplete,
    MissingKey,
    PageError,
    Refused,
    SourceError,
    TooManyRejects,
)
from scrapers.fetch import Fetched, Fetcher, utc_now
from scrapers.offer import Fee, Offer, Reject, Row
from scrapers.pages import Page, Pages, Provider, Request, Source, keys_of, refuse, scope_of
from scrapers.replay import by_scope, read_observed_at, read_pages

Status = Literal["ok", "failed", "skipped"]

MAX_PAGES: Final = 500
"""Of one request. Azure's longest walk is near 100; more is a loop or a source that changed."""
MAX_REJECT_SHARE: Final = 0.2
MIN_REJECTS_TO_FAIL: Final = 10
"""A handful of odd rows is no verdict on a source."""
EXPECTED_REASONS: Final = ("zero price", "not sold", "truncated listing")
"""Rejects whose reason begins so are what a healthy source says, too: they are not counted."""
TRUNCATED: Final = "truncated listing"
CONFLICT: Final = "conflicting duplicate"
LEFT_OUT: Final = "optional request failed"


@dataclass(frozen=True)
class Outcome:
    """What became of one scope of one provider."""

    provider: str
    scope: str
    """'' for a provider that is collected as a whole."""
    status: Status
    observed_at: datetime
    """Aware UTC: when the source was asked, or when its replayed pages were recorded."""
    offers: tuple[Offer, ...] = ()
    fees: tuple[Fee, ...] = ()
    rejects: tuple[Reject, ...] = ()
    """Rows that the contract or the parser refused; kept also when the scope failed."""
    fetches: tuple[Fetched, ...] = ()
    """Archived answers; those that all scopes share are listed in the provider's first one."""
    duplicates: int = 0
    """Identical rows that were dropped."""
    truncated: bool = False
    """The source has more rows than it showed: a missing offer may still be on sale."""
    error: str | None = None
    """One line when failed or skipped."""
    seconds: float = 0.0
    """Waiting, transfer and parsing of this scope's requests."""


@dataclass
class _Answers:
    """The pages of one request, or how far it came."""

    name: str
    pages: list[Page] = field(default_factory=list)
    fetches: list[Fetched] = field(default_factory=list)
    error: str | None = None
    skipped: bool = False
    truncated: bool = False
    seconds: float = 0.0


@dataclass
class _Rows:
    """The rows of one scope, sorted out."""

    offers: list[Offer] = field(default_factory=list)
    fees: list[Fee] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    duplicates: int = 0
    truncated: bool = False
    error: str | None = None


class _Broken:
    """Stands in for a provider module that cannot be used, and fails saying why."""

    REQUESTS: Mapping[str, Request] = {}

    def __init__(self, slug: str, error: str) -> None:
        self.PROVIDER = Provider(slug=slug, name=slug, pricing_url="")
        self._error = error

    def parse(self, pages: Pages) -> Iterable[Row | Reject]:
        raise SourceError(self._error)


def discover(package: ModuleType = scrapers.providers) -> dict[str, Source]:
    """Return every provider module of a package by slug, sorted.

    Modules whose name begins with '_' are left alone. One that does not import, or lacks a name of
    the protocol, is returned as a source whose every outcome is a failure that says so.
    """
    found: dict[str, Source] = {}
    names = sorted(m.name for m in pkgutil.iter_modules(package.__path__) if m.name[0] != "_")
    for name in names:
        try:
            module = importlib.import_module(f"{package.__name__}.{name}")
            for needed in ("PROVIDER", "REQUESTS", "parse"):
                getattr(module, needed)
            if module.PROVIDER.slug != name:
                raise SourceError(f"its slug {module.PROVIDER.slug!r} is not its file's name")
            found[name] = cast("Source", module)
        except Exception as error:  # noqa: BLE001 - a module may raise anything when imported
            found[name] = _Broken(name, f"provider module does not import: {_describe(error)}")
    return found


def scopes_of(requests: Mapping[str, Request]) -> list[str]:
    """Return the scopes of a provider's requests, sorted; [''] when it has none.

    >>> scopes_of({})
    ['']
    """
    return sorted({scope_of(name) for name in requests} - {""}) or [""]


async def collect(
    source: Source,
    fetcher: Fetcher,
    *,
    previous: Mapping[str, int] | None = None,
    clock: Callable[[], datetime] = utc_now,
    max_pages: int = MAX_PAGES,
) -> list[Outcome]:
    """Fetch, parse and judge one provider; one Outcome per scope, sorted by scope.

    All requests are under way at once; the fetcher paces them per host. A failing request fails
    its scope; a failing shared request (no hyphen in its name) fails all scopes. A request with an
    optional key is left out where the key is not set or the request fails: the scope is truncated,
    and a reject says what failed.

    Args:
        source: a provider module.
        fetcher: an entered Fetcher; its archive keeps every answer.
        previous: rows (offers and fees) of each scope in its last ok run; None when unknown.
        clock: the time, aware.
        max_pages: more pages than this of one request are Incomplete.
    """
    provider = source.PROVIDER
    try:
        fetcher.check_keys(provider)
        observed_at = fetcher.archive.stamp(provider.slug, clock())
        fetcher.archive.begin(provider.slug)
        answers = await asyncio.gather(
            *(
                _fetch_all(source, fetcher, name, max_pages)
                for name, request in source.REQUESTS.items()
                if not fetcher.lacks_optional_key(provider, request)
            )
        )
        fetcher.archive.finish(provider.slug)
    except MissingKey as missing:
        return _all_scopes(source, "skipped", clock(), str(missing))
    except OSError as error:
        line = f"the archive cannot be written: {_describe(error)}"
        return _all_scopes(source, "failed", clock(), line)
    outcomes = []
    for scope in scopes_of(source.REQUESTS):
        # In a thread: parsing a big list must not stall the transfers of other providers.
        outcome = await asyncio.to_thread(
            _judge, source, scope, _of_scope(answers, scope), previous, observed_at
        )
        error_line = fetcher.clean(outcome.error) if outcome.error else None
        outcomes.append(replace(outcome, error=error_line))
    return _attach_fetches(outcomes, answers)


def replay(
    source: Source,
    folder: Path,
    *,
    previous: Mapping[str, int] | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> list[Outcome]:
    """Parse and judge recorded pages as `collect` does live ones; one Outcome per recorded scope.

    Args:
        source: a provider module.
        folder: its pages in the replay layout, e.g. `<archive_root>/<run_id>/<slug>`.
        previous: as for `collect`.
        clock: gives `observed_at` where the folder does not state it.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
    """
    slug = source.PROVIDER.slug
    try:
        observed_at = read_observed_at(folder) or clock()
        pages = read_pages(folder)
        if (folder / UNFINISHED).exists():
            raise Incomplete(f"the run that recorded {folder} was broken off")
    except SourceError as error:
        return _all_scopes(source, "failed", clock(), _describe(error))
    failures = {
        path.name.removesuffix(".failed"): " ".join(path.read_text("utf-8", "replace").split())
        for path in sorted(folder.glob("*.failed"))
    }
    names = sorted(pages.keys() | failures.keys())
    if not names:
        line = _describe(EmptyReply(f"{folder} holds no recorded page"))
        return [Outcome(slug, "", "failed", observed_at, error=line)]
    answers = [
        _replay_all(source, folder, name, pages.get(name, []), failures.get(name), observed_at)
        for name in names
    ]
    scopes = sorted({scope_of(name) for name in names} - {""}) or [""]
    outcomes = [
        _judge(source, scope, _of_scope(answers, scope), previous, observed_at) for scope in scopes
    ]
    return _attach_fetches(outcomes, answers)


def _all_scopes(source: Source, status: Status, at: datetime, line: str) -> list[Outcome]:
    slug = source.PROVIDER.slug
    return [Outcome(slug, scope, status, at, error=line) for scope in scopes_of(source.REQUESTS)]


def archived_runs(archive_root: Path, slug: str) -> Iterator[tuple[str, Path]]:
    """Yield (run id, folder) of every archived run of a provider, oldest observation first."""
    found = []
    for folder in archive_root.glob(f"[!.]*/{slug}"):
        try:
            seen = read_observed_at(folder)
        except SourceError:
            seen = None  # replay() will say what is wrong with it
        found.append((seen.isoformat() if seen else "", folder.parent.name, folder))
    for _, run_id, folder in sorted(found):
        yield run_id, folder


def reparse(
    source: Source,
    archive_root: Path,
    *,
    previous: Mapping[str, int] | None = None,
    clock: Callable[[], datetime] = utc_now,
) -> Iterator[tuple[str, list[Outcome]]]:
    """Derive a provider's history again from the archived bytes: (run id, outcomes), oldest first.

    `previous` stands before the first run; from there on each ok scope's count of rows is carried.
    """
    known = dict(previous or {})
    for run_id, folder in archived_runs(archive_root, source.PROVIDER.slug):
        outcomes = replay(source, folder, previous=known, clock=clock)
        known |= {o.scope: len(o.offers) + len(o.fees) for o in outcomes if o.status == "ok"}
        yield run_id, outcomes


# --- pages ---


async def _fetch_all(source: Source, fetcher: Fetcher, name: str, max_pages: int) -> _Answers:
    """Fetch a request and the pages after it; what goes wrong is in the result."""
    answers, started = _Answers(name), time.perf_counter()
    try:
        try:
            await _walk(source, fetcher, answers, max_pages)
        except SourceError as error:
            answers.error = fetcher.clean(_describe(error))
            fetcher.archive.note_failure(source.PROVIDER.slug, name, answers.error)
    except MissingKey as missing:
        answers.skipped, answers.error = True, str(missing)
    except _FollowError as wrapped:
        # Not noted in the archive: a better parser may follow it in a replay.
        answers.error = fetcher.clean(_describe(wrapped))
    except Exception as error:  # noqa: BLE001 - a full disk, or a fault of ours: this scope only
        answers.error = fetcher.clean(f"unforeseen error: {_describe(error)}")
    answers.seconds = time.perf_counter() - started
    return answers


async def _walk(source: Source, fetcher: Fetcher, answers: _Answers, max_pages: int) -> None:
    """Fetch page after page until `follow` asks for no more.

    Raises:
        SourceError, MissingKey: as `Fetcher.fetch` does.
        Incomplete: a loop, or more than `max_pages`.
        Refused: `follow` leads to a host that none of the provider's own requests names.
        _FollowError: `follow` could not read a page.
    """
    name = answers.name
    origins = {_origin(request.url) for request in source.REQUESTS.values()}
    request: Request | None = source.REQUESTS[name]
    asked: set[str] = set()
    while request is not None:
        number = len(answers.pages) + 1
        if repr(request) in asked:
            raise Incomplete(f"{name}: page {number} is one that was fetched before, a loop")
        if number > max_pages:
            raise Incomplete(f"{name}: still more after {max_pages} pages")
        if _origin(request.url) not in origins:
            raise Refused(f"{name}: next page on another host, {request.url}")
        asked.add(repr(request))
        page, fetched = await fetcher.fetch(source.PROVIDER, name, number, request)
        answers.pages.append(page)
        answers.fetches.append(fetched)
        request = _next(source, name, page)
        if request is not None:
            _refuse_repetition(answers)


def _replay_all(
    source: Source,
    folder: Path,
    name: str,
    pages: Sequence[Page],
    failure: str | None,
    observed_at: datetime,
) -> _Answers:
    """Check recorded pages as fetched ones are; a wish for more pages than there are truncates."""
    answers, started = _Answers(name, error=failure), time.perf_counter()
    try:
        for page in pages:
            answers.pages.append(page)
            answers.fetches.append(_recorded(source, folder, page, observed_at))
            if _next(source, name, page) is not None:
                _refuse_repetition(answers)
                answers.truncated = page is pages[-1]
    except (_FollowError, SourceError, OSError) as error:
        answers.error = answers.error or _describe(error)
    answers.seconds = time.perf_counter() - started
    return answers


class _FollowError(Exception):
    """`follow` could not read a page."""


def _next(source: Source, name: str, page: Page) -> Request | None:
    follow = getattr(source, "follow", None)
    if follow is None:
        return None
    try:
        return cast("Request | None", follow(name, page))
    except PageError as error:
        raise _FollowError(_describe(error)) from error
    except Exception as error:  # a fault of the provider's module
        raise _FollowError(f"parser error: {_describe(error)}{_place(error)}") from error


def _refuse_repetition(answers: _Answers) -> None:
    """Refuse a page that repeats an earlier one and yet announces more.

    Raises:
        Incomplete: the source ignores the page asked for, so its end cannot be reached.
    """
    last = answers.fetches[-1]
    for earlier in answers.fetches[:-1]:
        if earlier.sha256 == last.sha256:
            raise Incomplete(
                f"{answers.name}: page {last.page} repeats page {earlier.page}, a loop"
            )


def _recorded(source: Source, folder: Path, page: Page, observed_at: datetime) -> Fetched:
    assert page.path is not None
    digest, size_bytes = hashlib.sha256(), 0
    with page.open() as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
            size_bytes += len(block)
    return Fetched(
        provider=source.PROVIDER.slug,
        request=page.name,
        page=page.number,
        url="",
        status=None,
        sha256=digest.hexdigest(),
        size_bytes=size_bytes,
        archive_path=f"{folder.absolute().parent.name}/{folder.absolute().name}/{page.path.name}",
        fetched_at=observed_at,
        from_cache=True,
    )


def _origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port; an explicit default port (Azure writes :443) is the same.

    Raises:
        Refused: not a URL.
    """
    try:
        parts = urlsplit(url)
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme, 0)
    except ValueError as error:
        raise Refused(f"{url[:200]!r} is not a URL") from error
    return parts.scheme, parts.hostname or "", port


# --- judgement ---


def _of_scope(answers: Sequence[_Answers], scope: str) -> list[_Answers]:
    return [a for a in answers if scope_of(a.name) in ("", scope)]


def _optional(source: Source, scope: str) -> set[str]:
    """Return the requests of a scope that need an optional key."""
    keys = source.PROVIDER.optional_keys
    asked = {name for name, r in source.REQUESTS.items() if not keys_of(r).isdisjoint(keys)}
    return {name for name in asked if scope_of(name) in ("", scope)}


def _attach_fetches(outcomes: list[Outcome], answers: Sequence[_Answers]) -> list[Outcome]:
    """Give each scope the records of its own answers, and the shared ones to the first."""
    attached = []
    for position, outcome in enumerate(outcomes):
        own = {outcome.scope, ""} if position == 0 else {outcome.scope}
        fetches = tuple(f for a in answers if scope_of(a.name) in own for f in a.fetches)
        attached.append(replace(outcome, fetches=fetches))
    return attached


def _judge(
    source: Source,
    scope: str,
    answers: Sequence[_Answers],
    previous: Mapping[str, int] | None,
    observed_at: datetime,
) -> Outcome:
    """Parse the pages of one scope and decide whether to believe them."""
    started = time.perf_counter()
    waited = max((a.seconds for a in answers), default=0.0)
    outcome = Outcome(source.PROVIDER.slug, scope, "ok", observed_at)
    optional = _optional(source, scope)
    lost = [a for a in answers if a.error and a.name in optional]
    answers = [a for a in answers if a not in lost]
    is_part = not optional <= {a.name for a in answers}
    broken = next((a for a in answers if a.error and not a.skipped), None)
    keyless = next((a for a in answers if a.skipped), None)
    if broken or keyless:
        first = broken or keyless
        assert first is not None
        status: Status = "failed" if broken else "skipped"
        return replace(outcome, status=status, error=_one_line(first.error or ""), seconds=waited)
    # by_scope decides, for live and replayed pages alike, which pages a scope sees.
    pages = by_scope({a.name: a.pages for a in answers}).get(scope, {})
    rows = _sort_out(source, pages)
    had_rows = bool(previous and previous.get(scope))
    error = rows.error or _doubt(rows, must_have_rows=had_rows or scope == "")
    return replace(
        outcome,
        status="failed" if error else "ok",
        offers=() if error else tuple(rows.offers),
        fees=() if error else tuple(rows.fees),
        rejects=(*rows.rejects, *(refuse(LEFT_OUT, a.name, a.error or "") for a in lost)),
        duplicates=rows.duplicates,
        truncated=is_part or rows.truncated or any(a.truncated for a in answers),
        error=error,
        seconds=waited + time.perf_counter() - started,
    )


def _sort_out(source: Source, pages: Pages) -> _Rows:
    """Run the parser and sort its rows; identical ones count once, contradicting ones never."""
    rows = _Rows()
    by_key: dict[tuple[Any, ...], list[Row]] = {}
    try:
        for item in source.parse(pages):
            if isinstance(item, Reject):
                rows.rejects.append(item)
                rows.truncated |= item.reason.startswith(TRUNCATED)
                continue
            if not isinstance(item, (Offer, Fee)):
                raise TypeError(f"parse gave a {type(item).__name__}")
            same_key = by_key.setdefault((type(item), *item.key()), [])
            if item in same_key:
                rows.duplicates += 1
            else:
                same_key.append(item)
    except SourceError as error:
        rows.error = _describe(error)
    except Exception as error:  # noqa: BLE001
        # The project's only broad catches are in this file: pages are hostile input and parsers
        # are many; a crash is a verdict on this scope alone.
        rows.error = f"parser error: {_describe(error)}{_place(error)}"
    for same_key in by_key.values():
        if len(same_key) > 1:
            rows.rejects += [refuse(CONFLICT, row.model_dump(mode="json")) for row in same_key]
        elif isinstance(same_key[0], Offer):
            rows.offers.append(same_key[0])
        else:
            rows.fees.append(same_key[0])
    return rows


def _doubt(rows: _Rows, *, must_have_rows: bool) -> str | None:
    """Return why a parsed scope is not to be believed, or None."""
    kept = len(rows.offers) + len(rows.fees)
    reasons = Counter(
        r.reason for r in rows.rejects if not r.reason.lower().startswith(EXPECTED_REASONS)
    )
    refused = reasons.total()
    too_many = refused > MIN_REJECTS_TO_FAIL and refused > MAX_REJECT_SHARE * (kept + refused)
    if too_many or (refused and not kept):
        reason, times = reasons.most_common(1)[0]
        line = f"{refused} of {kept + refused} rows refused, most often: {reason} ({times})"
        return _describe(TooManyRejects(line))
    if not kept and must_have_rows:
        return _describe(EmptyReply("a well-formed answer without a single row"))
    return None


def _describe(error: Exception) -> str:
    """Return an error as one line, its kind first."""
    kind = "" if isinstance(error, _FollowError) else type(error).__name__
    return _one_line(f"{kind}: {error}" if kind and str(error) else kind or str(error))


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]


def _place(error: Exception) -> str:
    """Return where in the parser an error arose, e.g. ' (vast.py:41)'."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if Path(f.filename).parent.name == "providers"] or frames
    return f" ({Path(inside[-1].filename).name}:{inside[-1].lineno})" if inside else ""


__all__ = [
    "MAX_PAGES",
    "Outcome",
    "archived_runs",
    "collect",
    "discover",
    "reparse",
    "replay",
    "scopes_of",
]
