"""Scaleway: paging, minutes against hours, two sources of one price, and damaged answers."""

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.errors import NotTheFormat, UnknownShape
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Get, Page
from scrapers.providers import scaleway
from scrapers.replay import by_scope
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "scaleway"
CASES = Path(__file__).parent / "payloads" / "scaleway"
TRAPS = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in (CASES / "contradictions").glob("*.json")
} | {"availability-zx-alp-1": {"servers": {"J-ROUNDED": {"availability": "available"}}}}
ZONE = "zx-alp-1"


def server(**changes: Any) -> dict[str, Any]:
    return {
        "gpu": 2,
        "gpu_info": {"gpu_name": "Q9", "gpu_memory": 2**35},
        "mig_profile": None,
        "ncpus": 8,
        "ram": 2**36,
        "hourly_price": 3.0,
        "end_of_service": False,
    } | changes


def product(units: int, nanos: int, unit: str, **changes: Any) -> dict[str, Any]:
    return {
        "product": "Q9-2",
        "product_category": "Instance",
        "locality": {"zone": ZONE},
        "price": {"retail_price": {"currency_code": "EUR", "units": units, "nanos": nanos}},
        "unit_of_measure": {"unit": unit, "size": 1},
    } | changes


def read(row: Any, *products: Any, state: str | None = None, **catalog: Any) -> list[Any]:
    pages = {f"servers-{ZONE}": [page_of(f"servers-{ZONE}", {"servers": {"Q9-2": row}})]}
    if products or catalog:
        pages["catalog"] = [page_of("catalog", {"products": products} | catalog)]
    if state:
        stock = {"servers": {"Q9-2": {"availability": state}}}
        pages[f"availability-{ZONE}"] = [page_of(f"availability-{ZONE}", stock)]
    return list(scaleway.parse(pages))


def capture(name: str, number: int, file: str) -> Page:
    return Page(name=name, number=number, path=CAPTURES / file)


def servers_of(zone: str, *files: str) -> list[Page]:
    return [capture(f"servers-{zone}", n, f"capture_products_servers_{f}.json") for n, f in
            enumerate(files, 1)]  # fmt: skip


def catalog_of(*files: str) -> list[Page]:
    return [
        capture("catalog", n, f"capture_public_catalog_{f}.json") for n, f in enumerate(files, 1)
    ]


PAR_2 = [f"fr-par-2_page{n}_2026-07-30" for n in (1, 2, 3)]


def listing(name: str, rows: int, number: int = 1, total: int | None = None) -> Page:
    if name == "catalog":
        return page_of(name, {"products": [{}] * rows, "total_count": total}, number)
    page = page_of(name, {"servers": {f"T-{n}": {} for n in range(rows)}}, number)
    headers = {} if total is None else {"x-total-count": str(total)}
    return Page(name=name, number=number, body=page.body, headers=headers)


@pytest.mark.parametrize(
    ("page", "next_page"),
    [
        (listing("servers-fr-par-2", 100, 1, 135), 2),
        (listing("servers-fr-par-2", 35, 2, 135), None),
        (listing("servers-fr-par-2", 100, 1, 100), None),
        (listing("servers-fr-par-2", 50, 1, 135), 2),  # a smaller page than was asked for
        (listing("servers-fr-par-2", 100), 2),  # replayed: nothing but the count of rows to go by
        (listing("servers-fr-par-2", 50), None),
        (listing("servers-fr-par-2", 0, 3, 500), None),  # an empty page ends any walk
        (listing("availability-fr-par-2", 100, 1, 101), 2),
        (listing("catalog", 100, 1, 250), 2),
        (listing("catalog", 100, 2, 250), 3),
        (listing("catalog", 50, 3, 250), None),
        (listing("catalog", 96, 1, 96), None),
    ],
)
def test_pages_are_followed_to_the_stated_total(page: Page, next_page: int | None) -> None:
    request = scaleway.follow(page.name, page)
    assert (request is None) == (next_page is None)
    if request is not None:
        assert request.url.endswith(f"page={next_page}")
        assert request.url.split("page=")[0] == scaleway.REQUESTS[page.name].url.split("page=")[0]


def test_every_zone_is_a_scope_with_servers_and_stock_and_shares_the_catalogue() -> None:
    names = {name: [page_of(name, {})] for name in scaleway.REQUESTS}
    scopes = by_scope(names)
    assert len(scopes) == 10
    for zone, pages in scopes.items():
        assert sorted(pages) == sorted(["catalog", f"servers-{zone}", f"availability-{zone}"])
    assert all(isinstance(request, Get) for request in scaleway.REQUESTS.values())


def test_only_a_price_per_minute_is_multiplied_by_sixty() -> None:
    (minute,) = read(server(), product(0, 50_000_000, "minute"))
    (hour,) = read(server(), product(3, 0, "hour"))
    assert (minute.price_per_hour, minute.billing_increment_seconds) == (Decimal(3), 60)
    assert (hour.price_per_hour, hour.billing_increment_seconds) == (Decimal(3), 3600)


def test_a_minute_read_as_an_hour_is_a_contradiction_not_a_price() -> None:
    (row,) = read(server(), product(0, 50_000_000, "hour"))
    assert isinstance(row, Reject)
    assert row.reason == "price disagrees"


def test_rounding_to_a_nano_euro_per_minute_is_no_contradiction() -> None:
    (row,) = read(server(hourly_price=1.0), product(0, 16_666_667, "minute"))
    assert row.price_per_hour == Decimal(1)


def test_each_source_does_alone() -> None:
    (without_catalogue,) = read(server())
    assert without_catalogue.price_per_hour == Decimal(3)
    assert without_catalogue.billing_increment_seconds is None
    (without_price,) = read(server(hourly_price=None), product(0, 50_000_000, "minute"))
    assert without_price.price_per_hour == Decimal(3)


@pytest.mark.parametrize(("price", "reason"), [(0, "zero price"), (None, "no price")])
def test_nothing_is_free(price: Any, reason: str) -> None:
    (row,) = read(server(hourly_price=price))
    assert row.reason == reason


@pytest.mark.parametrize(
    ("state", "is_available"),
    [("available", True), ("scarce", True), ("shortage", False), ("soon", None), (None, None)],
)
def test_stock_is_said_or_unknown(state: str | None, is_available: bool | None) -> None:
    (row,) = read(server(), state=state)
    assert row.is_available is is_available


@pytest.mark.parametrize(
    "row",
    [server(gpu=0, gpu_info=None), server(gpu=None, gpu_info=None), server(end_of_service=True)],
)
def test_cpu_types_and_retired_ones_are_left_out(row: Any) -> None:
    assert read(row) == []


def test_memory_is_per_gpu_and_the_region_is_the_zone_without_its_number() -> None:
    (row,) = read(server())
    assert (row.gpu_count, row.gpu_memory_gib, row.memory_gib) == (2, 32, 64)
    assert (row.region, row.zone) == ("zx-alp", ZONE)


def test_storage_is_per_hour_and_other_zones_are_not_ours() -> None:
    volume = product(
        0, 120_000, "gigabyte", product="Block Storage Volume X", variant="X - zx-alp-1"
    )
    elsewhere = volume | {"locality": {"zone": "zx-alp-2"}}
    rows = read(server(), volume, elsewhere)
    (fee,) = [row for row in rows if isinstance(row, Fee)]
    assert (fee.price, fee.unit, fee.kind) == (Decimal("0.0876"), "gb_month", "block_storage")
    (unclear,) = [
        row
        for row in read(server(), volume | {"unit_of_measure": {"unit": "iops_gigabyte"}})
        if not isinstance(row, Offer)
    ]
    assert unclear.reason == "unreadable row"


def test_a_catalogue_that_says_it_holds_more_is_truncated() -> None:
    rows = read(server(), product(3, 0, "hour"), total_count=96)
    assert [row.reason for row in rows if isinstance(row, Reject)] == ["truncated listing"]
    assert any(isinstance(row, Offer) for row in rows)


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"servers": []}', b'{"servers": null}', b"3"])
def test_an_unknown_envelope_fails_loudly(body: bytes) -> None:
    with pytest.raises(UnknownShape):
        list(scaleway.parse({f"servers-{ZONE}": [Page(name=f"servers-{ZONE}", body=body)]}))


def test_an_error_page_with_status_200_is_not_a_list() -> None:
    with pytest.raises(NotTheFormat):
        list(scaleway.parse({"catalog": [Page(name="catalog", body=b"<html>Oops</html>")]}))


@needs_evidence
def test_both_endpoints_state_the_same_prices_in_the_captures() -> None:
    """Unit by unit: most GPU types are quoted per minute, RENDER-S per hour."""
    compared = {}
    for zone, servers, catalog in (
        ("fr-par-1", ["fr-par-1_2026-07-30.trimmed"], ["instances_fr-par-1_2026-07-01"]),
        ("fr-par-2", PAR_2, ["h100-sxm-2-80g_fr-par-2_2026-07-30"]),
        ("pl-waw-2", ["pl-waw-2_2026-07-30.trimmed"], ["l4-1-24g_pl-waw-2_2026-07-30"]),
    ):
        rows = list(
            scaleway.parse(
                {f"servers-{zone}": servers_of(zone, *servers), "catalog": catalog_of(*catalog)}
            )
        )
        assert not [row for row in rows if isinstance(row, Reject)]
        compared |= {
            (zone, row.sku): row.billing_increment_seconds
            for row in rows
            if isinstance(row, Offer) and row.billing_increment_seconds
        }
    print(f"scaleway: {len(compared)} prices stated by both endpoints, all equal")
    assert len(compared) == 7
    assert compared["fr-par-1", "RENDER-S"] == 3600
    assert set(compared.values()) == {60, 3600}


@needs_evidence
def test_prices_of_different_dates_contradict_each_other() -> None:
    """The servers of 2025-11 (L4 0.75, RENDER-S 1.2426) beside the catalogue of 2026-07."""
    rows = scaleway.parse(
        {
            "servers-fr-par-1": servers_of("fr-par-1", "fr-par-1_2025-11-04.trimmed"),
            "catalog": catalog_of("instances_fr-par-1_2026-07-01"),
        }
    )
    assert [row.reason for row in rows] == ["price disagrees"] * 5  # type: ignore[union-attr]


@needs_evidence
def test_prices_match_another_tracker_at_one_exchange_rate() -> None:
    """gpurentalprices.com (CC BY 4.0) read Scaleway's page on the day of the captures, in USD."""
    history = SHARED / "history" / "gpurentalprices" / "offers_2026-07-05_2026-08-22.csv.gz"
    with gzip.open(history, "rt", encoding="utf-8") as stream:
        usd = {
            row["gpu"]: Decimal(row["usd_per_gpu_hr"])
            for row in csv.DictReader(stream)
            if (row["snapshot_date"], row["provider"]) == ("2026-07-30", "scaleway")
        }
    pages = {"servers-fr-par-2": servers_of("fr-par-2", *PAR_2)}
    offers = {row.sku: row for row in scaleway.parse(pages) if isinstance(row, Offer)}
    assert len(offers) == 17
    sku_of = {"l4": "L4-1-24G", "b300": "B300-SXM-8-288G", "h100": "H100-1-80G",
              "h100-sxm": "H100-SXM-2-80G", "l40s": "L40S-1-48G"}  # fmt: skip
    eur = {gpu: offers[sku].price_per_hour / offers[sku].gpu_count for gpu, sku in sku_of.items()}
    rate = usd["b300"] / eur["b300"]
    assert {gpu: round(price * rate, 4) for gpu, price in eur.items()} == usd
    print(f"scaleway: {len(usd)} prices of 2026-07-30 agree at {rate} USD per EUR")


@needs_evidence
def test_stock_is_read_from_the_captures() -> None:
    availability = [
        capture("availability-fr-par-2", n, f"capture_products_servers_availability_{f}.json")
        for n, f in enumerate(PAR_2, 1)
    ]
    pages = {
        "servers-fr-par-2": servers_of("fr-par-2", *PAR_2),
        "availability-fr-par-2": availability,
    }
    offers = [row for row in scaleway.parse(pages) if isinstance(row, Offer)]
    assert {offer.is_available for offer in offers} == {True, False}
    assert all(scaleway.follow(page.name, page) is None for pages_ in pages.values()
               for page in pages_)  # fmt: skip


def check_damaged(documents: dict[str, Any]) -> None:
    assert_typed(scaleway.parse, {name: [page_of(name, doc)] for name, doc in documents.items()})


@given(damage, st.sampled_from(sorted(TRAPS)))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_answers_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], name: str
) -> None:
    check_damaged(TRAPS | {name: apply(TRAPS[name], changes)})


@pytest.mark.slow
@given(damage, st.sampled_from(sorted(TRAPS)))
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_damaged_answers(changes: list[Any], name: str) -> None:
    check_damaged(TRAPS | {name: apply(TRAPS[name], changes)})
