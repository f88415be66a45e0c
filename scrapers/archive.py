"""The payload archive: every answer as it came, before anyone parses it.

    <root>/<run_id>/<provider>/
        <request-name>.<N>.<media>.gz           one page, verbatim
        <request-name>.<N>.<media>.refused.gz   evidently something else, e.g. HTML instead of JSON
        <request-name>.failed                   why a request has no whole answer, in one line
        observed_at                             when the provider was asked, an ISO time
        unfinished                              there until all requests have ended
    <root>/.latest/<provider>/
        <request-name>.<N>.<media>.meta         which version of the page is known, and where it is

A run's folder has the layout that `replay.py` reads, so any run can be replayed. Every file appears
whole: written aside, flushed to disk, renamed. Pages are never changed after that.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from scrapers.pages import Media
from scrapers.replay import file_name

CONDITIONS: Final = {"If-None-Match": "etag", "If-Modified-Since": "last-modified"}
"""Conditional request header: the answer's header that it sends back (RFC 9110, section 13)."""
UNFINISHED: Final = "unfinished"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")  # servers-fr-par-1: what replay.py can read back


@dataclass(frozen=True)
class Known:
    """An earlier answer, and what its source calls its version."""

    asked: str
    """Digest of the request that it answers."""
    path: str
    """Below the archive root."""
    sha256: str
    size_bytes: int
    headers: Mapping[str, str]
    """Of the full answer: a 304 repeats few of them, and paging may hang on one (Link, totals)."""


class Archive:
    """The archive, with the folder of one run in it."""

    def __init__(self, root: Path, run_id: str) -> None:
        self.root = root
        self.run_id = run_id
        self._observed_at: dict[str, datetime] = {}

    def folder(self, slug: str) -> Path:
        """Return the folder of one provider in this run; `collect.replay` reads it."""
        return self.root / self.run_id / slug

    def page_path(self, slug: str, name: str, number: int, media: Media) -> Path:
        """Return where a page belongs.

        Raises:
            ValueError: a request name that the layout cannot hold.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"request name {name!r}: letters, digits, '_' and '-' only")
        return self.folder(slug) / f"{file_name(name, number, media)}.gz"

    def relative(self, path: Path) -> str:
        """Return a path below the root, with '/'."""
        return path.relative_to(self.root).as_posix()

    def stamp(self, slug: str, at: datetime) -> datetime:
        """Record when a provider was observed in this run, once, and return that time."""
        if slug not in self._observed_at:
            _put(self.folder(slug) / "observed_at", f"{at.isoformat()}\n".encode())
            self._observed_at[slug] = at
        return self._observed_at[slug]

    def begin(self, slug: str) -> None:
        """Mark a provider's pages as not to be believed: a killed run never comes to `finish`."""
        _put(self.folder(slug) / UNFINISHED, b"")

    def finish(self, slug: str) -> None:
        """Take the mark of `begin` away: every request has its pages, or a note of its failure."""
        (self.folder(slug) / UNFINISHED).unlink(missing_ok=True)

    def note_failure(self, slug: str, name: str, message: str) -> None:
        """Record that a request has no whole answer, so that no replay believes its pages."""
        _put(self.folder(slug) / f"{name}.failed", f"{message}\n".encode())

    def set_aside(self, page: Path) -> None:
        """Keep an answer that is evidently something else as evidence, out of a replay's sight."""
        page.replace(page.with_name(f"{page.name.removesuffix('.gz')}.refused.gz"))

    def clear(self, slug: str, name: str, keep: Path) -> None:
        """Remove what a broken-off try of this run left of a request, all but one page."""
        folder = self.folder(slug)
        for path in (*folder.glob(f"{name}.*.gz"), folder / f"{name}.failed"):
            if path != keep:
                path.unlink(missing_ok=True)

    def known(self, page: Path, asked: str) -> Known | None:
        """Return the earlier answer to the same request, if its archived bytes are intact."""
        try:
            known = Known(**json.loads(self._meta_path(page).read_bytes()))
            if known.asked != asked:
                return None
            with gzip.open(self.root / known.path, "rb") as unpacked:
                digest = hashlib.file_digest(unpacked, "sha256").hexdigest()
        except (OSError, EOFError, zlib.error, ValueError, TypeError):
            # Missing or damaged: asking without a condition repairs it.
            return None
        return known if digest == known.sha256 else None

    def remember(self, page: Path, known: Known) -> None:
        """Remember the version of a page; forget it where the source names none."""
        path = self._meta_path(page)
        if known.headers.keys().isdisjoint(CONDITIONS.values()):
            path.unlink(missing_ok=True)
        else:
            _put(path, json.dumps(asdict(known), indent=1, sort_keys=True).encode())

    def _meta_path(self, page: Path) -> Path:
        return self.root / ".latest" / page.parent.name / f"{page.name.removesuffix('.gz')}.meta"


@contextlib.contextmanager
def writing(target: Path) -> Iterator[IO[bytes]]:
    """Write a file aside and put it in place whole, on success only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".part-", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.chmod(0o644)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def packing(file: IO[bytes]) -> Iterator[gzip.GzipFile]:
    """Compress into an open file; equal bytes give equal files (no name, no time)."""
    with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        yield packed


def _put(path: Path, data: bytes) -> None:
    with writing(path) as file:
        file.write(data)


def link(source: Path, target: Path) -> None:
    """Give archived bytes a second name, so that each run's folder is complete by itself."""
    if source == target:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links, or the bytes lie on another one
        with writing(target) as file, source.open("rb") as stream:
            shutil.copyfileobj(stream, file)
