"""Get bytes from a source: the only file that opens a socket.

`Fetcher.fetch` asks once, or a few times where a failure may pass, and returns a Page whose bytes
already lie in the payload archive (`archive.py`): nobody parses what has not been kept.

Keys come from the environment that the caller passes in. A request names its variable in
`bearer_env`, or writes `${NAME}` as (part of) a header or parameter value, where NAME is one of
its provider's `keys`. Their values are sent, and nothing else: they are neither archived nor
logged, and are cut out of every URL and message.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import ipaddress
import json
import logging
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import httpx
import stamina
import stamina.instrumentation

from scrapers.archive import CONDITIONS, Archive, Known, link, packing, writing
from scrapers.errors import (
    BadStatus,
    FetchError,
    MissingKey,
    NotTheFormat,
    Refused,
    TimedOut,
    TooLarge,
    Unreachable,
)
from scrapers.pages import PLACEHOLDER, Get, Media, Page, Post, Provider, Request, keys_of

log = logging.getLogger(__name__)

# ?key=abc&page=2 -> the value of key; `pageToken=` is not a secret and stays
_SECRET_PARAMETER = re.compile(
    r"(?i)(?P<name>[?&;](?:x-[a-z0-9-]*|api[-_]?)?"
    r"(?:key|token|sig|signature|secret|password|credential|access[-_]token|auth)=)[^&;#\s'\"]*"
)
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+@")  # https://user:password@host
_ERRNO = re.compile(r"^\[Errno -?\d+\] ")  # [Errno -2] Name or service not known
_ACCEPT: Final[Mapping[Media, str]] = {
    "json": "application/json, */*;q=0.5",
    "html": "text/html, */*;q=0.5",
    "csv": "text/csv, */*;q=0.5",
    "xml": "application/xml, text/xml, */*;q=0.5",
}
_NEVER_TEXT = re.compile(r"^(image|audio|video|font)/|[/+](pdf|zip|gzip|x-gzip)\b")
_LEADING: Final = b"\xef\xbb\xbf \t\r\n"  # byte order mark and white space
_START_BYTES: Final = 64
_BLOCK_BYTES: Final = 1 << 20
_SHORTEST_KEY: Final = 8  # characters; a shorter "key" would be found in any page
_LONGEST_KEY: Final = 8192


def _is_quiet(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.WARNING


# httpx logs each full URL, keys included, at INFO; the line of this module holds the scrubbed one.
logging.getLogger("httpx").addFilter(_is_quiet)


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    # The kind only: the message may hold the URL as it was sent.
    kind = type(details.caused_by).__name__
    log.info("attempt %d: %s; again in %.1f s", details.retry_num, kind, details.wait_for)


# stamina's own hook warns on stderr, in a form of its own, where no logging is set up.
stamina.instrumentation.set_on_retry_hooks((_log_retry,))


@dataclass(frozen=True)
class Limits:
    """How long, how much and how often; every field can be injected by a test."""

    connect_seconds: float = 10.0
    read_seconds: float = 30.0
    """Longest silence between two pieces of an answer."""
    answer_seconds: float = 300.0
    """Whole answer of one attempt, first byte asked to last byte read."""
    max_bytes: int = 1 << 30
    """Most bytes of one answer, as sent and as decompressed."""
    attempts: int = 4
    retry_seconds: float = 600.0
    """No further attempt starts later than this after the first."""
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 20.0
    jitter_seconds: float = 1.0
    retry_after_cap_seconds: float = 60.0
    """Longest wait that a server's Retry-After can impose."""
    max_redirects: int = 5
    concurrent_per_host: int = 4
    give_up_seconds: float = 5.0
    """A host that refused `attempts` connections in a row, for this long, is down for the run."""


@dataclass(frozen=True)
class Fetched:
    """The record of one archived answer, for the ledger."""

    provider: str
    request: str
    page: int
    url: str
    """Where the answer came from, without keys; empty for a replayed page."""
    status: int | None
    """HTTP status; 304 when the archived bytes still hold; None for a replayed page."""
    sha256: str
    """Of the decompressed bytes."""
    size_bytes: int
    """Of the decompressed bytes."""
    archive_path: str
    """Below the archive root: `<run>/<provider>/<file>`."""
    fetched_at: datetime
    """Aware UTC."""
    from_cache: bool
    """No new bytes came: the source said that nothing changed, or the page was replayed."""


@dataclass
class _Host:
    """What this run knows of one host. Times are those of the event loop."""

    slots: asyncio.Semaphore
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when `next_call` has come nearer."""
    next_call: float = 0.0
    failed_connects: int = 0
    """In a row, over all requests."""
    failing_since: float = 0.0
    trouble: str = ""
    """Why the last connection failed."""


@dataclass(frozen=True)
class _Answer:
    """An answer that lies in the archive."""

    url: str
    status: int
    headers: Mapping[str, str]
    sha256: str
    size_bytes: int
    start: bytes
    """The first bytes that are not white space."""


def utc_now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


@functools.cache
def _tls() -> ssl.SSLContext:
    """Read the certificates once a process: it takes a tenth of a second."""
    return httpx.create_ssl_context()


def scrub(text: str) -> str:
    """Cut user names and the values of key-like query parameters out of URLs in a text.

    >>> scrub("https://u:p@host/a?key=abc&page=2&sig=x")
    'https://host/a?key=***&page=2&sig=***'
    """
    return _SECRET_PARAMETER.sub(r"\g<name>***", _USER_INFO.sub("", text))


class Fetcher:
    """Fetches pages for one run; use as an async context manager, in one event loop.

    Args:
        archive_root: folder of the payload archive; made when missing.
        run_id: name of this run's folder in it.
        environ: where keys are looked up, usually `os.environ`.
        limits: time, size and retry caps.
        clock: the time, aware; stamped on fetches.

    Proxies are those of the process environment (HTTPS_PROXY, NO_PROXY …), as httpx reads them.
    """

    def __init__(
        self,
        archive_root: Path,
        run_id: str,
        environ: Mapping[str, str],
        limits: Limits = Limits(),
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self.archive = Archive(archive_root, run_id)
        self.limits = limits
        self._environ = environ
        self._clock = clock
        self._secrets: set[str] = set()
        self._hosts: dict[str, _Host] = {}
        self._client = httpx.AsyncClient(
            verify=_tls(),
            follow_redirects=False,
            timeout=httpx.Timeout(
                limits.read_seconds, connect=limits.connect_seconds, pool=limits.answer_seconds
            ),
            headers={"User-Agent": "tunecost (price comparison; polite, paced, conditional)"},
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    def check_keys(self, provider: Provider) -> None:
        """Say which variable to set, when one that the provider needs is not.

        Raises:
            MissingKey: a variable of `provider.keys` is absent or empty.
        """
        missing = [name for name in provider.keys if not self._environ.get(name)]
        if missing:
            raise MissingKey(f"set {' and '.join(missing)} to collect {provider.name}")

    def lacks_optional_key(self, provider: Provider, request: Request) -> bool:
        """Tell whether a request needs one of `provider.optional_keys` that is not set."""
        unset = (n for n in provider.optional_keys if not self._environ.get(n, "").strip())
        return not keys_of(request).isdisjoint(unset)

    def clean(self, text: str) -> str:
        """Cut every key that was used so far, and key-like URL parameters, out of a text."""
        return scrub(self._without_keys(text))

    async def fetch(
        self, provider: Provider, name: str, number: int, request: Request
    ) -> tuple[Page, Fetched]:
        """Return one answer, archived, and its record.

        Tries again, with growing and jittered waits, after transport errors, 408, 425, 429 and
        5xx. A Retry-After (seconds or date) holds back every request to that host, up to the cap.
        A host that cannot be connected to at all is given up for the run (`give_up_seconds`), so
        that hundreds of requests to it do not each wait in vain.

        Args:
            provider: whose request it is: sets the pace and the keys that may be sent.
            name: the request's name, a file name of the replay layout.
            number: page number, from 1. Page 1 clears what this run had of the request before.
            request: what to ask.

        Raises:
            MissingKey: the variable of a key is not set.
            FetchError: no usable answer (see `errors`).
            NotTheFormat: an answer that is empty, or evidently not of `request.media`.
            ValueError: a name that the replay layout cannot hold.
        """
        target = self.archive.page_path(provider.slug, name, number, request.media)
        self.archive.stamp(provider.slug, self._clock())
        if number == 1:
            self.archive.clear(provider.slug, name, keep=target)
        public, sent, headers = self._resolve(provider, request)
        asked = _fingerprint(request, public)
        known = self.archive.known(target, asked) if isinstance(request, Get) else None
        try:
            answer = await self._retry(provider, request, sent, headers, known, target)
            if line := _wrong_media(name, request.media, answer):
                self.archive.set_aside(target)
                raise NotTheFormat(line)
        except (FetchError, NotTheFormat) as error:
            # The chain of causes may hold the URL as it was sent: cut it here.
            error.args = (self.clean(str(error)), *error.args[1:])
            raise error from None
        fetched = Fetched(
            provider=provider.slug,
            request=name,
            page=number,
            url=self.clean(answer.url),
            status=answer.status,
            sha256=answer.sha256,
            size_bytes=answer.size_bytes,
            archive_path=self.archive.relative(target),
            fetched_at=self._clock(),
            from_cache=answer.status == 304,
        )
        log.info("%s %s.%d: %s %s", provider.slug, name, number, answer.status, fetched.url)
        if isinstance(request, Get):
            path, size_bytes = fetched.archive_path, answer.size_bytes
            version = Known(asked, path, answer.sha256, size_bytes, answer.headers)
            self.archive.remember(target, version)
        url = str(public) if answer.url == str(sent) else self._without_keys(answer.url)
        page = Page(name=name, number=number, path=target, url=url, headers=answer.headers)
        return page, fetched

    # --- keys ---

    def _resolve(
        self, provider: Provider, request: Request
    ) -> tuple[httpx.URL, httpx.URL, dict[str, str]]:
        """Return the URL without keys, the URL and the headers as sent."""

        def fill(text: str) -> str:
            return PLACEHOLDER.sub(lambda match: self._key(provider, match[1], text), text)

        params = dict(request.params) if isinstance(request, Get) else {}
        try:
            bare = httpx.URL(request.url)
            public = bare.copy_merge_params(params) if params else bare
            filled = {key: fill(value) for key, value in params.items()}
            sent = bare.copy_merge_params(filled) if params else bare
        except httpx.InvalidURL as error:
            raise Refused(f"{scrub(request.url)[:200]!r} is not a URL: {error}") from error
        if not (sent.scheme == "https" or (sent.scheme == "http" and _is_loopback(sent.host))):
            raise Refused(f"{scrub(str(public))}: only https is asked")
        headers = {"Accept": _ACCEPT[request.media]}
        headers |= {key: fill(value) for key, value in request.headers.items()}
        # gzip is what this module can decompress piece by piece under the size cap.
        headers["Accept-Encoding"] = "gzip"
        if request.bearer_env:
            headers["Authorization"] = f"Bearer {self._key(provider, request.bearer_env)}"
        return public, sent, headers

    def _key(self, provider: Provider, variable: str, where: str | None = None) -> str:
        if where is not None and variable not in provider.keys + provider.optional_keys:
            raise Refused(f"{where!r} names a variable that is no key of {provider.name}")
        value = self._environ.get(variable, "").strip()
        if not value:
            raise MissingKey(f"set {variable} to collect {provider.name}")
        if not (value.isascii() and value.isprintable()):
            # Such a header cannot be sent, and the error that says so would show the key.
            raise MissingKey(f"set {variable} anew: its value holds characters that no key has")
        self._secrets.add(value)
        return value

    def _without_keys(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "***").replace(quote(secret, safe=""), "***")
        return text

    def _plain(self, headers: httpx.Headers) -> dict[str, str]:
        kept = {key.lower(): value for key, value in headers.items()}
        return {k: self._without_keys(v) for k, v in kept.items() if k != "set-cookie"}

    # --- one request, several attempts ---

    async def _retry(
        self,
        provider: Provider,
        request: Request,
        sent: httpx.URL,
        headers: Mapping[str, str],
        known: Known | None,
        target: Path,
    ) -> _Answer:
        name, host, limits = _name(sent), self._host(sent), self.limits

        def may_pass(error: Exception) -> bool:
            if self._is_down(host):
                return False
            if isinstance(error, BadStatus):
                return error.status in (408, 425, 429) or error.status >= 500
            return isinstance(error, (Unreachable, TimedOut))

        async for attempt in stamina.retry_context(
            on=may_pass,
            attempts=limits.attempts,
            timeout=limits.retry_seconds,
            wait_initial=limits.first_wait_seconds,
            wait_max=limits.longest_wait_seconds,
            wait_jitter=limits.jitter_seconds,
        ):
            with attempt:
                await self._wait_for_turn(name, host, provider.seconds_between_calls)
                try:
                    async with host.slots, asyncio.timeout(limits.answer_seconds):
                        return await self._ask(request, sent, headers, known, target)
                except TimeoutError as error:
                    line = f"{name}: no complete answer within {limits.answer_seconds:g} s"
                    raise TimedOut(line) from error
                except httpx.TransportError as error:
                    if isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
                        self._note_failed_connect(host, _reason(error))
                    kind = TimedOut if isinstance(error, httpx.TimeoutException) else Unreachable
                    raise kind(f"{name}: {_reason(error)}") from error
        raise AssertionError("stamina ends with an answer or an error")

    def _host(self, url: httpx.URL) -> _Host:
        name = _name(url)
        if name not in self._hosts:
            self._hosts[name] = _Host(asyncio.Semaphore(self.limits.concurrent_per_host))
        return self._hosts[name]

    async def _wait_for_turn(self, name: str, host: _Host, seconds_between_calls: float) -> None:
        """Queue for the host; the queue dissolves at once when the host turns out to be down.

        Raises:
            Unreachable: other requests found the host down.
        """
        now = asyncio.get_running_loop().time
        async with host.turn:
            while not self._is_down(host) and (wait_seconds := host.next_call - now()) > 0:
                host.wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_seconds):
                        await host.wake.wait()
            if self._is_down(host):
                raise Unreachable(f"{name}: {host.trouble}")
            host.next_call = now() + seconds_between_calls

    def _note_failed_connect(self, host: _Host, trouble: str) -> None:
        now = asyncio.get_running_loop().time()
        if not host.failed_connects:
            host.failing_since = now
        host.failed_connects += 1
        host.trouble = trouble
        # Nothing reached the host, so there is nothing to be polite about.
        host.next_call = now
        host.wake.set()

    def _is_down(self, host: _Host) -> bool:
        failing_seconds = asyncio.get_running_loop().time() - host.failing_since
        limits = self.limits
        return host.failed_connects >= limits.attempts and failing_seconds >= limits.give_up_seconds

    def _pause(self, url: httpx.URL, retry_after: str) -> None:
        """Hold back every request to a host, as its Retry-After asks, up to the cap."""
        seconds = _seconds_to_wait(retry_after, self._clock())
        if seconds is not None:
            host, now = self._host(url), asyncio.get_running_loop().time()
            seconds = min(seconds, self.limits.retry_after_cap_seconds)
            host.next_call = max(host.next_call, now + seconds)

    # --- one attempt ---

    async def _ask(
        self,
        request: Request,
        sent: httpx.URL,
        headers: Mapping[str, str],
        known: Known | None,
        target: Path,
    ) -> _Answer:
        """Ask, following redirects; write the bytes of a good answer to `target`."""
        url, sending = sent, dict(headers)
        if known:
            for condition, version in CONDITIONS.items():
                if version in known.headers:
                    sending[condition] = known.headers[version]
        for _ in range(self.limits.max_redirects + 1):
            async with self._stream(request, url, sending) as response:
                self._host(url).failed_connects = 0
                if response.has_redirect_location:
                    url = await self._next_hop(request, sent, url, response)
                    if _origin(url) != _origin(sent):
                        if self._without_keys(str(url)) != str(url):
                            raise Refused(f"{sent.host}: a redirect would hand a key to {url.host}")
                        # A key is meant for the host that it was made for, and a version likewise.
                        kept = ("Accept", "Accept-Encoding")
                        sending = {key: sending[key] for key in kept}
                    continue
                if response.status_code == 304 and known:
                    link(self.archive.root / known.path, target)
                    return _Answer(
                        url=str(url),
                        status=304,
                        headers=known.headers,
                        sha256=known.sha256,
                        size_bytes=known.size_bytes,
                        start=b"",
                    )
                if not response.is_success:
                    raise self._bad_status(request, url, response)
                return await self._receive(url, response, target)
        raise Refused(f"{sent.host}: more than {self.limits.max_redirects} redirects")

    @contextlib.asynccontextmanager
    async def _stream(
        self, request: Request, url: httpx.URL, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        if isinstance(request, Post):
            built = self._client.build_request("POST", url, json=request.body, headers=headers)
        else:
            built = self._client.build_request("GET", url, headers=headers)
        response = await self._client.send(built, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    def _bad_status(self, request: Request, url: httpx.URL, response: httpx.Response) -> BadStatus:
        status = response.status_code
        host = _name(url)
        if "retry-after" in response.headers and (status == 429 or status >= 500):
            self._pause(url, response.headers["retry-after"])
        message = f"{host}: HTTP {status} {response.reason_phrase}".rstrip() + f" for {url}"
        if status in (401, 403) and request.bearer_env:
            message += f"; is the key in {request.bearer_env} right?"
        return BadStatus(message, status)

    async def _next_hop(
        self, request: Request, sent: httpx.URL, url: httpx.URL, response: httpx.Response
    ) -> httpx.URL:
        """Return where a redirect leads, when policy lets us go there.

        Raises:
            Refused: another scheme than https, a private host, or a POST that would become a GET.
        """
        try:
            target = url.join(response.headers["location"])
        except (httpx.InvalidURL, ValueError) as error:
            raise Refused(f"{url.host}: redirect to something that is not a URL") from error
        if isinstance(request, Post) and response.status_code not in (307, 308):
            raise Refused(f"{url.host}: HTTP {response.status_code} would turn the POST into a GET")
        if target.scheme not in ("https", sent.scheme) or not target.host:
            raise Refused(f"{url.host}: redirect to {target}: only https is followed")
        both_loopback = _is_loopback(sent.host) and _is_loopback(target.host)
        if target.scheme == "http" and not both_loopback:
            raise Refused(f"{url.host}: redirect to {target}: only https is followed")
        if target.host != sent.host and not both_loopback and await _is_private(target.host):
            raise Refused(f"{url.host}: redirect to the private host {target.host}")
        return target

    async def _receive(self, url: httpx.URL, response: httpx.Response, target: Path) -> _Answer:
        """Stream an answer into the archive.

        Raises:
            TooLarge: more bytes than the cap, as sent or as decompressed.
            Refused: a key stands in it, which must not enter the archive.
            Unreachable: the compressed stream ends early.
            NotTheFormat: an encoding that was not asked for, damaged gzip data, or no bytes.
        """
        limit = self.limits.max_bytes
        host = _name(url)
        length = response.headers.get("content-length", "")
        if length.isdecimal() and int(length) > limit:
            raise TooLarge(f"{host}: an answer of {length} bytes; the cap is {limit}")
        encoding = response.headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("gzip", "x-gzip", "identity", ""):
            raise NotTheFormat(f"{host}: answer encoded as {encoding!r}, which was not asked for")
        unpack = _Gunzip() if "gzip" in encoding else None
        echoes = [s.encode() for s in self._secrets if len(s) >= _SHORTEST_KEY]
        digest = hashlib.sha256()
        sent_bytes = size_bytes = 0
        start = seam = b""
        with writing(target) as file, packing(file) as packed:
            async for raw in response.aiter_raw():
                sent_bytes += len(raw)
                if sent_bytes > limit:
                    raise TooLarge(f"{host}: an answer of more than {limit} bytes (the cap)")
                for block in unpack.blocks(raw) if unpack else (raw,):
                    size_bytes += len(block)
                    if size_bytes > limit:
                        raise TooLarge(f"{host}: an answer of more than {limit} bytes (the cap)")
                    if any(echo in seam + block for echo in echoes):
                        raise Refused(f"{host}: the answer repeats a key; it is not archived")
                    seam = block[-_LONGEST_KEY:]
                    digest.update(block)
                    packed.write(block)
                    if len(start) < _START_BYTES:
                        start = (start + block).lstrip(_LEADING)[:_START_BYTES]
            if unpack and sent_bytes and not unpack.is_complete:
                raise Unreachable(f"{host}: the compressed answer is cut off")
            if not size_bytes:
                raise NotTheFormat(f"{host}: HTTP {response.status_code} with an empty body")
        return _Answer(
            url=str(url),
            status=response.status_code,
            headers=self._plain(response.headers),
            sha256=digest.hexdigest(),
            size_bytes=size_bytes,
            start=start,
        )


# --- bytes ---


class _Gunzip:
    """Decompress piece by piece, never more than a block at a time."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def is_complete(self) -> bool:
        return self._member.eof

    def blocks(self, data: bytes) -> Iterator[bytes]:
        try:
            is_full = False
            while data or is_full:
                if self._member.eof:
                    self._member = zlib.decompressobj(16 + zlib.MAX_WBITS)
                block = self._member.decompress(data, _BLOCK_BYTES)
                data = self._member.unconsumed_tail or self._member.unused_data
                # A full block may leave output pending inside zlib with all input taken in.
                is_full = len(block) == _BLOCK_BYTES and not self._member.eof
                yield block
        except zlib.error as error:
            raise NotTheFormat(f"damaged gzip answer ({error})") from error


def _wrong_media(name: str, media: Media, answer: _Answer) -> str | None:
    """Return why an answer is evidently not what was asked, e.g. HTML for JSON, or None."""
    if answer.status == 304:
        return None
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    start = answer.start.lower()
    if not start:
        return f"{name}: a blank answer where {media} was asked"
    is_html = "html" in kind or start.startswith((b"<!doctype html", b"<html"))
    wrong = (
        _NEVER_TEXT.search(kind)
        or (media != "html" and is_html)
        or (media in ("json", "csv") and start.startswith(b"<"))
        or (media == "xml" and not start.startswith(b"<"))
    )
    if not wrong:
        return None
    shown = " ".join(start[:40].decode("utf-8", "replace").split())
    return (
        f"{name}: HTTP {answer.status} with {kind or 'no content type'} where {media} was asked, "
        f"starts with {shown!r}"
    )


def _fingerprint(request: Request, public: httpx.URL) -> str:
    asked = [str(public), sorted(request.headers.items()), request.bearer_env]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


def _reason(error: httpx.TransportError) -> str:
    """Say in words what broke; httpx leaves many messages empty."""
    if isinstance(error, httpx.ConnectTimeout):
        return "could not connect in time"
    if isinstance(error, httpx.TimeoutException):
        return "went silent"
    return _ERRNO.sub("", str(error)) or type(error).__name__


def _seconds_to_wait(retry_after: str, now: datetime) -> float | None:
    """Read a Retry-After header (RFC 9110, 10.2.3): seconds, or a date.

    >>> _seconds_to_wait("7", utc_now())
    7.0
    """
    text = retry_after.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())


# --- hosts ---


def _name(url: httpx.URL) -> str:
    """Return host and, if not the scheme's own, port."""
    return url.netloc.decode("ascii")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@functools.cache
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _is_private(host: str) -> bool:
    """Tell whether a host is, or resolves to, an address that is not on the public internet.

    A name that does not resolve here is not private: behind a proxy it never does, and without
    one it cannot be connected to.
    """
    try:
        addresses = [ipaddress.ip_address(host)]
    except ValueError:
        if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
            return True
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
        except OSError:
            return False
        addresses = [ipaddress.ip_address(entry[4][0]) for entry in found]
    return any(not _unmapped(address).is_global for address in addresses)


def _unmapped(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the IPv4 address inside ::ffff:10.0.0.1, or the address itself."""
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped if mapped is not None else address


__all__ = ["Fetched", "Fetcher", "Limits", "scrub", "utc_now"]
