"""Vast.ai: the cap of 64 offers, prices of whole offers, and places as hosts write them."""

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.errors import NotTheFormat, UnknownShape
from scrapers.offer import Offer, Reject
from scrapers.pages import Page, scope_of
from scrapers.providers import vast
from scrapers.replay import file_name, read_pages
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

NAME = "offers-H100_SXM"
CAPTURES = SHARED / "payloads" / "vast"
CASES = Path(__file__).parent / "payloads" / "vast"
TRAPS = json.loads((CASES / "row_traps" / f"{NAME}.json").read_text(encoding="utf-8"))


def offer(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "gpu_name": "H100 SXM",
        "num_gpus": 1,
        "dph_base": 1 + number / 100,
        "min_bid": None,
    } | changes


def read(*offers: Any) -> list[Any]:
    return list(vast.parse({NAME: [page_of(NAME, {"offers": list(offers)})]}))


def read_captures(*files: str) -> list[Offer]:
    pages = [Page(name=NAME, number=n, path=CAPTURES / f) for n, f in enumerate(files, 1)]
    rows = list(vast.parse({NAME: pages}))
    offers = [row for row in rows if isinstance(row, Offer)]
    assert len(offers) == len(rows)
    return offers


def test_every_gpu_is_asked_by_its_exact_name_and_is_its_own_scope() -> None:
    assert len(vast.REQUESTS) == len(set(vast.GPUS)) == len(vast.GPUS) > 50
    for (name, ask), gpu in zip(vast.REQUESTS.items(), vast.GPUS, strict=True):
        assert ask.body["gpu_name"] == {"eq": gpu}
        assert scope_of(name).replace("_", " ") == gpu
        assert ask.body["order"] == [["dph_total", "asc"]]
    assert "offers-RTX_PRO_6000_Max-Q" in vast.REQUESTS


def test_a_request_name_survives_the_replay_layout(tmp_path: Path) -> None:
    for name in vast.REQUESTS:
        (tmp_path / file_name(name, 1, "json")).write_text("[]")
    assert set(read_pages(tmp_path)) == set(vast.REQUESTS)


@pytest.mark.parametrize(("count", "is_full"), [(0, False), (63, False), (64, True), (70, True)])
def test_follow_asks_from_the_dear_end_only_after_a_full_page(count: int, is_full: bool) -> None:
    page = page_of(NAME, {"offers": [offer(n) for n in range(count)]})
    asked = vast.follow(NAME, page)
    assert (asked is not None) == is_full
    if asked:
        assert asked.body == vast.REQUESTS[NAME].body | {"order": [["dph_total", "desc"]]}


def test_follow_ends_after_the_second_page() -> None:
    page = page_of(NAME, {"offers": [offer(n) for n in range(64)]}, number=2)
    assert vast.follow(NAME, page) is None


@given(st.integers(0, 300))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_listing_is_flagged_exactly_when_the_two_ends_do_not_meet(size: int) -> None:
    book = [offer(n) for n in range(1, size + 1)]
    pages = [page_of(NAME, {"offers": book[:64]})]
    if vast.follow(NAME, pages[0]):
        pages.append(page_of(NAME, {"offers": book[::-1][:64]}, number=2))
    rows = list(vast.parse({NAME: pages}))
    flags = [row for row in rows if isinstance(row, Reject)]
    assert [flag.reason for flag in flags] == ["truncated listing"] * (size >= 128)
    assert len(rows) - len(flags) == min(size, 128)


def test_a_full_page_without_the_other_end_is_flagged_and_keeps_its_rows() -> None:
    rows = read(*(offer(n) for n in range(1, 65)))
    assert [row.reason for row in rows if isinstance(row, Reject)] == ["truncated listing"]
    assert sum(isinstance(row, Offer) for row in rows) == 64


def test_a_short_second_page_means_that_the_book_shrank_and_is_whole() -> None:
    first = page_of(NAME, {"offers": [offer(n) for n in range(1, 65)]})
    second = page_of(NAME, {"offers": [offer(900)]}, number=2)
    assert not [r for r in vast.parse({NAME: [first, second]}) if isinstance(r, Reject)]


def test_a_zero_or_missing_price_is_never_an_offer() -> None:
    assert [row.reason for row in read(offer(1, dph_base=0))] == ["zero price"]
    assert [row.reason for row in read(offer(1, dph_base=None))] == ["no price"]
    assert [row.reason for row in read(offer(1, dph_base=0, min_bid=0))] == ["zero price"]


def test_spot_is_the_least_bid_for_the_whole_offer_even_when_dearer() -> None:
    on_demand, spot = read(offer(1, num_gpus=8, dph_base=15.47, min_bid=19.2))
    assert (on_demand.market, on_demand.price_per_hour) == ("on_demand", Decimal("15.47"))
    assert (spot.market, spot.price_per_hour) == ("spot", Decimal("19.2"))


def test_a_bid_answer_gives_no_on_demand_row() -> None:
    assert [row.market for row in read(offer(1, is_bid=True, min_bid=0.5))] == ["spot"]


def test_float_noise_is_rounded_to_nano_dollars() -> None:
    assert read(offer(1, dph_base=15.000000000000002))[0].price_per_hour == Decimal(15)


@pytest.mark.parametrize(
    ("geolocation", "region"),
    [
        ("Japan, JP", "Japan, JP"),
        (", US", "US"),
        (None, "unknown"),
        ("", "unknown"),
        (" , ", "unknown"),
    ],
)
def test_regions_are_the_places_that_hosts_state(geolocation: Any, region: str) -> None:
    assert read(offer(1, geolocation=geolocation))[0].region == region


def test_a_malformed_row_is_one_reject_and_a_cpu_row_is_none() -> None:
    rows = read(offer(1, gpu_name=None, min_bid=0.5), offer(2, num_gpus=0), offer(3))
    assert [type(row).__name__ for row in rows] == ["Reject", "Offer"]


def test_a_refusal_with_status_200_is_an_error() -> None:
    with pytest.raises(UnknownShape, match="offers"):
        list(vast.parse({NAME: [page_of(NAME, {"success": False, "msg": "Invalid user key"})]}))
    with pytest.raises(NotTheFormat):
        list(vast.parse({NAME: [Page(name=NAME, body=b'{"offers": [{"id": 1')]}))


@given(damage)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_answers_give_valid_rows_rejects_or_our_errors(changes: list[Any]) -> None:
    pages = {NAME: [page_of(NAME, apply(TRAPS, changes)), page_of(NAME, TRAPS, number=2)]}
    assert_typed(vast.parse, pages)


@needs_evidence
def test_captured_prices_equal_what_each_answer_restates() -> None:
    """The answers state each price twice: `search.gpuCostPerHour`, and traffic per 1024 GB.

    No tracker in the evidence has Vast rows of the same day to compare with.
    """
    files = sorted(p.name for p in CAPTURES.glob("capture_*.json"))
    compared = 0
    for file in files:
        stated = json.loads((CAPTURES / file).read_text(encoding="utf-8"), parse_float=Decimal)
        stated = stated if isinstance(stated, list) else stated["offers"]
        rows = {(row.sku, str(row.market)): row for row in read_captures(file)}
        assert len(rows) == 2 * len(stated)
        nano, tb = Decimal("1e-9"), Decimal(1024)
        for source in stated:
            for market, price in [
                ("on_demand", source["search"]["gpuCostPerHour"]),
                ("spot", source["min_bid"]),
            ]:
                row = rows[str(source["id"]), market]
                assert abs(row.price_per_hour - Decimal(price)) < nano
                for fee, per_tb in [
                    (row.egress_price_per_gb, source["internet_up_cost_per_tb"]),
                    (row.ingress_price_per_gb, source["internet_down_cost_per_tb"]),
                ]:
                    assert fee is not None
                    assert abs(fee * tb - Decimal(per_tb)) < tb * nano
                compared += 3
    assert compared == 84
    print(f"vast: {compared} figures compared in {len(files)} captures")


@needs_evidence
def test_captured_fees_span_the_range_in_the_provider_terms() -> None:
    """facts/provider_terms.csv notes the least and the most over five offers (H100 SXM, B300)."""
    rows = read_captures(
        "capture_bundles_h100_sxm_asc_2026-08.trimmed.json",
        "capture_bundles_b300_asc_2026-08.json",
    )
    with (SHARED / "facts" / "provider_terms.csv").open(encoding="utf-8") as file:
        terms = [t for t in csv.reader(file) if t[0] == "vast" and "five offers" in t[4]]
    fields = {
        "block_storage_usd_per_gb_month": "storage_price_per_gb_month",
        "egress_usd_per_gb": "egress_price_per_gb",
        "ingress_usd_per_gb": "ingress_price_per_gb",
    }
    for _, key, value, *_, remark in terms:
        end = min if "lowest of the offers" in remark else max
        found = end(getattr(row, fields[key]) for row in rows)
        assert found.quantize(Decimal(value)) == Decimal(value), key
    assert len(terms) == 6
    print(f"vast: {len(terms)} figures of provider_terms.csv compared")


@needs_evidence
def test_the_documented_example_is_one_object() -> None:
    rows = read_captures("docs_sample_search_offers_openapi.json")
    assert [(r.market, r.price_per_hour) for r in rows] == [
        ("on_demand", Decimal("0.123456")),
        ("spot", Decimal("0.111111")),
    ]


@needs_evidence
@given(damage)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_damaged_captures_give_valid_rows_rejects_or_our_errors(changes: list[Any]) -> None:
    capture = json.loads(
        (CAPTURES / "capture_bundles_b300_asc_2026-08.json").read_text(encoding="utf-8")
    )
    assert_typed(vast.parse, {NAME: [page_of(NAME, apply(capture, changes))]})


def test_the_same_full_page_twice_is_one_end_only() -> None:
    """A server that ignores the direction shows its cheap end again."""
    full = [{"id": n, "num_gpus": 0} for n in range(vast.PAGE_CAP)]
    pages = [page_of("offers-L4", {"offers": full}), page_of("offers-L4", {"offers": full})]
    rows = list(vast.parse({"offers-L4": pages}))
    assert [row.reason for row in rows if isinstance(row, Reject)] == ["truncated listing"]
    pages[1] = page_of("offers-L4", {"offers": full[::-1]})  # exactly as many as a page holds
    assert list(vast.parse({"offers-L4": pages})) == []
