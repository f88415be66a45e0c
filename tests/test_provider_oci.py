"""Oracle Cloud: parts into shapes, look-alikes, allowances, and damaged answers."""

import csv
import gzip
import json
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.errors import NotTheFormat, UnknownShape
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Page
from scrapers.providers import oci
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "oci"
CASES = Path(__file__).parent / "payloads" / "oci"
TRAPS = [
    json.loads((CASES / case / "products.json").read_text(encoding="utf-8"))
    for case in ("parts_and_look_alikes", "bad_prices")
]


def part(number: str = "B95909", value: Any = 2, **changes: Any) -> dict[str, Any]:
    prices = value if isinstance(value, list) else [{"model": "PAY_AS_YOU_GO", "value": value}]
    return {
        "partNumber": number,
        "displayName": "Compute  - GPU - A10",
        "metricName": "GPU Per Hour",
        "serviceCategory": "Compute - GPU",
        "currencyCodeLocalizations": [{"currencyCode": "USD", "prices": prices}],
    } | changes


def tier(start: int, value: Any) -> dict[str, Any]:
    return {"model": "PAY_AS_YOU_GO", "rangeMin": start, "rangeMax": 10**15, "value": value}


def read(*items: Any) -> list[Any]:
    return list(oci.parse({"products": [page_of("products", {"items": items})]}))


def reasons(rows: Iterable[Any]) -> list[str]:
    return [row.reason for row in rows if isinstance(row, Reject)]


def read_capture(name: str) -> list[Any]:
    return list(oci.parse({"products": [Page(name="products", path=CAPTURES / name)]}))


def test_a_gpu_price_is_multiplied_by_the_gpus_of_each_shape() -> None:
    prices = {(row.sku, row.market): row.price_per_hour for row in read(part())}
    assert prices == {
        ("VM.GPU.A10.1", "on_demand"): Decimal(2),
        ("VM.GPU.A10.1", "spot"): Decimal(1),
        ("VM.GPU.A10.2", "on_demand"): Decimal(4),
        ("VM.GPU.A10.2", "spot"): Decimal(2),
        ("BM.GPU.A10.4", "on_demand"): Decimal(8),
    }


def test_bare_metal_is_never_preemptible() -> None:
    rows = read(*(part(number) for number in oci.SHAPES))
    assert {row.sku[:2] for row in rows if row.market == "spot"} == {"VM"}
    assert {row.region for row in rows} == {"global"}


@pytest.mark.parametrize(
    "look_alike",
    [
        {"serviceCategory": "Compute - VMware", "metricName": "Node Per Hour"},
        {"serviceCategory": "Compute Cloud@Customer"},
        {"serviceCategory": "Roving Edge Infrastructure"},
        {"serviceCategory": "Stack Monitoring - GPU"},
        {"displayName": "OCI - NVIDIA AI Enterprise - A10", "partNumber": "B111826"},
    ],
)
def test_look_alikes_are_left_out(look_alike: dict[str, Any]) -> None:
    assert read(part() | look_alike) == []


def test_an_unknown_gpu_part_is_kept_as_unknown_not_guessed() -> None:
    rows = read(part("B999001", displayName="OCI - Compute - GPU - GX900"), part())
    assert reasons(rows) == ["unknown part number"]
    assert sum(isinstance(row, Offer) for row in rows) == 5


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (part(value=0), "zero price"),
        (part(value=None), "unreadable row"),
        (part(value="2"), "unreadable row"),
        (part(value=True), "unreadable row"),
        (part(value=[]), "no price"),
        (part(value=-2), "invalid price_per_hour"),
        (part(value=[tier(0, 0), tier(100, 2)]), "volume price"),
        (part(value=[{"model": "MONTHLY_COMMIT", "value": 1}]), "no price"),
        (part(metricName="GPU Per Day"), "unknown unit"),
        (part(currencyCodeLocalizations=None), "unreadable row"),
        ("text", "unreadable row"),
    ],
)
def test_a_bad_part_is_one_reject(item: Any, reason: str) -> None:
    assert reasons(read(item)) == [reason]


def test_dollars_are_taken_first_and_a_sole_other_currency_is_kept() -> None:
    def quoted(*currencies: str) -> dict[str, Any]:
        prices = [{"model": "PAY_AS_YOU_GO", "value": 3}]
        many = [{"currencyCode": code, "prices": prices} for code in currencies]
        return part("B98415", currencyCodeLocalizations=many)

    assert read(quoted("EUR", "USD"))[0].currency == "USD"
    assert read(quoted("EUR"))[0].currency == "EUR"
    assert reasons(read(quoted("EUR", "GBP"))) == ["unreadable row"]
    assert reasons(read(quoted("XTS"))) == ["invalid currency"]


def test_a_free_allowance_is_kept_only_below_a_paid_tier() -> None:
    egress = part(
        "B88327",
        [tier(0, 0), tier(10240, 0.0085)],
        displayName="Outbound Data Transfer - Originating in North America, Europe, and UK",
        serviceCategory="Networking - Virtual Cloud Networks",
    )
    fees = read(egress)
    assert [(fee.from_tier_gb, fee.price, fee.unit) for fee in fees] == [
        (0, 0, "gb"),
        (10240, Decimal("0.0085"), "gb"),
    ]
    assert {fee.region for fee in fees} == {"North America, Europe, and UK"}
    nothing_paid = part(value=[tier(0, 0)])["currencyCodeLocalizations"]
    free = egress | {"currencyCodeLocalizations": nothing_paid}
    assert reasons(read(free)) == ["zero price"]


def test_a_balanced_volume_is_storage_and_ten_performance_units() -> None:
    category = {"serviceCategory": "Storage - Block Volumes", "displayName": "Volume"}
    storage, performance = part("B91961", 0.03) | category, part("B91962", 0.002) | category
    fees = {fee.product: fee.price for fee in read(storage, performance)}
    assert fees == {"Volume": Decimal("0.03"), "Volume + 10 Performance Units": Decimal("0.05")}
    assert {fee.product for fee in read(storage)} == {"Volume"}


@pytest.mark.parametrize("body", [b"{}", b'{"items": {}}', b'{"error": "busy"}', b"null"])
def test_an_unknown_envelope_fails_loudly(body: bytes) -> None:
    with pytest.raises(UnknownShape):
        list(oci.parse({"products": [Page(name="products", body=body)]}))


def test_an_error_page_with_status_200_is_not_a_list() -> None:
    with pytest.raises(NotTheFormat):
        list(oci.parse({"products": [Page(name="products", body=b"<html>")]}))


@needs_evidence
def test_prices_match_independent_figures() -> None:
    """Three other readings of the same list, per part; ours is per shape."""
    rows = read_capture("products_gpu_2026-10-01.json")
    offers = {row.sku: row for row in rows if isinstance(row, Offer) and row.market == "on_demand"}
    part_of = {shape["shape"]: number for number, shapes in oci.SHAPES.items() for shape in shapes}
    assert offers.keys() == part_of.keys()
    assert reasons(rows) == ["unknown part number"]  # B93544, "GPU - E4"

    stated: dict[tuple[str, str], Decimal] = {}
    with (CAPTURES / "expected" / "ocd_price_snapshot_2026-06-04.csv").open() as stream:
        for row in csv.DictReader(stream):
            if row["list_currency"] == row["currency"] == "USD":
                stated["ocd", row["part_number"]] = Decimal(row["unit_price"])
    with (CAPTURES / "expected" / "gpu_pricing_raw_2026-06-15.csv").open() as stream:
        for row in csv.DictReader(stream):
            stated["gpu-pricing", row["sku"]] = Decimal(row["per_gpu_hourly_usd"])
    with gzip.open(
        SHARED / "history" / "opencomputeprices" / "2026-03-21" / "oracle.csv.gz", "rt"
    ) as lines:
        for row in csv.DictReader(lines):
            stated["opencomputeprices", row["instance_type"]] = Decimal(row["price_per_hour"])

    compared = 0
    for sku, offer in offers.items():
        for source in ("ocd", "gpu-pricing", "opencomputeprices"):
            if (source, part_of[sku]) in stated:
                per_gpu = stated[source, part_of[sku]]
                assert offer.price_per_hour == per_gpu * offer.gpu_count, (source, sku)
                compared += 1
    print(f"oci: {compared} prices per shape equal to three other readings")
    assert compared == 46


@needs_evidence
def test_shapes_match_the_frozen_catalogue_of_another_tracker() -> None:
    """SkyPilot's OCI rows (prices unchanged since): count, vCPUs and host memory as well.

    BM.GPU2.2 has 192 GB there and 256 elsewhere: our table leaves its memory empty.
    """
    rows = read_capture("products_full_usd_2025.json")
    offers = {row.sku: row for row in rows if isinstance(row, Offer) and row.market == "on_demand"}
    compared = set()
    with gzip.open(
        SHARED / "history" / "opencomputeprices" / "2026-03-21" / "skypilot.csv.gz", "rt"
    ) as lines:
        for row in csv.DictReader(lines):
            offer = offers.get(row["instance_type"]) if row["provider"] == "oci" else None
            if offer is None or row["pricing_type"] != "on_demand" or not row["gpu_name"]:
                continue
            compared.add(offer.sku)
            assert offer.price_per_hour == Decimal(row["price_per_hour"]), offer.sku
            assert offer.gpu_count == Decimal(row["gpu_count"]), offer.sku
            assert offer.vcpus == Decimal(row["vcpus"]), offer.sku
            if offer.sku != "BM.GPU2.2":
                assert offer.memory_gib == Decimal(row["ram_gb"]), offer.sku
    print(f"oci: {len(compared)} shapes equal in price, GPUs, vCPUs and memory")
    assert len(compared) == 14


@needs_evidence
def test_parts_are_those_of_the_shapes() -> None:
    """opencost's shape_part_numbers.json, and Oracle's own (old) cost estimator data."""
    part_of = {shape["shape"]: number for number, shapes in oci.SHAPES.items() for shape in shapes}
    known = json.loads((CAPTURES / "expected" / "shape_part_numbers_2024-10.json").read_text())
    gpu_parts = {shape: parts["GPU"] for shape, parts in known.items() if parts["GPU"]}
    assert gpu_parts.items() <= part_of.items()
    counts = {s["shape"]: int(s["gpu_count"]) for shapes in oci.SHAPES.values() for s in shapes}
    estimator = json.loads((CAPTURES / "cost_estimator_shapes_2023-11.json").read_text())["items"]
    compared = 0
    for shape in estimator:
        if shape["subType"]["value"] == "gpu":
            (product,) = shape["products"]
            assert part_of[shape["name"]] == product["partNumber"]
            assert counts[shape["name"]] == product["qty"]
            assert shape["allowPreemptible"] == shape["name"].startswith("VM.")
            compared += 1
    print(f"oci: parts of {len(gpu_parts)} shapes, counts and preemptibility of {compared}")
    assert compared == 7


@needs_evidence
def test_storage_and_traffic_are_read_from_the_full_list() -> None:
    fees = {
        (row.product, row.from_tier_gb): row.price
        for row in read_capture("products_full_usd_2025.json")
        if isinstance(row, Fee)
    }
    volume = "Storage - Block Volume - Storage"
    assert fees[volume, Decimal(0)] == Decimal("0.0255")
    assert fees[f"{volume} + 10 Performance Units", Decimal(0)] == Decimal("0.0425")
    paid = {str(price) for (name, start), price in fees.items() if start == 10240}
    assert paid == {"0.008500000", "0.025000000", "0.050000000"}


def check_damaged(document: Any) -> None:
    assert_typed(oci.parse, {"products": [page_of("products", document)]})


@given(damage, st.sampled_from(TRAPS))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_answers_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], document: Any
) -> None:
    check_damaged(apply(document, changes))


@pytest.mark.slow
@given(damage, st.sampled_from(TRAPS))
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_damaged_answers(changes: list[Any], document: Any) -> None:
    check_damaged(apply(document, changes))
