"""Vast.ai: a marketplace; each row is one host's offer, with that host's own prices.

Source: `POST /api/v0/bundles/`, keyless, one exact GPU name a call. The server returns at most 64
offers whatever `limit` says, so a GPU is asked cheapest first and, when that page is full, dearest
first as well. Two full pages without a common offer leave a gap between them: a truncated listing.

Prices are USD, floats with noise, for the WHOLE offer: `dph_base` is the machine without disk
(`dph_total` adds a default disk), `min_bid` the least bid for it as an interruptible instance.
An on-demand answer states both, and the same machines take bids, so bids need no second query.
A bid may equal or exceed the on-demand price: nothing is derived from the difference. Disk and
traffic, both ways, are priced per host. `end_date` ends the offer. `gpu_ram` and `cpu_ram` are in
MiB, of one GPU and of the offer's share. One machine appears as 1x, 2x, 4x ... offers: not supply.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from scrapers.errors import UnknownShape
from scrapers.offer import Market, Offer, Reject, Row
from scrapers.pages import (
    Page,
    Pages,
    Post,
    Provider,
    once_each,
    priced,
    refuse,
    require,
    scope_of,
)
from scrapers.units import gib_from_mib, money, number

PROVIDER = Provider(
    slug="vast",
    name="Vast.ai",
    pricing_url="https://vast.ai/pricing",
    seconds_between_calls=0.75,
)
PAGE_CAP: Final = 64
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

# Vast's exact names of the GPUs with 16 GB or more, from its own GPU list and from live answers:
# the filter is case-sensitive, and a name that it does not know gives an empty list.
# fmt: off
GPUS: Final = (
    "A10", "A16", "A30", "A40", "A100 PCIE", "A100 SXM4", "A100X", "A800 PCIE",
    "H100 NVL", "H100 PCIE", "H100 SXM", "H200", "H200 NVL", "GH200 SXM", "B200", "B300",
    "L4", "L40", "L40S", "Tesla P100", "Tesla T4", "Tesla V100",
    "InstinctMI100", "InstinctMI210", "InstinctMI250X", "MI300X",
    "Q RTX 6000", "Q RTX 8000", "RTX A4000", "RTX A4500", "RTX A5000", "RTX A6000",
    "RTX 2000Ada", "RTX 4000Ada", "RTX 4500Ada", "RTX 5000Ada", "RTX 5880Ada", "RTX 6000Ada",
    "RTX PRO 4000", "RTX PRO 4500", "RTX PRO 5000",
    "RTX PRO 6000 Max-Q", "RTX PRO 6000 S", "RTX PRO 6000 WS",
    "RTX 3090", "RTX 3090 Ti", "RTX 4060 Ti", "RTX 4070S Ti", "RTX 4080", "RTX 4080S",
    "RTX 4090", "RTX 4090D", "RTX 5060 Ti", "RTX 5070 Ti", "RTX 5080", "RTX 5090", "Titan RTX",
)
# fmt: on


def _ask(gpu: str, direction: str) -> Post:
    query = {
        "gpu_name": {"eq": gpu},
        "rentable": {"eq": True},
        "type": "on-demand",
        "order": [["dph_total", direction]],
        "limit": PAGE_CAP,
    }
    return Post("https://console.vast.ai/api/v0/bundles/", body=query)


REQUESTS = {f"offers-{gpu.replace(' ', '_')}": _ask(gpu, "asc") for gpu in GPUS}


def follow(name: str, page: Page) -> Post | None:
    """Ask from the dear end too when the first page is as full as the server lets it be."""
    if page.number == 1 and len(_offers(page)) >= PAGE_CAP:
        return _ask(scope_of(name).replace("_", " "), "desc")
    return None


def parse(pages: Pages) -> Iterator[Row | Reject]:
    """Read each GPU's offers: one on-demand and, where bids are taken, one spot row an offer."""
    for name, some in pages.items():
        if name.partition("-")[0] == "offers" and some:
            lists = [_offers(page) for page in some]
            newest = {_identity(offer): offer for offers in lists for offer in offers}
            for offer in newest.values():
                yield from once_each(_rows(offer))
            if _has_gap(lists):
                found = f"{len(newest)} offers, the pages are full and do not meet"
                yield refuse("truncated listing", name, found)


def _offers(page: Page) -> list[Any]:
    """Return the offers of an answer: a list in `offers`, one object there, or a bare list."""
    body = page.json()
    offers = body if isinstance(body, list) else require(body, "offers", page.name)
    if isinstance(offers, Mapping):
        return [offers]
    if not isinstance(offers, list):
        raise UnknownShape(f"{page.name}: 'offers' is neither a list nor an object")
    return offers


def _identity(offer: Any) -> str:
    return str((isinstance(offer, Mapping) and offer.get("id")) or offer)


def _has_gap(lists: Sequence[Sequence[Any]]) -> bool:
    """Tell whether full pages from both ends do not meet; the same page twice is one end only."""
    cheapest = {_identity(offer) for offer in lists[0]}
    return len(lists[0]) >= PAGE_CAP and all(
        len(offers) >= PAGE_CAP
        and (offers == lists[0] or cheapest.isdisjoint(map(_identity, offers)))
        for offers in lists[1:]
    )


def _rows(offer: Any) -> Iterator[Row | Reject]:
    if not isinstance(offer, Mapping):
        yield refuse("unreadable row", offer)
    elif offer.get("num_gpus") != 0:
        is_bid = bool(offer.get("is_bid"))
        base, bid = offer.get("dph_base"), offer.get("min_bid")
        if not is_bid:
            yield priced(offer, base, lambda: _offer(offer, "on_demand", base))
        if is_bid or bid is not None:
            yield priced(offer, bid, lambda: _offer(offer, "spot", bid))


def _offer(offer: Mapping[str, Any], market: Market, price: Any) -> Offer:
    gpu_ram, cpu_ram = _stated(offer, "gpu_ram"), _stated(offer, "cpu_ram")
    end_seconds = _stated(offer, "end_date")
    return Offer(
        sku=str(number(offer["id"])),
        region=_region(offer.get("geolocation")),
        market=market,
        tier=_tier(offer),
        gpu_label=offer["gpu_name"],
        gpu_count=number(offer["num_gpus"]),
        gpu_memory_gib=gib_from_mib(gpu_ram) if gpu_ram else None,
        vcpus=_stated(offer, "cpu_cores_effective"),
        memory_gib=gib_from_mib(cpu_ram) if cpu_ram else None,
        interconnect="NVLink" if _stated(offer, "bw_nvlink") else None,
        price_per_hour=money(number(price)),
        currency="USD",
        storage_price_per_gb_month=_fee(offer, "storage_cost"),
        egress_price_per_gb=_fee(offer, "inet_up_cost"),
        ingress_price_per_gb=_fee(offer, "inet_down_cost"),
        is_available=offer.get("rentable"),
        expires_at=EPOCH + timedelta(seconds=float(end_seconds) // 1) if end_seconds else None,
    )


def _stated(offer: Mapping[str, Any], field: str) -> Decimal | None:
    """Return a quantity; null and zero both mean that the host's machine did not report it."""
    return number(offer[field]) if offer.get(field) else None


def _fee(offer: Mapping[str, Any], field: str) -> Decimal | None:
    """Return a price beside the machine's; here zero is what the host asks."""
    return None if offer.get(field) is None else money(number(offer[field]))


def _tier(offer: Mapping[str, Any]) -> str | None:
    """Return verified or unverified; a machine that lost the status keeps the old word."""
    if offer.get("verification") is None:
        return None
    is_verified = offer["verification"] == "verified" and not offer.get("is_vm_deverified")
    return "verified" if is_verified else "unverified"


def _region(geolocation: Any) -> str:
    """Return the place as stated: 'Japan, JP'; ', US' is 'US'; null or nothing is 'unknown'."""
    return (geolocation or "").strip(" ,") or "unknown"
