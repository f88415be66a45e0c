"""Oracle Cloud GPU shapes from the public price list: one page, no key, no region.

`products` lists parts, not machines: a GPU part is priced *per GPU and hour*, host CPU and memory
included, and holds in every commercial region. What a shape contains is not in the list, so the
table below says it (from the compute shapes page); a GPU part that is not in it is refused as
unknown, never guessed. The cost estimator's shapes.json was not taken: it is undocumented and its
GPU memory is per GPU in some rows and per shape in others.

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
from scrapers.pages import Get, Pages, Provider, attempt, pages_of, refuse, require
from scrapers.units import money

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


class Shape(NamedTuple):
    """A machine that Oracle rents; `gpu_memory_gib` is per GPU, None where Oracle's tables vary."""

    name: str
    gpu_label: str
    gpu_count: int
    gpu_memory_gib: int | None
    vcpus: int | None
    memory_gib: int | None


# Shapes: https://docs.oracle.com/en-us/iaas/Content/Compute/References/computeshapes.htm, where an
# OCPU is two vCPUs on x86 and one on Arm (the GB200 and GB300 hosts). Part numbers of the shapes:
# the list's own names, checked against opencost's shape_part_numbers.json. BM.GPU.H100T.8 is named
# in oracle-quickstart/oci-hpc only. "GPU - E4" (B93544) has no documented shape and stays unknown.
# fmt: off
SHAPES: Final[dict[str, tuple[Shape, ...]]] = {
    "B88518": (Shape("VM.GPU2.1", "P100", 1, 16, 24, 72),),
    "B88517": (Shape("BM.GPU2.2", "P100", 2, 16, 56, None),),
    "B89734": (
        Shape("VM.GPU3.1", "V100 16GB", 1, 16, 12, 90),
        Shape("VM.GPU3.2", "V100 16GB", 2, 16, 24, 180),
        Shape("VM.GPU3.4", "V100 16GB", 4, 16, 48, 360),
        Shape("BM.GPU3.8", "V100 16GB", 8, 16, 104, 768),
    ),
    "B92740": (Shape("BM.GPU4.8", "A100 40GB", 8, 40, 128, 2048),),
    "B95909": (
        Shape("VM.GPU.A10.1", "A10", 1, 24, 30, 240),
        Shape("VM.GPU.A10.2", "A10", 2, 24, 60, 480),
        Shape("BM.GPU.A10.4", "A10", 4, 24, 128, 1024),
    ),
    "B95907": (Shape("BM.GPU.A100-v2.8", "A100 80GB", 8, 80, 256, 2048),),
    "B109479": (Shape("BM.GPU.L40S.4", "L40S", 4, 48, 224, 1024),),
    "B98415": (Shape("BM.GPU.H100.8", "H100", 8, 80, 224, 2048),),
    "B109480": (Shape("BM.GPU.H100T.8", "H100T", 8, None, None, None),),
    "B110519": (Shape("BM.GPU.H200.8", "H200", 8, 141, 224, 3072),),
    "B110978": (Shape("BM.GPU.B200.8", "B200", 8, None, 256, 4096),),
    "B112237": (Shape("BM.GPU.B300.8", "B300", 8, None, 256, 4096),),
    "B110979": (Shape("BM.GPU.GB200.4", "GB200", 4, None, 144, 960),),
    "B112140": (Shape("BM.GPU.GB300.4", "GB300", 4, None, 144, 960),),
    "B109485": (Shape("BM.GPU.MI300X.8", "MI300X", 8, 192, 224, 2048),),
    "B111758": (Shape("BM.GPU.MI355X.8", "MI355X", 8, 288, 256, 3072),),
    "B112613": (Shape("BM.GPU.RTXPRO.8", "RTX PRO 6000", 8, 96, 288, 3072),),
}
# fmt: on
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
    return currency, Decimal(tiers[0]["value"])


def _offer(item: Any, shape: Shape, market: Market) -> Offer:
    currency, per_gpu = _flat(item)
    share = _PREEMPTIBLE_SHARE if market == "spot" else 1
    return Offer(
        sku=shape.name,
        region="global",
        market=market,
        gpu_label=shape.gpu_label,
        gpu_count=Decimal(shape.gpu_count),
        gpu_memory_gib=None if shape.gpu_memory_gib is None else Decimal(shape.gpu_memory_gib),
        vcpus=None if shape.vcpus is None else Decimal(shape.vcpus),
        memory_gib=None if shape.memory_gib is None else Decimal(shape.memory_gib),
        price_per_hour=money(per_gpu * shape.gpu_count * share),
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
            if shape.name.startswith("VM."):
                yield attempt(item, partial(_offer, item, shape, "spot"))


def _fee(item: Any, kind: FeeKind, currency: str, tier: Any, performance: Any = None) -> Fee:
    # "Outbound Data Transfer - Originating in Middle East and Africa": a group of regions
    origin = item["displayName"].partition("Originating in ")[2]
    price, level = Decimal(tier["value"]), ""
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
        from_tier_gb=Decimal(tier.get("rangeMin") or 0),
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
                yield from _read_gpu_part(item)
        elif (kind := _FEES.get(str(item.get("partNumber")))) is not None:
            is_volume = item.get("partNumber") == _BLOCK_STORAGE
            yield from _read_fees(item, kind, parts.get(_BLOCK_PERFORMANCE) if is_volume else None)
