"""AWS accelerated instances, disks, object storage and traffic from its public lists, without keys.

Per region three bulk price lists: `ec2-<region>`, `s3-<region>` and `data_transfer-<region>`. Two
feeds hold spot of all regions and are a scope of their own, so that their failure costs no list:
`spot_prices-spot`, one spot price per region (not per zone), and `spot_advisor-spot`, how often
spot is interrupted. China has its own host and prices in CNY, GovCloud is a pair of regions like
any other. Documentation:
https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-api.html

How it prices: whole machine and hour. A list of EC2 is hundreds of MB, so its lines are sifted as
bytes before any is parsed. The JSON form of a list says the same and is read, too. Kept are Linux
without paid software, shared tenancy, capacity in use, in a region (Local Zones and Wavelength have
lists of their own and are left out). What looks alike and is not on demand: Windows with one's own
licence at the Linux price, unused capacity reservations, and Capacity Blocks, whose real fee is
dynamic and which the list prices at zero. Zero is never free.

Reserved: a term has an hourly part, an upfront part or both. `price_per_hour` is what an hour of
the whole term costs, hourly + upfront / hours of the term, for every payment option, so that rows
compare; `upfront` says what of it is due at the start. `tier` is the offering class and the option.

`interruption_rate_monthly` is the `max` of the advisor's range, which for "5-10%" is 11 %.

Storage is priced per "GB-Mo", where AWS means GiB: volumes are sized in GiB, and the page of S3
says that its GB is 2^30 bytes. Traffic is kept as stated; its tiers are of 1,024 GB a TB. The
allowance of 100 GB a month over all regions is a usage type of its own and is left to the terms.

The lists name no GPU: `aws_instances.csv` says what a type holds, each row with its source, and a
type that is not in it is refused as unknown. The lists' own GPU column is not used: it counts
boards of two GPUs on p2. FPGA types (F) are left out by rule.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import ijson  # type: ignore[import-untyped]

from scrapers.errors import NotTheFormat, UnknownShape
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
    require,
    stated_by,
)
from scrapers.units import HOURS_PER_YEAR, money

PROVIDER = Provider(
    slug="aws",
    name="Amazon Web Services",
    pricing_url="https://aws.amazon.com/ec2/pricing/on-demand/",
)
# fmt: off
REGIONS: Final = {
    "us-east-1": "US East (N. Virginia)", "us-east-2": "US East (Ohio)",
    "us-west-1": "US West (N. California)", "us-west-2": "US West (Oregon)",
    "af-south-1": "Africa (Cape Town)", "ap-east-1": "Asia Pacific (Hong Kong)",
    "ap-east-2": "Asia Pacific (Taipei)", "ap-northeast-1": "Asia Pacific (Tokyo)",
    "ap-northeast-2": "Asia Pacific (Seoul)", "ap-northeast-3": "Asia Pacific (Osaka)",
    "ap-south-1": "Asia Pacific (Mumbai)", "ap-south-2": "Asia Pacific (Hyderabad)",
    "ap-southeast-1": "Asia Pacific (Singapore)", "ap-southeast-2": "Asia Pacific (Sydney)",
    "ap-southeast-3": "Asia Pacific (Jakarta)", "ap-southeast-4": "Asia Pacific (Melbourne)",
    "ap-southeast-5": "Asia Pacific (Malaysia)", "ap-southeast-6": "Asia Pacific (New Zealand)",
    "ap-southeast-7": "Asia Pacific (Thailand)", "ca-central-1": "Canada (Central)",
    "ca-west-1": "Canada West (Calgary)", "eu-central-1": "EU (Frankfurt)",
    "eu-central-2": "Europe (Zurich)", "eu-north-1": "EU (Stockholm)",
    "eu-south-1": "EU (Milan)", "eu-south-2": "Europe (Spain)", "eu-west-1": "EU (Ireland)",
    "eu-west-2": "EU (London)", "eu-west-3": "EU (Paris)", "il-central-1": "Israel (Tel Aviv)",
    "me-central-1": "Middle East (UAE)", "me-south-1": "Middle East (Bahrain)",
    "mx-central-1": "Mexico (Central)", "sa-east-1": "South America (Sao Paulo)",
    "us-gov-east-1": "AWS GovCloud (US-East)", "us-gov-west-1": "AWS GovCloud (US-West)",
    "cn-north-1": "China (Beijing)", "cn-northwest-1": "China (Ningxia)",
}
"""Region codes with the location names of the lists, which older lists state alone."""
_LEGACY_REGIONS: Final = {
    "us-east": "us-east-1", "us-west": "us-west-1", "eu-ireland": "eu-west-1",
    "apac-sin": "ap-southeast-1", "apac-syd": "ap-southeast-2", "apac-tokyo": "ap-northeast-1",
}
"""Keys of the spot feed that are not region codes."""
# fmt: on
_CODES: Final = {name: code for code, name in REGIONS.items()} | {
    "AWS GovCloud (US)": "us-gov-west-1"
}
_OFFERS: Final = {"ec2": "AmazonEC2", "s3": "AmazonS3", "data_transfer": "AWSDataTransfer"}


def _list(offer: str, region: str) -> Get:
    host, partition = "pricing.us-east-1.amazonaws.com", "aws"
    if region.startswith("cn-"):
        host, partition = "pricing.cn-north-1.amazonaws.com.cn", "cn"
    path = f"offers/v1.0/{partition}/{offer}/current/{region}/index.csv"
    return Get(f"https://{host}/{path}", media="csv")


REQUESTS = {
    "spot_prices-spot": Get("https://website.spot.ec2.aws.a2z.com/spot.json"),
    "spot_advisor-spot": Get("https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"),
} | {
    f"{kind}-{region}": _list(offer, region)
    for region in REGIONS
    for kind, offer in _OFFERS.items()
}


class Instance(NamedTuple):
    """What an instance type holds; `gpu_count` is below 1 for a slice, memory is of a whole GPU."""

    gpu_label: str
    gpu_count: Decimal
    gpu_memory_gib: Decimal | None
    vcpus: Decimal | None
    memory_gib: Decimal | None
    local_disk_gib: Decimal | None
    interconnect: str | None


def _read_instances() -> dict[str, Instance]:
    instances = {}
    for row in read_table("aws_instances.csv"):
        memory, vcpus, host, disk = (
            Decimal(row[column]) if row[column] else None
            for column in ("gpu_memory_gib", "vcpus", "memory_gib", "local_disk_gib")
        )
        label, count, link = row["gpu_label"], Decimal(row["gpu_count"]), row["interconnect"]
        instances[row["type"]] = Instance(label, count, memory, vcpus, host, disk, link or None)
    return instances


INSTANCES: Final = _read_instances()
"""By instance type."""
# p6-b200.48xlarge, gr6f.4xlarge, trn1n.32xlarge, g4dn.metal; not t4g.nano
_ACCELERATED: Final = re.compile(r"(?:p|g|gr|trn|inf|dl|vt)\d[\w-]*\.[\w-]+")
_ACCELERATED_LINE: Final = re.compile(
    rb'"(?:p|g|gr|trn|inf|dl|vt)\d[\w-]*\.[\w-]+"|"GPU instance"|"Machine Learning ASIC Instances"'
)
_ACCELERATED_FAMILIES: Final = ("GPU instance", "Machine Learning ASIC Instances")
_NOT_PLAIN_LINUX: Final = re.compile(
    r"Windows|SUSE|RHEL|Red Hat|Ubuntu Pro|SQL|Dedicated|Reservation|reserved instance"
)
_PREFIX: Final = re.compile(r"[A-Z]{2,4}\d{0,2}-")  # "EUW3-"; us-east-1 has none
_INTER_REGION: Final = re.compile(r"[A-Z0-9]+-[A-Z0-9]+-AWS-Out-Bytes")  # "EU-USW2-AWS-Out-Bytes"
_AMOUNT: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[Ee][-+]?[0-9]{1,2})?")  # 0.08, 9.0E-4
_YEARS: Final = {"1yr": 1, "1 yr": 1, "3yr": 3, "3 yr": 3}
_JSONP: Final = re.compile(r"(?:/\*.*?\*/\s*)?callback\s*\((?P<body>.*)\)\s*;?", re.DOTALL)
_BARE_KEY: Final = re.compile(r"([{,]\s*)([A-Za-z_]\w*)(\s*:)")  # {vers:0.01,config:{
_PREAMBLE_LINES: Final = 20
"""The header is the sixth line; within this many it must have come."""

Cells = dict[str, str]
"""One price of one product: non-empty columns, or members, by lower-case name without spaces."""


# --- lists ---


def _name(heading: str) -> str:
    """Make one name of the CSV's "Pre Installed S/W" and the JSON's preInstalledSw."""
    return "".join(c for c in heading.lower() if c.isalnum())


def _is_wanted_line(kind: str, line: bytes) -> bool:
    if kind == "data_transfer":
        return b'"Data Transfer"' in line
    if kind == "ec2" and b'"Linux"' in line and b'"Shared"' in line:
        return _ACCELERATED_LINE.search(line) is not None
    return b'"Storage"' in line


_COLUMNS: Final = {
    "sku", "offertermcode", "termtype", "startingrange", "unit", "priceperunit", "currency",
    "productfamily", "usagetype", "operation",
}  # fmt: skip
_OWN_COLUMNS: Final = {
    "ec2": {"locationtype", "instancetype", "operatingsystem", "tenancy", "capacitystatus"},
    "s3": {"locationtype", "volumetype"},
    "data_transfer": {"transfertype", "fromlocation", "fromlocationtype", "tolocation"},
}


def _split(line: bytes) -> list[str]:
    return next(csv.reader([line.decode("utf-8")]), [])


def _read_csv(kind: str, page: Page) -> Iterator[Cells | Reject]:
    """Yield the rows whose bytes look wanted; the rest is never split into cells.

    Raises:
        NotTheFormat: the last line is cut off, or text is not UTF-8.
        UnknownShape: no header, or one without a column that is needed.
    """
    columns: list[str] = []
    line = b""
    try:
        with page.open() as stream:
            for number, line in enumerate(stream):
                if not columns:
                    if line.startswith(b'"SKU",'):
                        columns = [_name(heading) for heading in _split(line)]
                        if missing := (_COLUMNS | _OWN_COLUMNS[kind]) - set(columns):
                            raise UnknownShape(f"{page.name}: no column {sorted(missing)[0]!r}")
                    elif number >= _PREAMBLE_LINES:
                        raise UnknownShape(f"{page.name}: no header line within {number} lines")
                elif _is_wanted_line(kind, line):
                    cells = _split(line)
                    if len(cells) == len(columns):
                        yield {c: v for c, v in zip(columns, cells, strict=True) if v}
                    else:
                        where = f"{len(cells)} cells under {len(columns)} columns"
                        yield refuse("unreadable row", line.decode("utf-8"), where)
        if not columns:
            raise UnknownShape(f"{page.name}: no header line")
        if line.strip() and len(_split(line)) != len(columns):
            raise NotTheFormat(f"{page.name}: the last line is cut off")
    except (UnicodeDecodeError, csv.Error) as error:
        raise NotTheFormat(f"{page.name}: not CSV text ({error})") from error


def _members(node: Any) -> dict[str, str]:
    pairs = node.items() if isinstance(node, Mapping) else ()
    return {_name(k): v.strip() for k, v in pairs if isinstance(v, str) and v.strip()}


_CSV_NAMES: Final = {"beginrange": "startingrange", "description": "pricedescription"}


def _prices(product: Cells, term_type: str, terms: Any) -> Iterator[Cells | Reject]:
    try:
        for term in terms.values():
            own = _members(term) | _members(term.get("termAttributes"))
            for dimension in term["priceDimensions"].values():
                stated = {_CSV_NAMES.get(k, k): v for k, v in _members(dimension).items()}
                for currency, price in dimension["pricePerUnit"].items():
                    amount = {"currency": currency, "priceperunit": price}
                    yield {**product, **own, **stated, **_members(amount), "termtype": term_type}
    except (KeyError, TypeError, AttributeError) as error:
        yield refuse("unreadable row", terms, f"{type(error).__name__}: {error}")


def _read_json(kind: str, page: Page) -> Iterator[Cells | Reject]:
    """Yield the prices of wanted products: one pass over the products, one over each kind of term.

    Raises:
        NotTheFormat: not JSON, or cut off.
        UnknownShape: no products.
    """
    products: dict[str, Cells] = {}
    count = 0
    try:
        with page.open() as stream:
            for sku, product in ijson.kvitems(stream, "products"):
                count += 1
                attributes = product.get("attributes") if isinstance(product, Mapping) else None
                cells = {**_members(attributes), **_members(product)}
                if _is_wanted(kind, cells):
                    products[sku] = cells
        if not count:
            raise UnknownShape(f"{page.name}: no products")
        for term_type in ("OnDemand", "Reserved"):
            with page.open() as stream:
                for sku, terms in ijson.kvitems(stream, f"terms.{term_type}"):
                    if sku in products:
                        yield from _prices(products[sku], term_type, terms)
    except ijson.JSONError as error:
        raise NotTheFormat(f"{page.name}: not JSON ({' '.join(str(error).split())})") from error


def _read_list(kind: str, page: Page) -> Iterator[Cells | Reject]:
    with page.open() as stream:
        is_json = stream.read(64).lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"{")
    for cells in (_read_json if is_json else _read_csv)(kind, page):
        if isinstance(cells, Reject) or _is_wanted(kind, cells):
            yield cells


# --- what a row is ---


def _usage(cells: Cells) -> str:
    """Return the usage type without its region: "EUW3-EBS:VolumeUsage.gp3" is a gp3 volume."""
    return _PREFIX.sub("", cells.get("usagetype", ""), count=1)


def _is_machine(cells: Cells) -> bool:
    accelerated = _ACCELERATED.fullmatch(cells.get("instancetype", "")) is not None
    return (
        (accelerated or cells.get("instancefamily") in _ACCELERATED_FAMILIES)
        and cells.get("productfamily", "").startswith("Compute Instance")  # also "(bare metal)"
        and cells.get("operatingsystem") == "Linux"
        and cells.get("licensemodel") != "Bring your own license"
        and cells.get("preinstalledsw", "NA") == "NA"
        and cells.get("tenancy") == "Shared"
        and cells.get("capacitystatus") == "Used"
        and cells.get("locationtype") == "AWS Region"
        and cells.get("operation") in ("RunInstances", "RunInstances:CB")
    )


def _is_volume(cells: Cells) -> bool:
    name = cells.get("volumeapiname")
    return name in ("gp3", "io2") and _usage(cells) == f"EBS:VolumeUsage.{name}"


def _is_stored(kind: str, cells: Cells) -> bool:
    is_region = cells.get("locationtype") == "AWS Region"
    if not is_region or cells.get("productfamily") != "Storage":
        return False
    if kind == "ec2":
        return _is_volume(cells)
    return cells.get("volumetype") == "Standard" and _usage(cells) == "TimedStorage-ByteHrs"


def _is_traffic(cells: Cells) -> bool:
    """Keep traffic to the internet and between regions, without the options that cost more."""
    if cells.get("fromlocationtype") != "AWS Region" or "operation" in cells:
        return False
    kind, usage = cells.get("transfertype"), cells.get("usagetype", "")
    if kind == "AWS Outbound":
        return cells.get("tolocation") == "External" and _usage(cells) == "DataTransfer-Out-Bytes"
    is_region = cells.get("tolocationtype") == "AWS Region"
    return kind == "InterRegion Outbound" and is_region and bool(_INTER_REGION.fullmatch(usage))


def _is_wanted(kind: str, cells: Cells) -> bool:
    if kind == "data_transfer":
        return cells.get("productfamily") == "Data Transfer" and _is_traffic(cells)
    return _is_stored(kind, cells) or (kind == "ec2" and _is_machine(cells))


def _region(cells: Cells, side: str = "") -> str | None:
    return cells.get(f"{side}regioncode") or _CODES.get(cells.get(f"{side}location", ""))


def _amount(text: Any) -> Decimal | None:
    is_amount = isinstance(text, str) and _AMOUNT.fullmatch(text) is not None
    return Decimal(text) if is_amount else None


def _stated(cells: Cells) -> dict[str, Any]:
    start = cells.get("effectivedate")
    time = datetime.fromisoformat(start) if start else None
    return {
        "currency": cells["currency"],
        "effective_at": time.replace(tzinfo=UTC) if time and not time.tzinfo else time,
    }


# --- machines ---


def _market(cells: Cells) -> str | None:
    option, text = cells.get("marketoption", "OnDemand"), cells.get("pricedescription", "")
    if option == "CapacityBlock" or cells.get("operation", "").endswith(":CB"):
        return "capacity_block"
    if "Capacity Block" in text:  # also where the column MarketOption is missing
        return "capacity_block"
    return "on_demand" if option == "OnDemand" else None


def _why_not(cells: Cells) -> str | None:
    """Return the reason to refuse a row whose price would be misread."""
    on_demand, market = cells.get("termtype") == "OnDemand", _market(cells)
    if not on_demand and cells.get("termtype") != "Reserved":
        return "unknown term type"
    if market is None or (market == "capacity_block" and not on_demand):
        return "unknown market option"
    if _usage(cells) != f"BoxUsage:{cells.get('instancetype')}":
        return "unknown usage type"
    if cells.get("startingrange", "0") != "0":
        return "volume price"
    if not on_demand:
        return None
    if any(key in cells for key in ("leasecontractlength", "purchaseoption", "offeringclass")):
        return "reservation terms on an on-demand price"
    if _NOT_PLAIN_LINUX.search(cells.get("pricedescription", "")):
        return "description of another product"
    return None if cells.get("unit") == "Hrs" else "unknown unit"


def _offer(cells: Cells, region: str, price: Decimal, market: str | None, **terms: Any) -> Offer:
    return Offer(
        **INSTANCES[cells["instancetype"]]._asdict(),
        **_stated(cells),
        sku=cells["instancetype"],
        region=region,
        market=market,  # type: ignore[arg-type]  # the contract checks it
        price_per_hour=money(price),
        **terms,
    )


def _reserved(parts: list[Cells], region: str) -> Offer:
    """Join the hourly and the upfront part of one term.

    Raises:
        ValueError, KeyError: they are not what the payment option says.
    """
    first = parts[0]
    by_unit = {cells["unit"]: _amount(cells["priceperunit"]) for cells in parts}
    hourly, upfront = by_unit.get("Hrs"), by_unit.get("Quantity")
    paid = (bool(hourly), bool(upfront))
    option, years = first["purchaseoption"], _YEARS[first["leasecontractlength"]]
    needs = {"No Upfront": (True, False), "Partial Upfront": (True, True)}
    if len(by_unit) != len(parts) or paid != (needs | {"All Upfront": (False, True)})[option]:
        raise ValueError(f"{option} of {hourly} an hour and {upfront} at the start")
    total = (hourly or 0) + (upfront or Decimal(0)) / (HOURS_PER_YEAR * years)
    return _offer(
        first,
        region,
        total,
        "reserved",
        commitment_months=12 * years,
        upfront=upfront or None,
        tier=f"{first['offeringclass']} {option}",
    )


def _read_machines(rows: Iterable[Cells], scope: str) -> Iterator[Row | Reject]:
    unknown: dict[str, list[Cells]] = {}
    terms: dict[tuple[str, ...], list[Cells]] = {}
    for cells in rows:
        name, region = cells.get("instancetype", "?"), _region(cells) or scope
        if scope and region != scope:
            yield refuse("row of another region", cells)
        elif name not in INSTANCES:
            unknown.setdefault(name, []).append(cells)
        elif (reason := _why_not(cells)) is not None:
            yield refuse(reason, cells)
        elif cells["termtype"] == "Reserved":
            key = (region, *(cells.get(part, "") for part in ("sku", "offertermcode", "currency")))
            terms.setdefault(key, []).append(cells)
        else:
            price = _amount(cells.get("priceperunit"))
            build = partial(_offer, cells, region, price or Decimal(0), _market(cells))
            yield priced(cells, price, build)
    for (region, *_), parts in terms.items():
        row = attempt(parts, partial(_reserved, parts, region))
        if isinstance(row, Reject):
            row = refuse("unreadable reserved terms", parts, row.detail)
        yield row
    for name, some in unknown.items():
        yield refuse("unknown size", some[0], f"{name}: {len(some)} rows")


# --- fees ---


def _fee(cells: Cells, region: str, unit: str) -> Fee:
    kind, product = "object_storage", f"S3 {cells.get('volumetype')}"
    if "volumeapiname" in cells:
        kind, product = "block_storage", cells["volumeapiname"]
    elif "transfertype" in cells:
        is_out = cells["transfertype"] == "AWS Outbound"
        kind = "egress" if is_out else "inter_region_egress"
        product = f"{cells['transfertype']} to {_region(cells, 'to') or cells['tolocation']}"
    if cells["termtype"] != "OnDemand":
        raise ValueError(f"term type {cells['termtype']}")
    price, start = _amount(cells["priceperunit"]), _amount(cells.get("startingrange", "0"))
    if price is None or start is None:
        raise ValueError("a price or a tier that is not a number")
    return Fee(
        **_stated(cells),
        kind=kind,  # type: ignore[arg-type]  # the contract checks it
        product=product,
        region=region,
        from_tier_gb=start,
        price=money(price),
        unit=unit,  # type: ignore[arg-type]
    )


def _read_fees(rows: Iterable[Cells], scope: str, side: str) -> Iterator[Row | Reject]:
    """Read storage or traffic; `side` is "from" where a row has two regions."""
    zeros, paid = [], set()
    units = {"GB": "gb"} if side else {"GB-Mo": "gib_month"}
    for cells in rows:
        region = _region(cells, side) or ("" if side else scope)
        if scope and region != scope:
            if not side:  # a list of traffic also holds what arrives from other regions
                yield refuse("row of another region", cells)
        elif cells.get("unit") not in units:
            yield refuse("unknown unit", cells)
        else:
            fee = attempt(cells, partial(_fee, cells, region, units[cells["unit"]]))
            if isinstance(fee, Fee) and fee.price == 0:
                zeros.append(fee)
                continue
            if isinstance(fee, Fee):
                paid.add((fee.product, fee.region))
            yield fee
    for fee in zeros:  # a zero is an allowance only where paid tiers follow it
        is_allowance = fee.from_tier_gb == 0 and (fee.product, fee.region) in paid
        yield fee if is_allowance else refuse("zero price", fee.model_dump_json(exclude_none=True))


def _read_prices(kind: str, scope: str, page: Page) -> Iterator[Row | Reject]:
    machines: list[Cells] = []
    fees: list[Cells] = []
    for cells in _read_list(kind, page):
        if isinstance(cells, Reject):
            yield cells
        else:
            (machines if "instancetype" in cells else fees).append(cells)
    yield from _read_machines(machines, scope)
    side = "from" if kind == "data_transfer" else ""
    yield from stated_by(page.name, _read_fees(fees, scope, side))


# --- spot ---


T = TypeVar("T")


def _member(node: Any, key: str, kind: type[T], where: str) -> T:
    value = require(node, key, where)
    if not isinstance(value, kind):
        raise UnknownShape(f"{where}: {key!r} is not what the known form has")
    return value


def _rates(pages: Pages) -> dict[tuple[str, str], Decimal]:
    """Return the upper end of the share interrupted in a month, by region and type."""
    rates = {}
    for page in pages_of(pages, "spot_advisor"):
        body, tops = page.json(), {}
        for band in _member(body, "ranges", list, page.name):
            index, top = (_member(band, key, int, page.name) for key in ("index", "max"))
            tops[index] = Decimal(top) / 100
        advised = _member(body, "spot_advisor", dict, page.name)
        for region in advised:
            systems = _member(advised, region, dict, page.name)
            for name, facts in _member(systems, "Linux", dict, page.name).items():
                band = facts.get("r") if isinstance(facts, dict) else None
                if type(band) is int and 0 <= tops.get(band, -1) <= 1:
                    rates[region, name] = tops[band]
    return rates


def _spot_feed(page: Page) -> Any:
    """Parse the feed, bare or wrapped in callback(...), very old ones with unquoted keys."""
    wrapped = _JSONP.fullmatch(page.text().strip())
    if wrapped is None:
        return page.json()
    try:
        return Page(page.name, page.number, wrapped["body"].encode()).json()
    except NotTheFormat:
        quoted = _BARE_KEY.sub(r'\1"\2"\3', wrapped["body"])
        return Page(page.name, page.number, quoted.encode()).json()


def _spot(size: Any, region: str, price: str, rate: Decimal | None) -> Offer:
    cells = {"instancetype": size["size"], "currency": "USD"}
    found = _amount(price)
    if found is None:
        raise ValueError(f"{price!r} is not a price")
    return _offer(cells, region, found, "spot", interruption_rate_monthly=rate)


def _read_size(size: Any, region: str, rates: Mapping[tuple[str, str], Decimal]) -> Row | Reject:
    name = size["size"]
    if name not in INSTANCES:
        return refuse("unknown size", size, name)
    try:
        columns = {column["name"]: column["prices"] for column in size["valueColumns"]}
        price = columns["linux"]["USD"]
    except (KeyError, TypeError) as error:
        return refuse("unreadable row", size, f"{type(error).__name__}: {error}")
    if price == "N/A*":
        return refuse("not sold as spot", size, f"{name} in {region}")
    if _amount(price) == 0:
        return refuse("zero price", size)
    return attempt(size, partial(_spot, size, region, price, rates.get((region, name))))


def _read_spot(pages: Pages) -> Iterator[Row | Reject]:
    feeds = pages_of(pages, "spot_prices")
    rates = _rates(pages) if feeds else {}
    for page in feeds:
        where = page.name
        config = _member(_spot_feed(page), "config", dict, where)
        if _member(config, "rate", str, where) != "perhr":
            raise UnknownShape(f"{where}: prices are not per hour")
        strangers = []
        for block in _member(config, "regions", list, where):
            key = _member(block, "region", str, where)
            region = _LEGACY_REGIONS.get(key, key)
            if region not in REGIONS:
                strangers.append(region)
                continue
            for group in _member(block, "instanceTypes", list, where):
                for size in _member(group, "sizes", list, where):
                    name = size.get("size") if isinstance(size, dict) else None
                    if isinstance(name, str) and _ACCELERATED.fullmatch(name):
                        yield _read_size(size, region, rates)
        if strangers:
            yield refuse("region is not asked", strangers, ", ".join(strangers))


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the accelerated machines in every market, gp3 and io2 volumes, S3 and traffic by tier.

    Raises:
        NotTheFormat: a page is neither CSV nor JSON, or is cut off.
        UnknownShape: a page lacks what the documented form has.
    """
    for request, some in pages.items():
        kind, _, scope = request.partition("-")
        for page in some if kind in _OFFERS else ():
            yield from _read_prices(kind, scope, page)
    yield from _read_spot(pages)
