"""RunPod: GPU pods at one list price per GPU in each of two clouds, secure and community.

Source: the GraphQL API, keyless for these two reads (announced to retire early in 2027). Prices are
USD per GPU-hour and are multiplied by the number of GPUs here, 1 to the cloud's `maxGpuCount`.
Null or 0 means not offered; a price may stand beside a cloud flag that is false, so the flags
decide. `memoryInGb` is the card's nominal GiB, per GPU.

Grain: the API states a price per GPU type and cloud that holds in every place, and separately
which data centres have the GPU. Data centres are secure cloud. So a secure offer is one row for
each *listed* data centre that reports the GPU, and one `global` row only where none does; a
community offer is one `global` row. There is no product of all prices and all places. Stock is
stated for one GPU: for a larger pod, and for spot, only "none" carries over.

Spot prices that equal the on-demand price on every single row (so in 2026-08) are the list price
filled in, not a spot market: then no spot row is given, and one refusal says so.

Not in the API: disk and network-volume prices. The week and month prices have no documented unit
and are not asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal

from scrapers.errors import UnknownShape
from scrapers.offer import MAX_GPUS, Market, Offer, Reject, Row
from scrapers.pages import Pages, Post, Provider, once_each, pages_of, priced, refuse, require
from scrapers.units import money, number

Tier = Literal["secure", "community"]
TIERS: Final[tuple[Tier, ...]] = ("secure", "community")

PROVIDER = Provider(slug="runpod", name="RunPod", pricing_url="https://www.runpod.io/pricing")
URL: Final = "https://api.runpod.io/graphql"
_LOWEST: Final = "{ stockStatus minVcpu minMemory }"
GPU_TYPES: Final = f"""{{ gpuTypes {{
    id displayName memoryInGb secureCloud communityCloud
    securePrice communityPrice secureSpotPrice communitySpotPrice
    maxGpuCount maxGpuCountSecureCloud maxGpuCountCommunityCloud
    secure: lowestPrice(input: {{gpuCount: 1, secureCloud: true}}) {_LOWEST}
    community: lowestPrice(input: {{gpuCount: 1, secureCloud: false}}) {_LOWEST}
}} }}"""
DATA_CENTERS: Final = """{ dataCenters {
    id name listed gpuAvailability { gpuTypeId available stockStatus }
} }"""
REQUESTS = {
    "gpu_types": Post(URL, body={"query": GPU_TYPES}),
    "data_centers": Post(URL, body={"query": DATA_CENTERS}),
}
OWN_LIST: Final = {"gpu_types": "gpuTypes", "data_centers": "dataCenters"}


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read both lists, wherever they are, and price each GPU type in each cloud that has it."""
    lists = _lists(pages)
    stock: dict[str, dict[str, bool | None]] = defaultdict(dict)
    for center in lists["dataCenters"]:
        try:
            for seen in center["gpuAvailability"] if center["listed"] is True else ():
                stock[seen["gpuTypeId"]][center["id"]] = seen["available"]
        except (KeyError, TypeError) as error:
            yield refuse("unreadable data centre", center, f"{type(error).__name__}: {error}")

    gpus: dict[str, Mapping[str, Any]] = {}
    for gpu in lists["gpuTypes"]:
        if not isinstance(gpu, Mapping) or not isinstance(gpu.get("id"), str):
            yield refuse("unreadable row", gpu)
        elif not all(isinstance(gpu.get(_flag(tier)), bool) for tier in TIERS):
            yield refuse("no cloud flags", gpu)
        else:
            gpus[gpu["id"]] = gpu
    spot = [
        (gpu[f"{tier}SpotPrice"], gpu.get(f"{tier}Price"))
        for gpu in gpus.values()
        for tier in _clouds(gpu)
        if gpu.get(f"{tier}SpotPrice")
    ]
    has_spot = any(bid != price for bid, price in spot)
    if spot and not has_spot:
        yield refuse("spot not observed", f"{len(spot)} spot prices", "all equal the on-demand one")
    for name, gpu in gpus.items():
        yield from once_each(_rows(gpu, stock.get(name, {}), has_spot))


def _lists(pages: Pages) -> dict[str, list[Any]]:
    """Collect GPU types and data centres; either page may carry both."""
    found: dict[str, list[Any]] = {"gpuTypes": [], "dataCenters": []}
    for kind, own_list in OWN_LIST.items():
        for page in pages_of(pages, kind):
            data = require(page.json(), "data", page.name)
            require(data, own_list, page.name)
            for key, rows in found.items():
                more = data.get(key, [])
                if not isinstance(more, list):
                    raise UnknownShape(f"{page.name}: {key!r} is not a list")
                rows += more
    return found


def _flag(tier: Tier) -> str:
    return f"{tier}Cloud"


def _clouds(gpu: Mapping[str, Any]) -> list[Tier]:
    return [tier for tier in TIERS if gpu[_flag(tier)]]


def _rows(
    gpu: Mapping[str, Any], stock: Mapping[str, bool | None], has_spot: bool
) -> Iterator[Row | Reject]:
    for tier in _clouds(gpu):
        limits = (gpu.get(f"maxGpuCount{tier.title()}Cloud"), gpu.get("maxGpuCount"), 1)
        most = next(limit for limit in limits if limit is not None)
        if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MAX_GPUS:
            yield refuse("unreadable GPU limit", gpu, repr(most))
            continue
        places = (stock if tier == "secure" else {}) or {"global": _in_stock(gpu, tier)}
        prices: dict[Market, Any] = {"on_demand": gpu.get(f"{tier}Price")}
        if has_spot and gpu.get(f"{tier}SpotPrice"):
            prices["spot"] = gpu[f"{tier}SpotPrice"]
        for market, price in prices.items():
            for count in range(1, most + 1):
                for region, available in places.items():
                    build = partial(_offer, gpu, tier, market, price, count, region, available)
                    yield priced(gpu, price, build)


def _offer(
    gpu: Mapping[str, Any],
    tier: Tier,
    market: Market,
    price_per_gpu: Any,
    count: int,
    region: str,
    available: bool | None,
) -> Offer:
    lowest = (gpu.get(tier) or {}) if count == 1 else {}
    is_said = available is False or (count == 1 and market == "on_demand")
    return Offer(
        sku=f"{count}x {gpu['id']}",
        region=region,
        market=market,
        tier=tier,
        gpu_label=gpu.get("displayName") or gpu["id"],
        gpu_count=number(count),
        gpu_memory_gib=number(gpu["memoryInGb"]) if gpu.get("memoryInGb") else None,
        vcpus=number(lowest["minVcpu"]) if lowest.get("minVcpu") else None,
        memory_gib=number(lowest["minMemory"]) if lowest.get("minMemory") else None,
        price_per_hour=money(number(price_per_gpu) * count),
        currency="USD",
        is_available=available if is_said else None,
    )


def _in_stock(gpu: Mapping[str, Any], tier: Tier) -> bool | None:
    """Return whether one GPU can be had in a cloud; None where that is not said.

    Without the cloud's own `lowestPrice` a general one is used: no stock there is none anywhere,
    but stock there proves a cloud only when the GPU is in just one.
    """
    key = tier if tier in gpu else "lowestPrice"
    if key not in gpu:
        return None
    is_there = isinstance(gpu[key], Mapping) and bool(gpu[key].get("stockStatus"))
    return None if is_there and key != tier and len(_clouds(gpu)) > 1 else is_there
