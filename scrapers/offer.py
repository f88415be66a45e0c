"""The row contract: what a provider states, one thing that anyone can rent per row.

Strict, frozen, nothing extra. The contract refuses a bad row; it never repairs one. The runner
adds provider, scope, run, observed_at and the fetch that a row came from.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Final, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

Market = Literal["on_demand", "spot", "reserved", "capacity_block"]
# The currencies that the European Central Bank publishes a reference rate for, and the euro.
# fmt: off
Currency = Literal[
    "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "IDR", "ILS",
    "INR", "ISK", "JPY", "KRW", "MXN", "MYR", "NOK", "NZD", "PHP", "PLN", "RON", "SEK", "SGD",
    "THB", "TRY", "USD", "ZAR",
]
# fmt: on
FeeKind = Literal[
    "block_storage",  # volumes, disks: survives a stop, belongs to one machine at a time
    "local_storage",  # the machine's own disk, where it is billed apart
    "network_storage",  # file shares and network volumes: several machines
    "object_storage",
    "snapshot",
    "egress",  # out to the internet
    "inter_region_egress",  # to another region of the same provider
    "ingress",
    "ip_address",
]
FeeUnit = Literal["gb_month", "gib_month", "gb", "gib", "disk_month", "hour", "month"]

Money = Annotated[Decimal, Field(max_digits=18, decimal_places=9, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^\S(.*\S)?$")]
"""Trimmed, one line, not empty: a key that differs by a trailing space is two offers."""
Gib = Annotated[Decimal, Field(gt=0, le=1_000_000, allow_inf_nan=False)]

MAX_USD_PER_HOUR: Final = Decimal(20_000)
"""Above any machine on sale (a GB300 NVL72 rack is near 500 USD/h): a total read as hourly."""
MAX_GPUS: Final = Decimal(1152)


class Strict(BaseModel):
    """Frozen, nothing extra, no coercion."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", allow_inf_nan=False)


class Offer(Strict):
    """One thing that anyone can rent, as the provider states it."""

    sku: Text = Field(description="The provider's own name or id of the machine or offer.")
    region: Text = Field(
        description="The provider's region code, verbatim; 'global' where one price holds anywhere."
    )
    zone: Text | None = Field(None, description="Availability zone or data centre, when stated.")
    market: Market = Field(description="How it is bought. Low priority and DWS are tiers of spot.")
    commitment_months: int | None = Field(
        None, ge=1, le=60, description="Length of the commitment; required for reserved."
    )
    upfront: Money | None = Field(
        None, ge=0, description="Paid at the start of a commitment, in `currency`."
    )
    tier: Text | None = Field(
        None, description="A price tier that a user must tell apart, e.g. secure / community."
    )
    gpu_label: Text = Field(description="The provider's name of the GPU, verbatim.")
    gpu_count: Annotated[Decimal, Field(gt=0, le=MAX_GPUS)] = Field(
        description="GPUs in the machine; 0.125 is a slice."
    )
    gpu_memory_gib: Gib | None = Field(None, description="Memory of one GPU, when stated.")
    vcpus: Annotated[Decimal, Field(gt=0, le=10_000)] | None = Field(
        None, description="vCPUs of the machine."
    )
    memory_gib: Gib | None = Field(None, description="Host memory of the machine.")
    local_disk_gib: Gib | None = Field(None, description="Disk included in the price.")
    interconnect: Text | None = Field(
        None, description="GPU link or network fabric as stated, e.g. 'NVLink', 'InfiniBand 3200G'."
    )
    price_per_hour: Money = Field(
        gt=0, description="The whole machine for an hour, in `currency`; never zero."
    )
    currency: Currency = Field(description="ISO 4217 code of every amount in the row.")
    billing_increment_seconds: int | None = Field(
        None, ge=1, le=31_536_000, description="Usage is rounded up to this, when stated."
    )
    billing_minimum_seconds: int | None = Field(
        None, ge=0, le=31_536_000, description="Least usage billed per start, when stated."
    )
    storage_price_per_gb_month: Money | None = Field(
        None, ge=0, description="Disk of this offer, when the source states it per offer."
    )
    egress_price_per_gb: Money | None = Field(
        None, ge=0, description="Upload to the internet, when stated per offer; 0 is stated free."
    )
    ingress_price_per_gb: Money | None = Field(
        None, ge=0, description="Download from the internet, when stated per offer."
    )
    egress_included_gb_per_month: Annotated[Decimal, Field(ge=0, le=10**7)] | None = Field(
        None, description="Upload that a month of running includes, earned by the hour."
    )
    is_available: bool | None = Field(
        None, description="Can be started now; None where the source does not say."
    )
    interruption_rate_monthly: Annotated[Decimal, Field(ge=0, le=1)] | None = Field(
        None, description="Upper end of the stated share interrupted in a month; not a hazard."
    )
    effective_at: AwareDatetime | None = Field(None, description="Price valid from, when stated.")
    expires_at: AwareDatetime | None = Field(
        None, description="The offer ends then, when stated: an offer, not a standing price."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.price_per_hour > MAX_USD_PER_HOUR and self.currency in ("USD", "EUR", "GBP"):
            raise ValueError("price_per_hour above any machine on sale: a total read as hourly?")
        if self.market == "reserved" and self.commitment_months is None:
            raise ValueError("reserved needs commitment_months")
        if self.market in ("on_demand", "spot") and self.commitment_months is not None:
            raise ValueError(f"{self.market} cannot have commitment_months")
        if self.effective_at and self.expires_at and self.expires_at < self.effective_at:
            raise ValueError("expires_at before effective_at")
        return self

    def key(self) -> tuple[str | int | None, ...]:
        """What makes two rows of one provider the same offer."""
        return (
            self.sku,
            self.region,
            self.zone,
            self.market,
            self.tier,
            self.commitment_months,
        )


class Fee(Strict):
    """A regional price that is not per machine: storage, traffic, addresses; one tier a row."""

    kind: FeeKind = Field(description="What is charged.")
    product: Text = Field(description="The provider's own name of the product, verbatim.")
    region: Text = Field(description="Region code, or 'global' where one price holds anywhere.")
    from_tier_gb: Annotated[Decimal, Field(ge=0)] = Field(
        Decimal(0), description="The tier starts at this monthly volume."
    )
    price: Money = Field(
        ge=0, description="Per `unit`, in `currency`; 0 only as a stated free allowance."
    )
    unit: FeeUnit = Field(description="What `price` buys.")
    currency: Currency = Field(description="ISO 4217 code.")
    size_gb: Annotated[Decimal, Field(gt=0)] | None = Field(
        None, description="For `disk_month`: the size of the disk that the price buys."
    )
    effective_at: AwareDatetime | None = Field(None, description="Price valid from, when stated.")
    request: Text | None = Field(
        None, description="Name of the request whose answer states it, e.g. 'volume_types'."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.unit == "disk_month") != (self.size_gb is not None):
            raise ValueError("size_gb goes with unit disk_month, and only with it")
        return self

    def key(self) -> tuple[str | Decimal | None, ...]:
        """What makes two rows of one provider the same fee."""
        return (self.kind, self.product, self.region, self.from_tier_gb, self.size_gb)


Row = Offer | Fee


class Reject(Strict):
    """A row that the contract, or the parser, refused: kept with the reason and the raw excerpt."""

    reason: Text = Field(description="One short, stable phrase: it is counted by.")
    detail: str = Field("", max_length=500, description="What exactly was wrong.")
    raw: str = Field("", max_length=2000, description="Excerpt of the source row.")


def utc(value: datetime) -> datetime:
    """Assert that a time is aware; the ledger stores it as UTC.

    Raises:
        ValueError: the time has no zone.
    """
    if value.tzinfo is None:
        raise ValueError("a time without a zone")
    return value
