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

import csv
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import partial
from importlib.resources import files
from typing import Any, Final

from scrapers.errors import UnknownShape
from scrapers.offer import Fee, FeeKind, Market, Offer, Reject, Row
from scrapers.pages import Get, Pages, Provider, attempt, once_each, pages_of, refuse, require
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
    text = files("scrapers.providers").joinpath("oci_shapes.csv").read_text(encoding="utf-8")
    shapes: dict[str, list[dict[str, str]]] = {}
    for row in csv.DictReader(text.splitlines()):
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


def _tiers(item: Any) -> tuple[str, list[Any]]:
    """Return the currency and its pay-as-you-go prices: USD, else the only one that is stated."""
    stated = {one["currencyCode"]: one["prices"] for one in item["currencyCodeLocalizations"]}
    if "USD" not in stated and len(stated) != 1:
        raise ValueError(f"no USD price among {sorted(stated)}")
    currency = "USD" if "USD" in stated else next(iter(stated))
    return currency, [tier for tier in stated[currency] if tier["model"] == "PAY_AS_YOU_GO"]


def _flat(item: Any) -> tuple[str, Decimal]:
    currency, tiers = _tiers(item)
    if len(tiers) != 1 or tiers[0].get("rangeMin"):
        raise ValueError(f"{len(tiers)} prices where one is documented")
    return currency, number(tiers[0]["value"])


def _offer(item: Any, shape: Mapping[str, str], market: Market) -> Offer:
    currency, per_gpu = _flat(item)
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
        price_per_hour=money(per_gpu * Decimal(shape["gpu_count"]) * share),
        currency=currency,  # type: ignore[arg-type]  # the contract checks it
    )


def _read_gpu_part(item: Mapping[str, Any]) -> Iterator[Row | Reject]:
    shapes = SHAPES.get(str(item.get("partNumber")))
    if item.get("metricName") != "GPU Per Hour":
        yield refuse("unknown unit", item, str(item.get("metricName")))
    elif shapes is None:
        yield refuse("unknown part number", item, str(item.get("displayName")))
    else:
        for shape in shapes:
            yield attempt(item, partial(_offer, item, shape, "on_demand"))
            if shape["shape"].startswith("VM."):
                yield attempt(item, partial(_offer, item, shape, "spot"))


def _fee(item: Any, kind: FeeKind, currency: str, tier: Any, performance: Any = None) -> Fee:
    # "Outbound Data Transfer - Originating in Middle East and Africa": a group of regions
    origin = item["displayName"].partition("Originating in ")[2]
    price, level = number(tier["value"]), ""
    if performance is not None:
        unit_currency, per_unit = _flat(performance)
        if unit_currency != currency:
            raise ValueError(f"storage in {currency}, performance in {unit_currency}")
        price += per_unit * BALANCED_VPUS_PER_GB
        level = f" + {BALANCED_VPUS_PER_GB} Performance Units"
    return Fee(
        kind=kind,
        product=item["displayName"] + level,
        region=origin or "global",
        from_tier_gb=number(tier.get("rangeMin") or 0),
        price=money(price),
        unit="gb" if kind == "egress" else "gb_month",
        currency=currency,  # type: ignore[arg-type]  # the contract checks it
    )


def _read_fees(item: Any, kind: FeeKind, performance: Any) -> Iterator[Row | Reject]:
    try:
        currency, tiers = _tiers(item)
        is_free = not any(tier["value"] for tier in tiers)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        yield refuse("unreadable row", item, f"{type(error).__name__}: {error}")
        return
    if is_free:  # a zero is an allowance only where a paid tier follows it
        yield refuse("zero price", item)
        return
    for tier in tiers:
        yield attempt(item, partial(_fee, item, kind, currency, tier))
        if performance is not None:
            yield attempt(item, partial(_fee, item, kind, currency, tier, performance))


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
            is_volume = item.get("partNumber") == _BLOCK_STORAGE
            yield from _read_fees(item, kind, parts.get(_BLOCK_PERFORMANCE) if is_volume else None)
