"""Every provider module against answers gone wrong, over real sockets: only the scope is lost.

A module's own requests are redirected to a loopback server that answers as in its recorded healthy
night; then one request of one scope is answered badly.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from flows.refresh import Summary, ignore, keep, start_run
from scrapers.collect import Outcome, collect, discover
from scrapers.fetch import Fetcher, Limits
from scrapers.pages import Page, Pages, Request, Source, scope_of
from scrapers.replay import read_pages
from tests.conftest import HEALTHY, PAYLOADS
from tests.server import Answer, Server, serving
from warehouse.ledger import Ledger

FIRST = datetime(2026, 8, 22, 3, tzinfo=UTC)
FAST = Limits(
    connect_seconds=1,
    read_seconds=0.1,
    answer_seconds=2,
    attempts=2,
    first_wait_seconds=0.001,
    longest_wait_seconds=0.002,
    jitter_seconds=0.001,
    retry_after_cap_seconds=0.02,
)
# The request that is answered badly: the one with the prices.
VICTIM = {
    "aws": "ec2-us-east-1",
    "azure": "vm_prices",
    "gcp": "accelerator_page",
    "linode": "types",
    "oci": "products",
    "runpod": "gpu_types",
    "scaleway": "servers-zx-alp-1",
    "vast": "offers-B300",
}
MEDIA = {"json": "application/json", "html": "text/html", "csv": "text/csv"}
SOURCES = discover()


class Redirected:
    """A provider module whose recorded requests go to a loopback server."""

    def __init__(self, source: Source, server: Server) -> None:
        self._source, self._server = source, server
        self.PROVIDER = replace(source.PROVIDER, seconds_between_calls=0)
        self.REQUESTS: Mapping[str, Request] = {
            name: self._redirect(name, ask(source.PROVIDER.slug, name))
            for name in recorded(source.PROVIDER.slug)
        }

    def _redirect(self, name: str, request: Request) -> Request:
        url = self._server.url(f"/{name}?asked={quote(request.url, safe='')}")
        return replace(request, url=url)

    def parse(self, pages: Pages) -> Any:
        return self._source.parse(pages)

    def follow(self, name: str, page: Page) -> Request | None:
        follow = getattr(self._source, "follow", None)
        request = follow(name, page) if follow else None
        return self._redirect(name, request) if request else None


@cache
def recorded(slug: str) -> dict[str, list[Answer]]:
    """The answers of a healthy night by request."""
    pages = read_pages(PAYLOADS / slug / HEALTHY[slug])
    return {
        name: [Answer(page.bytes(), media=MEDIA[ask(slug, name).media]) for page in some]
        for name, some in pages.items()
    }


def ask(slug: str, name: str) -> Request:
    """The module's request of that name; in a zone that is made up, as in another zone."""
    requests = SOURCES[slug].REQUESTS
    kind = name.partition("-")[0]
    return requests.get(name) or next(r for n, r in requests.items() if n.startswith(f"{kind}-"))


def empty(answer: Answer) -> Answer:
    """The same answer without a row."""
    text = answer.body.decode()
    if answer.media == "text/csv":
        lines = text.splitlines(keepends=True)
        header = next(n for n, line in enumerate(lines) if line.startswith('"SKU"'))
        text = "".join(lines[: header + 1])
    elif answer.media == "text/html":
        text = re.sub(r"<tr>(?!<th).*?</tr>", "", text, flags=re.DOTALL)
    else:
        name = re.search(r'"(\w+)"\s*:\s*\[', text)
        text = "[]" if name is None else f'{{"{name[1]}": []}}'
        if '"gpuTypes"' in answer.body.decode():
            text = '{"data": {"gpuTypes": [], "dataCenters": []}}'
        if '"servers"' in answer.body.decode():
            text = '{"servers": {}}'
    return replace(answer, body=text.encode())


def bad_answers(kind: str, good: list[Answer]) -> list[Answer]:
    whole = good[0]
    return {
        "silence": [replace(whole, silent_seconds=5)],
        "429": [replace(whole, status=429, headers={"Retry-After": "3600"})],
        "cut off": [replace(whole, body=whole.body[:-40], length=len(whole.body))],
        "cut off by the source": [replace(whole, body=whole.body[: len(whole.body) // 3])],
        "wrong type": [replace(whole, media="image/png")],
        "error page": [
            Answer(b"<html><body><h1>Be right back</h1></body></html>", 200, {}, "text/html")
        ],
        "empty": [empty(whole)],
    }[kind]


def night(slug: str, server: Server, root: Path, at: datetime, **options: Any) -> list[Outcome]:
    async def go() -> list[Outcome]:
        environ = {"GCP_API_KEY": "a-key-of-a-test"}
        async with Fetcher(root, at.strftime("%H%M%S"), environ, FAST) as fetcher:
            source = Redirected(SOURCES[slug], server)
            return await collect(source, fetcher, clock=lambda: at, **options)

    return asyncio.run(go())


@pytest.fixture(autouse=True, scope="module")
def _no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        yield


@pytest.fixture(scope="module", params=sorted(SOURCES))
def cloud(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Server, Path, Ledger, dict[str, Outcome]]]:
    """A provider after its healthy night, kept in a ledger."""
    slug, root = request.param, tmp_path_factory.mktemp(request.param)
    with serving() as server, Ledger(root / "ledger.duckdb") as ledger:
        server.scripts |= {f"/{name}": some for name, some in recorded(slug).items()}
        start_run(ledger, "live")
        good = {outcome.scope: outcome for outcome in night(slug, server, root, FIRST)}
        assert {outcome.status for outcome in good.values()} == {"ok"}
        for outcome in good.values():
            keep(ledger, outcome, "", Summary(), ignore)
        yield slug, server, root, ledger, good


def rows_of(outcome: Outcome) -> tuple[Any, ...]:
    return outcome.status, outcome.offers, outcome.fees


def state(ledger: Ledger) -> Any:
    return ledger.connection.execute("from ledger.price_changes order by all").fetchall()


KINDS = ("silence", "429", "cut off", "cut off by the source", "wrong type", "error page", "empty")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_answer_costs_its_scope_only_and_no_price_that_is_known(
    cloud: tuple[str, Server, Path, Ledger, dict[str, Outcome]], kind: str
) -> None:
    slug, server, root, ledger, good = cloud
    victim, before = VICTIM[slug], state(ledger)
    server.scripts |= {f"/{name}": some for name, some in recorded(slug).items()}
    server.scripts[f"/{victim}"] = bad_answers(kind, recorded(slug)[victim])
    server.restart()
    at = FIRST + timedelta(minutes=1 + KINDS.index(kind))
    rows = {scope: len(o.offers) + len(o.fees) for scope, o in good.items()}
    start_run(ledger, "live")
    for outcome in night(slug, server, root, at, previous=rows):
        if scope_of(victim) in ("", outcome.scope):
            assert (outcome.status, outcome.offers, outcome.fees) == ("failed", (), ()), outcome
            assert outcome.error
            assert "\n" not in outcome.error
            assert "parser error" not in outcome.error
            assert "unforeseen" not in outcome.error
            keep(ledger, outcome, "", Summary(), ignore)
        else:
            assert rows_of(outcome) == rows_of(good[outcome.scope])
    assert state(ledger) == before


def test_a_list_that_leads_to_itself_ends(
    cloud: tuple[str, Server, Path, Ledger, dict[str, Outcome]],
) -> None:
    """The first page for ever: found by its address or by its bytes, not by a count of pages."""
    slug, server, root, _, _ = cloud
    follow = getattr(SOURCES[slug], "follow", None)
    paged = {name for name, pages in recorded(slug).items() if len(pages) > 1}
    if follow is None or not paged:
        # Its source answers in one page: there is no list that could lead to itself.
        pytest.skip(f"no list of {slug} was recorded in pages")
    for name in paged:
        server.scripts |= {f"/{n}": some for n, some in recorded(slug).items()}
        server.scripts[f"/{name}"] = [recorded(slug)[name][0]]
        server.restart()
        outcomes = night(slug, server, root, FIRST + timedelta(hours=1))
        (bad,) = [o for o in outcomes if scope_of(name) in ("", o.scope)][:1]
        if slug in ("scaleway", "vast"):  # the second page is the last that is asked
            assert (bad.status, bad.truncated) == ("ok", slug == "scaleway")
            continue
        assert bad.status == "failed", (name, bad)
        assert "Incomplete" in str(bad.error)
        assert server.count(f"/{name}") <= 3


def test_every_module_is_here() -> None:
    assert VICTIM.keys() == SOURCES.keys() == HEALTHY.keys()
    for slug, name in VICTIM.items():
        assert name in recorded(slug), slug
        assert urlsplit(ask(slug, name).url).scheme == "https"
