"""Scaleway GPU Instances: EUR per node and hour, zone by zone, without a key.

Sources: the Instance API (`servers-<zone>`: types and prices; `availability-<zone>`: stock) and the
product catalogue (`catalog`: the same prices with the unit that is billed, and storage prices).

Odd: the catalogue quotes most GPU types per *minute* but RENDER-S per *hour*, so its unit decides;
prices are not linear in the GPUs of a node. Where both sources state a price and they differ by
more than the catalogue's rounding, neither is trusted and the row is refused. Storage is quoted
per GB without a period, which is an hour (0.000044 EUR x 730 is the advertised 0.032 per month).
Types at the end of service cannot be created and are left out, as are CPU-only ones. Neither source
prices traffic.
Documentation: https://www.scaleway.com/en/developers/api/instance/ and
https://www.scaleway.com/en/developers/api/product-catalog/public-catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

from scrapers.errors import EmptyReply, UnknownShape
from scrapers.offer import Fee, FeeKind, Offer, Reject, Row
from scrapers.pages import (
    Get,
    Page,
    Pages,
    Provider,
    attempt,
    pages_of,
    priced,
    refuse,
    require,
    scope_of,
    stated_by,
)
from scrapers.units import (
    HOURS_PER_MONTH,
    NANOS_PER_UNIT,
    SECONDS_PER_HOUR,
    gib_from_bytes,
    money,
    number,
)

PROVIDER = Provider(
    slug="scaleway", name="Scaleway", pricing_url="https://www.scaleway.com/en/pricing/gpu/"
)
PER_PAGE: Final = 100
_ZONES: Final = (
    *("fr-par-1", "fr-par-2", "fr-par-3", "it-mil-1"),
    *("nl-ams-1", "nl-ams-2", "nl-ams-3", "pl-waw-1", "pl-waw-2", "pl-waw-3"),
)
_CATALOG: Final = (
    "https://api.scaleway.com/product-catalog/v2alpha1/public-catalog/products"
    f"?product_types=instance&product_types=block_storage&page_size={PER_PAGE}&page="
)
_PATHS: Final = {"servers": "products/servers", "availability": "products/servers/availability"}
_SECONDS: Final = {"minute": 60, "hour": 3600}
_ROUNDING_EUR_PER_HOUR: Final = Decimal(60) / NANOS_PER_UNIT
"""A nano-euro a minute: the most that the catalogue's rounding can move an hour."""
_IN_STOCK: Final = {"available": True, "scarce": True, "shortage": False}


def _ask(name: str, page: int) -> Get:
    if name == "catalog":
        return Get(f"{_CATALOG}{page}")
    zone, path = scope_of(name), _PATHS[name.partition("-")[0]]
    url = f"https://api.scaleway.com/instance/v1/zones/{zone}/{path}"
    return Get(f"{url}?per_page={PER_PAGE}&page={page}")


REQUESTS = {
    name: _ask(name, 1) for name in ("catalog", *(f"{kind}-{z}" for z in _ZONES for kind in _PATHS))
}


def _listing(page: Page) -> tuple[list[Any], int | None]:
    """Return the rows of a page, and how many all pages hold together where it says."""
    body = page.json()
    if page.name == "catalog":
        rows, total = require(body, "products", page.name), body.get("total_count")
    else:
        rows, total = require(body, "servers", page.name), page.headers.get("x-total-count")
        rows = list(rows.items()) if isinstance(rows, dict) else None
    if not isinstance(rows, list):
        raise UnknownShape(f"{page.name}: not the documented list")
    return rows, int(str(total)) if str(total).isdecimal() else None


def follow(name: str, page: Page) -> Get | None:
    """Ask for the next page while fewer rows were seen than there are."""
    rows, total = _listing(page)
    seen = (page.number - 1) * PER_PAGE + len(rows)
    more = seen < total if total is not None else len(rows) >= PER_PAGE
    return _ask(name, page.number + 1) if rows and more else None


def _amount_eur(product: Any) -> Decimal:
    retail = product["price"]["retail_price"]
    if retail["currency_code"] != "EUR":
        raise ValueError(f"currency {retail['currency_code']}, not EUR")
    return number(retail["units"]) + number(retail["nanos"]) / NANOS_PER_UNIT


def _quote(product: Any) -> tuple[Decimal, int]:
    """Return the catalogue's EUR per hour, and the seconds that usage is rounded up to."""
    unit = product["unit_of_measure"]
    seconds = _SECONDS[unit["unit"]] * unit["size"]
    return money(_amount_eur(product) * SECONDS_PER_HOUR / seconds), seconds


def _offer(
    zone: str, name: str, server: Any, state: Any, price: Any, increment: int | None
) -> Offer:
    return Offer(
        sku=name,
        region=zone.rpartition("-")[0],
        zone=zone,
        market="on_demand",
        gpu_label=server["gpu_info"]["gpu_name"],
        gpu_count=number(server["gpu"]),
        gpu_memory_gib=gib_from_bytes(number(server["gpu_info"]["gpu_memory"])),
        vcpus=number(server["ncpus"]),
        memory_gib=gib_from_bytes(number(server["ram"])),
        price_per_hour=money(number(price)),
        currency="EUR",
        billing_increment_seconds=increment,
        is_available=_IN_STOCK.get(state),
    )


def _read_server(zone: str, name: str, server: Any, state: Any, quote: Any) -> Row | Reject:
    if server.get("mig_profile") is not None:
        return refuse("GPU slice of unknown size", server, str(server["mig_profile"]))
    quoted, increment = quote or (None, None)
    price = quoted if server.get("hourly_price") is None else server["hourly_price"]
    row = priced(server, price, partial(_offer, zone, name, server, state, price, increment))
    if quoted is None or not isinstance(row, Offer):
        return row
    if abs(row.price_per_hour - quoted) <= _ROUNDING_EUR_PER_HOUR:
        return row
    return refuse("price disagrees", server, f"{name}: {price} here, {quoted} in the catalogue")


def _storage_kind(product: Mapping[str, Any]) -> FeeKind | None:
    sku, name = str(product.get("sku")), str(product.get("product"))
    if sku.startswith("/storage/local/"):  # /storage/local/ssd/storage
        return "local_storage"
    if sku.startswith("/storage/snapshot/"):  # /storage/snapshot/local_storage
        return "snapshot"
    return "block_storage" if name.startswith("Block Storage Volume") else None


def _fee(product: Any, kind: FeeKind, region: str) -> Fee:
    unit = product.get("unit_of_measure") or product["price"]["unit_of_measure"]
    if unit["unit"] != "gigabyte":
        raise ValueError(f"unit {unit['unit']}, not gigabyte")
    return Fee(
        kind=kind,
        product=product["variant"],
        region=region,
        price=money(_amount_eur(product) / unit["size"] * HOURS_PER_MONTH),
        unit="gb_month",
        currency="EUR",
    )


def _merge(pages: Sequence[Page]) -> tuple[list[Any], list[Reject]]:
    """Return the rows of all pages, and a Reject where the pages say that there are more."""
    listings: list[tuple[list[Any], int | None]] = []
    for listing in map(_listing, pages):
        if listing not in listings:  # the same page twice is one
            listings.append(listing)
    rows = [row for some, _ in listings for row in some]
    total = max((stated or 0 for _, stated in listings), default=0)
    if len(rows) >= total:
        return rows, []
    return rows, [refuse("truncated listing", pages[0].name, f"{len(rows)} of {total} rows")]


def _read_zone(
    zone: str, servers: list[Any], stock: list[Any], catalog: list[Any]
) -> Iterator[Row | Reject]:
    quotes: dict[str, tuple[Decimal, int]] = {}
    for product in catalog:
        where = product.get("locality") if isinstance(product, Mapping) else None
        if not isinstance(where, Mapping):
            yield refuse("unreadable row", product, "no locality")
        elif where.get("zone") == zone or where.get("global") is True:
            if (kind := _storage_kind(product)) is not None:
                home = "global" if where.get("global") is True else zone.rpartition("-")[0]
                yield attempt(product, partial(_fee, product, kind, home))
            elif product.get("product_category") == "Instance":
                try:
                    quotes[product["product"]] = _quote(product)
                except (KeyError, TypeError, ValueError, ArithmeticError) as error:
                    yield refuse("unreadable row", product, f"{type(error).__name__}: {error}")
    states = {name: row.get("availability") for name, row in stock if isinstance(row, Mapping)}
    for name, server in servers:
        if not isinstance(server, Mapping):
            yield refuse("unreadable row", server, f"{name} is not an object")
            continue
        has_gpu = server.get("gpu") not in (None, 0) or bool(server.get("gpu_info"))
        if has_gpu and server.get("end_of_service") is not True:
            yield _read_server(zone, name, server, states.get(name), quotes.get(name))


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the GPU types of each zone with their stock, and its storage prices.

    Raises:
        UnknownShape: a page is not the documented list.
        EmptyReply: a zone without a server type.
    """
    catalog, missing = _merge(pages_of(pages, "catalog"))
    for request in [name for name in pages if name.startswith("servers-")]:
        zone = scope_of(request)
        servers, missing_servers = _merge(pages[request])
        if not servers:
            raise EmptyReply(f"{request}: no server type at all")
        stock, _ = _merge(pages.get(f"availability-{zone}", ()))
        yield from missing + missing_servers
        yield from stated_by("catalog", _read_zone(zone, servers, stock, catalog))
