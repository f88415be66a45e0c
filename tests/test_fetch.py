"""The fetcher against a real server on loopback: what hostile and broken sources do to it."""

import asyncio
import gzip
import hashlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

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
from scrapers.fetch import Fetched, Fetcher, Limits, _is_private, _seconds_to_wait, scrub
from scrapers.pages import Get, Page, Post, Provider, Request
from scrapers.replay import read_observed_at, read_pages
from tests.server import Answer, Asked, Server, serving

SECRET = "s3cr3t/+key=="
PROVIDER = Provider("toy", "Toy Cloud", "", keys=("TOY_KEY",), seconds_between_calls=0)
FAST = Limits(
    connect_seconds=0.5,
    read_seconds=0.3,
    answer_seconds=0.5,
    max_bytes=1_000_000,
    attempts=3,
    first_wait_seconds=0.001,
    longest_wait_seconds=0.01,
    jitter_seconds=0.001,
    retry_after_cap_seconds=0.2,
    give_up_seconds=0.0,
)
ONCE = Limits(**{**vars(FAST), "attempts": 1})


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def fetch(
    root: Path,
    request: Request,
    limits: Limits = FAST,
    run_id: str = "run-1",
    name: str = "prices",
    provider: Provider = PROVIDER,
) -> tuple[Page, Fetched]:
    async def go() -> tuple[Page, Fetched]:
        async with Fetcher(root, run_id, {"TOY_KEY": SECRET}, limits) as fetcher:
            return await fetcher.fetch(provider, name, 1, request)

    return asyncio.run(go())


def archived(root: Path) -> list[str]:
    return sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())


def ask(server: Server, *answers: Answer, path: str = "/p") -> Get:
    server.scripts[path] = answers
    return Get(server.url(path))


# --- a good answer ---


def test_answer_is_archived_in_the_replay_layout(server: Server, tmp_path: Path) -> None:
    body = b'{"price": 1.10}'
    page, fetched = fetch(tmp_path, ask(server, Answer(body, headers={"X-Total-Count": "1"})))
    assert page.bytes() == body
    assert page.headers["x-total-count"] == "1"
    assert page.url == fetched.url == server.url("/p")
    assert fetched.sha256 == hashlib.sha256(body).hexdigest()
    assert (fetched.size_bytes, fetched.status, fetched.from_cache) == (len(body), 200, False)
    assert fetched.archive_path == "run-1/toy/prices.1.json.gz"
    assert archived(tmp_path) == ["run-1/toy/observed_at", "run-1/toy/prices.1.json.gz"]
    assert read_pages(tmp_path / "run-1/toy")["prices"][0].bytes() == body
    seen = read_observed_at(tmp_path / "run-1/toy")
    assert seen is not None
    assert abs(datetime.now(UTC) - seen) < timedelta(minutes=1)


def test_equal_answers_make_equal_files(server: Server, tmp_path: Path) -> None:
    request = ask(server, Answer(b"[1]"))
    files = [tmp_path / fetch(tmp_path, request, run_id=run)[1].archive_path for run in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_post_sends_json_and_params_merge_into_the_query(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]
    fetch(tmp_path, Post(server.url("/p"), {"gpu": "H100"}))
    fetch(tmp_path, Get(server.url("/p?v=1"), params={"page": "a b"}))
    posted, got = server.asked
    assert (posted.method, json.loads(posted.body)) == ("POST", {"gpu": "H100"})
    assert got.target == "/p?v=1&page=a+b"


def test_gzip_answers_are_unpacked_members_and_all(server: Server, tmp_path: Path) -> None:
    parts = [b'{"a": "' + b"x" * 3_000, b'"}']
    packed = b"".join(gzip.compress(p) for p in parts)
    answer = Answer(packed, headers={"Content-Encoding": "gzip"})
    page, fetched = fetch(tmp_path, ask(server, answer))
    assert page.bytes() == b"".join(parts)
    assert fetched.size_bytes == 3_009
    assert server.asked[0].headers["accept-encoding"] == "gzip"


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) - 1, 2 << 20, (2 << 20) + 257])
def test_gzip_output_at_the_block_boundary_is_whole(
    server: Server, tmp_path: Path, size: int
) -> None:
    body = b"[" + b" " * (size - 2) + b"]"
    limits = Limits(**{**vars(FAST), "max_bytes": size, "answer_seconds": 5.0})
    answer = Answer(gzip.compress(body), headers={"Content-Encoding": "gzip"})
    assert fetch(tmp_path, ask(server, answer), limits)[0].bytes() == body


# --- time ---


def test_silence_times_out(server: Server, tmp_path: Path) -> None:
    with pytest.raises(TimedOut, match="went silent"):
        fetch(tmp_path, ask(server, Answer(silent_seconds=5)), ONCE)
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_a_slow_drip_hits_the_cap_on_the_whole_answer(server: Server, tmp_path: Path) -> None:
    started = time.perf_counter()
    with pytest.raises(TimedOut, match=r"no complete answer within 0\.5 s"):
        fetch(tmp_path, ask(server, Answer(b"[" + b" " * 999 + b"]", drip_seconds=0.02)), ONCE)
    assert time.perf_counter() - started < 5
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_retry_after_is_honoured_up_to_the_cap(server: Server, tmp_path: Path) -> None:
    refusal = Answer(b"slow down", 429, {"Retry-After": "3600"})
    started = time.perf_counter()
    page, _ = fetch(tmp_path, ask(server, refusal, Answer(b"[1]")))
    assert 0.2 <= time.perf_counter() - started < 10
    assert page.json() == [1]
    assert server.count("/p") == 2


def test_retry_after_holds_back_every_request_to_that_host(server: Server, tmp_path: Path) -> None:
    times: list[float] = []

    def answer(asked: Asked) -> Answer:
        times.append(time.perf_counter())
        return Answer(b"", 429, {"Retry-After": "1"}) if len(times) == 1 else Answer()

    server.scripts["/p"] = answer
    limits = Limits(**{**vars(FAST), "concurrent_per_host": 1})

    async def go() -> None:
        async with Fetcher(tmp_path, "r", {}, limits) as fetcher:
            one = asyncio.create_task(fetcher.fetch(PROVIDER, "a", 1, Get(server.url("/p"))))
            while not times:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)
            await asyncio.gather(one, fetcher.fetch(PROVIDER, "b", 1, Get(server.url("/p"))))

    asyncio.run(go())
    assert len(times) == 3
    assert min(times[1:]) - times[0] >= 0.19


def test_retry_after_reads_seconds_and_dates() -> None:
    now = datetime(2026, 8, 22, 3, tzinfo=UTC)
    assert _seconds_to_wait(" 7 ", now) == 7
    assert _seconds_to_wait(format_datetime(now + timedelta(seconds=90), usegmt=True), now) == 90
    assert _seconds_to_wait(format_datetime(now - timedelta(days=1), usegmt=True), now) == 0
    for nonsense in ("soon", "-3", "", "٣"):
        assert _seconds_to_wait(nonsense, now) is None


def test_calls_to_one_host_are_paced(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]
    slow = Provider("toy", "Toy", "", seconds_between_calls=0.1)

    async def go() -> None:
        async with Fetcher(tmp_path, "r", {}, FAST) as fetcher:
            request = Get(server.url("/p"))
            await asyncio.gather(*(fetcher.fetch(slow, n, 1, request) for n in "abcd"))

    started = time.perf_counter()
    asyncio.run(go())
    assert time.perf_counter() - started >= 0.3


# --- failures that may pass, and those that do not ---


def test_server_errors_are_tried_again_then_reported(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadStatus, match="HTTP 500") as caught:
        fetch(tmp_path, ask(server, Answer(b"oops", 500)))
    assert caught.value.status == 500
    assert server.count("/p") == 3
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_client_errors_are_final(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadStatus, match="HTTP 404"):
        fetch(tmp_path, ask(server, Answer(b"", 404)))
    assert server.count("/p") == 1


def test_a_truncated_body_is_tried_again(server: Server, tmp_path: Path) -> None:
    page, _ = fetch(tmp_path, ask(server, Answer(b"[1, 2", length=99), Answer(b"[1, 2]")))
    assert page.json() == [1, 2]


def test_a_truncated_body_never_enters_the_archive(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Unreachable):
        fetch(tmp_path, ask(server, Answer(b"[1, 2]", length=99)))
    assert server.count("/p") == 3
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_a_cut_off_gzip_stream_is_unreachable(server: Server, tmp_path: Path) -> None:
    cut = gzip.compress(os.urandom(500))[:-9]
    with pytest.raises(Unreachable, match="cut off"):
        fetch(tmp_path, ask(server, Answer(cut, headers={"Content-Encoding": "gzip"})))
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_damaged_or_unasked_encodings_are_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(NotTheFormat, match="damaged gzip"):
        fetch(tmp_path, ask(server, Answer(b"not gzip", headers={"Content-Encoding": "gzip"})))
    with pytest.raises(NotTheFormat, match="'br'"):
        fetch(tmp_path, ask(server, Answer(b"xx", headers={"Content-Encoding": "br"}), path="/b"))


def test_a_dead_host_is_given_up_for_all_its_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    patient = Provider("toy", "Toy", "", seconds_between_calls=60)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"

        async def go() -> list[Any]:
            async with Fetcher(tmp_path, "r", {}, FAST) as fetcher:
                names = (f"n{n}" for n in range(50))
                calls = (fetcher.fetch(patient, name, 1, Get(url)) for name in names)
                return await asyncio.gather(*calls, return_exceptions=True)

        started = time.perf_counter()
        with caplog.at_level(logging.INFO):
            found = asyncio.run(go())
    assert time.perf_counter() - started < 5
    assert {type(error) for error in found} == {Unreachable}
    assert len({str(error) for error in found}) == 1
    assert len(caplog.messages) < 10  # the rest of the queue did not even try


def test_a_host_that_answers_again_is_not_down(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]

    async def go() -> None:
        async with Fetcher(tmp_path, "r", {}, FAST) as fetcher:
            request = Get(server.url("/p"))
            host = fetcher._host(httpx.URL(request.url))
            for _ in range(3):
                for _ in range(FAST.attempts - 1):
                    fetcher._note_failed_connect(host, "refused")
                await fetcher.fetch(PROVIDER, "a", 1, request)

    asyncio.run(go())


# --- not what was asked ---

HTML = b"<!DOCTYPE html><title>Just a moment</title>"


@pytest.mark.parametrize(
    ("media", "kind", "body"),
    [
        ("json", "text/html; charset=utf-8", HTML),
        ("json", "application/json", b"\xef\xbb\xbf \n" + HTML),
        ("json", "text/html", b"{}"),
        ("json", "image/png", b"\x89PNG"),
        ("json", "application/pdf", b"%PDF"),
        ("csv", "text/csv", HTML),
        ("csv", "application/gzip", gzip.compress(b"a,b", mtime=0)),
        ("xml", "application/xml", HTML),
        ("xml", "text/xml", b'{"error": 1}'),
        ("json", "application/json", b"\n  \n"),
    ],
)
def test_wrong_content_is_refused_though_the_status_is_200(
    server: Server, tmp_path: Path, media: Any, kind: str, body: bytes
) -> None:
    server.scripts["/p"] = [Answer(body, media=kind)]
    with pytest.raises(NotTheFormat, match=f"where {media} was asked"):
        fetch(tmp_path, Get(server.url("/p"), media=media))
    assert server.count("/p") == 1
    # The bytes are kept as evidence, but are no version to come back to.
    assert f"run-1/toy/prices.1.{media}.refused.gz" in archived(tmp_path)
    assert read_pages(tmp_path / "run-1/toy") == {}
    assert not (tmp_path / ".latest").exists()


def test_an_empty_body_is_not_the_format(server: Server, tmp_path: Path) -> None:
    for answer in (
        Answer(b""),
        Answer(b"", headers={"Content-Encoding": "gzip"}),
        Answer(b"", 204),
    ):
        with pytest.raises(NotTheFormat, match="empty body"):
            fetch(tmp_path, ask(server, answer, path=f"/{id(answer)}"))
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_leading_white_space_is_no_blank_answer(server: Server, tmp_path: Path) -> None:
    page, _ = fetch(tmp_path, ask(server, Answer(b"\n" * 200_000 + b"[1]")))
    assert page.json() == [1]


def test_json_as_plain_text_is_fine(server: Server, tmp_path: Path) -> None:
    page, _ = fetch(tmp_path, ask(server, Answer(b"[1]", media="text/plain")))
    assert page.json() == [1]


# --- size ---


def test_an_announced_size_over_the_cap_is_refused(server: Server, tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="2000000"):
        fetch(tmp_path, ask(server, Answer(b"[", length=2_000_000)))


def test_an_unannounced_size_over_the_cap_is_refused(server: Server, tmp_path: Path) -> None:
    answer = Answer(b" " * 1_200_000, headers={"X": "y"}, length=-1)
    server.scripts["/p"] = [answer]
    with pytest.raises(FetchError):
        fetch(tmp_path, Get(server.url("/p")))
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_a_gzip_bomb_is_defused(server: Server, tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    bomb = b"".join(packer.compress(b"\0" * 1_000_000) for _ in range(200)) + packer.flush()
    assert len(bomb) < 300_000
    started = time.perf_counter()
    with pytest.raises(TooLarge):
        fetch(tmp_path, ask(server, Answer(bomb, headers={"Content-Encoding": "gzip"})))
    assert time.perf_counter() - started < 5
    assert server.count("/p") == 1
    assert archived(tmp_path) == ["run-1/toy/observed_at"]


def test_a_stream_of_empty_gzip_members_ends_at_the_cap(server: Server, tmp_path: Path) -> None:
    hollow = gzip.compress(b"") * 60_000
    with pytest.raises(TooLarge):
        fetch(tmp_path, ask(server, Answer(hollow, headers={"Content-Encoding": "gzip"})))


# --- redirects ---


def test_redirects_are_followed_on_the_same_host(server: Server, tmp_path: Path) -> None:
    server.scripts["/old"] = [Answer(b"", 301, {"Location": "/new?page=1"})]
    server.scripts["/new"] = [Answer(b"[1]")]
    page, fetched = fetch(tmp_path, Get(server.url("/old"), bearer_env="TOY_KEY"))
    assert page.json() == [1]
    assert fetched.url == server.url("/new?page=1")
    assert server.asked[1].headers["authorization"] == f"Bearer {SECRET}"


def test_a_redirect_loop_ends(server: Server, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="more than 5 redirects"):
        fetch(tmp_path, ask(server, Answer(b"", 302, {"Location": "/p"})))
    assert server.count("/p") == 6


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("https://10.0.0.7/", "private host"),
        ("https://169.254.169.254/latest/meta-data", "private host"),
        ("https://[fe80::1]/", "private host"),
        ("https://[::ffff:192.168.1.1]/", "private host"),
        ("https://metadata.google.internal/", "private host"),
        ("https://printer.local/", "private host"),
        ("http://prices.example/", "only https"),
        ("ftp://127.0.0.1/", "only https"),
        ("file:///etc/passwd", "only https"),
        ("https://", "only https|not a URL"),
    ],
)
def test_redirects_that_policy_forbids(
    server: Server, tmp_path: Path, location: str, why: str
) -> None:
    with pytest.raises(Refused, match=why):
        fetch(tmp_path, ask(server, Answer(b"", 302, {"Location": location})))
    assert server.count("/p") == 1


def test_a_redirect_to_nonsense_is_a_broken_answer(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="Invalid URL"):
        fetch(tmp_path, ask(server, Answer(b"", 302, {"Location": "http://[::1"})))


def test_names_and_odd_spellings_of_private_addresses_are_seen_through() -> None:
    async def private(host: str) -> bool:
        return await _is_private(host)

    for host in ("localhost", "127.1", "2130706433", "0x7f000001", "::1", "100.64.0.1", "0.0.0.0"):
        assert asyncio.run(private(host)), host
    assert not asyncio.run(private("9.9.9.9"))


def test_a_redirected_post_is_not_turned_into_a_get(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer(b"", 302, {"Location": "/q"})]
    server.scripts["/r"] = [Answer(b"", 307, {"Location": "/q"})]
    server.scripts["/q"] = [Answer()]
    with pytest.raises(Refused, match="POST into a GET"):
        fetch(tmp_path, Post(server.url("/p"), {"q": 1}))
    fetch(tmp_path, Post(server.url("/r"), {"q": 1}))
    assert (server.asked[-1].method, server.asked[-1].body) == ("POST", b'{"q":1}')


def test_a_key_does_not_follow_a_redirect_to_another_origin(server: Server, tmp_path: Path) -> None:
    with serving() as other:
        other.scripts["/q"] = [Answer()]
        server.scripts["/p"] = [Answer(b"", 302, {"Location": other.url("/q")})]
        headers = {"X-Api-Key": "${TOY_KEY}"}
        fetch(tmp_path, Get(server.url("/p"), headers=headers, bearer_env="TOY_KEY"))
        assert SECRET not in str(other.asked)
        leak = server.url("/p").replace("/p", "/leak")
        server.scripts["/leak"] = lambda asked: Answer(
            b"", 302, {"Location": other.url("/q?" + asked.target.partition("?")[2])}
        )
        with pytest.raises(Refused, match="hand a key"):
            fetch(tmp_path, Get(leak, params={"k": "${TOY_KEY}"}))
        assert other.count("/q") == 1


def test_only_https_is_asked_beyond_loopback(tmp_path: Path) -> None:
    for url in ("http://prices.example/", "ftp://prices.example/", "prices.example", "http://[::1"):
        with pytest.raises(Refused):
            fetch(tmp_path, Get(url))


# --- conditional requests ---


def versioned(asked: Asked) -> Answer:
    if asked.headers.get("if-none-match") == '"v1"':
        return Answer(b"", 304)
    return Answer(b"[1]", headers={"ETag": '"v1"', "X-Total-Count": "7"})


def test_not_modified_reuses_the_archived_bytes(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = versioned
    request = Get(server.url("/p"))
    _, first = fetch(tmp_path, request, run_id="a")
    for run_id in ("b", "c"):
        page, again = fetch(tmp_path, request, run_id=run_id)
        assert (again.status, again.from_cache, again.sha256) == (304, True, first.sha256)
        assert again.size_bytes == first.size_bytes
        assert page.json() == [1]
        assert page.headers["x-total-count"] == "7"
        assert again.fetched_at > first.fetched_at
        assert read_pages(tmp_path / run_id / "toy")["prices"][0].json() == [1]


def test_last_modified_is_sent_back(server: Server, tmp_path: Path) -> None:
    date = "Sat, 22 Aug 2026 00:00:00 GMT"
    request = ask(server, Answer(b"[1]", headers={"Last-Modified": date}), Answer(b"", 304))
    fetch(tmp_path, request, run_id="a")
    page, fetched = fetch(tmp_path, request, run_id="b")
    assert server.asked[1].headers["if-modified-since"] == date
    assert fetched.from_cache
    assert page.json() == [1]


def test_a_damaged_or_missing_archive_file_is_asked_anew(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = versioned
    request = Get(server.url("/p"))
    path = tmp_path / fetch(tmp_path, request, run_id="a")[1].archive_path
    path.write_bytes(gzip.compress(b"[2]"))
    path = tmp_path / fetch(tmp_path, request, run_id="b")[1].archive_path
    path.write_bytes(path.read_bytes()[:-9])
    path = tmp_path / fetch(tmp_path, request, run_id="c")[1].archive_path
    path.unlink()
    page, fetched = fetch(tmp_path, request, run_id="d")
    assert page.json() == [1]
    assert not fetched.from_cache
    assert not any("if-none-match" in asked.headers for asked in server.asked)


def test_another_request_of_the_same_name_is_not_conditional(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/p"] = versioned
    fetch(tmp_path, Get(server.url("/p")), run_id="a")
    _, fetched = fetch(tmp_path, Get(server.url("/p"), params={"region": "x"}), run_id="b")
    assert not fetched.from_cache


def test_an_unasked_304_is_a_failure(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BadStatus, match="304"):
        fetch(tmp_path, ask(server, Answer(b"", 304)))


def test_a_second_try_of_a_run_clears_the_first(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]

    async def go() -> None:
        async with Fetcher(tmp_path, "r", {}, FAST) as fetcher:
            for number in (1, 2, 3):
                await fetcher.fetch(PROVIDER, "prices", number, Get(server.url("/p")))
            fetcher.archive.note_failure("toy", "prices", "broke off")
            await fetcher.fetch(PROVIDER, "other", 1, Get(server.url("/p")))
            await fetcher.fetch(PROVIDER, "prices", 1, Get(server.url("/p")))

    asyncio.run(go())
    assert archived(tmp_path) == [
        f"r/toy/{name}" for name in ("observed_at", "other.1.json.gz", "prices.1.json.gz")
    ]


# --- keys ---


def test_keys_are_sent_and_kept_nowhere(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.scripts["/p"] = [Answer(b"", 503), Answer(headers={"ETag": "1"})]
    server.scripts["/no"] = [Answer(b"", 403)]
    parts: dict[str, Any] = {
        "params": {"k": "${TOY_KEY}", "page": "1"},
        "headers": {"X-Api-Key": "${TOY_KEY}"},
        "bearer_env": "TOY_KEY",
    }
    with caplog.at_level(logging.DEBUG):
        page, fetched = fetch(tmp_path, Get(server.url("/p"), **parts))
        with pytest.raises(BadStatus) as caught:
            fetch(tmp_path, Get(server.url("/no"), **parts), name="no")
    asked = server.asked[0]
    assert asked.headers["authorization"] == f"Bearer {SECRET}"
    assert asked.headers["x-api-key"] == SECRET
    assert "s3cr3t" in asked.target
    files = "".join(
        gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        for path in tmp_path.rglob("*")
        if path.is_file()
    )
    told = f"{fetched} {page} {caplog.text} {files} {caught.value} {caught.value.args}"
    assert "s3cr3t" not in told
    assert "***" in fetched.url
    assert "page=1" in fetched.url
    assert str(caught.value).endswith("is the key in TOY_KEY right?")


def test_an_answer_that_repeats_the_key_is_not_archived(server: Server, tmp_path: Path) -> None:
    for body in (f'["{SECRET}"]'.encode(), b" " * 60_000 + SECRET.encode() + b" " * 60_000):
        server.scripts["/p"] = [Answer(body)]
        with pytest.raises(Refused, match="repeats a key"):
            fetch(tmp_path, Get(server.url("/p"), bearer_env="TOY_KEY"))
    server.scripts["/p"] = [Answer(headers={"X-Echo": SECRET, "ETag": "1", "Set-Cookie": "a=b"})]
    page, _ = fetch(tmp_path, Get(server.url("/p"), bearer_env="TOY_KEY"))
    assert page.headers["x-echo"] == "***"
    assert "set-cookie" not in page.headers
    meta = tmp_path / ".latest/toy/prices.1.json.meta"
    assert SECRET not in meta.read_text()


def test_a_key_that_no_header_can_hold_is_not_shown(server: Server, tmp_path: Path) -> None:
    async def go(key: str) -> None:
        async with Fetcher(tmp_path, "r", {"TOY_KEY": key}, FAST) as fetcher:
            request = Get(server.url("/p"), bearer_env="TOY_KEY")
            await fetcher.fetch(PROVIDER, "prices", 1, request)

    for key in ("abc\ndef", "schlüssel", "a\x00b"):
        with pytest.raises(MissingKey, match="set TOY_KEY anew: its value holds") as caught:
            asyncio.run(go(key))
        assert key not in str(caught.value)


def test_a_missing_key_says_which_variable_to_set(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]
    with pytest.raises(MissingKey, match="set OTHER_KEY to collect Toy Cloud"):
        fetch(tmp_path, Get(server.url("/p"), bearer_env="OTHER_KEY"))
    assert not server.asked


def test_a_page_cannot_name_other_variables(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer()]
    with pytest.raises(Refused, match="no key of Toy Cloud"):
        fetch(tmp_path, Get(server.url("/p"), params={"next": "${AWS_SECRET_ACCESS_KEY}"}))
    assert not server.asked


def test_key_like_parameters_are_scrubbed_and_page_tokens_kept() -> None:
    url = "https://u:pw@h.example/a?api_key=1&apikey=2&pageToken=3&X-Amz-Signature=4&token=5#f"
    assert scrub(url) == (
        "https://h.example/a?api_key=***&apikey=***&pageToken=3&X-Amz-Signature=***&token=***#f"
    )


# --- the archive ---


def test_request_names_that_the_layout_cannot_hold_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "a.b", "", "a/b", "-a"):
        with pytest.raises(ValueError, match="request name"):
            fetch(tmp_path, Get("https://x.example"), name=name)


def test_a_kill_during_the_write_leaves_no_partial_page(server: Server, tmp_path: Path) -> None:
    server.scripts["/p"] = [Answer(b"[" + b"1, " * 10_000 + b"1]", drip_seconds=0.005)]
    code = textwrap.dedent(f"""
        import asyncio, pathlib
        from scrapers.fetch import Fetcher
        from scrapers.pages import Get, Provider
        async def go():
            async with Fetcher(pathlib.Path({str(tmp_path)!r}), "r", {{}}) as fetcher:
                await fetcher.fetch(Provider("toy", "", ""), "prices", 1, Get({server.url("/p")!r}))
        asyncio.run(go())
    """)
    child = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[1])
    folder = tmp_path / "r/toy"
    deadline = time.monotonic() + 20
    while not (folder.is_dir() and list(folder.glob(".part-*")) and server.asked):
        assert time.monotonic() < deadline
        time.sleep(0.01)  # polls for the other process's first byte, up to the deadline
    time.sleep(0.05)  # the server drips for over two minutes: the kill falls inside the write
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert read_pages(folder) == {}
    server.scripts["/p"] = [Answer(b"[1]")]
    page, _ = fetch(tmp_path, Get(server.url("/p")), run_id="r")
    assert page.json() == [1]
