"""RunPod: prices per GPU, two clouds, cloud flags that decide, and data centres that report."""

import csv
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from scrapers.errors import UnknownShape
from scrapers.offer import Offer, Reject
from scrapers.pages import Page
from scrapers.providers import runpod
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "runpod"
FULL_CAPTURE = "capture_graphql_gputypes_datacenters_2026-08.json"
CASE = Path(__file__).parent / "payloads" / "runpod" / "no_spot_market"
TRAPS = {
    name: json.loads((CASE / f"{name}.json").read_text(encoding="utf-8"))
    for name in runpod.REQUESTS
}


def gpu(**changes: Any) -> dict[str, Any]:
    return {
        "id": "NVIDIA H900",
        "displayName": "H900",
        "memoryInGb": 96,
        "secureCloud": True,
        "communityCloud": False,
        "securePrice": 2,
        "secureSpotPrice": None,
        "maxGpuCount": 1,
    } | changes


def center(name: str, available: bool, listed: bool = True) -> dict[str, Any]:
    seen = {"gpuTypeId": "NVIDIA H900", "available": available, "stockStatus": None}
    return {"id": name, "listed": listed, "gpuAvailability": [seen]}


def read(*gpus: Any, centers: Any = ()) -> list[Any]:
    pages = {
        "gpu_types": [page_of("gpu_types", {"data": {"gpuTypes": list(gpus)}})],
        "data_centers": [page_of("data_centers", {"data": {"dataCenters": list(centers)}})],
    }
    return list(runpod.parse(pages))


def read_capture(*names: str) -> list[Offer]:
    pages = {name: [Page(name=name, path=CAPTURES / FULL_CAPTURE)] for name in names}
    said, *rows = runpod.parse(pages)
    assert isinstance(said, Reject)
    assert said.reason == "spot not observed"
    offers = [row for row in rows if isinstance(row, Offer)]
    assert len(offers) == len(rows)
    return offers


def test_the_query_asks_for_every_field_that_is_read() -> None:
    query = runpod.REQUESTS["gpu_types"].body["query"]
    for field in ("secureCloud", "communityPrice", "secureSpotPrice", "maxGpuCountCommunityCloud"):
        assert field in query
    assert query.count("{") == query.count("}")
    assert not runpod.PROVIDER.keys


def test_the_price_is_multiplied_by_the_number_of_gpus() -> None:
    rows = read(gpu(securePrice=0.16, secureSpotPrice=0.08, maxGpuCount=8))
    assert {(r.market, r.gpu_count): r.price_per_hour for r in rows} == {
        (market, n): price * n
        for market, price in [("on_demand", Decimal("0.16")), ("spot", Decimal("0.08"))]
        for n in range(1, 9)
    }


def test_the_limit_of_the_cloud_goes_before_the_general_one() -> None:
    both = gpu(
        communityCloud=True,
        communityPrice=1,
        maxGpuCount=8,
        maxGpuCountSecureCloud=2,
        maxGpuCountCommunityCloud=None,
    )
    counts = [row.tier for row in read(both)]
    assert (counts.count("secure"), counts.count("community")) == (2, 8)


def test_a_price_beside_a_false_cloud_flag_is_not_an_offer() -> None:
    rows = read(gpu(communityPrice=0.5, communitySpotPrice=0.4))
    assert [row.tier for row in rows] == ["secure"]


def test_without_flags_nothing_is_taken_for_offered() -> None:
    assert [row.reason for row in read({"id": "X", "securePrice": 2})] == ["no cloud flags"]


def test_zero_and_null_prices_are_refused() -> None:
    assert [row.reason for row in read(gpu(securePrice=0, secureSpotPrice=0))] == ["zero price"]
    assert [row.reason for row in read(gpu(securePrice=None, secureSpotPrice=0))] == ["no price"]


def test_spot_that_always_equals_on_demand_was_not_observed() -> None:
    said, *rows = read(gpu(secureSpotPrice=2), gpu(id="B", securePrice=1, secureSpotPrice=1))
    assert said.reason == "spot not observed"
    assert {row.market for row in rows} == {"on_demand"}


def test_spot_is_kept_where_a_single_price_differs_even_upwards() -> None:
    rows = read(gpu(secureSpotPrice=2), gpu(id="B", securePrice=1, secureSpotPrice=1.2))
    assert {r.sku: r.price_per_hour for r in rows if r.market == "spot"} == {
        "1x NVIDIA H900": Decimal(2),
        "1x B": Decimal("1.2"),
    }


def test_secure_rows_stand_where_a_listed_data_centre_reports_the_gpu() -> None:
    centers = [center("EU-1", True), center("US-2", False), center("XX-3", True, listed=False)]
    assert {r.region: r.is_available for r in read(gpu(), centers=centers)} == {
        "EU-1": True,
        "US-2": False,
    }
    assert [row.region for row in read(gpu(), centers=centers[2:])] == ["global"]


def test_community_rows_are_global() -> None:
    community = gpu(secureCloud=False, communityCloud=True, communityPrice=1)
    assert [r.region for r in read(community, centers=[center("EU-1", True)])] == ["global"]


def test_stock_of_one_gpu_says_nothing_of_eight_unless_there_is_none() -> None:
    centers = [center("EU-1", True), center("US-2", False)]
    rows = read(gpu(maxGpuCount=2), centers=centers)
    assert {(r.region, r.gpu_count): r.is_available for r in rows} == {
        ("EU-1", 1): True,
        ("EU-1", 2): None,
        ("US-2", 1): False,
        ("US-2", 2): False,
    }


@pytest.mark.parametrize(
    ("stock", "expected"),
    [
        ({}, None),
        ({"lowestPrice": None}, False),
        ({"lowestPrice": {"stockStatus": None}}, False),
        ({"lowestPrice": {"stockStatus": "Low"}}, True),
        ({"lowestPrice": {"stockStatus": "Low"}, "secure": {"stockStatus": None}}, False),
    ],
)
def test_null_stock_is_out_of_stock_not_free(stock: dict[str, Any], expected: Any) -> None:
    (row,) = read(gpu(**stock))
    assert row.is_available is expected


def test_general_stock_proves_no_cloud_when_there_are_two() -> None:
    rows = read(gpu(communityCloud=True, communityPrice=1, lowestPrice={"stockStatus": "Low"}))
    assert [row.is_available for row in rows] == [None, None]


def test_a_malformed_gpu_is_one_reject_and_the_others_stay() -> None:
    rows = read(gpu(memoryInGb="96", maxGpuCount=8), gpu(id=None), gpu(id="B"))
    assert sorted(type(row).__name__ for row in rows) == ["Offer", "Reject", "Reject"]


@pytest.mark.parametrize("limit", ["8", 8.5, True, -1, 10**9])
def test_an_unreadable_limit_is_refused_and_never_walked(limit: Any) -> None:
    assert [row.reason for row in read(gpu(maxGpuCount=limit))] == ["unreadable GPU limit"]


def test_a_graphql_error_with_status_200_is_an_error() -> None:
    failed = {"errors": [{"message": "no"}], "data": None}
    with pytest.raises(UnknownShape, match="gpuTypes"):
        list(runpod.parse({"gpu_types": [page_of("gpu_types", failed)]}))


def pages_with(changed: str, changes: list[Any]) -> dict[str, list[Page]]:
    documents = TRAPS | {changed: apply(TRAPS[changed], changes)}
    return {name: [page_of(name, document)] for name, document in documents.items()}


@given(damage)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_gpu_types_give_valid_rows_rejects_or_our_errors(changes: list[Any]) -> None:
    assert_typed(runpod.parse, pages_with("gpu_types", changes))


@given(damage)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_damaged_data_centers_give_valid_rows_rejects_or_our_errors(changes: list[Any]) -> None:
    assert_typed(runpod.parse, pages_with("data_centers", changes))


@needs_evidence
@given(damage)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_damaged_captures_give_valid_rows_rejects_or_our_errors(changes: list[Any]) -> None:
    capture = json.loads((CAPTURES / FULL_CAPTURE).read_text(encoding="utf-8"))
    assert_typed(runpod.parse, {"gpu_types": [page_of("gpu_types", apply(capture, changes))]})


# gpurentalprices' own slugs of the GPU types that the capture holds too.
GPU_OF_SLUG = {
    "mi300x": "AMD Instinct MI300X OAM",
    "a100-sxm-40": "NVIDIA A100-SXM4-40GB",
    "b200": "NVIDIA B200",
    "b300": "NVIDIA B300 SXM6 AC",
    "rtx-4090": "NVIDIA GeForce RTX 4090",
    "h100-sxm": "NVIDIA H100 80GB HBM3",
    "h200": "NVIDIA H200",
    "l40s": "NVIDIA L40S",
}


@needs_evidence
def test_captured_prices_equal_those_another_tracker_read_the_same_day() -> None:
    """gpurentalprices.com (CC BY 4.0) lists each GPU and cloud, per GPU, on 2026-08-22.

    It has no row for the RTX 3070, nor for the MI300X in the community cloud, whose flag is false.
    """
    raw = json.loads(
        (SHARED / "history/gpurentalprices/raw_2026-08-22.json").read_text(encoding="utf-8"),
        parse_float=Decimal,
    )
    theirs = {
        (GPU_OF_SLUG[row["gpu"]], row["kind"]): (Decimal(row["usd_hr"]), row["vram_gb"])
        for row in raw["offers"]
        if row["provider"] == "runpod" and row["gpu"] in GPU_OF_SLUG
    }
    ours = {
        (row.sku.removeprefix("1x "), row.tier): (row.price_per_hour, row.gpu_memory_gib)
        for row in read_capture("gpu_types", "data_centers")
        if row.gpu_count == 1
    }
    only_ours = {gpu for gpu, _ in ours.keys() - theirs.keys()}
    assert only_ours == {"NVIDIA GeForce RTX 3070"}
    assert ours | theirs == ours, "they list an offer, or a price, that we do not"
    assert {key: ours[key] for key in theirs} == theirs
    assert len(theirs) == 14
    print(f"runpod: {len(theirs)} prices and memory sizes equal those of gpurentalprices")


@needs_evidence
def test_another_tracker_shows_that_the_price_is_linear_in_gpus() -> None:
    """getdeploying's pages of 2026-03-22 list whole pods of 1 to 8 GPUs with both prices."""
    path = SHARED / "history/opencomputeprices/2026-03-22/getdeploying.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        pods = [
            (row["gpu_name"], row["pricing_type"], row["gpu_count"], row["price_per_hour"])
            for row in csv.DictReader(file)
            if row["provider"] == "runpod" and "x " in row["instance_type"]
        ]
    single = {(name, market): Decimal(price) for name, market, count, price in pods if count == "1"}
    compared = 0
    for name, market, count, price in pods:
        if count != "1" and [p[:3] for p in pods].count((name, market, "1")) == 1:
            assert Decimal(price) == single[name, market] * int(count), (name, market, count)
            compared += 1
    assert compared
    print(f"runpod: {compared} multi-GPU pods are a whole multiple of the single one")


@needs_evidence
def test_one_answer_with_both_lists_reads_like_two() -> None:
    once = read_capture("gpu_types")
    assert once == read_capture("gpu_types", "data_centers")
    assert {row.market for row in once} == {"on_demand"}
    assert len({row.key() for row in once}) == len(once) == 146
    listed = {"AP-IN-1", "EU-NL-1", "EU-RO-1", "EUR-IS-1", "US-WA-2"}
    assert {row.region for row in once} == listed | {"global"}


@needs_evidence
def test_the_capture_without_cloud_flags_is_refused_row_by_row() -> None:
    """Its MI300X community price of 0.5 belongs to no offer: the later capture says so."""
    page = Page(name="gpu_types", path=CAPTURES / "capture_graphql_gputypes_2026-08.json")
    rows = list(runpod.parse({"gpu_types": [page]}))
    assert len(rows) == 9
    assert {row.reason for row in rows if isinstance(row, Reject)} == {"no cloud flags"}
