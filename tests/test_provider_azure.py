"""Azure: markets told apart by words, totals of a term, paging, disks, traffic, damaged answers."""

import csv
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.errors import NotTheFormat, SourceError, UnknownShape
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Page
from scrapers.providers import azure
from tests.evidence import SHARED, needs_evidence
from tests.mutations import apply, assert_typed, damage, page_of

CAPTURES = SHARED / "payloads" / "azure"
CASES = Path(__file__).parent / "payloads" / "azure"
TRAPS = [
    (path.stem.partition(".")[0], json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(CASES.glob("*/*.json"))
]
SIZE = "Standard_NC48ads_A100_v4"
MACHINES = [
    "retail_prices_gpu_2026-09.json",
    "docs_sample_h100_eastus_2026-09-16.json",
    "retail_prices_vm_francecentral_gpu_plus_distractors_2021-12.json",
    "retail_prices_page_skip100_2022-04-19.json",
    "retail_prices_page_skip81200_2022-04-19.json",
    "retail_prices_page0_2021-10-01-preview_2022-04-16.json",
]


def machine(**changes: Any) -> dict[str, Any]:
    """Return a row with the seven fields that every capture has, and no more."""
    return {
        "armSkuName": SIZE,
        "armRegionName": "zzeast",
        "retailPrice": 7.5,
        "unitOfMeasure": "1 Hour",
        "meterName": "NC48ads_A100_v4",
        "productName": "NCads A100 v4 Series Linux",
        "type": "Consumption",
    } | changes


def disk(**changes: Any) -> dict[str, Any]:
    return (
        machine(
            armSkuName="",
            meterName="P10 LRS Disk",
            skuName="P10 LRS",
            productName="Premium SSD Managed Disks",
            unitOfMeasure="1/Month",
            retailPrice=19.71,
        )
        | changes
    )


def traffic(start: int, price: float, **changes: Any) -> dict[str, Any]:
    return (
        machine(
            armSkuName="",
            meterName="Standard Data Transfer Out",
            skuName="Standard",
            productName="Rtn Preference: MGN",
            unitOfMeasure="1 GB",
            tierMinimumUnits=start,
            retailPrice=price,
        )
        | changes
    )


def read(*items: Any, name: str = "vm_prices") -> list[Any]:
    return list(azure.parse({name: [page_of(name, {"Items": items})]}))


def reasons(rows: Iterable[Any]) -> list[str]:
    return [row.reason for row in rows if isinstance(row, Reject)]


def offers_of(*files: str) -> list[Offer]:
    rows = []
    for file in files:
        page = Page(name="vm_prices", path=CAPTURES / file)
        rows += [row for row in azure.parse({"vm_prices": [page]}) if isinstance(row, Offer)]
    return rows


@pytest.mark.parametrize(
    "link",
    [
        "https://prices.azure.com/api/retail/prices?$skip=1000",
        "https://prices.azure.com:443/api/retail/prices?api-version=2023-01-01-preview&$skip=100",
    ],
)
def test_next_page_link_is_followed_on_the_same_host(link: str) -> None:
    request = azure.follow("vm_prices", page_of("vm_prices", {"Items": [], "NextPageLink": link}))
    assert request is not None
    assert request.url == link


@pytest.mark.parametrize("end", [{"Items": [], "NextPageLink": e} for e in ("", None)] + [[], {}])
def test_a_page_without_a_link_is_the_last(end: Any) -> None:
    assert azure.follow("vm_prices", page_of("vm_prices", end)) is None


@pytest.mark.parametrize(
    "link",
    [
        "https://prices.azure.com.example.org/api/retail/prices?$skip=100",
        "http://prices.azure.com/api/retail/prices?$skip=100",
        "https://prices.azure.com:8443/api/retail/prices?$skip=100",
        "https://prices.azure.com:x/",
        "/api/retail/prices?$skip=100",
        7,
        ["https://prices.azure.com/"],
    ],
)
def test_a_link_that_leads_elsewhere_fails_loudly(link: Any) -> None:
    with pytest.raises(UnknownShape):
        azure.follow("vm_prices", page_of("vm_prices", {"Items": [], "NextPageLink": link}))


@pytest.mark.parametrize(
    ("changes", "market", "tier", "months", "price"),
    [
        ({}, "on_demand", None, None, "7.5"),
        ({"meterName": "NC48ads_A100_v4 Spot"}, "spot", None, None, "7.5"),
        ({"skuName": "NC48ads A100 v4 Spot"}, "spot", None, None, "7.5"),
        ({"meterName": "NC48ads_A100_v4 Low Priority"}, "spot", "low_priority", None, "7.5"),
        (
            {"type": "Reservation", "reservationTerm": "1 Year", "retailPrice": 43800},
            *("reserved", None, 12, "5"),
        ),
        (
            {"type": "Reservation", "reservationTerm": "3 Years", "retailPrice": 65910},
            *("reserved", None, 36, "2.507990868"),
        ),
    ],
)
def test_markets_are_told_apart(
    changes: dict[str, Any], market: str, tier: str | None, months: int | None, price: str
) -> None:
    (row,) = read(machine(**changes))
    assert (row.market, row.tier, row.commitment_months) == (market, tier, months)
    assert row.price_per_hour == Decimal(price)


def test_a_savings_plan_is_hourly_and_a_market_of_its_own() -> None:
    plans = [{"retailPrice": 3.0, "term": "3 Years"}, {"retailPrice": 5.25, "term": "1 Year"}]
    rows = read(machine(savingsPlan=plans))
    assert [(r.market, r.tier, r.commitment_months, r.price_per_hour) for r in rows] == [
        ("on_demand", None, None, Decimal("7.5")),
        ("reserved", "savings_plan", 36, Decimal(3)),
        ("reserved", "savings_plan", 12, Decimal("5.25")),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"productName": "NCads A100 v4 Series Windows"},
        {"productName": "NCads A100 v4 Series Windows", "meterName": "NC48ads_A100_v4 Spot"},
        {"productName": "NCads A100 v4 Series CloudServices"},
        {"productName": "NCads A100 v4 Series Cloud Services"},
        {"productName": "NCads A100 v4 Series Dedicated Host"},
        {"type": "DevTestConsumption"},
        {"meterName": "NC48ads_A100_v4 Expired"},
        {"serviceName": "HDInsight"},
        {"armSkuName": "Standard_D8s_v5"},
        {"armSkuName": "Standard_NP10s"},
        {"armSkuName": "Standard_NM16ads_MA35D  "},
        {"armSkuName": ""},
        {"armSkuName": None},
    ],
)
def test_what_is_no_linux_gpu_machine_is_left_out(changes: dict[str, Any]) -> None:
    assert read(machine(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"retailPrice": 0.0}, "zero price"),
        ({"retailPrice": None}, "no price"),
        ({"retailPrice": "7.5"}, "unreadable row"),
        ({"retailPrice": -7.5}, "invalid price_per_hour"),
        ({"unitOfMeasure": "1/Month"}, "unknown unit"),
        ({"type": "Surprise"}, "unknown price type"),
        ({"reservationTerm": "1 Year"}, "reservation term on a consumption price"),
        ({"type": "Reservation"}, "unreadable row"),
        ({"type": "Reservation", "reservationTerm": "Decade"}, "unreadable row"),
        ({"tierMinimumUnits": 100.0}, "volume price"),
        ({"productName": None}, "unreadable row"),
        ({"meterName": None}, "unreadable row"),
        ({"armRegionName": ""}, "invalid region"),
        ({"currencyCode": "XYZ"}, "invalid currency"),
        ({"retailPrice": 44000}, "invalid row"),  # a total that lost its label
        ({"armSkuName": "Standard_NX900_v9"}, "unknown size"),
    ],
)
def test_a_bad_row_is_one_reject(changes: dict[str, Any], reason: str) -> None:
    assert reasons(read(machine(**changes))) == [reason]


@pytest.mark.parametrize("missing", sorted(machine()))
def test_a_missing_field_is_never_read_as_a_price(missing: str) -> None:
    row = machine()
    del row[missing]
    assert not [one for one in read(row) if isinstance(one, Offer)]


def test_an_unknown_size_is_one_reject_however_many_rows_it_has() -> None:
    rows = read(*(machine(armSkuName="Standard_NX900_v9", armRegionName=f"r{n}") for n in range(9)))
    assert reasons(rows) == ["unknown size"]
    assert rows[0].detail == "Standard_NX900_v9: 9 rows"


@pytest.mark.parametrize(
    ("size", "count", "memory_gib"),
    [
        ("Standard_NV6ads_A10_v5", "0.166666667", 24),
        ("Standard_NV12ads_A10_v5", "0.333333333", 24),
        ("Standard_NV18ads_A10_v5", "0.5", 24),
        ("Standard_NV4as_v4", "0.125", 16),
        ("Standard_NC36lds_xl_RTXPRO6000BSE_v6", "0.25", 96),
        ("Standard_NC80adis_H100_v5", "2", 94),  # not 8, not 80 GB
        ("Standard_ND96isr_H100_v5", "8", 80),
        ("standard_nc4AS_t4_v3", "1", 16),
    ],
)
def test_gpus_come_from_the_size_table_fractions_included(
    size: str, count: str, memory_gib: int
) -> None:
    (row,) = read(machine(armSkuName=f"{size} "))
    assert (row.sku, row.gpu_count, row.gpu_memory_gib) == (size, Decimal(count), memory_gib)


def test_dollars_are_the_documented_default_and_other_currencies_are_kept() -> None:
    assert read(machine())[0].currency == "USD"
    assert read(machine(currencyCode="CNY", armRegionName="chinanorth3"))[0].currency == "CNY"


def test_the_same_price_again_is_dropped_and_another_price_is_left_to_the_runner() -> None:
    again = machine(effectiveStartDate="2026-06-01T00:00:00Z", meterName="NC48ads A100 v4")
    assert len(read(machine(), again)) == 1
    assert len(read(machine(), machine(retailPrice=8.0))) == 2


def test_every_size_has_a_source_and_one_row() -> None:
    path = Path(azure.__file__).with_name("azure_sizes.csv")
    with path.open(encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert all("https://" in row["source"] for row in rows)
    assert len(rows) == len(azure.SIZES)
    assert [row["size"] for row in rows] == sorted(row["size"] for row in rows)


def test_disks_are_sold_by_size_and_month() -> None:
    (fee,) = read(disk(), name="disk_prices")
    assert (fee.kind, fee.unit, fee.price) == ("block_storage", "disk_month", Decimal("19.71"))
    assert fee.product == "Premium SSD Managed Disks P10 LRS"
    assert fee.size_gb == Decimal("137.439")  # 128 GiB
    for left_out in (
        {"type": "Reservation", "reservationTerm": "1 Year", "retailPrice": 205},
        {"meterName": "S4 LRS Disk Operations"},
        {"meterName": "P30 LRS Disk Mount"},
        {"productName": "Premium Page Blob"},
    ):
        assert read(disk(**left_out), name="disk_prices") == []
    assert reasons(read(disk(retailPrice=0), name="disk_prices")) == ["zero price"]
    assert reasons(read(disk(unitOfMeasure="1/Hour"), name="disk_prices")) == ["unknown unit"]


def test_traffic_keeps_its_tiers_and_an_allowance_only_below_a_paid_tier() -> None:
    rows = read(traffic(0, 0), traffic(100, 0.087), name="bandwidth_prices")
    assert {(fee.from_tier_gb, fee.price) for fee in rows} == {(0, 0), (100, Decimal("0.087"))}
    assert {fee.kind for fee in rows} == {"egress"}
    assert reasons(read(traffic(0, 0), name="bandwidth_prices")) == ["zero price"]
    internet = traffic(0, 0.08, productName="Bandwidth - Routing Preference: Internet")
    assert read(internet, name="bandwidth_prices") == []


@pytest.mark.parametrize("key", ["Items", "items", None])
def test_any_envelope_will_do(key: str | None) -> None:
    document = [machine()] if key is None else {key: [machine()], "Surprise": 1}
    assert len(list(azure.parse({"vm_prices": [page_of("vm_prices", document)]}))) == 1


@pytest.mark.parametrize("body", [b"{}", b'{"Error": "busy"}', b'{"Items": {}}', b"7", b"null"])
def test_an_unknown_envelope_fails_loudly(body: bytes) -> None:
    with pytest.raises(UnknownShape):
        list(azure.parse({"vm_prices": [Page(name="vm_prices", body=body)]}))


@pytest.mark.parametrize("body", [b"<html>", b'{"Items": [{"armSku', b""])
def test_an_error_page_or_a_cut_off_one_is_not_json(body: bytes) -> None:
    with pytest.raises(NotTheFormat):
        list(azure.parse({"vm_prices": [Page(name="vm_prices", body=body)]}))


def test_a_page_that_holds_fewer_rows_than_it_says_is_truncated() -> None:
    page = page_of("vm_prices", {"Items": [machine()], "Count": 1000})
    assert reasons(azure.parse({"vm_prices": [page]})) == ["truncated listing"]


@needs_evidence
def test_on_demand_prices_match_karpenter() -> None:
    """Karpenter's generated table of 2026-06-18, against captures of 2026-09 and 2022."""
    with (CAPTURES / "expected" / "karpenter_ondemand_n_series_2026-06-18.csv").open() as stream:
        stated = {
            (row["armRegionName"], row["armSkuName"]): Decimal(row["on_demand_usd_per_hour"])
            for row in csv.DictReader(stream)
        }
    compared = Counter()
    for file in MACHINES[:2]:
        for offer in offers_of(file):
            if offer.market == "on_demand" and (offer.region, offer.sku) in stated:
                assert offer.price_per_hour == stated[offer.region, offer.sku], offer
                compared[file] += 1
    print(f"azure: {compared.total()} on-demand prices equal to karpenter's")
    assert compared.total() == 32


@needs_evidence
def test_markets_of_the_captures() -> None:
    markets = Counter(
        (offer.market, offer.tier, offer.commitment_months) for offer in offers_of(*MACHINES)
    )
    print(f"azure: {dict(markets)}")
    assert markets == {
        ("on_demand", None, None): 42,
        ("spot", None, None): 19,
        ("spot", "low_priority", None): 17,
        ("reserved", None, 12): 7,
        ("reserved", None, 36): 7,
    }
    reserved = {
        (offer.sku, offer.commitment_months): offer.price_per_hour
        for offer in offers_of(MACHINES[2])
        if offer.market == "reserved"
    }
    assert reserved["Standard_NV48s_v3", 36] == Decimal("2.507990868")  # 65,910 / 26,280


def history_rows() -> list[dict[str, Any]]:
    """Rebuild the API's rows from a tracker that lost their `type` (its fault B034).

    It kept price, meter, product and region of 8,528 rows. What it calls on-demand are, per meter
    and product, the hourly price and the totals of one and of three years, in rising order.
    """
    path = SHARED / "history" / "opencomputeprices" / "2026-03-21" / "azure.csv.gz"
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            kept = json.loads(row["raw_extra"])
            groups[
                row["instance_type"], row["region"], kept["meter_name"], kept["product_name"]
            ].append(
                machine(
                    armSkuName=row["instance_type"],
                    armRegionName=row["region"],
                    retailPrice=float(row["price_per_hour"]),
                    meterName=kept["meter_name"],
                    productName=kept["product_name"],
                )
            )
    rows = []
    for group in groups.values():
        group.sort(key=lambda row: row["retailPrice"])
        for row in group[1:]:
            years = 1 if row is group[1] and len(group) == 3 else 3
            term = f"{years} Year" if years == 1 else f"{years} Years"
            if row["retailPrice"] > 100 * group[0]["retailPrice"]:
                row |= {"type": "Reservation", "reservationTerm": term}
        rows += group
    return rows


@needs_evidence
def test_eight_thousand_real_rows_match_two_other_readings() -> None:
    """On-demand against karpenter and gpu-pricing, three months later.

    gpu-pricing's "12mo" and "36mo" are savings plans (0.832 and 0.617 of on-demand everywhere), so
    reservations have no independent figure here: each must lie plausibly below its on-demand price,
    which a total read as hourly, or divided by the wrong term, does not.
    """
    rows = read(*history_rows())
    offers = [row for row in rows if isinstance(row, Offer)]
    assert set(reasons(rows)) == {"unknown size"}
    with (CAPTURES / "expected" / "karpenter_ondemand_n_series_2026-06-18.csv").open() as stream:
        karpenter = {
            (row["armRegionName"], row["armSkuName"]): Decimal(row["on_demand_usd_per_hour"])
            for row in csv.DictReader(stream)
        }
    with (CAPTURES / "expected" / "gpu_pricing_raw_2026-06-15.csv").open() as stream:
        pricing = {
            (row["region"], row["sku"]): Decimal(row["total_hourly_usd"])
            for row in csv.DictReader(stream)
            if row["price_tier"] == "on_demand"
        }
    on_demand = {
        (offer.region, offer.sku): offer.price_per_hour
        for offer in offers
        if offer.market == "on_demand"
    }
    equal = Counter()
    for place, price in on_demand.items():
        for source, stated in (("karpenter", karpenter), ("gpu-pricing", pricing)):
            if place in stated:
                assert price == stated[place], (source, place)
                equal[source] += 1
    shares = [
        offer.price_per_hour / on_demand[offer.region, offer.sku]
        for offer in offers
        if offer.market == "reserved" and (offer.region, offer.sku) in on_demand
    ]
    print(f"azure: {len(offers)} offers of real rows, on-demand equal to {dict(equal)};")
    print(f"       {len(shares)} reservations at {min(shares):.2f} to {max(shares):.2f} of it")
    assert equal == {"karpenter": 788, "gpu-pricing": 24}
    assert min(shares) > Decimal("0.2")
    assert max(shares) < 1


@needs_evidence
def test_the_size_table_matches_two_other_ones() -> None:
    """ARM capabilities of three sizes, and SkyPilot's catalogue, which is from ARM as well.

    ARM counts a slice as one GPU, and SkyPilot has twelve GPUs for Standard_ND96isr_H100_v5, where
    Microsoft's documentation has eight. ND96amsr has 1,800 GB there and 1,900 in the documentation.
    """
    capabilities = json.loads(
        (CAPTURES / "expected" / "vm_sku_capabilities_southcentralus.json").read_text()
    )
    compared = 0
    for name, stated in capabilities.items():
        if "GPUs" in stated:
            size = azure.SIZES[name.lower()]
            assert (size.gpu_count, size.vcpus, size.memory_gib) == (
                Decimal(stated["GPUs"]), Decimal(stated["vCPUs"]), Decimal(stated["MemoryGB"]),
            )  # fmt: skip
            compared += 1
    path = SHARED / "history" / "opencomputeprices" / "2026-03-21" / "skypilot.csv.gz"
    catalogue = set()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["provider"] == "azure" and row["gpu_name"]:
                catalogue.add((row["instance_type"], row["gpu_count"], row["vcpus"], row["ram_gb"]))
    faults = set()
    for name, count, vcpus, ram in sorted(catalogue):
        size = azure.SIZES[name.lower()]
        assert size.vcpus == Decimal(vcpus), name
        if size.gpu_count != Decimal(count) and size.gpu_count >= 1:
            faults.add((name, count))
        if size.memory_gib != Decimal(ram):
            faults.add((name, ram))
    assert faults == {("Standard_ND96isr_H100_v5", "12"), ("Standard_ND96amsr_A100_v4", "1800")}
    print(f"azure: {compared} + {len(catalogue)} sizes compared")


@needs_evidence
def test_disks_of_the_captures() -> None:
    fees = {}
    for file in MACHINES[2:]:
        page = Page(name="disk_prices", path=CAPTURES / file)
        for row in azure.parse({"disk_prices": [page]}):
            assert isinstance(row, Fee)
            fees[row.product, row.region] = (row.price, row.size_gb)
    assert fees == {
        ("Premium SSD Managed Disks P80 LRS", "koreasouth"): (
            Decimal("3604.11"), Decimal("35183.298"),
        ),
        ("Standard SSD Managed Disks E10 LRS", "uksouth"): (Decimal("10.56"), Decimal("137.439")),
    }  # fmt: skip


def check_damaged(name: str, document: Any) -> None:
    page = page_of(name, document)
    assert_typed(azure.parse, {name: [page]})
    try:
        rows = list(azure.parse({name: [page]}))
        azure.follow(name, page)
    except SourceError:
        return
    items = document if isinstance(document, list) else document.get("Items", document.get("items"))
    honest = {
        (item["armSkuName"].strip(), item["retailPrice"])
        for item in items
        if isinstance(item, dict)
        and item.get("type") == "Consumption"
        and not item.get("reservationTerm")
        and isinstance(item.get("armSkuName"), str)
        and "Windows" not in str(item.get("productName"))
        and not str(item.get("meterName")).endswith(("Spot", "Low Priority", "Expired"))
        and type(item.get("retailPrice")) in (int, float)
    }
    for row in rows:
        if isinstance(row, Offer) and row.market == "on_demand":
            assert any(
                sku == row.sku and abs(Decimal(repr(price)) - row.price_per_hour) < Decimal("1e-8")
                for sku, price in honest
            ), row


@given(damage, st.sampled_from(TRAPS))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_damaged_answers_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], trap: tuple[str, Any]
) -> None:
    check_damaged(trap[0], apply(trap[1], changes))


@pytest.mark.slow
@given(damage, st.sampled_from(TRAPS))
@settings(max_examples=10_000, deadline=None)
def test_ten_thousand_damaged_answers(changes: list[Any], trap: tuple[str, Any]) -> None:
    check_damaged(trap[0], apply(trap[1], changes))
