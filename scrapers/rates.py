"""Read the European Central Bank's euro reference rates, the project's only exchange rates.

The ECB publishes them on working days around 16:00 CET: one XML document of nested `Cube`
elements, units of each currency per one euro. "For information purposes only", says the ECB; they
are what a published price comparison may use. Feed:
https://www.ecb.europa.eu/stats/policy_and_exchange_rates/euro_reference_exchange_rates/
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn
from xml.parsers import expat

from scrapers.errors import NotTheFormat, UnknownShape
from scrapers.pages import Get, Page, Provider

PROVIDER: Final = Provider(
    slug="ecb",
    name="European Central Bank",
    pricing_url=(
        "https://www.ecb.europa.eu/stats/policy_and_exchange_rates/euro_reference_exchange_rates/"
    ),
)
REQUEST: Final = Get("https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml", media="xml")
REQUESTS: Final[Mapping[str, Get]] = {"rates": REQUEST}

_CURRENCY = re.compile(r"[A-Z]{3}")  # USD
_RATE = re.compile(r"[0-9]{1,7}(\.[0-9]{1,8})?")  # 1.1622


@dataclass(frozen=True)
class Rate:
    """A reference rate of one day."""

    rate_date: date
    currency: str
    """ISO 4217 code; never EUR."""
    units_per_eur: Decimal
    """Units of `currency` that one euro bought; above 0."""


def parse(page: Page) -> list[Rate]:
    """Return the rates of the feed's day (or days), sorted by date and currency.

    The feed has no document type; one that declares any is refused before an entity of it could
    be expanded.

    Raises:
        NotTheFormat: not well-formed XML, or with a document type.
        UnknownShape: no dated rates, no rate for USD, a rate that is not a positive number, or one
            currency twice on a day.
    """
    found: dict[tuple[date, str], Decimal] = {}
    days: list[date] = []

    def refuse_doctype(*_: object) -> NoReturn:
        raise NotTheFormat("rates: an XML document type, which this feed never has")

    def read_element(tag: str, attributes: dict[str, str]) -> None:
        # <Cube time='2026-08-21'><Cube currency='USD' rate='1.1622'/>…
        if tag.rpartition(":")[2] != "Cube":
            return
        if "time" in attributes:
            days.append(_day(attributes["time"]))
        if "currency" in attributes or "rate" in attributes:
            currency, rate = attributes.get("currency", ""), attributes.get("rate", "")
            if not days:
                raise UnknownShape(f"rates: {currency} stands before any date")
            if not _CURRENCY.fullmatch(currency) or not _RATE.fullmatch(rate) or not Decimal(rate):
                raise UnknownShape(f"rates: {currency[:10]!r} at {rate[:20]!r} is not a rate")
            if (days[-1], currency) in found:
                raise UnknownShape(f"rates: {currency} twice on {days[-1]}")
            found[days[-1], currency] = Decimal(rate)

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.StartElementHandler = read_element
    try:
        parser.Parse(page.bytes(), True)
    except (expat.ExpatError, InvalidOperation, LookupError) as error:
        raise NotTheFormat(f"rates: not well-formed XML ({error})") from error
    without_usd = [day for day in days if (day, "USD") not in found]
    if not days or without_usd:
        raise UnknownShape("rates: no dated rate for USD")
    return [Rate(day, currency, rate) for (day, currency), rate in sorted(found.items())]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise UnknownShape(f"rates: {text[:20]!r} is not a date") from error
