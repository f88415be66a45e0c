"""Azure N-series machines, managed disks and traffic from the Retail Prices API, without a key.

Three lists, each followed by NextPageLink to the end: `vm_prices`, `disk_prices` and
`bandwidth_prices`. USD is the price; the API documents it as the default where a row names no
currency. Documentation:
https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices

How it prices: whole machine and hour. One size has many rows, told apart only by words. `type` says
Consumption, DevTestConsumption (left out) or Reservation, whose price is the total of the whole
term although its unit says "1 Hour". Among Consumption rows the end of `meterName` says Spot, Low
Priority (a retired tier of spot that is still listed) or Expired (left out), and `productName` says
Windows, CloudServices or Dedicated hosts (left out). `savingsPlan` in a row holds hourly prices.
Zero is a meter that has no price yet. Government and China regions are regions like any other.

Disks are sold by size, so a volume is charged as the next larger disk; Ultra and Premium SSD v2,
sold by GiB, operations and throughput, are left out.

The API names no GPU: `azure_sizes.csv` says what a size holds, each row with its source, and a size
that is not in it is refused as unknown. FPGA (NP) and video (NM) sizes are left out by rule.
No public capture of a traffic page exists: its form is that of the documented row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from scrapers.errors import UnknownShape
from scrapers.offer import Fee, Offer, Reject, Row
from scrapers.pages import (
    Get,
    Page,
    Pages,
    Provider,
    attempt,
    pages_of,
    priced,
    read_table,
    refuse,
    stated_by,
)
from scrapers.units import BYTES_PER_GIB, money, number, per_hour_from_years

PROVIDER = Provider(
    slug="azure",
    name="Microsoft Azure",
    pricing_url="https://azure.microsoft.com/pricing/details/virtual-machines/linux/",
    seconds_between_calls=1.0,  # parallel or rapid calls are answered 429
)
_HOST: Final = "prices.azure.com"


def _ask(condition: str) -> Get:
    return Get(
        f"https://{_HOST}/api/retail/prices",
        params={"api-version": "2023-01-01-preview", "$filter": condition},
    )


REQUESTS = {
    "vm_prices": _ask("serviceName eq 'Virtual Machines' and contains(armSkuName, 'Standard_N')"),
    "disk_prices": _ask(
        "serviceName eq 'Storage' and priceType eq 'Consumption'"
        " and contains(productName, 'Managed Disks')"
    ),
    "bandwidth_prices": _ask(
        "serviceName eq 'Bandwidth' and priceType eq 'Consumption'"
        " and meterName eq 'Standard Data Transfer Out'"
    ),
}


class Size(NamedTuple):
    """What a machine size holds; `gpu_count` is below 1 for a slice, memory is of a whole GPU."""

    gpu_label: str
    gpu_count: Decimal
    gpu_memory_gib: Decimal
    vcpus: Decimal | None
    memory_gib: Decimal | None
    local_disk_gib: Decimal | None


def _read_sizes() -> dict[str, Size]:
    sizes = {}
    for row in read_table("azure_sizes.csv"):
        count = Fraction(row["gpu_count"])  # "1/6" of an A10
        sizes[row["size"].lower()] = Size(
            row["gpu_label"],
            Context(prec=9).divide(Decimal(count.numerator), Decimal(count.denominator)),
            Decimal(row["gpu_memory_gib"]),
            *(
                Decimal(row[column]) if row[column] else None
                for column in ("vcpus", "memory_gib", "local_disk_gib")
            ),
        )
    return sizes


SIZES: Final = _read_sizes()
"""By lower-case `armSkuName`. The documentation writes GB and GiB for the same GiB."""
_YEARS: Final = {"1 Year": 1, "3 Years": 3, "5 Years": 5}
# Standard_NC24ads_A100_v4 is one; Standard_NP10s (FPGA) and Standard_NM16ads_MA35D (video) are not
_GPU_SIZE: Final = re.compile(r"Standard_N(?![PM]\d)", re.IGNORECASE)
_NOT_PLAIN_LINUX: Final = re.compile(r"Windows|Cloud ?Services|Dedicated", re.IGNORECASE)
# "P80 Disks" (2022), "E10 LRS Disk" (2026); not "S4 LRS Disk Operations", "P30 LRS Disk Mount"
_DISK: Final = re.compile(r"[PES](?P<size>\d{1,2})( [LZ]RS)? Disks?")
# fmt: off
_DISK_GIB: Final = {
    1: 4, 2: 8, 3: 16, 4: 32, 6: 64, 10: 128, 15: 256, 20: 512, 30: 1024, 40: 2048,
    50: 4096, 60: 8192, 70: 16384, 80: 32767,
}
# fmt: on
"""https://learn.microsoft.com/azure/virtual-machines/disks-types"""


def follow(name: str, page: Page) -> Get | None:
    """Ask for the page that NextPageLink names; it repeats the query and spells out port 443.

    Raises:
        UnknownShape: the link is no address on the host that was asked.
    """
    body = page.json()
    link = body.get("NextPageLink") if isinstance(body, Mapping) else None
    if not link:
        return None
    try:
        asked, parts = urlsplit(REQUESTS[name].url), urlsplit(link)
        same = (parts.scheme, parts.hostname, parts.port or 443) == (
            asked.scheme,
            asked.hostname,
            asked.port or 443,
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise UnknownShape(f"{name}: NextPageLink {link!r:.100} is no address") from error
    if not same:
        raise UnknownShape(f"{name}: next page on another host: {link!r:.100}")
    return Get(link)


def _items(pages: Pages, name: str) -> Iterator[Mapping[str, Any] | Reject]:
    """Yield the rows of a list; a Reject for what is no row, and for a page that is cut short."""
    for page in pages_of(pages, name):
        body = page.json()
        whole = isinstance(body, Mapping)
        # {"Items": []} as the API writes it, {"items": []} and a bare list as captures circulate
        items = body.get("Items", body.get("items")) if whole else body
        if not isinstance(items, list):
            raise UnknownShape(f"{name} page {page.number}: no list of items")
        for item in items:
            is_row = isinstance(item, Mapping)
            yield item if is_row else refuse("unreadable row", item, "not an object")
        count = body.get("Count") if whole else None
        if isinstance(count, int) and count > len(items):
            yield refuse("truncated listing", name, f"{len(items)} of {count} rows of a page")


def _text(item: Mapping[str, Any], key: str) -> str:
    if not isinstance(item[key], str):
        raise TypeError(f"{key} is not text")
    return " ".join(item[key].split())


def _common(item: Mapping[str, Any]) -> dict[str, Any]:
    start = item.get("effectiveStartDate")
    return {
        "region": _text(item, "armRegionName"),
        "currency": item.get("currencyCode", "USD"),
        "effective_at": None if start is None else datetime.fromisoformat(start),
    }


def _market(item: Mapping[str, Any]) -> tuple[str, str | None]:
    names = (_text(item, "meterName"), str(item.get("skuName", "")).strip())
    if any(name.endswith("Low Priority") for name in names):
        return "spot", "low_priority"
    return ("spot", None) if any(name.endswith("Spot") for name in names) else ("on_demand", None)


def _offer(item: Mapping[str, Any], size: Size, plan: Any = None) -> Offer:
    _text(item, "productName")  # without it nobody can say that it is not Windows
    market, tier = _market(item)
    price, years = number(item["retailPrice"]), None
    if plan is not None:
        market, tier = "reserved", "savings_plan"
        price, years = number(plan["retailPrice"]), _YEARS[plan["term"]]
    elif item["type"] == "Reservation":
        market, years = "reserved", _YEARS[item["reservationTerm"]]
        price = per_hour_from_years(price, years)
    return Offer(
        **size._asdict(),
        **_common(item),
        sku=_text(item, "armSkuName"),
        market=market,  # type: ignore[arg-type]  # the contract checks it
        tier=tier,
        commitment_months=None if years is None else 12 * years,
        price_per_hour=money(price),
    )


def _why_not(item: Mapping[str, Any]) -> str | None:
    """Return the reason to refuse a row whose price would be misread."""
    if item.get("unitOfMeasure") != "1 Hour":
        return "unknown unit"
    if item.get("type") not in ("Consumption", "Reservation"):
        return "unknown price type"
    if item.get("type") == "Consumption" and item.get("reservationTerm"):
        return "reservation term on a consumption price"
    return "volume price" if item.get("tierMinimumUnits") not in (None, 0) else None


def _is_gpu_machine(item: Mapping[str, Any]) -> bool:
    return (
        item.get("serviceName", "Virtual Machines") == "Virtual Machines"
        and _GPU_SIZE.match(str(item.get("armSkuName")).strip()) is not None
        and _NOT_PLAIN_LINUX.search(str(item.get("productName"))) is None
        and item.get("type") != "DevTestConsumption"
        and not str(item.get("meterName")).rstrip().endswith("Expired")
    )


def _read_machines(items: Iterator[Mapping[str, Any] | Reject]) -> Iterator[Row | Reject]:
    unknown: dict[str, list[Any]] = {}
    for item in items:
        if isinstance(item, Reject):
            yield item
        elif _is_gpu_machine(item):
            name = str(item["armSkuName"]).strip()
            size, plans = SIZES.get(name.lower()), item.get("savingsPlan") or []
            if size is None:
                unknown.setdefault(name, []).append(item)
            elif (reason := _why_not(item)) is not None:
                yield refuse(reason, item)
            else:
                yield priced(item, item.get("retailPrice"), partial(_offer, item, size))
                for plan in plans if isinstance(plans, list) else [plans]:
                    yield attempt(item, partial(_offer, item, size, plan))
    for name, rows in unknown.items():
        yield refuse("unknown size", rows[0], f"{name}: {len(rows)} rows")


def _fee(item: Mapping[str, Any], **terms: Any) -> Fee:
    return Fee(
        **_common(item),
        product=f"{_text(item, 'productName')} {_text(item, 'skuName')}",
        price=money(number(item["retailPrice"])),
        **terms,
    )


def _disk(item: Mapping[str, Any]) -> Fee:
    match = _DISK.fullmatch(_text(item, "meterName"))
    gib = _DISK_GIB[int(match["size"] if match else 0)]
    size_gb = round(gib * BYTES_PER_GIB / 10**9, 3)
    return _fee(item, kind="block_storage", unit="disk_month", size_gb=size_gb)


def _traffic(item: Mapping[str, Any]) -> Fee:
    tier = number(item.get("tierMinimumUnits", 0))
    return _fee(item, kind="egress", unit="gb", from_tier_gb=tier)


def _is_disk(item: Mapping[str, Any]) -> bool:
    # page blobs use the same meter names
    managed = "Managed Disks" in str(item.get("productName"))
    return managed and _DISK.fullmatch(str(item.get("meterName")).strip()) is not None


def _is_traffic(item: Mapping[str, Any]) -> bool:
    """Keep the default routing (MGN); the cheaper Internet routing is opt-in."""
    wanted = ("Rtn Preference: MGN", "Standard Data Transfer Out")
    return (item.get("productName"), item.get("meterName")) == wanted


def _read_fees(
    items: Iterator[Mapping[str, Any] | Reject],
    is_wanted: Callable[[Mapping[str, Any]], bool],
    unit: str,
    build: Callable[[Mapping[str, Any]], Fee],
) -> Iterator[Row | Reject]:
    zeros, paid = [], set()
    for item in items:
        if isinstance(item, Reject):
            yield item
        elif not is_wanted(item) or item.get("type") != "Consumption":
            continue
        elif item.get("unitOfMeasure") != unit:
            yield refuse("unknown unit", item)
        elif isinstance(fee := attempt(item, partial(build, item)), Fee) and fee.price == 0:
            zeros.append(fee)
        else:
            paid.add((fee.product, fee.region) if isinstance(fee, Fee) else None)
            yield fee
    for fee in zeros:  # a zero is an allowance only where paid tiers follow it
        is_allowance = fee.from_tier_gb == 0 and (fee.product, fee.region) in paid
        yield fee if is_allowance else refuse("zero price", fee.model_dump_json(exclude_none=True))


def _without_repeats(rows: Iterator[Row | Reject]) -> Iterator[Row | Reject]:
    """Drop what states the same price again, e.g. as from another date or another meter."""
    seen = set()
    for row in rows:
        if not isinstance(row, Reject):
            price = row.price_per_hour if isinstance(row, Offer) else row.price
            if (row.key(), price) in seen:
                continue
            seen.add((row.key(), price))
        yield row


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the GPU machines in every market, managed disks by size, and traffic by tier.

    Raises:
        UnknownShape: a page holds no list of items.
    """
    yield from _without_repeats(_read_machines(_items(pages, "vm_prices")))
    disks, traffic = _items(pages, "disk_prices"), _items(pages, "bandwidth_prices")
    for request, fees in (
        ("disk_prices", _read_fees(disks, _is_disk, "1/Month", _disk)),
        ("bandwidth_prices", _read_fees(traffic, _is_traffic, "1 GB", _traffic)),
    ):
        yield from stated_by(request, _without_repeats(fees))
