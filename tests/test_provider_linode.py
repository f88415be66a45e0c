"""Linode: exceptions by region, monthly caps, names that differ between lists, and paging."""

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.errors import Incomplete, UnknownShape
from scrapers.offer import Fee, Offer
from scrapers.pages import Page
from scrapers.providers import linode
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "linode"
CAPTURE_OF = {
    "types": "capture_linode_types_2024-07.json",
    "volume_types": "capture_volumes_types.json",
    "transfer_prices": "capture_network_transfer_prices.json",
    "availability": "capture_regions_availability_gpu.trimmed.json",
}
CASES = Path(__file__).parent / "payloads" / "linode"
TRAPS = {
    name: json.loads((CASES / case / f"{name}.json").read_text(encoding="utf-8"))
    for name, case in {
        "types": "plans_by_region",
        "regions": "plans_by_region",
        "volume_types": "fees",
        "transfer_prices": "fees",
    }.items()
} | {
    "availability": json.loads(
        (CASES / "plans_by_region" / "availability.2.json").read_text(encoding="utf-8")
    )
    | {"pages": 1, "results": 6}
}


def plan(**changes: Any) -> dict[str, Any]:
    return {
        "id": "g9-gpu-1",
        "label": "Dedicated 32GB + RTX9000 GPU x1",
        "gpus": 1,
        "price": {"hourly": 1.5, "monthly": 1000.0},
        "region_prices": [],
    } | changes


def listing(name: str, *rows: Any) -> list[Page]:
    return [page_of(name, {"data": rows, "page": 1, "pages": 1, "results": len(rows)})]


def read(**lists: list[Any]) -> list[Any]:
    return list(linode.parse({name: listing(name, *rows) for name, rows in lists.items()}))


def prices(rows: list[Any]) -> dict[str, Decimal]:
    return {row.region: row.price_per_hour for row in rows if isinstance(row, Offer)}


def read_captures() -> list[Any]:
    pages = {name: [Page(name=name, path=CAPTURES / f)] for name, f in CAPTURE_OF.items()}
    return list(linode.parse(pages))


def test_region_prices_are_exceptions_to_the_base_price() -> None:
    dear = plan(region_prices=[{"id": "id-cgk", "hourly": 1.8, "monthly": 1200}])
    places = [
        {"region": region, "plan": "g9-gpu-1", "available": region == "us-ord"}
        for region in ("us-ord", "id-cgk")
    ]
    rows = read(types=[dear], availability=places)
    assert prices(rows) == {"us-ord": Decimal("1.5"), "id-cgk": Decimal("1.8")}
    assert {row.region: row.is_available for row in rows} == {"us-ord": True, "id-cgk": False}


def test_a_plan_that_availability_does_not_name_is_global_with_its_exceptions() -> None:
    dear = plan(region_prices=[{"id": "br-gru", "hourly": 2.1, "monthly": 1400}])
    places = [{"region": "us-ord", "plan": "g9-gpu-another-name", "available": True}]
    rows = read(types=[dear], availability=places)
    assert prices(rows) == {"global": Decimal("1.5"), "br-gru": Decimal("2.1")}
    assert {row.is_available for row in rows} == {None}


def test_nothing_starts_in_a_region_with_an_outage() -> None:
    (row,) = read(
        types=[plan()],
        availability=[{"region": "us-ord", "plan": "g9-gpu-1", "available": True}],
        regions=[{"id": "us-ord", "status": "outage", "site_type": "core"}],
    )
    assert row.is_available is False


def test_a_base_price_of_zero_is_one_reject_and_its_exceptions_stay() -> None:
    hidden = plan(
        price={"hourly": 0, "monthly": 0},
        region_prices=[{"id": "us-ord", "hourly": 2.5, "monthly": 1700}],
    )
    places = [
        {"region": region, "plan": "g9-gpu-1", "available": True}
        for region in ("us-ord", "us-sea", "us-lax")
    ]
    rows = read(types=[hidden], availability=places)
    assert prices(rows) == {"us-ord": Decimal("2.5")}
    assert [row.reason for row in rows if not isinstance(row, Offer)] == ["zero price"]


def test_plans_without_a_gpu_are_left_out_silently() -> None:
    assert read(types=[plan(gpus=0), plan(gpus=0, accelerated_devices=8)]) == []


@pytest.mark.parametrize(
    ("label", "gpu"),
    [
        ("Dedicated 128GB + RTX6000 GPU x4", "RTX6000"),
        ("RTX4000 Ada x2 Medium High Storage", "RTX4000 Ada"),
        ("RTX4000 Ada x1 X-Large", "RTX4000 Ada"),
        ("RTX PRO 6000 Blackwell x8", "RTX PRO 6000 Blackwell"),
        ("Some new card", "Some new card"),
    ],
)
def test_the_gpu_is_the_part_of_the_label_that_names_it(label: str, gpu: str) -> None:
    (row,) = read(types=[plan(label=label)])
    assert row.gpu_label == gpu


def test_the_monthly_cap_is_never_an_hourly_price() -> None:
    assert prices(read(types=[plan(price={"monthly": 1000.0})])) == {}


def test_a_malformed_plan_is_one_reject() -> None:
    places = [{"region": f"r{n}", "plan": "g9-gpu-1", "available": True} for n in range(30)]
    rows = read(types=[plan(label=None), plan(id="b")], availability=places)
    assert [type(row).__name__ for row in rows] == ["Reject", "Offer"]


@pytest.mark.parametrize("pages", [1, 2, 5])
def test_follow_walks_every_page_once(pages: int) -> None:
    asked = []
    for number in range(1, pages + 1):
        page = page_of("availability", {"data": [], "page": 1, "pages": pages}, number)
        ask = linode.follow("availability", page)
        asked.append(ask and ask.params["page"])
        if ask:
            assert ask.url == linode.REQUESTS["availability"].url
    assert asked == [*map(str, range(2, pages + 1)), None]


def test_a_missing_page_is_not_the_end() -> None:
    first = page_of("types", {"data": [plan()], "page": 1, "pages": 2, "results": 2})
    with pytest.raises(Incomplete, match="1 rows of 2"):
        list(linode.parse({"types": [first]}))


def test_an_error_answer_is_an_error() -> None:
    errors = page_of("types", {"errors": [{"reason": "Too many requests"}]})
    with pytest.raises(UnknownShape, match="data"):
        list(linode.parse({"types": [errors]}))
    with pytest.raises(UnknownShape, match="pages"):
        linode.follow("types", errors)


@given(damage, st.sampled_from(sorted(TRAPS)))
@settings(max_examples=250, deadline=None, derandomize=True)
def test_damaged_answers_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], name: str
) -> None:
    documents = TRAPS | {name: apply(TRAPS[name], changes)}
    assert_typed(linode.parse, {n: [page_of(n, document)] for n, document in documents.items()})


@needs_evidence
@given(damage, st.sampled_from(sorted(CAPTURE_OF)))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_damaged_captures_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], name: str
) -> None:
    documents = {
        n: json.loads((CAPTURES / file).read_text(encoding="utf-8"))
        for n, file in CAPTURE_OF.items()
    }
    documents[name] = apply(documents[name], changes)
    assert_typed(linode.parse, {n: [page_of(n, document)] for n, document in documents.items()})


@needs_evidence
def test_captured_plans_equal_those_another_tracker_read_later() -> None:
    """OpenComputePrices (MIT) read the same endpoint on 2026-03-22, the capture is of 2024-07.

    The four RTX6000 plans stand in both, with the same figures. The nine RTX4000 Ada plans are
    newer than the capture. It states no region, so each of our regions must have its price.
    """
    path = SHARED / "history/opencomputeprices/2026-03-22/linode.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        theirs = {row["instance_type"]: row for row in csv.DictReader(file)}
    ours = [row for row in read_captures() if isinstance(row, Offer)]
    assert len(ours) == 108
    assert {row.sku for row in ours} == {f"g1-gpu-rtx6000-{n}" for n in (1, 2, 3, 4)}
    compared = 0
    for row in ours:
        their = theirs[row.sku]
        assert row.price_per_hour == Decimal(their["price_per_hour"])
        assert row.gpu_count == Decimal(their["gpu_count"])
        assert row.vcpus == Decimal(their["vcpus"])
        assert row.memory_gib == Decimal(their["ram_gb"])
        assert row.local_disk_gib == Decimal(their["storage_desc"].removesuffix(" GB"))
        compared += 1
    assert sum(row.is_available is True for row in ours) == 11
    print(f"linode: {compared} offers of {len(theirs)} plans equal OpenComputePrices")


@needs_evidence
def test_captured_fees_equal_the_provider_terms() -> None:
    fees = {(r.product, r.region): r.price for r in read_captures() if isinstance(r, Fee)}
    with (SHARED / "facts" / "provider_terms.csv").open(encoding="utf-8") as file:
        terms = [
            (row[2], row[7])
            for row in csv.reader(file)
            if row[0] == "linode" and row[5].startswith("https://api.linode.com/")
        ]
    stated = {}
    for product, (base, remark) in zip(("volume", "network_transfer"), terms, strict=True):
        stated[product, "global"] = Decimal(base)
        for part in remark.partition(";")[0].partition("(")[0].split(","):
            region, price = part.split()
            stated[product, region] = Decimal(price)
    assert fees == stated
    print(f"linode: {len(stated)} fees equal those of provider_terms.csv")
