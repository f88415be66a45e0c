"""AWS: price lists in both forms, what looks like on-demand and is not, terms, fees and spot."""

import copy
import csv
import gzip
import io
import json
import re
import shutil
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scrapers.collect import replay
from scrapers.errors import NotTheFormat, SourceError, UnknownShape
from scrapers.offer import Fee, Offer, Reject
from scrapers.pages import Page, scope_of
from scrapers.providers import aws
from scrapers.replay import file_name, read_pages
from tests.aws_lists import HEADER, MARKETS, as_csv, machine, rows_of_pricing_page
from tests.evidence import SHARED, needs_evidence
from tests.mutations import VALUES, apply, assert_typed, damage, page_of

CASES = Path(__file__).parent / "payloads" / "aws"
CAPTURES = SHARED / "payloads" / "aws"
EC2 = "ec2-us-east-1"
SPOT = json.loads((CASES / "markets" / "spot_prices-spot.json").read_text(encoding="utf-8"))
ADVISOR = json.loads((CASES / "markets" / "spot_advisor-spot.json").read_text(encoding="utf-8"))
GOV = json.loads((CASES / "partitions" / "ec2-us-gov-west-1.json").read_text(encoding="utf-8"))


def read(*rows: dict[str, str], name: str = EC2) -> list[Any]:
    return list(aws.parse({name: [Page(name=name, body=as_csv(rows))]}))


def read_spot(*sizes: Any, region: str = "us-west-2", **config: Any) -> list[Any]:
    blocks = [{"type": "gpuCurrentGen", "sizes": list(sizes)}, {"type": "empty", "sizes": []}]
    regions = [{"region": region, "instanceTypes": blocks}]
    feed = {"config": {"rate": "perhr", "regions": regions} | config}
    pages = {"spot_prices-spot": [page_of("spot_prices-spot", feed)]}
    return list(aws.parse(pages | {"spot_advisor-spot": [page_of("spot_advisor-spot", ADVISOR)]}))


def size(name: str, linux: Any, windows: str = "0.1") -> dict[str, Any]:
    columns = [("linux", linux), ("mswin", windows)]
    return {"size": name, "valueColumns": [{"name": n, "prices": {"USD": p}} for n, p in columns]}


def terms(option: str, hourly: str | None, upfront: str | None, years: str = "1yr") -> list[Any]:
    base = machine(
        TermType="Reserved",
        OfferTermCode="TERM",
        PurchaseOption=option,
        OfferingClass="standard",
        LeaseContractLength=years,
        PriceDescription="Linux/UNIX (Amazon VPC), p5.48xlarge reserved instance applied",
    )
    rows = []
    if hourly is not None:
        rows.append(base | {"PricePerUnit": hourly})
    if upfront is not None:
        start = {"Unit": "Quantity", "PricePerUnit": upfront, "PriceDescription": "Upfront Fee"}
        rows.append(base | start | {"StartingRange": "", "EndingRange": ""})
    return rows


def test_each_region_is_a_scope_of_three_lists_and_spot_one_of_two_feeds() -> None:
    assert {scope_of(name) for name in aws.REQUESTS} == {*aws.REGIONS, "spot"}
    assert len(aws.REQUESTS) == 3 * len(aws.REGIONS) + 2
    assert aws.REQUESTS["ec2-eu-west-1"].url == (
        "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/eu-west-1/index.csv"
    )
    assert aws.REQUESTS["s3-cn-north-1"].url == (
        "https://pricing.cn-north-1.amazonaws.com.cn/offers/v1.0/cn/AmazonS3/current/cn-north-1/index.csv"
    )
    assert aws.REQUESTS["spot_prices-spot"].media == "json"
    assert aws.REQUESTS["data_transfer-us-gov-east-1"].media == "csv"


def test_a_request_name_survives_the_replay_layout(tmp_path: Path) -> None:
    for name, ask in aws.REQUESTS.items():
        (tmp_path / file_name(name, 1, ask.media)).write_text("x")
    assert set(read_pages(tmp_path)) == set(aws.REQUESTS)


def test_a_plain_row_is_an_offer() -> None:
    (row,) = read(machine())
    assert (row.sku, row.region, row.market, row.price_per_hour) == (
        "p5.48xlarge",
        "us-east-1",
        "on_demand",
        Decimal(50),
    )
    assert (row.gpu_label, row.gpu_count, row.gpu_memory_gib) == ("H100", 8, 80)
    assert row.interconnect == "NVLink (NVSwitch), EFA 3200 Gbps"
    assert str(row.effective_at) == "2026-02-01 00:00:00+00:00"


@pytest.mark.parametrize(
    "changes",
    [
        {"Operating_System": "Windows"},
        {"Operating_System": "Windows", "License_Model": "Bring your own license"},
        {"License_Model": "Bring your own license"},
        {"Operating_System": "RHEL", "operation": "RunInstances:0010"},
        {"operation": "RunInstances:0800"},
        {"Pre_Installed_S__W": "SQL Web"},
        {"Tenancy": "Dedicated"},
        {"Tenancy": "Host"},
        {"CapacityStatus": "UnusedCapacityReservation", "usageType": "UnusedBox:p5.48xlarge"},
        {"CapacityStatus": "AllocatedCapacityReservation"},
        {"Location_Type": "AWS Local Zone"},
        {"Location_Type": "AWS Wavelength Zone"},
        {"Product_Family": "Dedicated Host"},
        {"operation": ""},
        {"CapacityStatus": ""},
    ],
)
def test_what_is_not_plain_linux_capacity_in_a_region_is_left_out(changes: Any) -> None:
    assert read(machine(**changes)) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"PricePerUnit": "0.0000000000"}, "zero price"),
        ({"PricePerUnit": ""}, "no price"),
        ({"PricePerUnit": "NaN"}, "no price"),
        ({"PricePerUnit": "-1.0"}, "no price"),
        ({"PricePerUnit": "Infinity"}, "no price"),
        ({"PricePerUnit": "1_000"}, "no price"),
        ({"PricePerUnit": "98765.0"}, "invalid row"),
        ({"Currency": "XXX"}, "invalid currency"),
        ({"Currency": ""}, "unreadable row"),
        ({"EffectiveDate": "soon"}, "unreadable row"),
        ({"Unit": "Quantity"}, "unknown unit"),
        ({"Unit": "Mo"}, "unknown unit"),
        ({"StartingRange": "100"}, "volume price"),
        ({"TermType": "Promo"}, "unknown term type"),
        ({"MarketOption": "Auction"}, "unknown market option"),
        ({"usageType": "UnusedBox:p5.48xlarge"}, "unknown usage type"),
        ({"usageType": "HostBoxUsage:p5.48xlarge"}, "unknown usage type"),
        ({"Region_Code": "us-west-2"}, "row of another region"),
        ({"PurchaseOption": "All Upfront"}, "reservation terms on an on-demand price"),
        ({"LeaseContractLength": "3yr"}, "reservation terms on an on-demand price"),
        (
            {"PriceDescription": "$9 per On Demand Windows BYOL p5.48xlarge Instance Hour"},
            "description of another product",
        ),
        (
            {"PriceDescription": "$9 per Unused Reservation Linux p5.48xlarge Instance Hour"},
            "description of another product",
        ),
        ({"Instance_Type": "p9.2xlarge"}, "unknown size"),
    ],
)
def test_a_row_that_would_be_misread_is_refused(changes: Any, reason: str) -> None:
    assert [row.reason for row in read(machine(**changes))] == [reason]


@pytest.mark.parametrize("price", ["0.0000000000", "0.1250000000", "31.0000000000"])
@pytest.mark.parametrize(
    "changes",
    [
        {"MarketOption": "CapacityBlock", "operation": "RunInstances:CB"},
        {"MarketOption": "", "operation": "RunInstances:CB"},  # a list without the column
        {"MarketOption": "CapacityBlock"},
        {"PriceDescription": "$0.125 per Capacity Block Linux p5.48xlarge Instance Hour"},
    ],
)
def test_a_capacity_block_is_its_own_market_and_zero_is_no_price(changes: Any, price: str) -> None:
    (row,) = read(machine(price=price, **changes))
    if Decimal(price) == 0:
        assert row.reason == "zero price"
    else:
        assert (row.market, row.price_per_hour) == ("capacity_block", Decimal(price))


def test_a_type_with_capacity_blocks_alone_has_no_on_demand_price() -> None:
    rows = read(machine("p5e.48xlarge", "0.0", MarketOption="CapacityBlock"))
    assert not [row for row in rows if isinstance(row, Offer)]


def test_reserved_options_compare_by_the_hour_of_the_whole_term() -> None:
    rows = read(
        *terms("No Upfront", "40.0000000000", None),
        *[row | {"OfferTermCode": "B"} for row in terms("Partial Upfront", "20.0", "175200")],
        *[row | {"OfferTermCode": "C"} for row in terms("All Upfront", "0.0", "1051200", "3yr")],
        *[row | {"OfferTermCode": "D"} for row in terms("All Upfront", None, "350400")],
    )
    assert [(r.tier, r.commitment_months, r.price_per_hour, r.upfront, r.market) for r in rows] == [
        ("standard No Upfront", 12, Decimal(40), None, "reserved"),
        ("standard Partial Upfront", 12, Decimal(40), Decimal(175200), "reserved"),
        ("standard All Upfront", 36, Decimal(40), Decimal(1051200), "reserved"),
        ("standard All Upfront", 12, Decimal(40), Decimal(350400), "reserved"),
    ]


@pytest.mark.parametrize(
    ("option", "hourly", "upfront", "years"),
    [
        ("No Upfront", None, "1000", "1yr"),
        ("No Upfront", "1.0", "1000", "1yr"),
        ("Partial Upfront", "1.0", None, "1yr"),
        ("Partial Upfront", None, "1000", "3yr"),
        ("All Upfront", "1.0", "1000", "3yr"),
        ("All Upfront", "0.0", "0", "3yr"),
        ("No Upfront", "0.0", None, "3yr"),
        ("Some Upfront", "1.0", "1000", "3yr"),
        ("No Upfront", "1.0", None, "2yr"),
        ("No Upfront", "1.0", None, ""),
    ],
)
def test_half_a_term_is_no_price(option: str, hourly: Any, upfront: Any, years: str) -> None:
    rows = read(*terms(option, hourly, upfront, years))
    assert [row.reason for row in rows] == ["unreadable reserved terms"]


def test_a_slice_is_a_part_of_a_whole_gpu() -> None:
    (row,) = read(machine("g6f.large", "0.2", GPU="0.125"))
    assert (row.gpu_label, row.gpu_count) == ("L4", Decimal("0.125"))
    assert row.gpu_memory_gib == aws.INSTANCES["g6.xlarge"].gpu_memory_gib


def test_bare_metal_and_accelerators_that_are_not_gpus_are_kept() -> None:
    rows = read(
        machine("g4dn.metal", Product_Family="Compute Instance (bare metal)"),
        machine("trn1.32xlarge", Instance_Family="Machine Learning ASIC Instances"),
        machine("dl1.24xlarge"),
        machine("p6-b200.48xlarge"),
    )
    assert [(row.gpu_label, row.gpu_count) for row in rows] == [
        ("T4", 8),
        ("Trainium", 16),
        ("Gaudi HL-205", 8),
        ("B200", 8),
    ]


def test_an_unknown_type_is_one_reject_that_names_it_and_others_are_none() -> None:
    rows = read(
        machine("p9.96xlarge"),
        machine("p9.96xlarge", MarketOption="CapacityBlock"),
        machine("q1.xlarge"),
        machine("t4g.nano", Instance_Family="General purpose"),
        machine("f2.12xlarge", Instance_Family="FPGA Instances"),
    )
    assert [(row.reason, row.detail) for row in rows] == [
        ("unknown size", "p9.96xlarge: 2 rows"),
        ("unknown size", "q1.xlarge: 1 rows"),
    ]


def test_china_keeps_its_currency_and_its_own_codes() -> None:
    row = machine(
        Currency="CNY",
        OfferTermCode="5Y9WH78GDR",
        Location="China (Beijing)",
        Region_Code="cn-north-1",
        usageType="CNN1-BoxUsage:p5.48xlarge",
        PricePerUnit="61234.5",
    )
    (offer,) = read(row, name="ec2-cn-north-1")
    assert (offer.currency, offer.price_per_hour) == ("CNY", Decimal("61234.5"))


def test_an_old_list_without_region_codes_is_placed_by_its_location() -> None:
    old = machine(Region_Code="", Location="AWS GovCloud (US)")
    assert read(old, name="ec2")[0].region == "us-gov-west-1"
    assert [row.reason for row in read(old)] == ["row of another region"]


def test_a_list_is_read_by_scope_even_when_pages_of_all_regions_come_at_once() -> None:
    far = machine(Region_Code="us-west-2", usageType="USW2-BoxUsage:p5.48xlarge")
    pages = {
        EC2: [Page(name=EC2, body=as_csv([machine()]))],
        "ec2-us-west-2": [Page(name="ec2-us-west-2", body=as_csv([far]))],
    }
    assert [row.region for row in aws.parse(pages)] == ["us-east-1", "us-west-2"]


def test_a_damaged_line_is_one_reject() -> None:
    lines = as_csv([machine(), machine("g5.xlarge", "1.0"), machine("g6.xlarge", "1.0")])
    damaged = lines.replace(b'"g5.xlarge",', b"", 1)
    rows = list(aws.parse({EC2: [Page(name=EC2, body=damaged)]}))
    assert [getattr(row, "reason", "offer") for row in rows] == ["unreadable row", "offer", "offer"]


def test_a_comma_and_a_quote_in_a_cell_are_text() -> None:
    text = '$50 per On Demand Linux, p5 ""new"" Instance Hour'  # as CSV doubles a quote
    (row,) = read(machine(PriceDescription=text))
    assert isinstance(row, Offer)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", UnknownShape),
        (b"<html><body>Service unavailable</body></html>", UnknownShape),
        (b'"FormatVersion","v1.0"\n', UnknownShape),
        (as_csv([machine()], [c for c in HEADER if c != "MarketOption"]), None),
        (as_csv([machine()], [c for c in HEADER if c != "Operating System"]), UnknownShape),
        (as_csv([machine()], [c for c in HEADER if c != "PricePerUnit"]), UnknownShape),
        (as_csv([machine()])[:-90], NotTheFormat),
        (as_csv([machine()]) + b'"ABC","JRT', NotTheFormat),
        (as_csv([machine()]).replace(b"p5.48xlarge", b"p5.48xl\xff"), NotTheFormat),
        (json.dumps(GOV).encode()[:-200], NotTheFormat),
        (b'{"products": {}, "terms": {}}', UnknownShape),
        (b'{"message": "Forbidden"}', UnknownShape),
        (b'{"products": [1]}', UnknownShape),
    ],
)
def test_a_page_that_is_not_a_whole_list_is_an_error(body: bytes, error: Any) -> None:
    pages = {EC2: [Page(name=EC2, body=body)]}
    if error is None:
        assert len(list(aws.parse(pages))) == 1
    else:
        with pytest.raises(error):
            list(aws.parse(pages))


def test_both_forms_and_a_packed_file_say_the_same(tmp_path: Path) -> None:
    name = "ec2-us-gov-west-1"
    row = machine(
        "p4d.24xlarge",
        "39.3300000000",
        Location="AWS GovCloud (US-West)",
        Region_Code="us-gov-west-1",
        usageType="UGW1-BoxUsage:p4d.24xlarge",
    )
    packed = tmp_path / f"{name}.csv.gz"
    packed.write_bytes(gzip.compress(as_csv([row])))
    from_csv = list(aws.parse({name: [Page(name=name, path=packed)]}))
    from_json = list(aws.parse({name: [page_of(name, GOV)]}))
    assert from_csv[0] in from_json


def test_a_product_without_terms_and_terms_without_a_product_are_nothing() -> None:
    changed = copy.deepcopy(GOV)
    changed["terms"]["OnDemand"]["OTHER"] = changed["terms"]["OnDemand"].pop("GOVP4D")
    rows = list(aws.parse({"ec2": [page_of("ec2", changed)]}))
    assert not [
        r for r in rows if getattr(r, "sku", "") == "p4d.24xlarge" and r.market != "reserved"
    ]


def test_volumes_are_sized_in_gib_and_only_the_capacity_of_gp3_and_io2_is_kept() -> None:
    rows = [row for row in replay_case("markets") if isinstance(row, Fee)]
    assert [(row.product, row.price, row.unit) for row in rows] == [
        ("gp3", Decimal("0.081"), "gib_month"),
        ("io2", Decimal("0.126"), "gib_month"),
    ]


def test_traffic_starts_at_its_own_region_and_keeps_a_free_first_tier() -> None:
    rows = [row for row in replay_case("fees") if isinstance(row, Fee)]
    out = sorted((row.from_tier_gb, row.price) for row in rows if row.kind == "egress")
    assert out == [
        (0, Decimal(0)),
        (1, Decimal("0.091")),
        (10240, Decimal("0.086")),
        (51200, Decimal("0.071")),
        (153600, Decimal("0.051")),
    ]
    assert [(r.product, r.price) for r in rows if r.kind == "inter_region_egress"] == [
        ("InterRegion Outbound to us-west-2", Decimal("0.021"))
    ]
    assert {row.region for row in rows} == {"eu-west-1"}


def test_a_free_price_without_paid_tiers_is_no_price() -> None:
    pages = read_pages(CASES / "fees")
    rows = list(aws.parse({"data_transfer-eu-west-1": pages["data_transfer-eu-west-1"]}))
    refused = [row for row in rows if isinstance(row, Reject)]
    assert [row.reason for row in refused] == ["zero price"]
    assert "eu-central-1" in refused[0].raw


def replay_case(case: str) -> list[Any]:
    return list(aws.parse(read_pages(CASES / case)))


# --- spot ---


@pytest.mark.parametrize(
    ("key", "region"),
    [
        ("us-east", "us-east-1"),
        ("us-west", "us-west-1"),
        ("eu-ireland", "eu-west-1"),
        ("apac-sin", "ap-southeast-1"),
        ("apac-syd", "ap-southeast-2"),
        ("apac-tokyo", "ap-northeast-1"),
        ("ap-south-1", "ap-south-1"),
        ("us-gov-west-1", "us-gov-west-1"),
    ],
)
def test_old_region_keys_of_the_spot_feed(key: str, region: str) -> None:
    assert read_spot(size("g5.xlarge", "0.5"), region=key)[0].region == region


def test_spot_is_the_linux_price_even_when_windows_is_cheaper() -> None:
    (row,) = read_spot(size("g5.xlarge", "0.5237", "0.3104"))
    assert (row.market, row.price_per_hour) == ("spot", Decimal("0.5237"))


def test_scientific_notation_is_a_number_and_a_mark_is_none() -> None:
    assert read_spot(size("g6f.large", "9.0E-4"))[0].price_per_hour == Decimal("0.0009")
    assert [row.reason for row in read_spot(size("g6.xlarge", "N/A*"))] == ["not sold as spot"]
    assert [row.reason for row in read_spot(size("g6.xlarge", "0.0"))] == ["zero price"]
    for price in ("", "soon", None, 1, "NaN", "-1", []):
        (row,) = read_spot(size("g6.xlarge", price))
        assert row.reason == "unreadable row"


def test_ordinary_types_are_left_out_and_unknown_accelerated_ones_refused() -> None:
    rows = read_spot(size("m5.large", "0.1"), size("t4g.nano", "9.0E-4"), size("p9.xlarge", "1"))
    assert [(row.reason, row.detail) for row in rows] == [("unknown size", "p9.xlarge")]


def test_interruption_is_the_upper_end_of_the_band_of_that_type_and_region() -> None:
    sizes = [size("g5.xlarge", "0.5"), size("p5.48xlarge", "20")]
    rates = {}
    for region in ("us-east-1", "us-west-2"):
        for row in read_spot(*sizes, region=region):
            rates[region, row.sku] = row.interruption_rate_monthly
    assert rates == {
        ("us-east-1", "g5.xlarge"): Decimal("0.11"),  # "5-10%", whose max is 11
        ("us-east-1", "p5.48xlarge"): None,  # only Windows is stated
        ("us-west-2", "g5.xlarge"): None,
        ("us-west-2", "p5.48xlarge"): Decimal(1),  # ">20%"
    }


@pytest.mark.parametrize("band", [9, -1, "1", None, True, [], {}])
def test_a_band_that_is_not_in_the_ranges_is_not_stated(band: Any) -> None:
    advisor = copy.deepcopy(ADVISOR)
    advisor["spot_advisor"]["us-east-1"]["Linux"]["g5.xlarge"]["r"] = band
    pages = {
        "spot_prices-spot": [page_of("spot_prices-spot", SPOT)],
        "spot_advisor-spot": [page_of("spot_advisor-spot", advisor)],
    }
    rows = [row for row in aws.parse(pages) if isinstance(row, Offer)]
    assert {row.interruption_rate_monthly for row in rows} == {None}


def test_the_feed_may_be_wrapped_in_a_call() -> None:
    bare = list(aws.parse({"spot_prices-spot": [page_of("spot_prices-spot", SPOT)]}))
    for text in ("callback({});", "callback( {} )", "/* 2015 */\ncallback({});\n"):
        body = text.replace("{}", json.dumps(SPOT)).encode()
        assert (
            list(aws.parse({"spot_prices-spot": [Page(name="spot_prices-spot", body=body)]}))
            == bare
        )


def test_a_feed_that_is_not_per_hour_or_not_the_feed_is_an_error() -> None:
    with pytest.raises(UnknownShape, match="per hour"):
        read_spot(rate="permonth")
    for body in (b"{}", b'{"config": {}}', b"[]", b'{"config": {"rate": "perhr"}}'):
        with pytest.raises(UnknownShape):
            list(aws.parse({"spot_prices-spot": [Page(name="spot_prices-spot", body=body)]}))
    with pytest.raises(NotTheFormat):
        list(aws.parse({"spot_prices-spot": [Page(name="spot_prices-spot", body=b"callback({")]}))


def test_spot_is_a_scope_of_all_regions_and_a_new_region_is_named_once() -> None:
    outcomes = {outcome.scope: outcome for outcome in replay(aws, CASES / "markets")}
    assert set(outcomes) == {"spot", "us-east-1"}
    assert {offer.market for offer in outcomes["spot"].offers} == {"spot"}
    assert {offer.region for offer in outcomes["spot"].offers} == {"us-east-1", "us-west-2"}
    assert "spot" not in {offer.market for offer in outcomes["us-east-1"].offers}
    news = [row.detail for row in outcomes["spot"].rejects if row.reason == "region is not asked"]
    assert news == ["xx-moon-1"]


@pytest.mark.parametrize("feed", ["spot_prices-spot", "spot_advisor-spot"])
def test_a_feed_that_fails_costs_no_list_and_a_list_no_spot(tmp_path: Path, feed: str) -> None:
    shutil.copytree(CASES / "markets", tmp_path / "aws")
    (tmp_path / "aws" / f"{feed}.json").write_text("<html>busy</html>")
    assert {o.scope: o.status for o in replay(aws, tmp_path / "aws")} == {
        "spot": "failed",
        "us-east-1": "ok",
    }
    shutil.copy(CASES / "markets" / f"{feed}.json", tmp_path / "aws")
    (tmp_path / "aws" / "ec2-us-east-1.csv").write_text("cut off")
    assert {o.scope: o.status for o in replay(aws, tmp_path / "aws")} == {
        "spot": "ok",
        "us-east-1": "failed",
    }


def test_the_same_size_twice_in_the_feed_is_one_offer() -> None:
    (outcome,) = replay(aws, CASES / "spot_jsonp")
    assert outcome.duplicates == 1
    assert [offer.sku for offer in outcome.offers].count("g6.12xlarge") == 1


# --- the table of instances ---


def test_the_table_is_consistent() -> None:
    text = Path(aws.__file__).with_name("aws_instances.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(aws.INSTANCES) > 95
    for row in rows:
        held = aws.INSTANCES[row["type"]]
        assert row["source"]
        assert 0 < held.gpu_count <= 16
        assert held.gpu_count == 1 or held.gpu_count % 1 == 0 or row["type"].split(".")[0] in (
            "g6f",
            "gr6f",
        )  # fmt: skip
        assert re.fullmatch(r"(p|g|gr|trn|inf|dl|vt)\d\S*", row["type"])


# --- damage ---

CELL_VALUES = [str(v) for v in VALUES if not isinstance(v, (list, dict))] + ["\xa0", "Inf", "9e9"]
BLOCK = {"MarketOption": "CapacityBlock", "operation": "RunInstances:CB"}
PLAIN = [
    machine(name, f"{number}.0")
    for number, name in enumerate(("p5.48xlarge", "g6f.large", "trn1.32xlarge", "g4dn.metal"), 10)
]
TRAPS = [
    machine(Operating_System="Windows", operation="RunInstances:0002"),
    machine(
        Operating_System="Windows",
        operation="RunInstances:0800",
        License_Model="Bring your own license",
    ),
    machine(Operating_System="RHEL", operation="RunInstances:0010"),
    machine(Operating_System="SUSE", operation="RunInstances:000g"),
    machine(Pre_Installed_S__W="SQL Web", operation="RunInstances:0200"),
    machine(Tenancy="Dedicated", usageType="DedicatedUsage:p5.48xlarge"),
    machine(Tenancy="Host", usageType="HostBoxUsage:p5.48xlarge"),
    machine(CapacityStatus="UnusedCapacityReservation", usageType="UnusedBox:p5.48xlarge"),
    machine(CapacityStatus="AllocatedCapacityReservation", usageType="Reservation:p5.48xlarge"),
    machine(Location_Type="AWS Local Zone", Region_Code="us-east-1-bos-1"),
    machine(**BLOCK, PriceDescription="$9 per Capacity Block Linux p5.48xlarge Instance Hour"),
    machine(operation="RunInstances:CB"),
    *terms("No Upfront", "1.0", None),
    *terms("Partial Upfront", "1.0", "2.0"),
    *terms("All Upfront", "0.0", "2.0", "3yr"),
]
MARKED = PLAIN + [row | {"PricePerUnit": f"{n}"} for n, row in enumerate(TRAPS, 1000)]
"""Only plain on-demand prices are below 1000."""

cells_damage = st.lists(
    st.tuples(
        st.integers(0, len(MARKED) - 1),
        st.integers(0, len(HEADER) - 1),
        st.sampled_from(["", *CELL_VALUES]),
    ),
    min_size=1,
    max_size=6,
)


def assert_no_mix_up(rows: Iterable[Any]) -> None:
    for row in rows:
        if isinstance(row, Offer):
            assert row.price_per_hour > 0
            assert row.price_per_hour.is_finite()
            assert row.market != "on_demand" or row.price_per_hour < 1000, row
            assert (row.market == "reserved") == (row.commitment_months is not None)


def check_damaged_cells(changes: list[tuple[int, int, str]]) -> None:
    rows = copy.deepcopy(MARKED)
    for number, column, value in changes:
        if HEADER[column] != "PricePerUnit" or value in ("", "NaN", "0", "-1"):
            rows[number][HEADER[column]] = value.replace('"', "")
    pages = {EC2: [Page(name=EC2, body=as_csv(rows))]}
    assert_typed(aws.parse, pages)
    try:
        assert_no_mix_up(aws.parse(pages))
    except SourceError:
        return


def check_damaged_bytes(position: int, cut: int, new: bytes) -> None:
    whole = "".join(MARKETS).encode()
    position %= len(whole)
    pages = {EC2: [Page(name=EC2, body=whole[:position] + new + whole[position + cut :])]}
    assert_typed(aws.parse, pages)


def check_damaged_json(changes: list[Any]) -> None:
    name = "ec2-us-gov-west-1"
    assert_typed(aws.parse, {name: [page_of(name, apply(GOV, changes))]})
    feeds = {"prices": SPOT, "advisor": ADVISOR}
    changed = apply(feeds, changes)
    if isinstance(changed, dict):
        pages = {f"spot_{kind}": [page_of(f"spot_{kind}", changed.get(kind))] for kind in feeds}
        assert_typed(aws.parse, pages)


def test_the_marked_rows_hold_each_trap_and_parse_without_a_mix_up() -> None:
    rows = list(aws.parse({EC2: [Page(name=EC2, body=as_csv(MARKED))]}))
    assert_no_mix_up(rows)
    assert sum(isinstance(r, Offer) and r.market == "on_demand" for r in rows) == len(PLAIN)


@given(cells_damage)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_cells_never_mix_up_the_markets(changes: Any) -> None:
    check_damaged_cells(changes)


@given(st.integers(0, 1_000_000), st.integers(0, 3000), st.binary(max_size=4))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_damaged_bytes_give_valid_rows_rejects_or_our_errors(
    position: int, cut: int, new: bytes
) -> None:
    check_damaged_bytes(position, cut, new)


@given(damage)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_damaged_json_gives_valid_rows_rejects_or_our_errors(changes: Any) -> None:
    check_damaged_json(changes)


@pytest.mark.slow
@given(cells_damage, st.integers(0, 1_000_000), st.integers(0, 3000), st.binary(max_size=4), damage)
@settings(max_examples=10_000, deadline=None)
def test_damage_of_every_kind_at_length(
    cells: Any, position: int, cut: int, new: bytes, members: Any
) -> None:
    check_damaged_cells(cells)
    check_damaged_bytes(position, cut, new)
    check_damaged_json(members)


# --- evidence ---

BULK = {
    "ec2-us-east-1": "bulk_us-east-1_p4d_ondemand_vs_capacityblock_20240528.json",
    "ec2-us-east-2": "bulk_us-east-2_p3win_gp3_m5reserved_20230322.json",
    "ec2-cn-northwest-1": "bulk_cn-northwest-1_gp3_20230314.json",
    "ec2-eu-west-3": "bulk_eu-west-3_ebs_20201019.csv",
}


def capture(name: str, file: str) -> list[Any]:
    return list(aws.parse({name: [Page(name=name, path=CAPTURES / file)]}))


def expected(file: str) -> list[dict[str, str]]:
    with (CAPTURES / "expected" / file).open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def karpenter() -> dict[tuple[str, str], Decimal]:
    rows = expected("karpenter_ondemand_accelerated.csv")
    return {(r["region"], r["instance_type"]): Decimal(r["on_demand_price_per_hour"]) for r in rows}


def read_as_list(prices: Iterable[tuple[str, str, str, str, str]]) -> dict[tuple[str, str], Offer]:
    """Parse (region, type, system, price, currency) put into the columns of a list."""
    rows = [
        machine(
            name,
            price,
            Region_Code=region,
            Location=aws.REGIONS.get(region, "somewhere"),
            Currency=currency,
            Operating_System=system,
            operation="RunInstances" if system == "Linux" else "RunInstances:0002",
        )
        for region, name, system, price, currency in prices
    ]
    offers = list(aws.parse({"ec2": [Page(name="ec2", body=as_csv(rows))]}))
    assert all(isinstance(row, Offer) and row.market == "on_demand" for row in offers)
    assert len({(row.region, row.sku) for row in offers}) == len(offers)
    return {(row.region, row.sku): row for row in offers}


@needs_evidence
def test_captured_lists_give_what_their_descriptions_restate() -> None:
    """Each price dimension says its price again in words: "$32.7726 per On Demand Linux …"."""
    compared = 0
    for name, file in BULK.items():
        for row in capture(name, file):
            if isinstance(row, Offer):
                text = (CAPTURES / file).read_text(encoding="utf-8")
                pattern = rf"\$([\d.]+) per On Demand Linux {re.escape(row.sku)} "
                (stated,) = re.findall(pattern, text)
                assert row.price_per_hour == Decimal(stated)
                compared += 1
            elif isinstance(row, Fee):
                text = (CAPTURES / file).read_text(encoding="utf-8")
                (stated,) = re.findall(r'"\$?([\d.]+)(?: CNY)? per GB-month of[^"]*gp3', text)
                assert (row.price, row.product) == (Decimal(stated), "gp3")
                compared += 1
            else:  # the Capacity Block at $0.00
                assert row.reason == "zero price"
    assert compared == 3  # p4d.24xlarge, gp3 in Ohio, gp3 in Ningxia; Paris had no gp3 in 2020
    print(f"aws: {compared} prices of captured lists equal their descriptions")


@needs_evidence
def test_captured_traffic_of_2016_gives_what_its_descriptions_restate() -> None:
    file = "bulk_s3_datatransfer_trimmed_20160107.json"
    whole = json.loads((CAPTURES / file).read_text(encoding="utf-8"))
    stated = set()
    for sku, product in whole["products"].items():
        facts = product["attributes"]
        if facts.get("transferType") not in ("AWS Outbound", "InterRegion Outbound"):
            continue
        for term in whole["terms"]["OnDemand"][sku].values():
            for step in term["priceDimensions"].values():
                price = re.match(r"\$([\d.]+) per GB", step["description"])
                assert price
                where = (facts["fromLocation"], facts["toLocation"])
                stated.add((*where, Decimal(step["beginRange"]), Decimal(price[1])))
    names = aws.REGIONS | {"us-gov-west-1": "AWS GovCloud (US)"}
    found = set()
    for region in names:
        for row in capture(f"data_transfer-{region}", file):
            to = row.product.rpartition(" to ")[2]
            found.add((names[region], names.get(to, to), row.from_tier_gb, row.price))
    assert found == stated
    assert len(found) == 26
    print(f"aws: {len(found)} traffic prices of 2016 equal their descriptions")


@needs_evidence
def test_the_pricing_page_karpenter_and_a_tracker_agree_to_the_last_digit() -> None:
    """The page of 2026-09 and Karpenter's prices of 2026-07 are separate ways to one list.

    The page's rows are put into the columns of a list, as no whole list was captured.
    """
    page = rows_of_pricing_page()
    ours = read_as_list(
        (region, name, row["Operating System"], row["price"], "USD")
        for (region, name), row in page.items()
    )
    assert len(ours) == len(page) == 51
    known = karpenter()
    both = ours.keys() & known.keys()
    assert {key: ours[key].price_per_hour for key in both} == {key: known[key] for key in both}
    tracked = {
        (r["region"], r["sku"]): Decimal(r["total_hourly_usd"])
        for r in expected("gpu_pricing_raw_2026-06-15.csv")
        if (r["provider"], r["price_tier"]) == ("AWS EC2", "on_demand")
    }
    shared = ours.keys() & tracked.keys()
    for key in shared:  # that tracker rounds to four places
        assert abs(ours[key].price_per_hour - tracked[key]) <= Decimal("0.00005")
    assert (len(both), len(shared)) == (10, 14)
    history = [
        r["price_usd"]
        for r in expected("p5_48xlarge_us_price_history_2025-04_2026-08.csv")
        if r["price_usd"]
    ]
    assert list(dict.fromkeys(Decimal(p) for p in history)) == [Decimal("98.32"), Decimal("55.04")]
    assert ours["us-east-1", "p5.48xlarge"].price_per_hour == Decimal(history[-1])
    print(f"aws: {len(both)} prices equal Karpenter's, {len(shared)} a tracker's, 1 a history's")


@needs_evidence
def test_karpenter_and_a_tracker_agree_where_both_state_a_price() -> None:
    """Every price of Karpenter's table passes through the parser; two tables check it."""
    rows = expected("karpenter_ondemand_accelerated.csv")
    ours = read_as_list(
        (r["region"], r["instance_type"], "Linux", r["on_demand_price_per_hour"], r["currency"])
        for r in rows
        if r["instance_type"] in aws.INSTANCES
    )
    left_out = {r["instance_type"] for r in rows} - {name for _, name in ours}
    assert left_out == {"c5.xlarge", "m5.large"}
    known = karpenter()
    assert all(offer.price_per_hour == known[key] for key, offer in ours.items())
    compared = 0
    for r in expected("gpu_pricing_raw_2026-06-15.csv"):
        key = (r["region"], r["sku"])
        if (r["provider"], r["price_tier"]) == ("AWS EC2", "on_demand") and key in ours:
            four_places = Decimal(r["total_hourly_usd"])
            assert abs(ours[key].price_per_hour - four_places) <= Decimal("0.00005")
            assert ours[key].gpu_count == int(r["gpu_count"])
            compared += 1
    assert (len(ours), compared) == (184, 13)
    print(f"aws: {len(ours)} prices of Karpenter's read, {compared} equal a tracker's")


@needs_evidence
def test_china_of_2024_and_2026_agree_in_yuan_and_windows_is_left_out() -> None:
    systems = {"linux": "Linux", "mswin": "Windows"}
    rows = expected("china_gpu_ondemand_2026-01.csv")
    ours = read_as_list(
        (r["region"], r["instance_type"], systems[r["os"]], r["ondemand_per_hour"], r["currency"])
        for r in rows
    )
    assert len(ours) == sum(r["os"] == "linux" for r in rows) == 58
    assert {offer.currency for offer in ours.values()} == {"CNY"}
    known = karpenter()
    both = ours.keys() & known.keys()
    assert {key: ours[key].price_per_hour for key in both} == {key: known[key] for key in both}
    assert len(both) == 28  # the other 30 are of Ningxia and a Local Zone, which Karpenter lacks
    boards = {"p2.8xlarge", "p2.16xlarge"}  # the list's GPU column counts boards of two
    for r in rows:
        held = aws.INSTANCES[r["instance_type"]]
        assert held.gpu_count == int(r["gpu"]) * (2 if r["instance_type"] in boards else 1)
        total = held.gpu_count * (held.gpu_memory_gib or 0)
        if held.gpu_label != "A10G":  # 24 GB by name, 22.352 GiB by the API
            assert total == int(r["gpu_memory_total_gib"])
    print(f"aws: {len(both)} Chinese prices agree; GPU facts of {len(rows)} rows")


@needs_evidence
def test_a_catalogue_from_before_the_cut_of_2025_agrees_except_for_the_cut() -> None:
    """OpenComputePrices took SkyPilot's catalogue, which still held prices from before June 2025.

    In that month p4d, p4de, p5 and p5en became cheaper (expected/p5_48xlarge…: 98.32 until
    2025-06-04, then 55.04), by one factor each up to its third digit. All else is equal.
    """
    path = SHARED / "history" / "opencomputeprices" / "2026-03-21" / "skypilot.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        before = {
            (r["region"], r["instance_type"]): Decimal(r["price_per_hour"])
            for r in csv.DictReader(lines)
            if (r["provider"], r["pricing_type"]) == ("aws", "on_demand") and r["price_per_hour"]
        }
    prices = [(*key, "Linux", row["price"], "USD") for key, row in rows_of_pricing_page().items()]
    prices += [
        (*key, "Linux", str(price), "USD")
        for key, price in karpenter().items()
        if key[1] in aws.INSTANCES
        and key not in rows_of_pricing_page()
        and key[0].startswith("us-east")
    ]
    ours = read_as_list(prices)
    both = ours.keys() & before.keys()
    ratios: dict[str, set[Decimal]] = {}
    for key in both:
        if ours[key].price_per_hour != before[key]:
            ratio = round(ours[key].price_per_hour / before[key], 2)
            ratios.setdefault(key[1].split(".")[0], set()).add(ratio)
    assert ratios == {
        "p4d": {Decimal("0.67")},
        "p4de": {Decimal("0.67")},
        "p5": {Decimal("0.56")},
        "p5en": {Decimal("0.75")},
    }
    equal = sum(ours[key].price_per_hour == before[key] for key in both)
    (old, _) = capture("ec2-us-east-1", BULK["ec2-us-east-1"])  # of May 2024
    assert old.price_per_hour == before["us-east-1", "p4d.24xlarge"]
    assert (equal + 1, len(both)) == (70, 88)
    print(f"aws: {equal + 1} prices equal a catalogue's, {len(both) - equal} moved in June 2025")


@needs_evidence
def test_captured_reserved_terms_under_an_accelerated_name() -> None:
    """The one capture with reserved terms is of m5.large, which is left out: it is renamed."""
    text = (CAPTURES / "get_products_m5_large_2021-02.json").read_text(encoding="utf-8")
    item = json.loads(text.replace("m5.large", "p3.2xlarge"))
    sku = item["product"]["sku"]
    whole = {
        "products": {sku: item["product"]},
        "terms": {kind: {sku: terms} for kind, terms in item["terms"].items()},
    }
    rows = list(aws.parse({EC2: [page_of(EC2, whole)]}))
    assert all(isinstance(row, Offer) for row in rows)
    assert [r.price_per_hour for r in rows if r.market == "on_demand"] == [Decimal("0.096")]
    found = {}
    for row in rows:
        if row.market == "reserved":
            found[row.commitment_months, row.tier] = (row.price_per_hour, row.upfront)
    expected_terms = {}
    for term in item["terms"]["Reserved"].values():
        facts = term["termAttributes"]
        part = {
            d["unit"]: Decimal(d["pricePerUnit"]["USD"]) for d in term["priceDimensions"].values()
        }
        months = 12 * int(facts["LeaseContractLength"][0])
        upfront = part.get("Quantity") or None
        hour = part.get("Hrs", Decimal(0)) + (upfront or 0) / (Decimal(730) * months)
        name = f"{facts['OfferingClass']} {facts['PurchaseOption']}"
        expected_terms[months, name] = (round(hour, 9), upfront)
    assert found == expected_terms
    assert len(found) == 12
    assert max(price for price, _ in found.values()) < Decimal("0.096")
    print(f"aws: {len(found)} captured reserved terms")


@needs_evidence
def test_captured_unused_reservation_is_left_out_and_gp3_kept() -> None:
    lines = (CAPTURES / "get_products_pricelist_items_2024.jsonl").read_text(encoding="utf-8")
    items = [json.loads(line) for line in lines.replace("c5ad.2xlarge", "g5.2xlarge").splitlines()]
    whole = {
        "products": {i["product"]["sku"]: i["product"] for i in items},
        "terms": {"OnDemand": {i["product"]["sku"]: i["terms"]["OnDemand"] for i in items}},
    }
    (row,) = aws.parse({"ec2-af-south-1": [page_of("ec2-af-south-1", whole)]})
    assert (row.product, row.region, row.price) == ("gp3", "af-south-1", Decimal("0.1047"))


@needs_evidence
def test_every_captured_spot_price_is_kept_once() -> None:
    file = "spot_json_trimmed_2026-08-10.json"
    feed = json.loads((CAPTURES / file).read_text(encoding="utf-8"))
    stated = {
        (block["region"], one["size"]): Decimal(one["valueColumns"][0]["prices"]["USD"])
        for block in feed["config"]["regions"]
        for group in block["instanceTypes"]
        for one in group["sizes"]
        if group["type"].startswith("gpu")
    }
    rows = capture("spot_prices-spot", file)
    assert all(isinstance(row, Offer) and row.market == "spot" for row in rows)
    assert {(row.region, row.sku): row.price_per_hour for row in rows} == stated
    assert (len(rows), len(stated)) == (93, 85)  # eight sizes are there twice
    print(f"aws: {len(stated)} captured spot prices")


@needs_evidence
def test_captured_interruption_bands_equal_an_independent_reading() -> None:
    with (SHARED / "traces" / "aws_spot_advisor_gpu_snapshot.csv").open(encoding="utf-8") as lines:
        stated = {
            (r["region"], r["instance_type"]): Decimal(r["bucket_max_pct"]) / 100
            for r in csv.DictReader(lines)
        }
    blocks: dict[str, list[Any]] = {}
    for region, name in stated:
        blocks.setdefault(region, []).append(size(name, "1.0"))
    regions = [
        {"region": region, "instanceTypes": [{"type": "gpuCurrentGen", "sizes": sizes}]}
        for region, sizes in blocks.items()
    ]
    feed = {"config": {"rate": "perhr", "regions": regions}}
    advisor = Page(name="spot_advisor-spot", path=CAPTURES / "spot_advisor_data_2025-06.json")
    rows = list(
        aws.parse(
            {
                "spot_prices-spot": [page_of("spot_prices-spot", feed)],
                "spot_advisor-spot": [advisor],
            }
        )
    )
    found = {(row.region, row.sku): row.interruption_rate_monthly for row in rows}
    assert found == stated
    print(f"aws: {len(found)} interruption bands equal the snapshot")


@needs_evidence
def test_the_table_equals_what_the_api_and_two_feeds_say_of_a_type() -> None:
    """Three sources of the same facts, and the places where one of them is not followed.

    The API says 512 GiB for each Trainium2, four times and more of what is on a chip (96), and
    reports of a fractional GPU its part of the memory.
    """
    described = json.loads(
        (CAPTURES / "describe_instance_types_gpu_2026-08-02.json").read_text(encoding="utf-8")
    )
    compared = 0
    for name, held in aws.INSTANCES.items():
        if (facts := described.get(name)) is None:
            continue
        cards = facts.get("GpuInfo", {}).get("Gpus") or facts.get("NeuronInfo", {}).get(
            "NeuronDevices"
        )
        (card,) = cards or facts["InferenceAcceleratorInfo"]["Accelerators"]
        assert held.gpu_label == card["Name"]
        assert held.gpu_count == Decimal(str(card["Count"] or card["GpuPartitionSize"]))
        memory = Decimal(card["MemoryInfo"]["SizeInMiB"]) / 1024
        if name.startswith("trn2"):
            assert (held.gpu_memory_gib, memory) == (96, 512)
        elif card["Count"] == 0:
            assert abs(memory - (held.gpu_memory_gib or 0) * held.gpu_count) < Decimal("0.01")
        else:
            assert held.gpu_memory_gib == round(memory, 3)
        assert held.vcpus == facts["VCpuInfo"]["DefaultVCpus"]
        assert held.memory_gib == Decimal(facts["MemoryInfo"]["SizeInMiB"]) / 1024
        assert ("EFA" in (held.interconnect or "")) == facts["NetworkInfo"]["EfaSupported"]
        compared += 1
    assert compared == len(described) - 2  # m5.large and t3.micro
    advised = json.loads((CAPTURES / "spot_advisor_data_2025-06.json").read_text(encoding="utf-8"))
    for name, facts in advised["instance_types"].items():
        if name in aws.INSTANCES and (held := aws.INSTANCES[name]).vcpus is not None:
            assert (held.vcpus, held.memory_gib) == (facts["cores"], facts["ram_gb"]), name
            compared += 1
    for (_, name), row in rows_of_pricing_page().items():
        held = aws.INSTANCES[name]
        assert (f"{held.vcpus}", f"{held.memory_gib} GiB") == (row["vCPU"], row["Memory"])
        compared += 1
    missing = {r["instance_type"] for r in expected("karpenter_ondemand_accelerated.csv")}
    assert missing - set(aws.INSTANCES) == {"c5.xlarge", "m5.large"}
    print(f"aws: {compared} descriptions of types agree")


@needs_evidence
@given(damage, st.sampled_from(sorted(BULK.items())[:3]))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_damaged_captures_give_valid_rows_rejects_or_our_errors(
    changes: list[Any], bulk: tuple[str, str]
) -> None:
    name, file = bulk
    text = (CAPTURES / file).read_text(encoding="utf-8")
    if file.endswith(".json"):
        pages = {name: [page_of(name, apply(json.loads(text), changes))]}
        assert_typed(aws.parse, pages)
