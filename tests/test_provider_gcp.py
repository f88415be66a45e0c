"""Google Cloud: the page's cells, component sums, markets, fees, and other readings of the same."""

import contextlib
import csv
import gzip
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.collect import replay
from scrapers.errors import EmptyReply, NotTheFormat, SourceError, UnknownShape
from scrapers.fetch import Fetcher
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Page, Pages
from scrapers.providers import gcp
from scrapers.providers.gcp import MACHINES, Terms
from scrapers.units import money
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "gcp"
HISTORY = SHARED / "history"
CASES = Path(__file__).parent / "payloads" / "gcp"
NANO = Decimal("1e-9")


def sku(
    description: str,
    price: str | list[tuple[int, str]],
    regions: str = "us-central1",
    **other: Any,
) -> dict[str, Any]:
    """Make a SKU of the catalog; `price` is one, or (from, price) tiers."""
    tiers = [(0, price)] if isinstance(price, str) else price
    kind = "ram" if " Ram " in description else "ssd" if "Local" in description else ""
    unit = other.get("unit", {"ram": "GiBy.h", "ssd": "GiBy.mo"}.get(kind, "h"))
    rates = []
    for start, amount in tiers:
        units, _, nanos = amount.partition(".")
        unit_price = {
            "currencyCode": other.get("currency", "USD"),
            "units": units,
            "nanos": int((nanos + "0" * 9)[:9]),
        }
        rates.append({"startUsageAmount": start, "unitPrice": unit_price})
    return {
        "skuId": "0000-0000-0000",
        "description": description,
        "category": {
            "serviceDisplayName": other.get("service", "Compute Engine"),
            "resourceGroup": other.get("group", "GPU"),
            "usageType": other.get("usage", "OnDemand"),
        },
        "serviceRegions": regions.split(),
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": rates}}],
    }


def a2(place: str = "Americas", regions: str = "us-central1") -> list[dict[str, Any]]:
    return [
        sku(f"A2 Instance Core running in {place}", "0.03", regions),
        sku(f"A2 Instance Ram running in {place}", "0.004", regions),
        sku(f"Nvidia Tesla A100 GPU running in {place}", "2.5", regions),
    ]


def catalog(*skus: Any) -> dict[str, list[Page]]:
    return {"skus": [page_of("skus", {"skus": list(skus), "nextPageToken": ""})]}


def read(*skus: Any) -> list[Any]:
    return list(gcp.parse(catalog(*skus)))


def offers(rows: Any) -> dict[tuple[Any, ...], Decimal]:
    """Return prices by (machine, region, market, tier, months)."""
    return {
        (r.sku, r.region, r.market, r.tier, r.commitment_months): r.price_per_hour
        for r in rows
        if isinstance(r, Offer)
    }


def prices(rows: Any, machine: str, region: str = "us-central1") -> dict[Any, Decimal]:
    """Return one machine's prices by market, or by tier or months where there is one."""
    return {
        key[3] or key[4] or key[2]: price
        for key, price in offers(rows).items()
        if key[:2] == (machine, region)
    }


def reasons(rows: Any) -> list[str]:
    return sorted(row.reason for row in rows if isinstance(row, Reject))


def fees(rows: Any) -> list[tuple[str, str, str, str]]:
    return [
        (r.product, r.region, str(r.from_tier_gb), str(r.price.normalize()))
        for r in rows
        if isinstance(r, Fee)
    ]


# --- what is asked ---


def test_only_the_page_is_asked_without_a_key(tmp_path: Path) -> None:
    def asked(environ: dict[str, str]) -> list[str]:
        fetcher = Fetcher(tmp_path, "r", environ)
        return [
            name
            for name, request in gcp.REQUESTS.items()
            if not fetcher.lacks_optional_key(gcp.PROVIDER, request)
        ]

    assert asked({}) == ["accelerator_page"]
    assert asked({"GCP_API_KEY": "k3y-of-a-test"}) == ["accelerator_page", "skus", "storage_skus"]


def test_a_list_is_followed_by_its_token() -> None:
    following = gcp.follow("skus", page_of("skus", {"skus": [], "nextPageToken": "abc=="}))
    assert following is not None
    assert following.url == gcp.REQUESTS["skus"].url
    assert following.params == {
        "key": "${GCP_API_KEY}",
        "currencyCode": "USD",
        "pageSize": "5000",
        "pageToken": "abc==",
    }
    assert "pageToken" not in gcp.REQUESTS["skus"].params
    for last in ({"skus": [], "nextPageToken": ""}, {"skus": []}, []):
        assert gcp.follow("skus", page_of("skus", last)) is None
    with pytest.raises(UnknownShape, match="nextPageToken is not text"):
        gcp.follow("skus", page_of("skus", {"nextPageToken": 7}))
    assert gcp.follow("accelerator_page", Page("accelerator_page", body=b"<html>")) is None


def test_a_run_without_a_key_keeps_the_page() -> None:
    (outcome,) = replay(gcp, CASES / "page_without_key")
    assert (outcome.status, len(outcome.offers), outcome.fees) == ("ok", 22, ())


def test_a_recorded_list_that_ends_before_its_last_page_is_truncated(tmp_path: Path) -> None:
    for name in ("skus.1.json", "observed_at"):
        (tmp_path / name).write_bytes((CASES / "components" / name).read_bytes())
    (outcome,) = replay(gcp, tmp_path)
    assert outcome.truncated


# --- what machines hold ---


def test_every_part_of_a_machine_can_be_recognised() -> None:
    recognised = set(gcp._PARTS.values())
    for name, machine in MACHINES.items():
        rest = machine.parts.keys() - recognised
        assert {part.rpartition(" ")[2] for part in rest} <= {"core", "ram"}, name
        if rest:
            family = next(iter(rest)).partition(" ")[0]
            assert machine.parts[f"{family} core"] == machine.facts["vcpus"], name
            assert machine.parts[f"{family} ram"] == machine.facts["memory_gib"], name
            assert machine.parts.get("local ssd") == machine.facts["local_disk_gib"], name
            assert machine.parts[machine.facts["gpu_label"]] == machine.facts["gpu_count"], name
        assert machine.regions, name


def test_n1_shapes_stay_within_the_limits_of_their_gpus() -> None:
    # (GPUs, most vCPUs, most GiB): https://cloud.google.com/compute/docs/gpus
    limits = {
        "t4": {1: (48, 312), 2: (48, 312), 4: (96, 624)},
        "p4": {1: (24, 156), 2: (48, 312), 4: (96, 624)},
        "p100": {1: (16, 104), 2: (32, 208), 4: (64, 208)},
        "v100": {1: (12, 78), 2: (24, 156), 4: (48, 312), 8: (96, 624)},
    }
    seen = Counter[str]()
    for name, machine in MACHINES.items():
        if name.startswith("n1-"):
            gpu = machine.facts["gpu_label"].removeprefix("nvidia-tesla-")
            vcpus, memory_gib = limits[gpu][int(machine.facts["gpu_count"])]
            assert machine.facts["vcpus"] <= vcpus
            assert machine.facts["memory_gib"] <= memory_gib
            assert name == (
                f"n1-standard-{machine.facts['vcpus']}+{machine.facts['gpu_count']}x{gpu.upper()}"
            )
            seen[gpu] += 1
    assert seen == {gpu: len(counts) for gpu, counts in limits.items()}


# --- sums ---


def test_a_machine_costs_the_sum_of_its_parts() -> None:
    """skypilot-catalog#31 showed one part, 0.94, as the price of an a2-highgpu-1g."""
    assert prices(read(*a2()), "a2-highgpu-1g") == {"on_demand": Decimal("3.2")}
    assert prices(read(*a2()), "a2-megagpu-16g") == {"on_demand": Decimal("48.32")}
    assert offers(read(a2()[0])) == {}


def test_bundled_local_ssd_is_part_of_the_price() -> None:
    """gpuhunt#75 left it out. It is priced by the month of 730 hours."""
    big = sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.5")
    rows = read(*a2(), big, sku("SSD backed Local Storage", "0.073"))
    assert prices(rows, "a2-ultragpu-1g") == {"on_demand": Decimal("4.5775")}
    assert prices(read(*a2(), big), "a2-ultragpu-1g") == {}
    assert reasons(read(*a2(), big)) == ["component without a price"] * 4


def test_a_longer_gpu_name_is_another_gpu() -> None:
    rows = read(*a2()[:2], sku("Nvidia Tesla A100 80GB GPU running in Americas", "3.5"))
    assert "a2-highgpu-1g" not in {row.sku for row in rows if isinstance(row, Offer)}


@pytest.mark.parametrize(
    "gpu", ["Nvidia H100 80GB Plus GPU", "Nvidia H100 80GB Mega GPU", "Nvidia H100 Mega 80GB GPU"]
)
@pytest.mark.parametrize("family", ["A3Plus", "A3 Mega"])
def test_a3_mega_has_several_names(gpu: str, family: str) -> None:
    rows = read(
        sku(f"{family} Instance Core running in Americas", "0.027"),
        sku(f"{family} Instance Ram running in Americas", "0.0023"),
        sku(f"{gpu} running in Americas", "10"),
        sku("SSD backed Local Storage", "0.073"),
    )
    assert offers(rows) == {
        ("a3-megagpu-8g", "us-central1", "on_demand", None, None): Decimal("90.5216")
    }


def test_nothing_is_added_to_a_slice() -> None:
    rows = read(
        sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "5"),
        sku("SSD backed Local Storage attached to Spot Preemptible VMs", "0.073"),
    )
    assert prices(rows, "a4-highgpu-8g") == {"spot": Decimal(40)}


def test_a_fraction_of_a_g4_is_priced_by_eighths_not_by_scaling() -> None:
    rows = read(
        sku("G4 Instance Core running in Iowa", "0.05"),
        sku("G4 Instance Ram running in Iowa", "0.006"),
        sku("RTX 6000 96GB running in Iowa", "1.1"),
        sku("1/8 vGPU no lssd running in Iowa", "0.7"),
    )
    found = {key[0]: price for key, price in offers(rows).items()}
    assert found["g4-standard-48"] == Decimal("4.58")
    assert [found[f"g4-standard-{n}"] for n in (6, 12, 24)] == [
        Decimal("0.7"),
        Decimal("1.4"),
        Decimal("2.8"),
    ]
    assert {row.gpu_count for row in rows if row.sku == "g4-standard-6"} == {Decimal("0.125")}


# --- markets ---


def test_the_words_of_a_description_say_the_market() -> None:
    one, three = Terms("reserved", None, 12), Terms("reserved", None, 36)
    flex, calendar, spot = gcp.FLEX_START, gcp.CALENDAR, Terms("spot")
    for description, expected in {
        "Nvidia L4 GPU running in Netherlands": ("nvidia-l4", gcp.ON_DEMAND),
        "SSD backed Local Storage": ("local ssd", gcp.ON_DEMAND),
        "SSD backed Local Storage in Paris": ("local ssd", gcp.ON_DEMAND),
        "SSD backed Local Storage running in Paris": ("local ssd", gcp.ON_DEMAND),
        "SSD backed Local Storage attached to Spot Preemptible VMs": ("local ssd", spot),
        "SSD backed Local Storage attached to Preemptible VMs in Paris": ("local ssd", spot),
        "Spot Preemptible A3 Instance Core running in Americas": ("a3 core", spot),
        "Preemptible N1 Predefined Instance Ram running in Americas": ("n1 ram", spot),
        "DWS Defined Duration A3 Core running in Americas": ("a3 core", flex),
        "DWS Defined Duration A3 Ultra Instance Core running in Iowa": ("a3ultra core", flex),
        "DWS Defined Duration SSD backed Local Storage running in Americas": ("local ssd", flex),
        "1/8 vGPU no lssd attached to DWS Defined Duration VMs running in Iowa": (
            "rtx-pro-6000 eighth",
            flex,
        ),
        "DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) in Americas": ("b200 slice", calendar),
        "Reserved Nvidia H100 80GB GPU in Mumbai in Calendar Mode": ("nvidia-h100-80gb", calendar),
        "SSD backed Local Storage attached to Calendar mode reservations running in Iowa": (
            "local ssd",
            calendar,
        ),
        "Commitment v1: A3 Cpu in Americas for 1 Year": ("a3 core", one),
        "Commitment v1: A3 Ram in Americas for 3 Years": ("a3 ram", three),
        "Commitment v1: Cpu in Americas for 1 Year": ("n1 core", one),
        "Commitment v1: Local SSD in Americas for 3 Year": ("local ssd", three),
        "Commitment v1: Nvidia L4 GPU running in Mumbai for 3 Years": ("nvidia-l4", three),
        "Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 1 Year": ("b200 slice", one),
    }.items():
        assert gcp._identify(description) == expected, description


@pytest.mark.parametrize(
    "description",
    [
        "Reserved Nvidia Tesla A100 GPU in Americas",
        "A2 Sole Tenancy Instance Core running in Americas",
        "Sole Tenancy Premium for A2 Instance Core running in Americas",
        "Custom Instance Core running in Americas",
        "Cpu running in Americas",
        "Nvidia Tesla T4 Virtual Workstation GPU running in Americas",
        "Nvidia L40 GPU running in Americas",
        "Commitment v1: Nvidia L4 GPU running in Americas for 5 Years",
        "Committed Use Discount Premium for A2 Instance Core running in Americas",
        "TpuV6e running in Americas",
        "Tpu v5p attached to Spot Preemptible VMs running in Americas",
        "VM state: preserved local SSD in Bangkok",
        "C3 Instance Local SSD running in Iowa",
    ],
)
def test_other_words_name_nothing_that_is_read(description: str) -> None:
    assert gcp._identify(description) is None


def test_spot_listed_as_on_demand_is_spot() -> None:
    (row,) = read(sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "5"))
    assert (row.market, row.tier) == ("spot", None)


def test_usage_type_and_words_must_not_contradict() -> None:
    for description, usage in (
        ("A4 Nvidia B200 (1 gpu slice) running in Americas", "Preemptible"),
        ("A4 Nvidia B200 (1 gpu slice) running in Americas", "Commit1Yr"),
        ("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "Commit3Yr"),
        ("Commitment v1: A4 Nvidia B200 (1 gpu slice) in Americas for 1 Year", "OnDemand"),
    ):
        rows = read(sku(description, "5", usage=usage))
        assert reasons(rows) == ["usage type and description disagree"]
        assert not offers(rows)


def test_commitments_dws_and_calendar_mode_keep_apart() -> None:
    slice_ = "A4 Nvidia B200 (1 gpu slice)"
    rows = read(
        sku(f"{slice_} running in Americas", "16"),
        sku(f"Spot Preemptible {slice_} running in Americas", "5"),
        sku(f"{slice_} attached to DWS Defined Duration VMs running in Americas", "8"),
        sku(f"DWS Calendar Mode {slice_} in Americas", "11"),
        sku(f"Commitment v1: {slice_} in Americas for 1 Year", "10", usage="Commit1Yr"),
        sku(f"Commitment v1: {slice_} in Americas for 3 Year", "7", usage="Commit3Yr"),
    )
    assert prices(rows, "a4-highgpu-8g") == {
        "spot": Decimal(40),
        "dws_flex_start": Decimal(64),
        "dws_calendar": Decimal(88),
        12: Decimal(80),
        36: Decimal(56),
    }
    assert {row.market for row in rows if getattr(row, "tier", "") == "dws_calendar"} == {
        "capacity_block"
    }
    assert reasons(rows) == ["not sold on demand"]


def test_machines_that_cannot_be_had_on_demand_have_no_such_price() -> None:
    rows = read(
        sku("A3 Instance Core running in Americas", "0.025"),
        sku("A3 Instance Ram running in Americas", "0.002"),
        sku("Nvidia H100 80GB GPU running in Americas", "9"),
        sku("SSD backed Local Storage", "0.073"),
    )
    assert [key[0] for key in offers(rows)] == ["a3-highgpu-8g"]
    assert reasons(rows) == ["not sold on demand"] * 3


# --- regions ---


def test_a_skus_region_is_not_where_the_machine_is_sold() -> None:
    rows = read(*a2(regions="us-central1 africa-south1"))
    assert {key[1] for key in offers(rows)} == {"us-central1"}


def test_a_regional_price_goes_before_a_multi_regional_one_in_any_order() -> None:
    wide = sku("Nvidia Tesla A100 GPU running in Americas", "2.5", "us-central1 us-east1 us-west1")
    narrow = sku("Nvidia Tesla A100 GPU running in Iowa", "2.7", "us-central1")
    host = a2(regions="us-central1 us-east1")[:2]
    found = [offers(read(*order, *host)) for order in itertools.permutations([wide, narrow, wide])]
    assert all(prices == found[0] for prices in found)
    for region, price in (("us-central1", "3.4"), ("us-east1", "3.2")):
        assert found[0]["a2-highgpu-1g", region, "on_demand", None, None] == Decimal(price)


def test_two_equally_regional_prices_are_refused() -> None:
    rows = read(*a2(), sku("Nvidia Tesla A100 GPU running in Iowa", "2.6"))
    assert not offers(rows)
    assert reasons(rows) == ["two prices for one component"]
    assert offers(read(*a2(), *a2())) == offers(read(*a2()))


def test_a_missing_component_is_neither_guessed_nor_a_crash() -> None:
    rows = read(*a2()[1:])
    assert not offers(rows)
    (first, *_) = (row for row in rows if isinstance(row, Reject))
    assert first.reason == "component without a price"
    assert first.detail == "us-central1 on_demand/None/None: a2 core"


# --- amounts ---


def test_other_currencies_are_refused() -> None:
    rows = read(*a2()[:2], sku("Nvidia Tesla A100 GPU running in Americas", "508", currency="IDR"))
    assert reasons(rows) == ["not in US dollars"]


def test_units_are_text_and_nanos_may_be_left_out() -> None:
    slice_ = sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", "5")
    unit_price = slice_["pricingInfo"][0]["pricingExpression"]["tieredRates"][0]["unitPrice"]
    del unit_price["nanos"]
    assert prices(read(slice_), "a4-highgpu-8g") == {"spot": Decimal(40)}
    unit_price["nanos"] = 250_000_000
    assert prices(read(slice_), "a4-highgpu-8g") == {"spot": Decimal(42)}
    for wrong in (5, 5.5, True, None, "", "5.0", " 5", "NaN", "1_000", "٥"):
        unit_price["units"] = wrong
        assert reasons(read(slice_)) == ["unreadable row"], wrong
    unit_price["units"] = "5"
    for wrong in (0.5, 1e-300, True, None, "1", 1_000_000_000):
        unit_price["nanos"] = wrong
        assert reasons(read(slice_)) == ["unreadable row"], wrong
    del unit_price["units"]
    assert reasons(read(slice_)) == ["unreadable row"]


def test_zero_is_no_price_and_a_free_first_tier_is_skipped() -> None:
    name = "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas"
    assert reasons(read(sku(name, "0"))) == ["zero price"]
    assert reasons(read(sku(name, "-1"))) == ["negative price"]
    assert prices(read(sku(name, [(0, "0"), (1, "5")])), "a4-highgpu-8g") == {"spot": Decimal(40)}
    assert reasons(read(sku(name, [(0, "5"), (10, "4")]))) == ["volume price"]
    assert reasons(read(sku(name, [(10, "5"), (0, "4")]))) == ["unreadable row"]


def test_a_price_for_another_unit_is_refused() -> None:
    assert reasons(read(sku("Nvidia L4 GPU running in Iowa", "5", unit="mo"))) == ["unknown unit"]
    assert reasons(read(sku("A2 Instance Ram running in Iowa", "5", unit="h"))) == ["unknown unit"]


def test_display_quantity_does_not_change_the_price() -> None:
    host = a2()
    host[0]["pricingInfo"][0]["pricingExpression"]["displayQuantity"] = 1000
    assert prices(read(*host), "a2-highgpu-1g") == {"on_demand": Decimal("3.2")}


def test_the_last_price_of_the_timeline_holds() -> None:
    host = a2()
    host[2]["pricingInfo"] = [*sku("x", "9")["pricingInfo"], *host[2]["pricingInfo"]]
    assert prices(read(*host), "a2-highgpu-1g") == {"on_demand": Decimal("3.2")}


# --- the list ---


def test_the_same_words_of_another_service_are_not_read() -> None:
    twin = sku("Nvidia Tesla A100 GPU running in Americas", "0.1", service="Kubernetes Engine")
    assert offers(read(*a2(), twin)) == offers(read(*a2()))


def test_a_list_without_its_service_is_an_empty_reply_not_a_small_one() -> None:
    for skus in ([], [sku("Autopilot T4 Premium", "1", service="Kubernetes Engine")]):
        with pytest.raises(EmptyReply, match="no SKU of Compute Engine"):
            read(*skus)


def test_an_answer_without_skus_is_an_unknown_shape() -> None:
    for answer in ({"error": {"code": 400}}, {"skus": {}}, []):
        with pytest.raises(UnknownShape):
            list(gcp.parse({"skus": [page_of("skus", answer)]}))
    with pytest.raises(NotTheFormat):
        list(gcp.parse({"skus": [Page("skus", body=b'{"skus": [{"descr')]}))


# --- fees ---


def disk(description: str, price: str | list[tuple[int, str]], regions: str) -> dict[str, Any]:
    return sku(description, price, regions, unit="GiBy.mo", group="SSD")


def traffic(description: str, *tiers: tuple[int, str], group: str = "PremiumInternetEgress") -> Any:
    return sku(description, list(tiers), unit="GiBy", group=group)


def test_disks_and_their_free_allowance() -> None:
    rows = read(
        disk("Storage PD Capacity", [(0, "0"), (30, "0.04")], "us-central1"),
        disk("Balanced PD Capacity in Netherlands", "0.11", "europe-west4"),
        disk("Hyperdisk Balanced Capacity in Iowa", "0.08", "us-central1"),
        disk("Regional Balanced PD Capacity", "0.2", "us-central1"),
        disk("Hyperdisk Balanced High Availability Capacity in Iowa", "0.16", "us-central1"),
        disk("Hyperdisk Balanced Storage Pools Advanced Capacity - Iowa", "0.14", "us-central1"),
        disk("Hyperdisk Balanced Capacity Confidential Mode in Iowa", "0.1", "us-central1"),
    )
    assert fees(rows) == [
        ("Storage PD Capacity", "us-central1", "0.000", "0"),
        ("Storage PD Capacity", "us-central1", "32.212", "0.04"),
        ("Balanced PD Capacity", "europe-west4", "0.000", "0.11"),
        ("Hyperdisk Balanced Capacity", "us-central1", "0.000", "0.08"),
    ]
    assert {(row.kind, row.unit) for row in rows} == {("block_storage", "gib_month")}


def test_a_renamed_traffic_sku_is_the_same_fee() -> None:
    tiers = ((0, "0"), (1, "0.12"), (1024, "0.11"))
    old = traffic("Network Internet Egress from Americas to Americas", *tiers)
    new = traffic("Network Internet Data Transfer Out from Americas to Americas", *tiers)
    assert fees(read(old)) == fees(read(new)) == fees(read(old, new))
    assert [fee[2:] for fee in fees(read(new))] == [
        ("0.000", "0"),
        ("1.074", "0.12"),
        ("1099.512", "0.11"),
    ]


def test_traffic_to_places_that_are_priced_apart_is_left_out() -> None:
    names = {
        "Network Internet Data Transfer Out from Americas to China": False,
        "Network Internet Data Transfer Out from Americas to Australia": False,
        "Network Internet Data Transfer Out from Australia to Australia": True,
        "Network Internet Data Transfer Out from Americas to EMEA": True,
        "Network Vpn Internet Data Transfer Out from Americas to EMEA": False,
    }
    for name, is_read in names.items():
        assert bool(fees(read(traffic(name, (0, "0.12"))))) is is_read, name


def test_inter_region_traffic_keeps_its_ends() -> None:
    name = "Network Inter Region Data Transfer Out from Americas to Melbourne"
    (free, paid) = read(traffic(name, (0, "0"), (1, "0.1"), group="InterregionEgress"))
    assert (free.kind, free.product, free.price) == ("inter_region_egress", name, 0)
    assert (paid.from_tier_gb, paid.price, paid.unit) == (
        Decimal("1.074"),
        Decimal("0.1"),
        "gib",
    )


def test_buckets_of_one_region() -> None:
    def bucket(name: str, group: str = "RegionalStorage") -> dict[str, Any]:
        return sku(name, "0.02", unit="GiBy.mo", group=group, service="Cloud Storage")

    listed = [
        bucket("Standard Storage Netherlands"),
        bucket("Standard Storage US Multi-region", "MultiRegionalStorage"),
        bucket("Standard Storage Finland Dual-region"),
        bucket("Standard Storage Netherlands (Early Delete)"),
        bucket("Nearline Storage Netherlands", "NearlineStorage"),
    ]
    rows = list(gcp.parse({"storage_skus": [page_of("storage_skus", {"skus": listed})]}))
    assert fees(rows) == [("Standard Storage", "us-central1", "0.000", "0.02")]
    assert rows[0].kind == "object_storage"


# --- the page ---

HEADS = ["Machine type", "GPU", "Components", "Price (USD)", "Current Spot pricing (USD)"]
A2_CELLS = ["a2-highgpu-1g", "Nvidia A100", "GPUs: 1 vCPUs: 12 Memory: 85GiB"]


def page(*rows: list[str], heads: list[str] = HEADS) -> Pages:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) + "</tr>"

    body = f"<table>{line(heads, 'th')}{''.join(line(row, 'td') for row in rows)}</table>"
    return {"accelerator_page": [Page("accelerator_page", body=body.encode())]}


def cell(text: str) -> list[Any]:
    """Read a page whose only on-demand cell holds a text."""
    return list(gcp.parse(page([*A2_CELLS, text, "$1 / 1 hour"])))


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("$2 .0000/ 1 hour", "2"),
        ("<p>$42.4000/ 1 hour</p>", "42.4"),
        ("$3.673385 / 1 hour", "3.673385"),
        ("$1,234.50 / 1 hour", "1234.5"),
    ],
)
def test_cells_that_are_prices(text: str, price: str) -> None:
    assert prices(cell(text), "a2-highgpu-1g")["on_demand"] == Decimal(price)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("N/A", "not sold"),
        ("-", "not sold"),
        ("", "not sold"),
        ("<p><br/></p>", "not sold"),
        ("a2-highgpu-1g-od", "unreadable price"),
        ("$0.0000 / 1 hour", "zero price"),
        ("$2,681 / 1 month", "unreadable price"),
        ("€3 / 1 hour", "unreadable price"),
        ("$-3 / 1 hour", "unreadable price"),
        ("$3", "unreadable price"),
    ],
)
def test_cells_that_are_no_price(text: str, reason: str) -> None:
    rows = cell(text)
    assert prices(rows, "a2-highgpu-1g") == {"spot": Decimal(1)}
    assert reasons(rows) == [reason]


def test_columns_are_found_by_their_headers() -> None:
    """The two tables of the page differ in the order of their columns."""
    expected = offers(gcp.parse(page([*A2_CELLS, "$3 / 1 hour", "$1 / 1 hour"])))
    assert len(expected) == 2
    for order in itertools.permutations(range(5)):
        heads = [HEADS[i] for i in order]
        cells = [[*A2_CELLS, "$3 / 1 hour", "$1 / 1 hour"][i] for i in order]
        assert offers(gcp.parse(page(cells, heads=heads))) == expected


def test_a_page_in_another_form_is_said_to_be_so() -> None:
    for heads in (HEADS[1:], HEADS[:3], [*HEADS[:2], *HEADS[3:]], [*HEADS, "Price (USD) again"]):
        with pytest.raises(UnknownShape):
            list(gcp.parse(page(["x"] * len(heads), heads=heads)))
    with pytest.raises(UnknownShape, match="no table of machine types"):
        list(gcp.parse({"accelerator_page": [Page("accelerator_page", body=b"<p>Sorry</p>")]}))


def test_a_machine_is_described_by_the_table_of_facts() -> None:
    """The page says 275 GiB of SSD for an a2-ultragpu-1g, and charges 375."""
    stated = "GPUs: 1 vCPUs: 12 Memory: 170GB SSD: 275 GiB"
    (row,) = (
        r
        for r in gcp.parse(page(["a2-ultragpu-1g", "Nvidia A100", stated, "$5 / 1 hour", "-"]))
        if isinstance(r, Offer)
    )
    assert (row.gpu_label, row.gpu_memory_gib, row.local_disk_gib) == (
        "nvidia-a100-80gb",
        80,
        375,
    )


def test_an_unknown_machine_is_described_by_the_page() -> None:
    stated = "GPUs: 1/2 vCPUs:48 Memory: 1,360GB SSD: 12,000 GiB"
    (row,) = (
        r
        for r in gcp.parse(page(["x9-vast-2g", "Nvidia R900", stated, "$5 / 1 hour", "-"]))
        if isinstance(r, Offer)
    )
    assert (row.gpu_label, row.gpu_count, row.gpu_memory_gib) == (
        "Nvidia R900",
        Decimal("0.5"),
        None,
    )
    assert (row.vcpus, row.memory_gib, row.local_disk_gib) == (48, 1360, 12000)


def test_rows_that_do_not_fit_are_refused() -> None:
    other_count = ["a2-highgpu-1g", "Nvidia A100", "GPUs: 8", "$3 / 1 hour", "$1 / 1 hour"]
    assert reasons(gcp.parse(page(other_count))) == ["unreadable row"]
    assert reasons(gcp.parse(page([*A2_CELLS, "$3 / 1 hour"]))) == ["row does not fit its header"]
    assert reasons(gcp.parse(page(["A2 Standard", "", "", "-", ""]))) == []
    assert reasons(gcp.parse(page(["A2 Standard", "", "", "$3 / 1 hour", ""]))) == [
        "unreadable row"
    ]


def test_the_page_lists_a_price_that_nobody_pays_on_demand() -> None:
    cells = ["a3-ultragpu-8g", "Nvidia H200", "GPUs: 8", "$80 / 1 hour", "$40 / 1 hour"]
    rows = list(gcp.parse(page(cells)))
    assert prices(rows, "a3-ultragpu-8g") == {"spot": Decimal(40)}
    assert reasons(rows) == ["not sold on demand"]


def test_both_paths_give_one_row_and_say_where_they_disagree() -> None:
    def both(on_demand: str) -> list[Any]:
        told = page([*A2_CELLS, on_demand, "$1 / 1 hour"])
        return list(gcp.parse({**told, **catalog(*a2())}))

    for agreeing in ("$3.2 / 1 hour", "$3.20032 / 1 hour", "$3.19968 / 1 hour"):
        rows = both(agreeing)
        assert reasons(rows) == []
        assert prices(rows, "a2-highgpu-1g") == {"on_demand": Decimal("3.2"), "spot": Decimal(1)}
    rows = both("$3.2004 / 1 hour")
    (refused,) = (row for row in rows if isinstance(row, Reject))
    assert refused.reason == "page and SKUs disagree"
    assert "page 3.200400000, SKUs 3.200000000" in refused.raw
    assert prices(rows, "a2-highgpu-1g")["on_demand"] == Decimal("3.2")


# --- other readings of the same prices ---


def captured_page() -> dict[tuple[Any, ...], Decimal]:
    body = (CAPTURES / "accelerator_optimized_pricing_page_2026-10.html").read_bytes()
    return offers(gcp.parse({"accelerator_page": [Page("accelerator_page", body=body)]}))


def table(path: Path) -> list[dict[str, str]]:
    packed = path.read_bytes()
    text = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
    return list(csv.DictReader(text.splitlines(), delimiter=";" if ";" in text[:20] else ","))


def rounding_of(machine: str) -> Decimal:
    """Return how far a page's sum may lie above the catalog's.

    The rates of a component differ by at most the last digit of the catalog's, one nanodollar
    (seen with every part of G2, and the cores of A2 and A3), and the page rounds its sum.
    """
    return NANO * (sum(MACHINES[machine].parts.values(), Decimal(0)) + Decimal("0.5"))


@needs_evidence
def test_the_captured_page_is_read_whole() -> None:
    body = (CAPTURES / "accelerator_optimized_pricing_page_2026-10.html").read_bytes()
    rows = list(gcp.parse({"accelerator_page": [Page("accelerator_page", body=body)]}))
    dollars = len(re.findall(rb"\$[\d ]", body))
    count = Counter(type(row).__name__ for row in rows)
    # 157 prices less the one that is not sold on demand; one placeholder
    assert dollars == count["Offer"] + 1
    refused = Counter(r for r in reasons(rows) if r != "not sold")
    assert refused == {"not sold on demand": 1, "unreadable price": 1}
    machines = {row.sku for row in rows if isinstance(row, Offer)}
    assert machines <= MACHINES.keys()
    print(f"page: {count['Offer']} prices of {len(machines)} machines")


@needs_evidence
def test_page_against_karpenter() -> None:
    """Spot is left out: it changes monthly and karpenter's is two months older."""
    other = {
        row["machine_type"]: Decimal(row["usd_per_hour"])
        for row in table(CAPTURES / "expected" / "karpenter_gcp_accelerated_2026-08-03.csv")
        if (row["region"], row["kind"]) == ("us-central1", "on_demand")
    }
    counts = Counter[str]()
    for (machine, _, market, *_), price in captured_page().items():
        if market != "on_demand" or machine not in other:
            continue
        if machine in ("g4-standard-6", "g4-standard-12", "g4-standard-24"):
            # karpenter sums fractions of the whole GPU's parts; Google sells eighths, and dearer
            facts = MACHINES[machine].facts
            core, ram, gpu = Decimal("0.04891"), Decimal("0.00587"), Decimal("1.09565")
            assert other["g4-standard-48"] == 48 * core + 180 * ram + gpu
            assert other[machine] == (
                facts["vcpus"] * core + facts["memory_gib"] * ram + facts["gpu_count"] * gpu
            )
            assert price > other[machine]
            counts["fraction priced by scaling"] += 1
        elif money(other[machine]) == price:
            counts["equal"] += 1
        else:
            assert 0 < price - other[machine] <= rounding_of(machine), machine
            counts["equal but for rounded rates"] += 1
    print("page and karpenter:", dict(counts))
    assert counts == {
        "equal": 13,
        "equal but for rounded rates": 9,
        "fraction priced by scaling": 3,
    }


@needs_evidence
def test_page_against_gcosts() -> None:
    """On demand and commitments of us-central1, 2026-05-16; spot has changed since."""
    columns = {
        ("on_demand", None): "usd_hour",
        ("reserved", 12): "usd_month_1y",
        ("reserved", 36): "usd_month_3y",
    }
    other = {
        row["machine_type"]: row
        for row in table(HISTORY / "gcp-cyclenerd" / "2026-05-16" / "gpu_instances.csv")
        if row["region"] == "us-central1"
    }
    counts = Counter[str]()
    for (machine, _, market, tier, months), price in captured_page().items():
        column = columns.get((market, months))
        if column is None or tier or not other.get(machine, {}).get(column):
            continue
        amount = Decimal(other[machine][column])
        amount = amount / 730 if column.startswith("usd_month") else amount
        if machine in ("g4-standard-6", "g4-standard-12", "g4-standard-24"):
            assert price > amount
            counts["fraction priced by scaling"] += 1
        elif money(amount) == price:
            counts["equal"] += 1
        else:
            assert 0 < price - amount <= rounding_of(machine), machine
            counts["equal but for rounded rates"] += 1
    print("page and gcosts:", dict(counts))
    assert counts == {
        "equal": 26,
        "equal but for rounded rates": 32,
        "fraction priced by scaling": 9,
    }


@needs_evidence
def test_page_against_raw_skus() -> None:
    """B200 slices of 2026-06-15 times eight; the page rounds Calendar Mode to cents."""
    rates = {
        row["sku"]: Decimal(row["per_gpu_hourly_usd"])
        for row in table(CAPTURES / "expected" / "gpu_pricing_raw_2026-06-15.csv")
        if row["region"] == "us-central1" and "B200" in row["sku"]
    }
    compared = 0
    found = captured_page()
    for description, rate in rates.items():
        part, terms = gcp._identify(description) or ("", gcp.ON_DEMAND)
        assert part == "b200 slice"
        price = found.get(("a4-highgpu-8g", "us-central1", *terms))
        if terms == gcp.ON_DEMAND:
            assert price is None  # a price is listed; the machine is not sold on demand
        elif terms != Terms("spot"):  # spot has changed since
            assert price is not None
            places = Decimal("0.01") if terms == gcp.CALENDAR else NANO
            assert (8 * rate).quantize(places, ROUND_HALF_EVEN) == price
            compared += 1
    print(f"page and raw SKUs: {compared} equal")
    assert compared == 4


@needs_evidence
def test_every_recorded_description_is_recognised() -> None:
    """That reader files DWS and Calendar Mode as one- and three-year terms; the words say else."""
    terms = {
        "on_demand": gcp.ON_DEMAND,
        "spot": Terms("spot"),
        "12mo": Terms("reserved", None, 12),
        "36mo": Terms("reserved", None, 36),
    }
    counts = Counter[str]()
    for row in table(CAPTURES / "expected" / "gpu_pricing_raw_2026-06-15.csv"):
        identified = gcp._identify(row["sku"])
        assert identified is not None, row["sku"]
        if identified[1] in (gcp.FLEX_START, gcp.CALENDAR):
            assert row["price_tier"] in ("12mo", "36mo")
            counts["DWS"] += 1
        else:
            assert identified[1] == terms[row["price_tier"]], row["sku"]
            counts["equal"] += 1
    print("descriptions:", dict(counts))
    assert counts == {"equal": 49, "DWS": 20}


@needs_evidence
def test_both_paths_agree_on_what_both_state() -> None:
    """Page of 2026-10, SKUs of 2023-03: prices that have not changed in between."""
    skus = Page("skus", body=(CAPTURES / "skus_compute_a2_pd_gke_2023-03.json").read_bytes())
    rows = list(gcp.parse({"skus": [skus]}))
    assert reasons(rows) == []  # the four SKUs in rupiah are not of GPU machines
    summed, told = offers(rows), captured_page()
    assert summed["a2-highgpu-1g", "us-central1", "on_demand", None, None] == Decimal("3.673385")
    both = summed.keys() & told.keys()
    assert {key[0] for key in both} == {
        "a2-highgpu-1g",
        "a2-highgpu-2g",
        "a2-highgpu-4g",
        "a2-highgpu-8g",
        "a2-megagpu-16g",
    }
    assert all(summed[key] == told[key] for key in both)
    body = (CAPTURES / "accelerator_optimized_pricing_page_2026-10.html").read_bytes()
    merged = list(gcp.parse({"skus": [skus], "accelerator_page": [Page("page", body=body)]}))
    assert "page and SKUs disagree" not in reasons(merged)
    assert len(offers(merged)) == len(summed) + len(told) - len(both)
    print(f"page and SKUs: {len(both)} equal")


@needs_evidence
def test_captured_skus_against_karpenter_and_gcosts() -> None:
    skus = Page("skus", body=(CAPTURES / "skus_compute_a2_pd_gke_2023-03.json").read_bytes())
    found = offers(gcp.parse({"skus": [skus]}))
    others: dict[tuple[str, str], set[Decimal]] = {}
    for row in table(CAPTURES / "expected" / "karpenter_gcp_accelerated_2026-08-03.csv"):
        if row["kind"] == "on_demand":
            key = row["machine_type"], row["region"]
            others.setdefault(key, set()).add(money(row["usd_per_hour"]))
    for date in ("2022-11-03", "2023-01-31", "2023-06-08", "2026-05-16"):
        for row in table(HISTORY / "gcp-cyclenerd" / date / "gpu_instances.csv"):
            key = row["machine_type"], row["region"]
            others.setdefault(key, set()).add(money(row["usd_hour"]))
    for (machine, region, *_), price in found.items():
        assert others[machine, region] == {price}
    # B042, B043: regions that other lists price though the machine is not sold there
    not_sold = {r for m, r in others if m == "a2-highgpu-1g"} - {*MACHINES["a2-highgpu-1g"].regions}
    assert "africa-south1" in not_sold
    print(f"SKUs, karpenter and gcosts on four dates: {len(found)} equal")
    assert len(found) == 13


@needs_evidence
def test_captured_gpu_part_against_opencomputeprices() -> None:
    """Its Google rows are the GPU alone (B043); that part is the captured SKU's."""
    path = HISTORY / "opencomputeprices" / "2026-03-21" / "skypilot.csv.gz"
    rate, compared = Decimal("2.933908"), 0
    for row in table(path):
        told = (row["provider"], row["gpu_name"], row["region"], row["pricing_type"])
        if told == ("gcp", "A100", "us-central1", "on_demand"):
            expected = (rate * int(row["gpu_count"])).quantize(Decimal("0.00001"))
            assert Decimal(row["price_per_hour"]) == expected
            compared += 1
    print(f"A100 alone, SKU and OpenComputePrices: {compared} equal")
    assert compared >= 5


def documented(capture: str, **units: str) -> list[dict[str, Any]]:
    """Return the SKUs of a reduced capture with what its authors cut: currency and usage unit."""
    skus: list[dict[str, Any]] = json.loads((CAPTURES / capture).read_text("utf-8"))
    for item in skus:
        expression = item["pricingInfo"][0]["pricingExpression"]
        group = item["category"]["resourceGroup"]
        is_ram = " Ram " in item["description"]
        expression["usageUnit"] = units.get(group, "GiBy.h" if is_ram else "h")
        for rate in expression["tieredRates"]:
            rate["unitPrice"]["currencyCode"] = "USD"
    return skus


@needs_evidence
def test_reduced_captures_of_disks_give_the_known_prices() -> None:
    storage = {"SSD": "GiBy.mo", "PDStandard": "GiBy.mo", "InterregionEgress": "GiBy"}
    rows = read(*documented("skus_compute_disks_minimal_2024-11.json", **storage))
    other = {
        (row["family"], row["sku"]): Decimal(str(json.loads(row["cost_json"])["month"]))
        for row in table(HISTORY / "gcp-cyclenerd" / "2025-01-30" / "storage_network.csv")
        if row["region"] == "us-central1" and row["family"] == "disk"
    }
    paid = {row.product: row.price for row in rows if isinstance(row, Fee) and row.price}
    assert paid["Storage PD Capacity"] == other["disk", "hdd"]
    assert paid["SSD backed PD Capacity"] == other["disk", "ssd"]
    # Hyperdisk ML, regional, storage pools and throughput are not read
    assert len(paid) == 3
    assert paid["Network Inter Region Data Transfer Out from Americas to Melbourne"] == Decimal(
        "0.1"
    )
    print("disks, SKUs and gcosts: 2 equal")


@needs_evidence
def test_reduced_captures_of_machines_are_recognised() -> None:
    mega = read(*documented("skus_compute_a3plus_h100mega_minimal_2024-11.json"))
    assert not offers(mega)  # A3 Mega spot lacks its local SSD there
    lacking = {row.raw: row.detail for row in mega if row.reason == "component without a price"}
    assert "us-central1 spot/None/None: local ssd;" in lacking["a3-megagpu-8g"]
    n1 = documented("skus_compute_n1_minimal_2024-11.json")
    t4 = "Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Americas"
    # the captured host, 8 x 0.0088 + 30 x 0.001128, and a GPU of our own
    rows = read(*n1, sku(t4, "0.1", usage="Preemptible"))
    assert prices(rows, "n1-standard-8+1xT4") == {"spot": Decimal("0.20424")}
    custom = documented("skus_compute_n1_custom_ondemand_minimal_2024-11.json")
    assert not offers(read(*custom, sku("Nvidia Tesla T4 GPU running in Americas", "0.35")))


@needs_evidence
def test_captures_of_other_services_and_products_give_nothing() -> None:
    body = (CAPTURES / "skus_gke_autopilot_asia-southeast2_2025-08.json").read_bytes()
    with pytest.raises(EmptyReply):
        list(gcp.parse({"skus": [Page("skus", body=body)]}))
    body = (CAPTURES / "docs_sample_sku_vpn_internet_egress_2021-11.json").read_bytes()
    assert list(gcp.parse({"skus": [Page("skus", body=body)]})) == []


@needs_evidence
def test_machines_against_the_list_of_machine_types() -> None:
    expected = CAPTURES / "expected"
    types = {
        row["NAME"]: row
        for row in table(expected / "machine_types_accelerated_2026.csv")
        if not row["NAME"].startswith("ct")  # TPUs
    }
    zones: dict[str, set[str]] = {}
    for file in ("machine_type_by_region_accelerated_2026", "accelerator_type_by_region_2026"):
        for row in table(expected / f"{file}.csv"):
            zones.setdefault(row["NAME"], set()).add(row["ZONE"])
    own = {name: machine for name, machine in MACHINES.items() if not name.startswith("n1-")}
    assert own.keys() == types.keys()
    for name, machine in MACHINES.items():
        if name in types:
            assert machine.facts["vcpus"] == int(types[name]["CPUS"])
            assert machine.facts["memory_gib"] == Decimal(types[name]["MEMORY_GB"])
        listed = zones[name if name in types else machine.facts["gpu_label"]]
        assert set(machine.regions) == listed, name
    print(f"machine types: {len(own)} equal, {len(MACHINES) - len(own)} shapes of N1")


# --- damaged answers ---

JSON_CASES = [
    (path.name.split(".")[0], json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(CASES.glob("*/*.json"))
]
HTML_CASES = [path.read_bytes() for path in sorted(CASES.glob("*/*.html"))]
html_damage = st.lists(
    st.tuples(
        st.integers(0, 100_000),
        st.integers(0, 40),
        st.sampled_from(
            [b"", b"<td>", b"</td>", b"</tr><tr>", b"0", b"-1", b"$0 / 1 hour", b"\xff"]
        ),
    ),
    min_size=1,
    max_size=4,
)


def assert_sold(parse: Any, pages: Pages) -> None:
    assert_typed(parse, pages)
    try:
        rows = list(parse(pages))
    except SourceError:
        return
    for row in rows:
        if isinstance(row, Offer):
            assert row.currency == "USD"
            machine = MACHINES.get(row.sku)
            assert machine is None or (row.market, machine.on_demand) != ("on_demand", "no")
            assert (row.market == "reserved") == (row.commitment_months is not None)
            assert (row.market == "capacity_block") == (row.tier == "dws_calendar")
        elif isinstance(row, Fee):
            assert row.price > 0 or row.from_tier_gb == 0


def check_damaged(name: str, document: Any) -> None:
    damaged = page_of(name, document)
    assert_sold(gcp.parse, {name: [damaged]})
    with contextlib.suppress(SourceError):
        gcp.follow(name, damaged)


def damaged_pages(changes: list[tuple[int, int, bytes]]) -> Iterator[Page]:
    for body in HTML_CASES:
        for at, length, new in changes:
            start = at % len(body)
            body = body[:start] + new + body[start + length :]
        yield Page("accelerator_page", body=body)


def check_damaged_html(changes: list[tuple[int, int, bytes]]) -> None:
    for damaged in damaged_pages(changes):
        assert_sold(gcp.parse, {"accelerator_page": [damaged]})


@given(damage, st.sampled_from(JSON_CASES))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_lists_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], case: tuple[str, Any]
) -> None:
    check_damaged(case[0], apply(case[1], changes))


@given(html_damage)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_damaged_pages_give_valid_rows_rejects_or_our_errors(
    changes: list[tuple[int, int, bytes]],
) -> None:
    check_damaged_html(changes)


@pytest.mark.slow
@given(damage, st.sampled_from(JSON_CASES))
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_damaged_lists(changes: list[Any], case: tuple[str, Any]) -> None:
    check_damaged(case[0], apply(case[1], changes))


@pytest.mark.slow
@given(html_damage)
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_damaged_pages(changes: list[tuple[int, int, bytes]]) -> None:
    check_damaged_html(changes)
