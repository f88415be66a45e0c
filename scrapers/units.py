"""Every conversion factor, once.

Money stays Decimal from the first character to the ledger. Sizes: a *GB* is 10^9 bytes, a *GiB*
2^30; where a source says GB and means GiB, its parser says so.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

HOURS_PER_MONTH: Final = Decimal(730)
"""Hours of a billing month: 365 x 24 / 12, the convention of AWS, Azure, GCP and Scaleway."""
HOURS_PER_YEAR: Final = Decimal(8760)
MINUTES_PER_HOUR: Final = Decimal(60)
SECONDS_PER_HOUR: Final = Decimal(3600)
CENTS_PER_DOLLAR: Final = Decimal(100)
NANOS_PER_UNIT: Final = Decimal(1_000_000_000)
BYTES_PER_GIB: Final = Decimal(2**30)
MIB_PER_GIB: Final = Decimal(1024)

MONEY_PLACES: Final = Decimal("0.000000001")
"""The ledger's scale: DECIMAL(18,9)."""


def money(amount: Decimal | int | str) -> Decimal:
    """Round an amount to the ledger's nine decimal places, half to even.

    Sources print binary floats (1.3866666666666667) and derived rates; nine places keep a
    nano-dollar, which changes no bill.

    Raises:
        decimal.InvalidOperation: the text is not a number.
    """
    return Decimal(amount).quantize(MONEY_PLACES, rounding=ROUND_HALF_EVEN)


def number(value: object) -> Decimal:
    """Read a JSON number exactly; true, text and null are not numbers.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeError(f"{value!r} where a number belongs")
    return Decimal(value)


def per_hour_from_month(amount: Decimal) -> Decimal:
    """Turn a price per month into a price per hour (730 hours)."""
    return money(amount / HOURS_PER_MONTH)


def per_hour_from_years(total: Decimal, years: int) -> Decimal:
    """Spread the total price of a commitment of whole years over its hours."""
    return money(total / (HOURS_PER_YEAR * years))


def gib_from_bytes(size_bytes: Decimal | int) -> Decimal:
    """Turn bytes into GiB, to three decimals."""
    return (Decimal(size_bytes) / BYTES_PER_GIB).quantize(Decimal("0.001"))


def gib_from_mib(size_mib: Decimal | int) -> Decimal:
    """Turn MiB into GiB, to three decimals."""
    return (Decimal(size_mib) / MIB_PER_GIB).quantize(Decimal("0.001"))
