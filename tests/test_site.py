"""The static page: what it shows, that it trusts no provider's text, and that it asks nobody."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from selectolax.lexbor import LexborHTMLParser

from dashboards import site
from tests.browser import open_page
from warehouse.ledger import Ledger, Observation
from warehouse.publish import PLAN_COLUMNS, publish
from warehouse.reader import open_published

NOW = datetime.now(UTC).replace(microsecond=0)
SEEN = NOW - timedelta(hours=5)
BASELINE_SEEN = datetime(2026, 1, 31, 12, tzinfo=UTC)
SCRIPT = "<script>alert(1)</script>"
BREAKOUT = '"</script><img src=x onerror=alert(2)>'
JOB = "llama-3.1-8b-qlora-10m"
OTHER_JOB = "llama-2-7b-qlora-9m"
# Hours of one H100; eight are eight times as fast, an L4 twenty times as slow.
JOB_HOURS = {JOB: 2.0, OTHER_JOB: 7.0}
GPU_FACTOR = {"H100-80GB-SXM": 1.0, "L4-24GB": 20.0}


def offer(sku: str, price: str, **other: Any) -> dict[str, Any]:
    return {
        "sku": sku,
        "region": "eu-1",
        "market": "on_demand",
        "gpu_label": "H100 SXM",
        "gpu_count": Decimal(1),
        "gpu_memory_gib": Decimal(80),
        "price_per_hour": Decimal(price),
        "currency": "USD",
        "billing_increment_seconds": 1,
        "is_available": True,
    } | other


L4 = {"gpu_label": "L4", "gpu_memory_gib": Decimal(24)}


def plan(machines: Sequence[tuple[str, float]]) -> Iterable[Mapping[str, Any]]:
    """Plan two jobs by hand; every other job runs nowhere."""
    for job, alone in JOB_HOURS.items():
        for gpu, count in machines:
            hours = alone * GPU_FACTOR[gpu] / count
            yield dict.fromkeys(PLAN_COLUMNS) | {
                "job": job,
                "gpu": gpu,
                "gpu_count": count,
                "nodes": 1,
                "fits": True,
                "hours_low": hours / 2,
                "hours": hours,
                "hours_high": hours * 2,
                "checkpoint_gib": 0.1,
                "weights_download_gib": 0.0,
                "output_gib": 0.1,
            }


def publish_file(data: Path, *observations: tuple[str, Observation]) -> Path:
    with Ledger(data / "ledger.duckdb") as ledger:
        for kind, observation in observations:
            ledger.start_run(kind, datetime.now(UTC), "0")  # type: ignore[arg-type]
            assert ledger.keep(observation).status == observation.status
        publish(ledger, data / "prices.duckdb", plan, published_at=NOW, version="9.9")
    return data


def live(provider: str, offers: Sequence[dict[str, Any]], at: datetime, **other: Any) -> Any:
    return "live", Observation(provider, "", "ok", at, offers=offers, **other)


def days_ago(days: int) -> datetime:
    return SEEN - timedelta(days=days)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    twenty_regions = [offer("l4", f"0.{60 + n}", region=f"r{n}", **L4) for n in range(20)]
    amazon = offer("p5", "9.00", region=BREAKOUT)
    hostile = offer(SCRIPT, "3.00", region=BREAKOUT, tier="<b>bold</b>")
    return publish_file(
        tmp_path_factory.mktemp("published"),
        ("baseline", Observation("aws", "", "ok", BASELINE_SEEN, offers=[amazon])),
        # Read on three days, then not for five, then again; cheaper every time.
        live("runpod", [offer("h100", "4.00"), *twenty_regions], days_ago(20)),
        live("runpod", [offer("h100", "3.50"), *twenty_regions], days_ago(19)),
        live("runpod", [offer("h100", "3.00"), *twenty_regions], days_ago(18)),
        live("runpod", [offer("h100", "2.50"), *twenty_regions], days_ago(13)),
        live("runpod", [offer("h100", "2.00"), *twenty_regions], SEEN),
        live(
            "scaleway",
            [
                offer("h100-8", "40.00", gpu_count=Decimal(8)),
                offer("h100-spot", "0.80", market="spot"),
                offer("h100-sold-out", "0.10", is_available=False),
                offer("h100-slice", "0.05", gpu_count=Decimal("0.5")),
            ],
            SEEN,
            rejects=[{"reason": "price", "detail": "zero", "raw": "{}"}],
        ),
        live("evil<i>", [hostile], SEEN, source_url="javascript:alert(3)"),
        (
            "live",
            Observation("evil<i>", "", "failed", SEEN, error=f"answered {SCRIPT} after 3 tries"),
        ),
    )


@pytest.fixture(scope="module")
def connection(data: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_published(data) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(connection: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site.write_site(connection, tmp_path_factory.mktemp("out") / "a new" / "folder")


@pytest.fixture(scope="module")
def html(page: Path) -> LexborHTMLParser:
    return LexborHTMLParser(page.read_text(encoding="utf-8"))


def text(node: Any) -> str:
    return " ".join(node.text().split())


def ranking(html: LexborHTMLParser, job: str) -> list[tuple[str, str, str]]:
    """Return machine, provider and likely cost of each line of a job's table."""
    return [
        tuple(text(row.css_first(f".{part}")) for part in ("name", "provider", "figure"))  # type: ignore[misc]
        for row in html.css(f'[id="job-{job}"] tbody tr')
    ]


# Likely order by the quoted prices: 2 h of H100 at 0.80 (spot), 2.00, 3.00, then a quarter of an
# hour of eight at 40.00, 40 h of L4 at 0.60 and two hours at 9.00.
EXPECTED = [
    ("1 × H100-80GB-SXM", "Scaleway"),
    ("1 × H100-80GB-SXM", "RunPod"),
    ("1 × H100-80GB-SXM", "evil<i>"),
    ("8 × H100-80GB-SXM", "Scaleway"),
    ("1 × H100-80GB-SXM", "Amazon Web Services"),
    ("1 × L4-24GB", "RunPod"),
]


# --- what it shows ----------------------------------------------------------------------------


def test_the_ranking_is_readable_without_a_script(html: LexborHTMLParser) -> None:
    assert [row[:2] for row in ranking(html, JOB)] == EXPECTED
    first = html.css_first(".job")
    assert first.attributes["id"] == f"job-{JOB}"
    assert "default" in (first.attributes["class"] or "")


def test_its_figures_are_those_of_the_mart(
    connection: duckdb.DuckDBPyConnection, html: LexborHTMLParser
) -> None:
    for job in JOB_HOURS:
        costs = connection.execute(
            """
            select min_by(cost_usd_low, cost_usd), min(cost_usd), min_by(cost_usd_high, cost_usd),
                min_by(hours, cost_usd)
            from marts.cost_per_job
            where job = ? and is_eligible
            group by provider, gpu, market order by 2
            """,
            [job],
        ).fetchall()
        rows = html.css(f'[id="job-{job}"] tbody tr')
        assert len(rows) == len(costs) == len(EXPECTED)
        for row, (low, likely, high, hours) in zip(rows, costs, strict=True):
            assert text(row.css_first(".cost")) == (
                f"{site.write_usd(likely)}{site.write_usd(low)} – {site.write_usd(high)}"
            )
            assert text(row.css_first("td.hours")) == site.write_hours(hours)


def test_regions_of_one_machine_are_one_line(html: LexborHTMLParser) -> None:
    row = html.css(f'[id="job-{JOB}"] tbody tr')[-1]
    assert "RunPod, r0 · l4 · cheapest of 20" in text(row)


def test_a_job_that_nothing_can_run_says_so(html: LexborHTMLParser) -> None:
    article = html.css_first('[id="job-llama-3.1-70b-full-50m"]')
    assert article.css_first("table") is None
    assert "No machine now on sale" in text(article)


def test_every_job_can_be_chosen(
    connection: duckdb.DuckDBPyConnection, html: LexborHTMLParser
) -> None:
    jobs = {f"job-{job}" for (job,) in connection.execute("select job from marts.jobs").fetchall()}
    options = [option.attributes["value"] for option in html.css("#job option")]
    links = [link.attributes["href"] for link in html.css(".job-links a")]
    assert len(options) == len(jobs)
    assert options[0] == f"job-{JOB}"
    assert set(options) == jobs == {link[1:] for link in links if link}
    assert jobs == {article.attributes["id"] for article in html.css(".job")}


def test_assumed_terms_are_named(html: LexborHTMLParser) -> None:
    amazon = html.css(f'[id="job-{JOB}"] tbody tr')[4]
    evil = html.css(f'[id="job-{JOB}"] tbody tr')[2]
    assert "baseline, seen 31 Jan 2026" in text(amazon)
    assert "storage price" in text(evil.css_first(".assumed"))
    assert "$" in text(evil.css_first(".assumed"))


def test_the_cheapest_offer_of_each_gpu(html: LexborHTMLParser) -> None:
    rows = {text(row.css_first("th")): row for row in html.css(".gpus tbody tr")}
    h100 = rows["H100-80GB-SXM4 providers"].css("td")
    # A slice and a sold-out offer are cheaper, and cannot be had.
    assert "$2.000" in text(h100[0])
    assert "RunPod, eu-1" in text(h100[0])
    assert "5 h ago" in text(h100[0])
    assert "$0.800" in text(h100[1])
    assert "not offered" in text(rows["L4-24GB1 provider"].css("td")[1])


def test_provider_health_says_what_is_wrong_and_how_old_prices_are(
    html: LexborHTMLParser,
) -> None:
    rows = {text(row.css_first("th")): text(row) for row in html.css(".health tbody tr")}
    assert next(iter(rows)) == "evil<i>"
    assert "last attempt failed" in rows["evil<i>"]
    assert f"answered {SCRIPT} after 3 tries" in rows["evil<i>"]
    assert "baseline, seen 31 Jan 2026" in rows["Amazon Web Services"]
    assert "live" in rows["RunPod"]
    assert "5 h ago" in rows["RunPod"]
    assert "1 row refused" in rows["Scaleway"]


def test_the_header_says_when_and_what_is_estimated(html: LexborHTMLParser) -> None:
    header = text(html.css_first("header"))
    assert f"Published {site.write_minute(NOW)} by tunecost 9.9" in header
    assert "Prices are quoted, hours are estimated" in header


def test_history_breaks_where_nobody_looked(connection: duckdb.DuckDBPyConnection) -> None:
    rows = site.read_history(connection, ["H100-80GB-SXM"])["H100-80GB-SXM"]
    assert [(row["usd"], row["segment"], row["is_alone"]) for row in rows] == [
        (4.0, 0, False),
        (3.5, 0, False),
        (3.0, 0, False),
        (2.5, 1, True),
        (2.0, 2, True),
    ]
    assert [row["day"] for row in rows] == [days_ago(days).date() for days in (20, 19, 18, 13, 0)]


def test_the_baseline_is_no_part_of_the_line(connection: duckdb.DuckDBPyConnection) -> None:
    circles = site.read_baseline(connection, ["H100-80GB-SXM", "L4-24GB"])
    assert [(r["provider"], r["usd"], r["day"]) for r in circles["H100-80GB-SXM"]] == [
        ("Amazon Web Services", 9.0, BASELINE_SEEN.date())
    ]
    assert "L4-24GB" not in circles


def test_the_history_mart_keeps_its_grain(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    grain = connection.execute(
        'select count(*), count(distinct (gpu, market, "day")) from marts.gpu_price_history'
    ).fetchone()
    assert grain is not None
    assert grain[0] == grain[1] > 0


# --- what it must not do ----------------------------------------------------------------------


def test_a_providers_text_stays_text(html: LexborHTMLParser) -> None:
    evil = html.css(f'[id="job-{JOB}"] tbody tr')[2]
    assert text(evil.css_first(".sku")) == SCRIPT
    assert BREAKOUT in text(evil)
    assert "<b>bold</b>" in text(evil)
    assert not html.css("img, i, b, iframe, object, embed, base")
    elements = html.css("body *, head *")
    assert not [e.tag for e in elements if any(name.startswith("on") for name in e.attributes)]
    # The data, Vega and the page's own script; nothing that a provider wrote.
    assert len(html.css("script")) == 3
    assert "alert(" not in html.css("script")[2].text()


def test_the_charts_data_cannot_end_its_element(page: Path, html: LexborHTMLParser) -> None:
    block = html.css_first("#history-data")
    assert block.attributes["type"] == "application/json"
    data = json.loads(block.text())
    assert {row["usd"] for rows in data["series"] for row in rows} >= {2.0, 4.0, 9.0}
    assert BREAKOUT in {row["region"] for rows in data["series"] for row in rows}
    raw = page.read_text(encoding="utf-8").partition('id="history-data">')[2].partition("</")[0]
    assert "<" not in raw


def test_nothing_outside_is_referred_to(html: LexborHTMLParser) -> None:
    for element in html.css("[src], link, form, [action], [srcset], [data], [poster]"):
        assert element.tag == "link"
        assert element.attributes["href"] == "data:,"
    links = [a for a in html.css("a") if not (a.attributes["href"] or "").startswith("#")]
    assert links
    for link in links:
        assert re.match(r"https?://", link.attributes["href"] or "")
        assert link.attributes["rel"] == "noopener noreferrer"
    assert "@import" not in html.css_first("style").text()
    assert "url(" not in html.css_first("style").text()


def test_only_the_scripts_that_it_names_may_run(html: LexborHTMLParser) -> None:
    policy = html.css_first('meta[http-equiv="Content-Security-Policy"]').attributes["content"]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    allowed = re.search(r"script-src ([^;]+)", policy)
    assert allowed is not None
    hashes = [
        "'sha256-" + base64.b64encode(hashlib.sha256(s.text().encode()).digest()).decode() + "'"
        for s in html.css("script")[1:]
    ]
    assert allowed[1].split() == hashes


def test_the_page_is_small(page: Path) -> None:
    assert page.stat().st_size < 6_000_000


def test_headings_and_tables_are_named(html: LexborHTMLParser) -> None:
    levels = [int(h.tag[1]) for h in html.css("h1, h2, h3")]
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert all(table.css_first("caption") is not None for table in html.css("table"))
    ids = [e.attributes["id"] for e in html.css("[id]")]
    assert len(ids) == len(set(ids))
    assert html.css_first("html").attributes["lang"] == "en"


# --- writing ----------------------------------------------------------------------------------


def test_a_page_that_is_there_is_replaced(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text("old")
    (tmp_path / "other.txt").write_text("kept")
    page = site.write_site(connection, tmp_path)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "other.txt"]


def test_a_folder_that_cannot_be_made(
    connection: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        site.write_site(connection, tmp_path / "file" / "page")


def test_a_fault_leaves_the_old_page(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("old")
    with duckdb.connect() as empty, pytest.raises(duckdb.Error):
        site.write_site(empty, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]
    assert (tmp_path / "index.html").read_text() == "old"


def test_a_night_without_a_known_gpu(tmp_path: Path) -> None:
    strange = offer("x", "1.00", gpu_label="Quantum Toaster", gpu_memory_gib=None)
    data = publish_file(tmp_path, live("runpod", [strange], SEEN))
    with open_published(data) as opened:
        words = text(LexborHTMLParser(site.render_page(opened, NOW)).body)
    assert "No machine now on sale can run this job" in words
    assert "No offer with a known GPU is in force" in words
    assert "No price history yet" in words
    assert "1 offer of a GPU not known here" in words


# --- small parts ------------------------------------------------------------------------------


def test_one_wide_band_does_not_flatten_the_others() -> None:
    rows = [
        {"cost_usd_low": 1.0, "cost_usd": 2.0, "cost_usd_high": 3.0},
        {"cost_usd_low": 2.0, "cost_usd": 4.0, "cost_usd_high": 400.0},
    ]
    site.scale_bars(rows)
    end = 4.0 * site.BAND_LIMIT
    assert rows[0]["cost_usd_percent"] == pytest.approx(100 * 2 / end, abs=0.01)
    assert [row["is_cut"] for row in rows] == [False, True]
    assert rows[1]["cost_usd_high_percent"] == 100.0


@pytest.mark.parametrize(
    ("address", "link"),
    [
        ("https://example.org/prices", "https://example.org/prices"),
        ("http://example.org", "http://example.org"),
        ("javascript:alert(1)", None),
        (" javascript:alert(1)", None),
        ("data:text/html,x", None),
        ("file:///etc/passwd", None),
        ("//example.org", None),
        ("https://", None),
        ("http://[", None),
        ("prices.csv", None),
        (None, None),
    ],
)
def test_web_link(address: str | None, link: str | None) -> None:
    assert site.web_link(address) == link


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (site.write_usd(0.0123), "$0.0123"),
        (site.write_usd(0), "$0.00"),
        (site.write_usd(1.005), "$1.00"),
        (site.write_usd(12345.6), "$12,346"),
        (site.write_rate(0.1254), "$0.125"),
        (site.write_rate(98.5), "$98.50"),
        (site.write_hours(0.5), "30 min"),
        (site.write_hours(3.25), "3.2 h"),
        (site.write_hours(120), "5.0 days"),
        (site.write_age(None), "never"),
        (site.write_age(-0.01), "0 min ago"),
        (site.write_age(47), "47 h ago"),
        (site.write_age(24 * 1200), "1,200 days ago"),
        (site.write_day(datetime(2026, 2, 3)), "3 Feb 2026"),  # noqa: DTZ001 - as in the tables
        (site.write_tokens(10_000_000), "10M"),
        (site.write_tokens(1_500_000_000), "1.5B"),
        (site.write_tokens(512), "512"),
    ],
)
def test_words(written: str, words: str) -> None:
    assert written == words


# --- in a browser -----------------------------------------------------------------------------


@pytest.mark.browser
def test_chromium_reads_the_ranking_and_finds_no_fault(page: Path) -> None:
    with open_page(page) as opened:
        tab = opened.page
        tab.wait_for_selector(".chart svg")
        tab.wait_for_function("document.querySelectorAll('.chart svg').length === 2")

        def shown() -> list[tuple[str, str]]:
            return [
                (row.locator(".name").inner_text(), row.locator(".provider").inner_text())
                for row in tab.locator(".job:visible tbody tr").all()
            ]

        assert shown() == EXPECTED
        costs = tab.locator(".job:visible .cost .figure").all_inner_texts()
        assert costs == sorted(costs, key=lambda cost: float(cost[1:]))
        widths = tab.eval_on_selector_all(
            ".job:not([hidden]) .fill", "bars => bars.map(b => b.getBoundingClientRect().width)"
        )
        assert widths == sorted(widths)
        assert widths[0] < widths[-1]

        tab.select_option("#job", f"job-{OTHER_JOB}")
        assert tab.locator(".job:visible").count() == 1
        assert "Llama-2-7B" in tab.locator(".job:visible h3").inner_text()
        assert tab.url.endswith(f"#job-{OTHER_JOB}")
        dearer = tab.locator(".job:visible .cost .figure").all_inner_texts()
        assert float(dearer[0][1:]) > float(costs[0][1:])

        # The line of H100 is drawn in three pieces, and its baseline as one circle.
        h100 = tab.locator("figure", has_text="H100-80GB-SXM")
        lines = h100.locator(".live_marks path")
        assert lines.count() == 3
        assert h100.locator(".baseline_marks path").count() == 1
        box = h100.locator(".chart svg").bounding_box()
        assert box is not None
        assert box["width"] > 200
        assert box["height"] > 100

        # What a circle says when it is pointed at is a provider's text, too.
        h100.locator(".baseline_marks path").hover()
        tab.wait_for_selector("#vg-tooltip-element.visible")
        told = tab.locator("#vg-tooltip-element").inner_text()
        assert "2026-01-31" in told
        assert "Amazon Web Services" in told
        assert BREAKOUT in told
        assert tab.locator("img").count() == 0

        assert opened.complaints == []
        assert opened.requests == [page.resolve().as_uri()]


@pytest.mark.browser
def test_a_link_leads_to_its_job(page: Path) -> None:
    with open_page(page, fragment=f"#job-{OTHER_JOB}") as opened:
        assert "Llama-2-7B" in opened.page.locator(".job:visible h3").inner_text()
        assert opened.page.input_value("#job") == f"job-{OTHER_JOB}"


@pytest.mark.browser
def test_without_javascript_links_choose_the_job(page: Path) -> None:
    with open_page(page, java_script_enabled=False) as opened:
        tab = opened.page
        assert tab.locator(".job:visible tbody tr").count() == len(EXPECTED)
        tab.locator(".job-links summary").click()
        tab.locator(f'.job-links a[href="#job-{OTHER_JOB}"]').click()
        assert tab.locator(".job:visible").count() == 1
        assert "Llama-2-7B" in tab.locator(".job:visible h3").inner_text()
        assert not tab.locator("#job").is_visible()


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_all_in_both_schemes(page: Path, scheme: str) -> None:
    with open_page(page, width=360, height=740, color_scheme=scheme) as opened:
        tab = opened.page
        tab.wait_for_selector(".chart svg")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 360
        background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", background)[:3])) > 3 * 128
        assert light == (scheme == "light")
        assert opened.complaints == []
