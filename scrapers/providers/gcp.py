"""Google Cloud GPU machines: the public page without a key, the Cloud Billing Catalog with one.

`accelerator_page` is the accelerator-optimized pricing page. It states whole machines per hour for
one region, Iowa (us-central1), local SSD included. Its tables differ in the order of their columns
and are read by the text of their headers. Cells hold "$2 .0000/ 1 hour", N/A, "-", nothing, or a
placeholder; DWS prices are rounded.

`skus` and `storage_skus`, with GCP_API_KEY, list components: a machine costs the sum of its cores,
memory, GPUs and bundled local SSD, each in its region. A4 is sold by slice, one eighth of the
machine with everything in it, and a fraction of a G4 by eighths of a GPU. Documentation:
https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list

The words of a SKU's description say its market; its usage type does not (spot A4 and all DWS read
OnDemand). "DWS Defined Duration" is Flex-start, kept as a tier of spot; Calendar Mode is a capacity
block; commitments are reserved. Other words (Reserved without Calendar Mode, Sole Tenancy, Custom,
Premium, virtual workstations) name nothing that is read. `usageUnit` is what the price buys;
`displayQuantity` does not change it. `effectiveTime` is that of the whole list, so it is not kept.

Where both paths state a price the SKUs' is given, and a figure of the page that differs by more
than its rounding is refused, with both.

`gcp_machines.csv` says what a machine holds and which parts its price adds up; `gcp_regions.csv`
where it is sold, which the regions of a SKU do not say. No parts means that no SKU is known to
price it (A3 Edge, A4X). on_demand `no`: a price is listed, but the machine can be had only as spot,
Flex-start or by reservation. T4, P4, P100 and V100 are attached to N1 machines of any size: listed
is 8 vCPUs and 30 GiB for each GPU, within Google's limits for every one of them.

TPUs are left out: they are not GPUs. Internet traffic to China or Australia is left out unless it
starts there: a fee has no destination, and nobody's results go there by default.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

from selectolax.lexbor import LexborNode

from scrapers.errors import EmptyReply, NotTheFormat, UnknownShape
from scrapers.offer import Fee, FeeKind, FeeUnit, Market, Offer, Reject, Row
from scrapers.pages import (
    Get,
    Page,
    Pages,
    Provider,
    attempt,
    once_each,
    pages_of,
    priced,
    read_table,
    refuse,
    require,
    stated_by,
)
from scrapers.units import BYTES_PER_GIB, HOURS_PER_MONTH, NANOS_PER_UNIT, money, number

PROVIDER = Provider(
    slug="gcp",
    name="Google Cloud",
    pricing_url="https://cloud.google.com/products/compute/pricing/accelerator-optimized",
    optional_keys=("GCP_API_KEY",),
)
_PAGE_REGION: Final = "us-central1"
"""Iowa, which the page shows unless its reader chooses another region."""


def _list_skus(service_id: str) -> Get:
    return Get(
        f"https://cloudbilling.googleapis.com/v1/services/{service_id}/skus",
        params={"key": "${GCP_API_KEY}", "currencyCode": "USD", "pageSize": "5000"},
    )


REQUESTS: Final = {
    "accelerator_page": Get(PROVIDER.pricing_url, media="html"),
    "skus": _list_skus("6F81-5844-456A"),
    "storage_skus": _list_skus("95FF-2EF5-5EA1"),
}


class Terms(NamedTuple):
    """How a machine is bought: the part of an offer's key that a column or a SKU's words state."""

    market: Market
    tier: str | None = None
    commitment_months: int | None = None


ON_DEMAND: Final = Terms("on_demand")
FLEX_START: Final = Terms("spot", "dws_flex_start")
CALENDAR: Final = Terms("capacity_block", "dws_calendar")


class Machine(NamedTuple):
    """One machine type. `facts` are fields of its offers, `parts` how many of each it adds up."""

    facts: Mapping[str, Any]
    parts: Mapping[str, Decimal]
    on_demand: str
    regions: Sequence[str]


def _count(text: str) -> Decimal:
    """Read "1/8", "1,360" or "48"."""
    fraction = Fraction(text.replace(",", ""))
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def _read_machines() -> dict[str, Machine]:
    regions = {row["group"]: row["regions"].split() for row in read_table("gcp_regions.csv")}
    numbers = ("gpu_count", "gpu_memory_gib", "vcpus", "memory_gib", "local_disk_gib")
    machines = {}
    for row in read_table("gcp_machines.csv"):
        facts: dict[str, Any] = {n: _count(row[n]) if row[n] else None for n in numbers}
        # "12 a2 core; 85 a2 ram; 1 nvidia-tesla-a100"
        parts = (part.split(" ", 1) for part in row["parts"].split("; ") if part)
        machines[row["machine_type"]] = Machine(
            facts | {"gpu_label": row["gpu_label"]},
            {part: Decimal(amount) for amount, part in parts},
            row["on_demand"],
            regions[row["regions"]],
        )
    return machines


MACHINES: Final = _read_machines()


# --- the page ---

# The beginning of a header cell; what follows are footnotes and consumption model ids.
_COLUMNS: Final = (
    (re.compile(r"Price \(USD\)"), ON_DEMAND),
    (re.compile(r"DWS Flex-start price"), FLEX_START),
    (re.compile(r"DWS Calendar Mode price"), CALENDAR),
    (re.compile(r"(?:Current )?Spot pric"), Terms("spot")),
    (re.compile(r"Compute Resource CUDs? - 1 Year"), Terms("reserved", None, 12)),
    (re.compile(r"Compute Resource CUDs? - 3 Year"), Terms("reserved", None, 36)),
    (re.compile(r"Compute Flexible CUDs? - 1 Year"), Terms("reserved", "flexible_cud", 12)),
    (re.compile(r"Compute Flexible CUDs? - 3 Year"), Terms("reserved", "flexible_cud", 36)),
)
_MACHINE_TYPE: Final = re.compile(r"[a-z]\w*(-\w+)+")  # a2-highgpu-1g; not "A2 Standard"
# "$2 .0000/ 1 hour" without its blanks
_CELL: Final = re.compile(r"\$([0-9][0-9,]*(?:\.[0-9]+)?)/1hour")
# "GPUs: 1/8 vCPUs:48 Memory: 1,360GB SSD: 12,000 GiB": its GB are GiB, as the machine list says
_COMPONENT: Final = re.compile(r"(GPUs|vCPUs|Memory|SSD)\s*:\s*([\d.,/]*\d)")
_STATED: Final = {"vcpus": "vCPUs", "memory_gib": "Memory", "local_disk_gib": "SSD"}


def _text(cell: LexborNode) -> str:
    return " ".join(cell.text(separator=" ").split())


def _page_offer(name: str, gpu: str, components: str, terms: Terms, price: str) -> Offer:
    stated = {what: _count(number) for what, number in _COMPONENT.findall(components)}
    machine = MACHINES.get(name)
    facts: dict[str, Any] = {"gpu_label": gpu, "gpu_count": stated["GPUs"]}
    facts |= machine.facts if machine else {n: stated.get(w) for n, w in _STATED.items()}
    if facts["gpu_count"] != stated["GPUs"]:
        raise ValueError(f"{stated['GPUs']} GPUs where {name} has {facts['gpu_count']}")
    return Offer(
        **facts,
        **terms._asdict(),
        sku=name,
        region=_PAGE_REGION,
        price_per_hour=money(price),
        currency="USD",
    )


def _read_page_row(
    cells: Mapping[str, str], columns: Mapping[str, Terms]
) -> Iterator[Row | Reject]:
    name, gpu, components = (cells[head] for head in ("Machine type", "GPU", "Components"))
    if not _MACHINE_TYPE.fullmatch(name):
        if any("$" in text for text in cells.values()):
            yield refuse("unreadable row", cells, "no machine type")
        return  # a section: "A4 High"
    for head, terms in columns.items():
        price = _CELL.fullmatch("".join(cells[head].split()))
        if cells[head] in ("", "-", "N/A"):
            yield refuse("not sold", cells, head)
        elif price is None:
            yield refuse("unreadable price", cells, cells[head])
        elif terms == ON_DEMAND and name in MACHINES and MACHINES[name].on_demand == "no":
            yield refuse("not sold on demand", cells)
        else:
            amount = price[1].replace(",", "")
            build = partial(_page_offer, name, gpu, components, terms, amount)
            yield priced(cells, Decimal(amount), build)


def _read_page(page: Page) -> Iterator[Row | Reject]:
    tables = [
        [[_text(cell) for cell in row.css("th, td")] for row in table.css("tr")]
        for table in page.html().css("table")
    ]
    tables = [rows for rows in tables if rows and "Machine type" in rows[0]]
    if not tables:
        raise UnknownShape(f"{page.name}: no table of machine types")
    if page.text().count("<table") != page.text().count("</table>"):
        raise NotTheFormat(f"{page.name}: a table is cut off")
    if all(len(rows) == 1 for rows in tables):
        raise EmptyReply(f"{page.name}: tables without a machine")
    for heads, *rows in tables:
        columns = {h: t for h in heads for begins, t in _COLUMNS if begins.match(h)}
        once = len(set(columns.values())) == len(columns) and len(set(heads)) == len(heads)
        if not once or not {"GPU", "Components"} <= set(heads) or ON_DEMAND not in columns.values():
            raise UnknownShape(f"{page.name}: a table headed {' | '.join(heads):.300}")
        for cells in rows:
            if len(cells) != len(heads):
                yield refuse("row does not fit its header", " | ".join(cells))
            else:
                named = dict(zip(heads, cells, strict=True))
                yield from once_each(_read_page_row(named, columns))


# --- the catalog ---

_FORMS: Final = tuple(
    (re.compile(form, re.IGNORECASE), terms)
    for form, terms in (
        (r"Commitment v1: (.+?)(?: running)? in .+ for 1 Years?", Terms("reserved", None, 12)),
        (r"Commitment v1: (.+?)(?: running)? in .+ for 3 Years?", Terms("reserved", None, 36)),
        (r"Reserved (.+?) in .+ in Calendar Mode", CALENDAR),
        (r"DWS Calendar Mode (.+?)(?: running)? in .+", CALENDAR),
        (r"(.+) attached to Calendar Mode reservations(?: running)?(?: in .+)?", CALENDAR),
        (r"DWS Defined Duration (.+?)(?: running)?(?: in .+)?", FLEX_START),
        (r"(.+) attached to DWS Defined Duration VMs(?: running)?(?: in .+)?", FLEX_START),
        (r"(?:Spot )?Preemptible (.+?)(?: running)? in .+", Terms("spot")),
        (r"(.+) attached to (?:Spot )?Preemptible VMs(?: running)?(?: in .+)?", Terms("spot")),
        (r"(.+?)(?: running in .+| in .+)?", ON_DEMAND),
    )
)
"""The first that fits a whole description says the market; its group names the part."""
# "A2 Instance Core", "A3Plus Ram"; in commitments "A2 Cpu" and, for N1, "Cpu" alone
_HOST: Final = re.compile(
    r"(?P<family>A2|A3|A3 ?Plus|A3 ?Mega|A3 ?Ultra|G2|G4|N1 Predefined)(?: Instance)?"
    r" (?P<what>Core|Cpu|Ram)",
    re.IGNORECASE,
)
_FAMILIES: Final = {"a3mega": "a3plus", "n1predefined": "n1"}
_PARTS: Final = {
    "ssd backed local storage": "local ssd",
    "local ssd": "local ssd",
    "nvidia tesla t4 gpu": "nvidia-tesla-t4",
    "nvidia tesla p4 gpu": "nvidia-tesla-p4",
    "nvidia tesla p100 gpu": "nvidia-tesla-p100",
    "nvidia tesla v100 gpu": "nvidia-tesla-v100",
    "nvidia tesla a100 gpu": "nvidia-tesla-a100",
    "nvidia tesla a100 80gb gpu": "nvidia-a100-80gb",
    "nvidia h100 80gb gpu": "nvidia-h100-80gb",
    "nvidia h100 80gb plus gpu": "nvidia-h100-mega-80gb",
    "nvidia h100 80gb mega gpu": "nvidia-h100-mega-80gb",
    "nvidia h100 mega 80gb gpu": "nvidia-h100-mega-80gb",
    "h200 141gb gpu": "nvidia-h200-141gb",
    "nvidia l4 gpu": "nvidia-l4",
    "rtx 6000 96gb": "nvidia-rtx-pro-6000",
    "1/8 vgpu no lssd": "rtx-pro-6000 eighth",
    "a4 nvidia b200 (1 gpu slice)": "b200 slice",
}
_USAGE_TYPES: Final[Mapping[Market, tuple[str, ...]]] = {
    "on_demand": ("OnDemand",),
    "spot": ("OnDemand", "Preemptible"),
    "reserved": ("Commit1Yr", "Commit3Yr"),
    "capacity_block": ("OnDemand", "Preemptible"),
}
_DISK: Final = re.compile(
    r"((?:Storage PD|SSD backed PD|Balanced PD|Hyperdisk Balanced) Capacity)(?: in .+)?"
)
# "Network Internet Egress from Americas to APAC" became "… Data Transfer Out from …"
_TRAFFIC: Final = re.compile(
    r"Network (Internet|Inter Region) (?:Egress|Data Transfer Out) from (.+) to (.+)"
)
_APART: Final = ("Australia", "China")
_BUCKET: Final = re.compile(r"Standard Storage (?!.*-region)[^()]+")
_WHOLE: Final = re.compile(r"-?[0-9]{1,12}")
_AGREEMENT: Final = Decimal("0.0001")
"""Largest relative difference that the page's rounding makes ($90.22 for 8 x 11.277)."""

Tiers = tuple[tuple[Decimal, Decimal], ...]
"""(from this amount of usage units, USD per unit), as listed."""
Found = dict[Any, dict[str, set[tuple[int, Tiers]]]]
"""What is sold -> region -> (number of regions of the SKU, its tiers)."""


def follow(name: str, page: Page) -> Get | None:
    """Ask for the next page of a list while there is a token.

    Raises:
        UnknownShape: the token is not text.
    """
    if name == "accelerator_page":
        return None
    body = page.json()
    token = body.get("nextPageToken") if isinstance(body, Mapping) else None
    if not token:
        return None
    if not isinstance(token, str):
        raise UnknownShape(f"{name}: nextPageToken is not text")
    request = REQUESTS[name]
    return replace(request, params={**request.params, "pageToken": token})


def _identify(description: str) -> tuple[str, Terms] | None:
    """Return the part and the market that a description names, or None."""
    for form, terms in _FORMS:
        if (match := form.fullmatch(description)) is None:
            continue
        name = match[1]
        if terms.market == "reserved" and name.lower() in ("cpu", "ram"):
            name = f"N1 Predefined {name}"
        if (host := _HOST.fullmatch(name)) is not None:
            family = host["family"].lower().replace(" ", "")
            what = "ram" if host["what"].lower() == "ram" else "core"
            return f"{_FAMILIES.get(family, family)} {what}", terms
        part = _PARTS.get(name.lower())
        return (part, terms) if part else None
    return None


def _identify_fee(description: str, group: Any) -> tuple[FeeKind, str] | None:
    """Return the kind and the product of a storage or traffic SKU, without its place."""
    if (disk := _DISK.fullmatch(description)) is not None:
        return "block_storage", disk[1]
    if (way := _TRAFFIC.fullmatch(description)) is not None:
        product = f"Network {way[1]} Data Transfer Out from {way[2]} to {way[3]}"
        if (way[1], group) == ("Inter Region", "InterregionEgress"):
            return "inter_region_egress", product
        is_apart = way[3] in _APART and way[2] != way[3]
        if (way[1], group) == ("Internet", "PremiumInternetEgress") and not is_apart:
            return "egress", product
    if group == "RegionalStorage" and _BUCKET.fullmatch(description):
        return "object_storage", "Standard Storage"
    return None


def _amount(unit_price: Mapping[str, Any]) -> Decimal:
    """Add `units`, a whole number as text, and `nanos`, one below 10^9 that may be left out."""
    units, nanos = unit_price["units"], number(unit_price.get("nanos", 0))
    if not isinstance(units, str) or not _WHOLE.fullmatch(units):
        raise TypeError(f"units {units!r}")
    if nanos % 1 or abs(nanos) >= NANOS_PER_UNIT:
        raise ValueError(f"nanos {nanos}")
    return int(units) + nanos / NANOS_PER_UNIT


def _read_tiers(item: Mapping[str, Any], unit: str) -> Tiers | Reject:
    """Return the price tiers of a SKU, or the reject that says why they cannot be used."""
    try:
        # pricingInfo is in chronological order
        pricing = item["pricingInfo"][-1]["pricingExpression"]
        rates = pricing["tieredRates"]
        currencies = {rate["unitPrice"]["currencyCode"] for rate in rates}
        tiers = tuple(
            (number(rate["startUsageAmount"]), _amount(rate["unitPrice"])) for rate in rates
        )
        if pricing["usageUnit"] != unit:
            return refuse("unknown unit", item, f"{pricing['usageUnit']} where {unit} belongs")
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        return refuse("unreadable row", item, f"{type(error).__name__}: {error}")
    if currencies != {"USD"}:
        return refuse("not in US dollars", item, ", ".join(map(str, currencies)))
    if any(price < 0 for _, price in tiers):
        return refuse("negative price", item)
    if any(later[0] <= earlier[0] for earlier, later in pairwise(tiers)):
        return refuse("unreadable row", item, "tiers out of order")
    return tiers if any(price for _, price in tiers) else refuse("zero price", item)


def _collect(pages: Pages, name: str, service: str, parts: Found, fees: Found) -> Iterator[Reject]:
    """Sort the SKUs of a list that are parts of a machine, storage or traffic; yield the rest."""
    seen = 0
    for page in pages_of(pages, name):
        listed = require(page.json(), "skus", page.name)
        if not isinstance(listed, list):
            raise UnknownShape(f"{page.name}: 'skus' is not a list")
        for item in listed:
            category = item.get("category") if isinstance(item, Mapping) else None
            if not isinstance(category, Mapping) or not isinstance(item.get("description"), str):
                yield refuse("unreadable row", item, "no category or description")
            elif category.get("serviceDisplayName") == service:
                seen += 1
                yield from _sort_one(item, category, parts, fees)
    if pages_of(pages, name) and not seen:
        raise EmptyReply(f"{name}: no SKU of {service}")


def _sort_one(
    item: Mapping[str, Any], category: Mapping[str, Any], parts: Found, fees: Found
) -> Iterator[Reject]:
    description = " ".join(item["description"].split())
    what: Any
    if (what := _identify(description)) is not None:
        found, usage = parts, _USAGE_TYPES[what[1].market]
        unit = "GiBy.h" if what[0].endswith(" ram") else "h"
        unit = "GiBy.mo" if what[0] == "local ssd" else unit
    elif (what := _identify_fee(description, category.get("resourceGroup"))) is not None:
        found, usage, unit = fees, ("OnDemand",), "GiBy.mo" if "storage" in what[0] else "GiBy"
    else:
        return
    tiers, regions = _read_tiers(item, unit), item.get("serviceRegions")
    if category.get("usageType") not in usage:
        yield refuse("usage type and description disagree", item)
    elif isinstance(tiers, Reject):
        yield tiers
    elif not isinstance(regions, list) or not all(isinstance(r, str) for r in regions):
        yield refuse("unreadable row", item, "no list of regions")
    else:
        for region in regions:
            found[what][region].add((len(regions), tiers))


def _settle(found: Found) -> Iterator[tuple[Any, str, Tiers] | Reject]:
    """Give each thing its price in each region: a SKU for fewer regions goes before a wider one."""
    for what, places in found.items():
        for region, stated in places.items():
            fewest = min(stated)[0]
            best = [tiers for count, tiers in stated if count == fewest]
            if len(best) == 1:
                yield what, region, best[0]
            else:
                yield refuse("two prices for one component", f"{what} in {region}: {best}")


def _hourly(part: str, tiers: Tiers) -> Decimal | None:
    """Return the price of a part for an hour, or None where it depends on the amount used."""
    rates = {price for _, price in tiers if price}
    return (
        rates.pop() / (HOURS_PER_MONTH if part == "local ssd" else 1) if len(rates) == 1 else None
    )


def _sku_offer(name: str, region: str, terms: Terms, prices: Mapping[str, Decimal]) -> Offer:
    machine = MACHINES[name]
    total = sum((amount * prices[part] for part, amount in machine.parts.items()), Decimal(0))
    return Offer(
        **machine.facts,
        **terms._asdict(),
        sku=name,
        region=region,
        price_per_hour=money(total),
        currency="USD",
    )


def _read_machines_of(parts: Found) -> Iterator[Row | Reject]:
    prices: dict[tuple[Terms, str], dict[str, Decimal]] = defaultdict(dict)
    for settled in _settle(parts):
        if isinstance(settled, Reject):
            yield settled
            continue
        (part, terms), region, tiers = settled
        if (price := _hourly(part, tiers)) is None:
            yield refuse("volume price", f"{part} in {region}: {tiers}")
        else:
            prices[terms, region][part] = price
    for name, machine in MACHINES.items():
        gpus = machine.parts.keys() & set(_PARTS.values()) - {"local ssd"}
        incomplete = defaultdict(list)
        for (terms, region), known in prices.items():
            if not gpus or region not in machine.regions or not gpus <= known.keys():
                continue
            if terms == ON_DEMAND and machine.on_demand == "no":
                incomplete["not sold on demand"].append(region)
            elif lacking := machine.parts.keys() - known.keys():
                line = f"{region} {'/'.join(map(str, terms))}: {', '.join(sorted(lacking))}"
                incomplete["component without a price"].append(line)
            else:
                yield attempt(name, partial(_sku_offer, name, region, terms, known))
        for reason, where in incomplete.items():
            yield refuse(reason, name, "; ".join(sorted(where)))


def _fee(kind: FeeKind, product: str, region: str, start: Decimal, price: Decimal) -> Fee:
    unit: FeeUnit = "gib_month" if "storage" in kind else "gib"
    return Fee(
        kind=kind,
        product=product,
        region=region,
        from_tier_gb=round(start * BYTES_PER_GIB / 10**9, 3),
        price=money(price),
        unit=unit,
        currency="USD",
    )


def _read_fees(fees: Found) -> Iterator[Row | Reject]:
    for settled in _settle(fees):
        if isinstance(settled, Reject):
            yield settled
            continue
        (kind, product), region, tiers = settled
        for start, price in tiers:
            if price == 0 and start:  # a free allowance comes first
                yield refuse("zero price", f"{product} in {region} from {start}")
            else:
                yield attempt(product, partial(_fee, kind, product, region, start, price))


def _unless_stated(
    rows: Iterable[Row | Reject], stated: Mapping[Any, Decimal]
) -> Iterator[Row | Reject]:
    """Pass on the page's rows whose price the SKUs don't state, and say where the two disagree."""
    for row in rows:
        if not isinstance(row, Offer) or (summed := stated.get(row.key())) is None:
            yield row
        elif abs(row.price_per_hour - summed) > summed * _AGREEMENT:
            line = f"{row.key()}: page {row.price_per_hour}, SKUs {summed}"
            yield refuse("page and SKUs disagree", line)


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the GPU machines in every market, persistent disks, buckets and traffic.

    Raises:
        NotTheFormat: the page is cut off.
        UnknownShape: the page has no table of machine types, or an answer no list of SKUs.
        EmptyReply: a list of SKUs holds none of its service, or the page no machine.
    """
    parts: Found = defaultdict(lambda: defaultdict(set))
    fees: Found = defaultdict(lambda: defaultdict(set))
    buckets: Found = defaultdict(lambda: defaultdict(set))
    yield from _collect(pages, "skus", "Compute Engine", parts, fees)
    yield from _collect(pages, "storage_skus", "Cloud Storage", parts, buckets)
    stated = {}
    for row in _read_machines_of(parts):
        if isinstance(row, Offer):
            stated[row.key()] = row.price_per_hour
        yield row
    yield from stated_by("skus", _read_fees(fees))
    yield from stated_by("storage_skus", _read_fees(buckets))
    for page in pages_of(pages, "accelerator_page"):
        yield from _unless_stated(_read_page(page), stated)
