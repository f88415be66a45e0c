"""The runner: paging, judgement per scope, discovery, replay; over real loopback sockets."""

import asyncio
import gzip
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from scrapers.collect import Outcome, archived_runs, collect, discover, reparse, replay
from scrapers.errors import UnknownShape
from scrapers.fetch import Fetcher, Limits
from scrapers.offer import Fee, Offer, Reject, Row
from scrapers.pages import Get, Page, Pages, Provider, Request, Source, pages_of, refuse, require
from scrapers.providers import azure
from tests.server import Answer, Asked, Server, serving

NIGHT = datetime(2026, 8, 22, 3, tzinfo=UTC)
FAST = Limits(
    connect_seconds=0.5,
    read_seconds=0.2,
    answer_seconds=0.5,
    attempts=2,
    first_wait_seconds=0.001,
    longest_wait_seconds=0.01,
    jitter_seconds=0.001,
    retry_after_cap_seconds=0.05,
)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def offer(sku: str, price: str = "1.5", **other: Any) -> Offer:
    return Offer(
        sku=sku,
        region=other.pop("region", "global"),
        market="on_demand",
        gpu_label="H100",
        gpu_count=Decimal(1),
        price_per_hour=Decimal(price),
        currency="USD",
        **other,
    )


def fee(product: str, price: str) -> Fee:
    return Fee(
        kind="egress",
        product=product,
        region="global",
        price=Decimal(price),
        unit="gb",
        currency="USD",
    )


def read_list(pages: Pages) -> Iterator[Row | Reject]:
    """Each page is {"rows": {sku: price}}; a price of 0 is refused, as Azure's is."""
    for page in pages_of(pages, "prices"):
        for sku, price in require(page.json(), "rows", "prices").items():
            yield offer(sku, price) if price != "0" else refuse("zero price", sku)


@dataclass
class Toy:
    """A provider module, as an object."""

    REQUESTS: Mapping[str, Request]
    parse: Callable[[Pages], Iterable[Row | Reject]] = read_list
    follow: Callable[[str, Page], Request | None] | None = None
    PROVIDER: Provider = field(
        default_factory=lambda: Provider("toy", "Toy", "", seconds_between_calls=0)
    )


def listing(**rows: str) -> Answer:
    return Answer(json.dumps({"rows": rows}).encode())


def run(source: Any, root: Path, run_id: str = "r", **options: Any) -> list[Outcome]:
    async def go() -> list[Outcome]:
        async with Fetcher(root, run_id, options.pop("environ", {}), FAST) as fetcher:
            return await collect(source, fetcher, clock=lambda: NIGHT, **options)

    return asyncio.run(go())


def run_one(source: Any, root: Path, **options: Any) -> Outcome:
    (outcome,) = run(source, root, **options)
    return outcome


def judge(items: Iterable[Any], tmp_path: Path, **options: Any) -> Outcome:
    """Replay one recorded page through a parser that yields `items`."""
    folder = tmp_path / "rec" / "toy"
    folder.mkdir(parents=True)
    (folder / "prices.json").write_bytes(b"{}")
    (outcome,) = replay(Toy({}, parse=lambda _: iter(items)), folder, **options)
    return outcome


def comparable(outcomes: list[Outcome]) -> list[Outcome]:
    """Strip what live and replayed outcomes may differ in: durations and how bytes came."""
    return [
        replace(
            o,
            seconds=0.0,
            fetches=tuple(
                replace(f, url="", status=None, from_cache=False, fetched_at=NIGHT)
                for f in o.fetches
            ),
        )
        for o in outcomes
    ]


# --- the good case ---


def test_rows_are_collected_and_replay_identically(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing(a="1.10", b="0", c="2")]
    source = Toy({"prices": Get(server.url("/p"))})
    outcome = run_one(source, tmp_path)
    assert (outcome.status, outcome.error, outcome.scope) == ("ok", None, "")
    assert [(o.sku, o.price_per_hour) for o in outcome.offers] == [
        ("a", Decimal("1.10")),
        ("c", Decimal(2)),
    ]
    assert [r.reason for r in outcome.rejects] == ["zero price"]
    assert outcome.observed_at == NIGHT
    assert [f.archive_path for f in outcome.fetches] == ["r/toy/prices.1.json.gz"]
    assert outcome.seconds > 0
    assert comparable(replay(source, tmp_path / "r/toy")) == comparable([outcome])


def test_scopes_are_judged_apart_and_share_what_has_no_hyphen(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/eu"] = [listing(a="1")]
    server.scripts["/us"] = [Answer(b"", 500)]
    server.scripts["/none"] = [listing()]
    server.scripts["/regions"] = [Answer(b'{"eu-1": "Paris"}')]

    def parse(pages: Pages) -> Iterator[Row | Reject]:
        (names,) = pages_of(pages, "regions")
        yield from (o.model_copy(update={"region": names.json()["eu-1"]}) for o in read_list(pages))

    source = Toy(
        {
            "prices-us-1": Get(server.url("/us")),
            "prices-eu-1": Get(server.url("/eu")),
            "prices-xx": Get(server.url("/none")),
            "regions": Get(server.url("/regions")),
        },
        parse=parse,
    )
    outcomes = run(source, tmp_path)
    assert [(o.scope, o.status, len(o.offers)) for o in outcomes] == [
        ("eu-1", "ok", 1),
        ("us-1", "failed", 0),
        ("xx", "ok", 0),
    ]
    assert outcomes[0].offers[0].region == "Paris"
    assert outcomes[1].error is not None
    assert outcomes[1].error.startswith("BadStatus: 127.0.0.1")
    # Each answer is recorded once.
    assert sorted(f.request for o in outcomes for f in o.fetches) == [
        "prices-eu-1",
        "prices-xx",
        "regions",
    ]
    assert comparable(replay(source, tmp_path / "r/toy")) == comparable(outcomes)


def test_a_failing_shared_request_fails_every_scope(server: Server, tmp_path: Path) -> None:
    server.scripts["/eu"] = [listing(a="1")]
    source = Toy(
        {"prices-eu": Get(server.url("/eu")), "catalog": Get(server.url("/missing"))},
    )
    (outcome,) = outcomes = run(source, tmp_path)
    assert (outcome.status, outcome.scope, outcome.offers) == ("failed", "eu", ())
    assert "404" in (outcome.error or "")
    assert comparable(replay(source, tmp_path / "r/toy")) == comparable(outcomes)


def test_one_provider_cannot_spoil_another(server: Server, tmp_path: Path) -> None:
    server.scripts["/good"] = [listing(a="1")]
    server.scripts["/slow"] = [Answer(silent_seconds=9)]
    server.scripts["/html"] = [Answer(b"<html>busy</html>", media="text/html")]

    def crash(pages: Pages) -> Iterator[Row]:
        yield offer("a")
        raise KeyError("no\nsuch thing")

    def toy(slug: str, path: str, **other: Any) -> Toy:
        provider = Provider(slug, slug, "", seconds_between_calls=0)
        return Toy({"prices": Get(server.url(path))}, PROVIDER=provider, **other)

    sources: list[Any] = [
        toy("good", "/good"),
        toy("slow", "/slow"),
        toy("html", "/html"),
        toy("crash", "/good", parse=crash),
    ]

    async def night() -> list[list[Outcome]]:
        async with Fetcher(tmp_path, "r", {}, FAST) as fetcher:
            return await asyncio.gather(*(collect(s, fetcher) for s in sources))

    (good,), (slow,), (html,), (crashed,) = asyncio.run(night())
    assert (good.status, len(good.offers)) == ("ok", 1)
    assert (slow.error or "").startswith("TimedOut: ")
    assert (html.error or "").startswith("NotTheFormat: prices: HTTP 200 with text/html")
    assert crashed.status == "failed"
    assert crashed.offers == ()
    assert (crashed.error or "").startswith("parser error: KeyError: 'no\\nsuch thing' (test_")


# --- keys ---


def test_a_missing_key_skips(server: Server, tmp_path: Path) -> None:
    keyed = Provider("toy", "Toy Cloud", "", keys=("TOY_KEY", "TOY_ID"), seconds_between_calls=0)
    source = Toy(
        {"prices-a": Get(server.url("/p"), bearer_env="TOY_KEY"), "prices-b": Get("https://x")},
        PROVIDER=keyed,
    )
    outcomes = run(source, tmp_path, environ={"TOY_ID": "1", "TOY_KEY": ""})
    assert [(o.scope, o.status, o.error) for o in outcomes] == [
        ("a", "skipped", "set TOY_KEY to collect Toy Cloud"),
        ("b", "skipped", "set TOY_KEY to collect Toy Cloud"),
    ]
    assert not server.asked
    assert not (tmp_path / "r").exists()


def test_an_optional_key_skips_its_scope_only(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing(a="1")]
    source = Toy(
        {
            "prices-open": Get(server.url("/p")),
            "prices-keyed": Get(server.url("/p"), bearer_env="TOY_KEY"),
        }
    )
    assert [o.status for o in run(source, tmp_path)] == ["skipped", "ok"]


def test_a_request_without_its_optional_key_is_left_out(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing(a="1")] * 2
    server.scripts["/more"] = [listing(b="2")]
    more = Provider("toy", "Toy Cloud", "", optional_keys=("TOY_KEY",), seconds_between_calls=0)
    source = Toy(
        {
            "prices": Get(server.url("/p")),
            "more": Get(server.url("/more"), params={"key": "${TOY_KEY}"}),
        },
        PROVIDER=more,
    )
    without = run_one(source, tmp_path / "without", environ={"TOY_KEY": " "})
    assert (without.status, without.error, without.rejects) == ("ok", None, ())
    assert without.truncated  # what the key would add may still be on sale
    assert [fetch.request for fetch in without.fetches] == ["prices"]
    assert [asked.target for asked in server.asked] == ["/p"]
    keyed = run_one(source, tmp_path / "keyed", environ={"TOY_KEY": "s3cr3t-key"})
    assert [fetch.request for fetch in keyed.fetches] == ["prices", "more"]
    assert not keyed.truncated
    assert "s3cr3t-key" not in str(keyed)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(b"{}", 403), "HTTP 403"),
        (Answer(b"<html>busy</html>", media="text/html"), "NotTheFormat"),
        (Answer(b'{"rows"', length=99), "Unreachable"),
    ],
)
def test_an_optional_request_that_fails_costs_only_itself(
    server: Server, tmp_path: Path, answer: Answer, says: str
) -> None:
    server.scripts["/p"] = [listing(a="1")]
    server.scripts["/more"] = [answer]
    source = Toy(
        {
            "prices": Get(server.url("/p")),
            "prices_more": Get(server.url("/more"), params={"key": "${TOY_KEY}"}),
        },
        PROVIDER=Provider("toy", "Toy", "", optional_keys=("TOY_KEY",), seconds_between_calls=0),
    )
    found = run_one(source, tmp_path, environ={"TOY_KEY": "s3cr3t-key"})
    assert (found.status, [o.sku for o in found.offers], found.truncated) == ("ok", ["a"], True)
    (reject,) = found.rejects
    assert (reject.reason, reject.raw) == ("optional request failed", "prices_more")
    assert says in reject.detail
    assert "s3cr3t-key" not in str(found)
    # A replay of the archive, and one of a run without the key, judge alike.
    recorded = tmp_path / "r" / "toy"
    assert comparable(replay(source, recorded)) == comparable([found])
    (recorded / "prices_more.failed").unlink()
    (recorded / "prices_more.1.json.gz").unlink(missing_ok=True)
    (again,) = replay(source, recorded)
    assert (again.status, again.truncated, again.rejects) == ("ok", True, ())


def test_an_optional_request_cannot_save_a_scope_whose_own_request_fails(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/more"] = [listing(a="1")]
    source = Toy(
        {
            "prices": Get(server.url("/gone")),
            "prices_more": Get(server.url("/more"), params={"key": "${TOY_KEY}"}),
        },
        PROVIDER=Provider("toy", "Toy", "", optional_keys=("TOY_KEY",), seconds_between_calls=0),
    )
    found = run_one(source, tmp_path, environ={"TOY_KEY": "s3cr3t-key"})
    assert (found.status, found.offers) == ("failed", ())
    assert found.error is not None
    assert "HTTP 404" in found.error


def test_a_key_in_an_error_is_cut_out(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]

    def parse(pages: Pages) -> Iterator[Row]:
        raise UnknownShape("echo s3cr3t-key")
        yield

    keyed = Provider("toy", "Toy", "", keys=("K",), seconds_between_calls=0)
    source = Toy({"prices": Get(server.url("/p"), bearer_env="K")}, parse=parse, PROVIDER=keyed)
    outcome = run_one(source, tmp_path, environ={"K": "s3cr3t-key"})
    assert outcome.error == "UnknownShape: echo ***"


# --- paging ---


def paged(server: Server, **other: Any) -> Toy:
    def follow(name: str, page: Page) -> Request | None:
        link = page.json().get("next")
        return Get(link) if link else None

    return Toy({"prices": Get(server.url("/p"))}, follow=follow, **other)


def page_with(rows: dict[str, str], link: str | None) -> Answer:
    return Answer(json.dumps({"rows": rows, "next": link}).encode())


def test_pages_are_followed_to_the_end(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [page_with({"a": "1"}, server.url("/p2?$skip=1"))]
    server.scripts["/p2"] = [page_with({"b": "2"}, None)]
    outcome = run_one(paged(server), tmp_path)
    assert [o.sku for o in outcome.offers] == ["a", "b"]
    assert not outcome.truncated
    assert comparable(replay(paged(server), tmp_path / "r/toy")) == comparable([outcome])


def test_a_link_back_is_a_loop(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [page_with({"a": "1"}, server.url("/q"))]
    server.scripts["/q"] = [page_with({"b": "1"}, server.url("/p"))]
    outcomes = run(paged(server), tmp_path)
    assert (outcomes[0].status, outcomes[0].offers) == ("failed", ())
    assert outcomes[0].error == "Incomplete: prices: page 3 is one that was fetched before, a loop"
    assert (server.count("/p"), server.count("/q")) == (1, 1)
    assert comparable(replay(paged(server), tmp_path / "r/toy")) == comparable(outcomes)


def counted(server: Server) -> Toy:
    def follow(name: str, page: Page) -> Request | None:
        return Get(server.url(f"/p?page={page.number + 1}"))

    return Toy({"prices": Get(server.url("/p?page=1"))}, follow=follow)


def test_a_source_that_ignores_the_page_number_is_a_loop(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing(a="1")]
    outcome = run_one(counted(server), tmp_path)
    assert outcome.error == "Incomplete: prices: page 2 repeats page 1, a loop"
    # A hand-made replay of the same pages, without the archive's note, is no better.
    (tmp_path / "r/toy/prices.failed").unlink()
    assert replay(counted(server), tmp_path / "r/toy")[0].error == outcome.error


def test_two_equal_last_pages_are_no_loop(server: Server, tmp_path: Path) -> None:
    """Ascending and descending views of a single offer are the same bytes."""

    def follow(name: str, page: Page) -> Request | None:
        return Get(server.url("/p?order=desc")) if page.number == 1 else None

    server.scripts["/p"] = [listing(a="1")]
    source = Toy({"prices": Get(server.url("/p?order=asc"))}, follow=follow)
    outcome = run_one(source, tmp_path)
    assert (outcome.status, len(outcome.offers), outcome.duplicates) == ("ok", 1, 1)


def test_a_page_cap_is_an_error_not_an_end(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = lambda asked: listing(**{f"s{asked.target[-1]}": "1"})
    outcome = run_one(counted(server), tmp_path, max_pages=5)
    assert outcome.error == "Incomplete: prices: still more after 5 pages"
    assert server.count("/p") == 5
    assert len(outcome.fetches) == 5


def test_a_failing_later_page_fails_the_whole_request(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [page_with({"a": "1"}, server.url("/gone"))]
    outcome = run_one(paged(server), tmp_path)
    assert (outcome.status, outcome.offers) == ("failed", ())
    (again,) = replay(paged(server), tmp_path / "r/toy")
    assert (again.status, again.error) == ("failed", outcome.error)


@pytest.mark.parametrize(
    "link", ["https://evil.example/p", "http://127.0.0.1:1/p", "file:///p", "/p"]
)
def test_the_next_page_stays_on_the_host(server: Server, tmp_path: Path, link: str) -> None:
    server.scripts["/p"] = [page_with({"a": "1"}, link)]
    assert (run_one(paged(server), tmp_path).error or "").startswith("Refused: prices: next page")


@pytest.mark.parametrize("link", ["http://127.0.0.1:99999/", "http://[::1"])
def test_a_next_page_that_is_no_url_is_refused(server: Server, tmp_path: Path, link: str) -> None:
    server.scripts["/p"] = [page_with({"a": "1"}, link)]
    outcome = run_one(paged(server), tmp_path)
    assert outcome.error == f"Refused: {link!r} is not a URL"


def test_a_crashing_follow_fails_its_scope_and_may_be_mended(
    server: Server, tmp_path: Path
) -> None:
    def follow(name: str, page: Page) -> Request | None:
        raise ZeroDivisionError

    server.scripts["/p"] = [listing(a="1")]
    source = Toy({"prices": Get(server.url("/p"))}, follow=follow)
    outcomes = run(source, tmp_path)
    assert (outcomes[0].error or "").startswith("parser error: ZeroDivisionError (test_collect.py:")
    assert comparable(replay(source, tmp_path / "r/toy")) == comparable(outcomes)
    assert replay(replace(source, follow=None), tmp_path / "r/toy")[0].status == "ok"


# --- judgement ---


def test_identical_rows_count_once_and_contradicting_rows_never(tmp_path: Path) -> None:
    rows = [
        *(offer("same", "1"), offer("same", "1.000"), offer("same")),
        *(offer("odd", "1"), offer("odd", "1.0"), offer("fine")),
        *(fee("odd", "1"), fee("odd", "1"), fee("two", "1"), fee("two", "2")),
    ]
    outcome = judge(rows, tmp_path)
    assert [o.sku for o in outcome.offers] == ["odd", "fine"]
    assert [f.product for f in outcome.fees] == ["odd"]
    assert outcome.duplicates == 3
    assert [r.reason for r in outcome.rejects] == ["conflicting duplicate"] * 4
    assert json.loads(outcome.rejects[1].raw)["price_per_hour"] == "1.5"


def test_a_reject_can_say_that_the_listing_is_truncated(tmp_path: Path) -> None:
    outcome = judge([offer("a"), refuse("truncated listing", "64 of 64 shown")], tmp_path)
    assert (outcome.status, outcome.truncated, len(outcome.rejects)) == ("ok", True, 1)


@pytest.mark.parametrize(
    ("good", "bad", "reason", "status"),
    [
        (20, 10, "invalid price_per_hour", "ok"),  # a handful is no verdict
        (20, 11, "invalid price_per_hour", "failed"),
        (80, 20, "invalid price_per_hour", "ok"),  # a fifth is still borne
        (80, 21, "invalid price_per_hour", "failed"),
        (1, 99, "zero price", "ok"),
        (1, 99, "not sold in this region", "ok"),
        (0, 1, "invalid price_per_hour", "failed"),
    ],
)
def test_too_many_rejects_fail(
    tmp_path: Path, good: int, bad: int, reason: str, status: str
) -> None:
    rows = [offer(f"s{n}") for n in range(good)] + [refuse(reason, n) for n in range(bad)]
    outcome = judge(rows, tmp_path)
    assert outcome.status == status
    assert len(outcome.rejects) == bad
    if status == "failed":
        assert outcome.offers == ()
        assert outcome.error == (
            f"TooManyRejects: {bad} of {good + bad} rows refused, most often: {reason} ({bad})"
        )


def test_an_empty_list_after_a_full_night_fails(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing()]
    source = Toy({"prices-eu": Get(server.url("/p"))})
    assert run_one(source, tmp_path).status == "ok"
    assert run_one(source, tmp_path, previous={"eu": 0, "us": 5}).status == "ok"
    outcome = run_one(source, tmp_path, previous={"eu": 5})
    assert outcome.status == "failed"
    assert outcome.error == "EmptyReply: a well-formed answer without a single row"


def test_a_whole_provider_is_never_empty(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [listing()]
    assert (run_one(Toy({"prices": Get(server.url("/p"))}), tmp_path).error or "").startswith(
        "EmptyReply"
    )


def test_fees_alone_are_rows(tmp_path: Path) -> None:
    assert judge([fee("a", "0.1")], tmp_path, previous={"": 4}).status == "ok"


def test_a_parser_that_yields_something_else_fails(tmp_path: Path) -> None:
    assert (judge([{"sku": "a"}], tmp_path).error or "").startswith(
        "parser error: TypeError: parse gave a dict"
    )


# --- replay ---


def test_replay_takes_the_recorded_time_or_the_clock(tmp_path: Path) -> None:
    folder = tmp_path / "rec/toy"
    folder.mkdir(parents=True)
    (folder / "prices.json").write_text('{"rows": {"a": "1"}}')
    source = Toy({})
    assert replay(source, folder, clock=lambda: NIGHT)[0].observed_at == NIGHT
    (folder / "observed_at").write_text("2026-08-01T02:00:00+02:00\n")
    (outcome,) = replay(source, folder, clock=lambda: NIGHT)
    assert outcome.observed_at == datetime(2026, 8, 1, tzinfo=UTC)
    assert outcome.fetches[0].archive_path == "rec/toy/prices.json"
    (folder / "observed_at").write_text("yesterday")
    assert "not an ISO time" in (replay(source, folder)[0].error or "")


def test_a_recording_that_ends_early_is_truncated_not_failed(
    server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "rec/toy"
    folder.mkdir(parents=True)
    (folder / "prices.1.json").write_bytes(page_with({"a": "1"}, "https://h.example/2").body)
    (outcome,) = replay(paged(server), folder)
    assert (outcome.status, outcome.truncated, len(outcome.offers)) == ("ok", True, 1)
    (folder / "prices.2.json").write_bytes(page_with({"b": "1"}, None).body)
    (outcome,) = replay(paged(server), folder)
    assert (outcome.status, outcome.truncated, len(outcome.offers)) == ("ok", False, 2)


def test_damaged_recordings_fail_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "rec/toy"
    folder.mkdir(parents=True)
    source = Toy({"prices": Get("https://h.example")})
    assert (replay(source, folder)[0].error or "").startswith("EmptyReply: ")
    whole = gzip.compress(b'{"rows": {"a": "1"}}' * 50)
    for damaged in (b"", b"junk", whole[:-20], whole[:20] + b"\xff" * 20 + whole[40:]):
        (folder / "prices.json.gz").write_bytes(damaged)
        (outcome,) = replay(source, folder)
        assert outcome.status == "failed"
        assert "\n" not in (outcome.error or "")
    (folder / "prices.json").write_bytes(b"{}")
    assert "is there twice" in (replay(source, folder)[0].error or "")
    with pytest.raises(FileNotFoundError):
        replay(source, tmp_path / "nowhere")


def test_pages_of_a_run_that_was_broken_off_are_not_believed(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/a"] = [listing(a="1")]
    server.scripts["/b"] = [Answer(silent_seconds=9)]
    source = Toy({"prices-a": Get(server.url("/a")), "prices-b": Get(server.url("/b"))})

    async def go() -> None:
        async with Fetcher(tmp_path, "r", {}, replace(FAST, read_seconds=9)) as fetcher:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(collect(source, fetcher), 0.3)

    asyncio.run(go())
    assert (tmp_path / "r/toy/prices-a.1.json.gz").exists()
    outcomes = replay(source, tmp_path / "r/toy")
    assert [(o.scope, o.status) for o in outcomes] == [("a", "failed"), ("b", "failed")]
    assert "was broken off" in (outcomes[0].error or "")
    # The same run, taken up again, is whole.
    server.scripts["/b"] = [listing(b="1")]
    assert [o.status for o in run(source, tmp_path)] == ["ok", "ok"]
    assert [o.status for o in replay(source, tmp_path / "r/toy")] == ["ok", "ok"]


def test_reparse_walks_the_runs_in_order_of_observation(server: Server, tmp_path: Path) -> None:
    source = Toy({"prices-eu": Get(server.url("/p"))})
    for day, run_id, answer in ((2, "a", listing()), (1, "b", listing(x="1")), (3, "c", listing())):
        server.scripts["/p"] = [answer]

        async def go(at: datetime, run_id: str) -> None:
            async with Fetcher(tmp_path, run_id, {}, FAST) as fetcher:
                await collect(source, fetcher, clock=lambda: at)

        asyncio.run(go(datetime(2026, 8, day, tzinfo=UTC), run_id))
    assert [run_id for run_id, _ in archived_runs(tmp_path, "toy")] == ["b", "a", "c"]
    found = [(run_id, o[0].status) for run_id, o in reparse(source, tmp_path)]
    assert found == [("b", "ok"), ("a", "failed"), ("c", "failed")]


def test_a_conditional_answer_replays_like_a_full_one(server: Server, tmp_path: Path) -> None:
    full = replace(listing(a="1"), headers={"ETag": '"1"'})

    def answer(asked: Asked) -> Answer:
        return Answer(b"", 304) if "if-none-match" in asked.headers else full

    server.scripts["/p"] = answer
    source = Toy({"prices": Get(server.url("/p"))})
    first, second = (run_one(source, tmp_path, run_id=r) for r in "ab")
    assert second.fetches[0].from_cache
    assert second.offers == first.offers == replay(source, tmp_path / "b/toy")[0].offers


def test_an_archive_that_cannot_be_written_fails_the_scopes(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("a file where a folder should be")
    outcome = run_one(Toy({"prices": Get("https://h.example")}), tmp_path)
    assert outcome.status == "failed"
    assert (outcome.error or "").startswith("the archive cannot be written: ")


def test_a_disk_that_fills_up_fails_the_scope(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scrapers.archive.Archive.note_failure", full)
    outcome = run_one(Toy({"prices": Get(server.url("/missing"))}), tmp_path)
    assert outcome.status == "failed"
    assert (outcome.error or "").endswith("No space left on device")


# --- a real parser behind a hostile server ---

AZURE_PAGES = Path(__file__).parent / "payloads" / "azure" / "markets"


def azure_page(number: int, link: str | None) -> bytes:
    page = json.loads((AZURE_PAGES / f"vm_prices.{number}.json").read_text())
    return json.dumps(page | {"NextPageLink": link}).encode()


@pytest.mark.parametrize(
    ("case", "verdict"),
    [
        ("fine", None),
        ("timeout", "TimedOut: "),
        ("slow drip", "TimedOut: "),
        ("429 then fine", None),
        ("429 for ever", "BadStatus: "),
        ("truncated", "Unreachable: "),
        ("cut-off JSON", "NotTheFormat: "),
        ("wrong content type", "NotTheFormat: "),
        ("HTML with status 200", "NotTheFormat: "),
        ("loop", "Incomplete: "),
        ("empty list", "EmptyReply: "),
        ("no list", "UnknownShape: "),
    ],
)
def test_azure_against_a_hostile_server(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, verdict: str | None
) -> None:
    requests = {"vm_prices": Get(server.url("/prices"))}
    monkeypatch.setattr(azure, "REQUESTS", requests)
    second = Answer(azure_page(2, server.url("/prices") if case == "loop" else None))
    limited = Answer(b"", 429, {"Retry-After": "1"})
    last: list[Answer] = {
        "timeout": [Answer(silent_seconds=9)],
        "slow drip": [replace(second, drip_seconds=0.05)],
        "429 then fine": [limited, second],
        "429 for ever": [limited],
        "truncated": [replace(second, length=len(second.body) + 9)],
        "cut-off JSON": [Answer(second.body[:-99])],
        "wrong content type": [replace(second, media="application/pdf")],
        "HTML with status 200": [Answer(b"<!doctype html><p>Busy", media="text/html")],
        "empty list": [Answer(b'{"Items": [], "NextPageLink": null}')],
        "no list": [Answer(b'{"error": "later"}')],
    }.get(case, [second])
    first = [Answer(azure_page(1, server.url("/second")))]
    server.scripts["/prices"] = last if case in ("empty list", "no list") else first
    server.scripts["/second"] = last
    source = Toy(requests, parse=azure.parse, follow=azure.follow)
    outcomes = run(source, tmp_path, previous={"": 17})
    if verdict is None:
        assert outcomes[0].error is None
        assert len(outcomes[0].offers) == 17
    else:
        assert (outcomes[0].status, outcomes[0].offers) == ("failed", ())
        assert (outcomes[0].error or "").startswith(verdict)
    assert comparable(replay(source, tmp_path / "r/toy", previous={"": 17})) == comparable(outcomes)


# --- discovery ---

MODULE = """
from scrapers.pages import Provider
PROVIDER = Provider("{slug}", "X", "")
REQUESTS = {{}}
def parse(pages): return []
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    folder = tmp_path / "toyproviders"
    folder.mkdir()
    files = {
        "__init__": "",
        "zeta": MODULE.format(slug="zeta"),
        "alpha": MODULE.format(slug="alpha"),
        "_shared": "raise RuntimeError('never imported')",
        "broken": "import no_such_module_at_all",
        "crash": "1 / 0",
        "half": "REQUESTS = {}",
        "other": MODULE.format(slug="another"),
    }
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("toyproviders")
    for name in [n for n in sys.modules if n.partition(".")[0] == "toyproviders"]:
        del sys.modules[name]


def test_discovery_survives_modules_that_do_not_import(package: Any, tmp_path: Path) -> None:
    found = discover(package)
    assert list(found) == ["alpha", "broken", "crash", "half", "other", "zeta"]
    for slug, words in {
        "broken": "no_such_module_at_all",
        "crash": "ZeroDivisionError",
        "half": "'PROVIDER'",
        "other": "'another' is not its file's name",
    }.items():
        outcome = run_one(found[slug], tmp_path)
        assert (outcome.provider, outcome.status) == (slug, "failed")
        assert "does not import" in (outcome.error or "")
        assert words in (outcome.error or "")


def test_every_provider_of_the_project_is_usable() -> None:
    found: dict[str, Source] = discover()
    assert found
    for slug, source in found.items():
        assert getattr(source, "__name__", None) == f"scrapers.providers.{slug}"
        assert source.REQUESTS
