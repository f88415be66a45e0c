"""Linode (Akamai Cloud): GPU plans at a price per plan, with exceptions for some regions.

Source: the public API v4, keyless, paged by `page` / `pages`. USD, the whole machine.
`region_prices` holds only the exceptions to `price`. The monthly price is a cap on a plan's bill,
not 730 hours, and is not used for machines. Since 2026-09 the public list has shown GPU plans at a
base price of 0: not offered at that price, so only regions with an exception of their own count.

Grain: `availability` says which plan is in which region. A plan that it names is one row a region,
with its availability; a plan that it does not name (it has used other names than `types` has for
the same hardware, and no rule is stated that ties them) is one `global` row and one for each
exception. A plan named only in `availability` has no price and is no offer. Nothing starts in a
region whose status is an outage.

`transfer` is the plan's allowance in GB for a whole month; it counts by the hours for which the
plan is active (staff at linode.com/community/questions/22490), pooled over the account.

Fees: volumes by their monthly price; traffic beyond the allowance by a price per GB that stands in
a field called `hourly`. The product for distributed regions is a fee of those regions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from scrapers.errors import Incomplete, UnknownShape
from scrapers.offer import Fee, FeeKind, FeeUnit, Offer, Reject, Row
from scrapers.pages import (
    Get,
    Page,
    Pages,
    Provider,
    once_each,
    pages_of,
    priced,
    refuse,
    require,
    stated_by,
)
from scrapers.units import gib_from_mib, money, number

PROVIDER = Provider(
    slug="linode",
    name="Linode (Akamai)",
    pricing_url="https://www.linode.com/pricing/",
)


def _get(path: str) -> Get:
    return Get(f"https://api.linode.com/v4/{path}", params={"page": "1", "page_size": "500"})


REQUESTS = {
    "types": _get("linode/types"),
    "volume_types": _get("volumes/types"),
    "transfer_prices": _get("network-transfer/prices"),
    "regions": _get("regions"),
    "availability": _get("regions/availability"),
}
# "Dedicated 32GB + RTX6000 GPU x1" -> "RTX6000"; "RTX4000 Ada x2 Medium" -> "RTX4000 Ada"
_GPU_IN_LABEL: Final = re.compile(r"(?:.*\+ )?(?P<gpu>\S.*?)(?: GPU)? x\d+(?: .*)?")


def follow(name: str, page: Page) -> Get | None:
    """Ask for the next page while the source says that there is one."""
    pages = require(page.json(), "pages", page.name)
    if isinstance(pages, int) and page.number < pages:
        ask = REQUESTS[name]
        return replace(ask, params={**ask.params, "page": str(page.number + 1)})
    return None


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the GPU plans of each region, and the fees for volumes and traffic."""
    down, distributed = set(), []
    for region in _listing(pages, "regions"):
        if not isinstance(region, Mapping) or not isinstance(region.get("id"), str):
            yield refuse("unreadable region", region)
        elif region.get("site_type") == "distributed":
            distributed.append(region["id"])
        elif region.get("status") == "outage":
            down.add(region["id"])

    listed: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in _listing(pages, "availability"):
        try:
            is_down = row["region"] in down
            listed[row["plan"]][row["region"]] = False if is_down else row["available"]
        except (KeyError, TypeError) as error:
            yield refuse("unreadable availability", row, f"{type(error).__name__}: {error}")

    for plan in _listing(pages, "types"):
        yield from once_each(_offers(plan, listed))
    for product in _listing(pages, "volume_types"):
        fees = _fees(product, "block_storage", "monthly", "gb_month")
        yield from stated_by("volume_types", once_each(fees))
    for product in _listing(pages, "transfer_prices"):
        only = None
        if isinstance(product, Mapping) and product.get("id") == "distributed_network_transfer":
            only = distributed
        fees = _fees(product, "egress", "hourly", "gb", only)
        yield from stated_by("transfer_prices", once_each(fees))


def _listing(pages: Pages, kind: str) -> list[Any]:
    """Return the rows of all pages of a list.

    Raises:
        UnknownShape: a page has no list of rows.
        Incomplete: there are fewer or more rows than the source says it has.
    """
    rows: list[Any] = []
    total = None
    for page in pages_of(pages, kind):
        body = page.json()
        data = require(body, "data", page.name)
        if not isinstance(data, list):
            raise UnknownShape(f"{page.name}: 'data' is not a list")
        rows += data
        total = body.get("results", total)
    if total is not None and total != len(rows):
        raise Incomplete(f"{kind}: {len(rows)} rows of {total}")
    return rows


def _prices(row: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the price by region; the base price stands under 'global'."""
    exceptions = {place["id"]: place[field] for place in row.get("region_prices") or ()}
    return {"global": row["price"][field], **exceptions}


def _offers(plan: Any, listed: Mapping[str, Mapping[str, Any]]) -> Iterator[Row | Reject]:
    try:
        if plan["gpus"] == 0:
            return
        prices, places = _prices(plan, "hourly"), listed.get(plan["id"], {})
    except (KeyError, TypeError, AttributeError) as error:
        yield refuse("unreadable row", plan, f"{type(error).__name__}: {error}")
        return
    for region in {**places, **prices}:
        if region != "global" or not places:
            price = prices.get(region, prices["global"])
            build = partial(_offer, plan, region, price, places.get(region))
            yield priced(plan, price, build)


def _offer(plan: Mapping[str, Any], region: str, price: Any, available: bool | None) -> Offer:
    label = plan["label"]
    named = _GPU_IN_LABEL.fullmatch(label)
    return Offer(
        sku=plan["id"],
        region=region,
        market="on_demand",
        gpu_label=named["gpu"] if named else label,
        gpu_count=number(plan["gpus"]),
        vcpus=number(plan["vcpus"]) if plan.get("vcpus") else None,
        memory_gib=gib_from_mib(number(plan["memory"])) if plan.get("memory") else None,
        local_disk_gib=gib_from_mib(number(plan["disk"])) if plan.get("disk") else None,
        price_per_hour=money(number(price)),
        currency="USD",
        egress_included_gb_per_month=None
        if plan.get("transfer") is None
        else number(plan["transfer"]),
        is_available=available,
    )


def _fees(
    product: Any, kind: FeeKind, field: str, unit: FeeUnit, only: list[str] | None = None
) -> Iterator[Row | Reject]:
    try:
        prices = _prices(product, field)
    except (KeyError, TypeError, AttributeError) as error:
        yield refuse("unreadable row", product, f"{type(error).__name__}: {error}")
        return
    for region in prices if only is None else only:
        price = prices.get(region, prices["global"])
        yield priced(product, price, partial(_fee, product, kind, unit, region, price))


def _fee(product: Mapping[str, Any], kind: FeeKind, unit: FeeUnit, region: str, price: Any) -> Fee:
    return Fee(
        kind=kind,
        product=product["id"],
        region=region,
        price=money(number(price)),
        unit=unit,
        currency="USD",
    )
