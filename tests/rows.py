"""Small rows for tests of the warehouse: an offer as the collector hands it over."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from warehouse.ledger import Observation

START = datetime(2026, 1, 1, tzinfo=UTC)


def offer(sku: str = "a", price: str = "1", **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "sku": sku,
        "region": "eu-1",
        "zone": None,
        "market": "on_demand",
        "tier": None,
        "commitment_months": None,
        "gpu_label": "H100 SXM",
        "gpu_count": Decimal(1),
        "gpu_memory_gib": Decimal(80),
        "price_per_hour": Decimal(price),
        "currency": "USD",
    }
    return base | more


def fee(price: str = "0.1", **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "kind": "block_storage",
        "product": "disk",
        "region": "eu-1",
        "from_tier_gb": Decimal(0),
        "size_gb": None,
        "price": Decimal(price),
        "unit": "gb_month",
        "currency": "USD",
        "effective_at": None,
    }
    return base | more


def seen(day: float, *offers: dict[str, Any], **more: Any) -> Observation:
    base: dict[str, Any] = {
        "provider": "acme",
        "scope": "",
        "status": "ok",
        "observed_at": START + timedelta(days=day),
        "offers": offers,
    }
    return Observation(**(base | more))
