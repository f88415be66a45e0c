"""The ECB feed: read exactly, refused when it is anything else."""

import asyncio
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from scrapers import rates
from scrapers.errors import NotTheFormat, SourceError, UnknownShape
from scrapers.fetch import Fetcher, Limits
from scrapers.pages import Get, Page
from scrapers.rates import Rate
from scrapers.replay import read_pages
from tests.server import Answer, serving

FEED = """<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
\t<gesmes:subject>Reference rates</gesmes:subject>
\t<Cube><Cube time='2026-08-21'>
\t\t<Cube currency='USD' rate='1.1622'/>
\t\t<Cube currency='IDR' rate='19034.5'/>
\t\t<Cube currency='GBP' rate='0.86380'/>
\t</Cube></Cube>
</gesmes:Envelope>"""


def parse(text: str | bytes) -> list[Rate]:
    return rates.parse(Page("rates", body=text.encode() if isinstance(text, str) else text))


def test_rates_are_read_exactly() -> None:
    day = date(2026, 8, 21)
    assert parse(FEED) == [
        Rate(day, "GBP", Decimal("0.86380")),
        Rate(day, "IDR", Decimal("19034.5")),
        Rate(day, "USD", Decimal("1.1622")),
    ]
    assert parse(b"\xef\xbb\xbf" + FEED.encode()) == parse(FEED)


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda t: t[:-5], NotTheFormat),
        (lambda t: "", NotTheFormat),
        (lambda t: "{}", NotTheFormat),
        (lambda t: t.replace("?>", "?>" + BOMB, 1), NotTheFormat),
        (lambda t: t.replace("?>", '?><!DOCTYPE x SYSTEM "file:///etc/passwd">', 1), NotTheFormat),
        (lambda t: t.replace("UTF-8", "no-such-code"), NotTheFormat),
        (lambda t: t.replace("USD", "XXX"), UnknownShape),
        (lambda t: t.replace("GBP", "USD"), UnknownShape),
        (lambda t: t.replace("GBP", "pounds"), UnknownShape),
        (lambda t: t.replace("1.1622", "0"), UnknownShape),
        (lambda t: t.replace("1.1622", "0.000"), UnknownShape),
        (lambda t: t.replace("1.1622", "-1.1"), UnknownShape),
        (lambda t: t.replace("1.1622", "NaN"), UnknownShape),
        (lambda t: t.replace("1.1622", "1e3"), UnknownShape),
        (lambda t: t.replace("1.1622", "1,1622"), UnknownShape),
        (lambda t: t.replace("1.1622", "١"), UnknownShape),
        (lambda t: t.replace(" rate='1.1622'", ""), UnknownShape),
        (lambda t: t.replace("2026-08-21", "yesterday"), UnknownShape),
        (lambda t: t.replace(" time='2026-08-21'", ""), UnknownShape),
        (lambda t: "<html><body>moved</body></html>", UnknownShape),
    ],
)
def test_anything_else_is_refused(change: Callable[[str], str], error: type[SourceError]) -> None:
    changed = change(FEED)
    assert changed != FEED
    with pytest.raises(error):
        parse(changed)


def test_the_feed_is_fetched_and_archived_like_any_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    with serving() as server:
        server.scripts["/eurofxref-daily.xml"] = [Answer(FEED.encode(), media="text/xml")]
        request = Get(server.url("/eurofxref-daily.xml"), media=rates.REQUEST.media)

        async def go() -> list[Rate]:
            async with Fetcher(tmp_path, "r", {}, Limits()) as fetcher:
                page, _ = await fetcher.fetch(rates.PROVIDER, "rates", 1, request)
                return rates.parse(page)

        live = asyncio.run(go())
    (recorded,) = read_pages(tmp_path / "r/ecb")["rates"]
    assert rates.parse(recorded) == live == parse(FEED)
