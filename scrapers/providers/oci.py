"""Oracle Cloud GPU shapes from the public price list: one page, no key, no region.

`products` lists parts, not machines: a GPU part is priced *per GPU and hour*, host CPU and memory
included, and holds in every commercial region. What a shape contains is not in the list, so
`oci_shapes.csv` says it, each row with its source; a GPU part that is not in it is refused as
unknown, never guessed ("GPU - E4", B93544, has no documented shape). The cost estimator's
shapes.json was not taken: it is undocumented, and its GPU memory is per GPU in some rows and per
shape in others.

Preemptible capacity costs half of on-demand and exists for virtual machines only
(https://docs.oracle.com/iaas/Content/Compute/Concepts/preemptible.htm); the list has no row for it.

Left out by rule: VMware nodes, Cloud@Customer, Roving Edge and monitoring parts (other service
categories) and NVIDIA AI Enterprise, a licence that is listed among the GPUs per GPU and hour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final, NamedTuple

from scrapers.errors import UnknownShape
from scrapers.offer import Fee, FeeKind, Market, Offer, Reject, Row
from scrapers.pages import (
    Get,
    Pages,
    Provider,
    attempt,
    once_each,
    pages_of,
    read_table,
    refuse,
    require,
    stated_by,
)
from scrapers.units import money, number

PROVIDER = Provider(
    slug="oci",
    name="Oracle Cloud",
    pricing_url="https://www.oracle.com/cloud/price-list/",
)
REQUESTS = {
    "products": Get(
        "https://apexapps.oracle.com/pls/apex/cetools/api/v1/products/",
        params={"currencyCode": "USD"},
    )
}


def _read_shapes() -> dict[str, list[dict[str, str]]]:
    shapes: dict[str, list[dict[str, str]]] = {}
    for row in read_table("oci_shapes.csv"):
        shapes.setdefault(row["part_number"], []).append(row)
    return shapes


SHAPES: Final = _read_shapes()
"""By part number. vCPUs are two per OCPU on x86 and one on Arm (the GB200 and GB300 hosts); the
GPU memory is per GPU. A cell is empty where Oracle's own tables differ or say nothing."""
_GPU_CATEGORIES: Final = ("Compute - GPU", "Compute - GPU - Other")
_LICENCE: Final = "NVIDIA AI Enterprise"
_PREEMPTIBLE_SHARE: Final = Decimal("0.5")
_FEES: Final[dict[str, FeeKind]] = {
    "B91961": "block_storage",
    "B91628": "object_storage",
    "B89057": "network_storage",
    "B88327": "egress",
    "B93455": "egress",
    "B93456": "egress",
}
_BLOCK_STORAGE, _BLOCK_PERFORMANCE = "B91961", "B91962"
BALANCED_VPUS_PER_GB: Final = 10
"""Performance units of the default volume; 0 ("lower cost") is the bare storage price.
https://docs.oracle.com/iaas/Content/Block/Concepts/blockvolumeperformance.htm"""


class _Terms(NamedTuple):
    """What a part costs per unit: (from this monthly quantity, price), in one currency."""

    currency: Any  # as stated: the contract knows the currencies
    tiers: list[tuple[Decimal, Decimal]]


def _read_terms(item: Any) -> _Terms | Reject:
    """Read the pay-as-you-go prices of a part: in USD, else in the only currency stated.

    A zero is an allowance only where a paid tier follows it.
    """
    try:
        stated = {one["currencyCode"]: one["prices"] for one in item["currencyCodeLocalizations"]}
        if "USD" not in stated and len(stated) != 1:
            raise ValueError(f"no USD price among {sorted(stated)}")
        currency = "USD" if "USD" in stated else next(iter(stated))
        tiers = [
            (number(tier.get("rangeMin") or 0), number(tier["value"]))
            for tier in stated[currency]
            if tier["model"] == "PAY_AS_YOU_GO"
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return refuse("unreadable row", item, f"{type(error).__name__}: {error}")
    if not any(price for _, price in tiers):
        return refuse("zero price" if tiers else "no price", item)
    return _Terms(currency, tiers)


def _offer(shape: Mapping[str, str], market: Market, terms: _Terms) -> Offer:
    share = _PREEMPTIBLE_SHARE if market == "spot" else 1
    sizes = ("gpu_memory_gib", "vcpus", "memory_gib")
    gpu_memory_gib, vcpus, memory_gib = (Decimal(shape[k]) if shape[k] else None for k in sizes)
    return Offer(
        sku=shape["shape"],
        region="global",
        market=market,
        gpu_label=shape["gpu_label"],
        gpu_count=Decimal(shape["gpu_count"]),
        gpu_memory_gib=gpu_memory_gib,
        vcpus=vcpus,
        memory_gib=memory_gib,
        price_per_hour=money(terms.tiers[0][1] * Decimal(shape["gpu_count"]) * share),
        currency=terms.currency,
    )


def _read_gpu_part(item: Mapping[str, Any]) -> Iterator[Row | Reject]:
    shapes, terms = SHAPES.get(str(item.get("partNumber"))), _read_terms(item)
    if item.get("metricName") != "GPU Per Hour":
        yield refuse("unknown unit", item, str(item.get("metricName")))
    elif shapes is None:
        yield refuse("unknown part number", item, str(item.get("displayName")))
    elif isinstance(terms, Reject):
        yield terms
    elif len(terms.tiers) != 1:
        yield refuse("volume price", item)
    else:
        for shape in shapes:
            yield attempt(item, partial(_offer, shape, "on_demand", terms))
            if shape["shape"].startswith("VM."):
                yield attempt(item, partial(_offer, shape, "spot", terms))


def _fee(item: Any, kind: FeeKind, terms: _Terms, tier: int, level: str = "") -> Fee:
    start, price = terms.tiers[tier]
    # "Outbound Data Transfer - Originating in Middle East and Africa": a group of regions
    origin = item["displayName"].partition("Originating in ")[2]
    return Fee(
        kind=kind,
        product=item["displayName"] + level,
        region=origin or "global",
        from_tier_gb=start,
        price=money(price),
        unit="gb" if kind == "egress" else "gb_month",
        currency=terms.currency,
    )


def _read_fee(item: Mapping[str, Any], kind: FeeKind) -> Iterator[Row | Reject]:
    terms = _read_terms(item)
    if isinstance(terms, Reject):
        yield terms
        return
    for tier in range(len(terms.tiers)):
        yield attempt(item, partial(_fee, item, kind, terms, tier))


def _read_balanced_volume(storage: Any, performance: Any) -> Iterator[Row | Reject]:
    """Add the performance units of the default volume to the price of bare storage."""
    bare, unit = _read_terms(storage), _read_terms(performance)
    if isinstance(bare, Reject) or isinstance(unit, Reject) or bare.currency != unit.currency:
        yield refuse("unreadable row", performance, "no price that goes with the storage price")
        return
    price = bare.tiers[0][1] + unit.tiers[0][1] * BALANCED_VPUS_PER_GB
    both = _Terms(bare.currency, [(Decimal(0), price)])
    level = f" + {BALANCED_VPUS_PER_GB} Performance Units"
    yield attempt(storage, partial(_fee, storage, "block_storage", both, 0, level))


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read the GPU shapes, and what storage and traffic cost.

    Raises:
        UnknownShape: a page is not the documented list.
    """
    items = []
    for page in pages_of(pages, "products"):
        body = page.json()
        listed = body if isinstance(body, list) else require(body, "items", page.name)
        if not isinstance(listed, list):
            raise UnknownShape(f"{page.name}: 'items' is not a list")
        items += listed
    parts = {str(item.get("partNumber")): item for item in items if isinstance(item, Mapping)}
    for item in items:
        if not isinstance(item, Mapping):
            yield refuse("unreadable row", item, "not an object")
        elif item.get("serviceCategory") in _GPU_CATEGORIES:
            if _LICENCE not in str(item.get("displayName")):
                yield from once_each(_read_gpu_part(item))
        elif (kind := _FEES.get(str(item.get("partNumber")))) is not None:
            yield from stated_by("products", _read_fee(item, kind))
    if _BLOCK_STORAGE in parts and _BLOCK_PERFORMANCE in parts:
        volume = _read_balanced_volume(parts[_BLOCK_STORAGE], parts[_BLOCK_PERFORMANCE])
        yield from stated_by("products", volume)
