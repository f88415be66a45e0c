"""One bill line by line: what is multiplied with what, and where each price and term was seen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from flows.costs import to_rows
from flows.refresh import UsageError
from warehouse.ledger import first

# Swanson's rule: the weights of the low, likely and high case where low and high are the ends of
# an 80 % band (Hurst, Brown, Swanson, AAPG Bulletin 84, 2000).
SWANSON = (0.3, 0.4, 0.3)


def find_offer(
    connection: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Any]], wanted: str
) -> Mapping[str, Any]:
    """Return the cheapest ranked row that a user means: an offer_id, a SKU, or provider/SKU.

    Raises:
        UsageError: no such offer, one that cannot run the job or be rented, or several providers'.
    """
    found = [row for row in rows if is_meant(row, wanted)]
    if not found:
        if why := why_not(connection, wanted):
            raise UsageError(why)
        raise UsageError(
            f"no ranked offer {wanted!r}; give an offer_id, a sku or provider/sku as"
            " `tunecost cost --format json` prints them"
        )
    providers = {row["provider"] for row in found}
    if len(providers) > 1:
        raise UsageError(f"{wanted!r} is sold by {', '.join(sorted(providers))}; say provider/sku")
    return found[0]


def is_meant(offer: Mapping[str, Any], wanted: str) -> bool:
    """Tell whether a user means this offer."""
    text = wanted.casefold()
    return text in (
        offer["sku"].casefold(),
        f"{offer['provider']}/{offer['sku']}".casefold(),
    ) or (len(text) >= 6 and offer["offer_id"].startswith(text))


def why_not(connection: duckdb.DuckDBPyConnection, wanted: str) -> str | None:
    """Say why an offer that is on the list is not ranked for the job; None where it is on none."""
    offers = to_rows(
        connection.execute(
            """
            select
                o.provider, o.sku, o.region, o.market, o.offer_id, o.gpu, o.gpu_count,
                coalesce(b.reason, p.reason) as reason
            from staging.current_offers as o
            left join custom_plans as p using (gpu, gpu_count)
            left join (
                select offer_id, reason
                from marts.cost_of('custom_hours', 'staging.current_offers')
                where not is_eligible
            ) as b using (offer_id)
            order by o.provider, o.sku, o.region, o.market
            """
        )
    )
    for offer in offers:
        if is_meant(offer, wanted):
            where = f"{offer['provider']} {offer['sku']} {offer['region']} {offer['market']}"
            why = offer["reason"] or (
                "its GPU is not known here" if offer["gpu"] is None else "the filters leave it out"
            )
            return f"{where} is not ranked: {why}"
    return None


def explain_bill(
    connection: duckdb.DuckDBPyConnection, row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the lines of a bill: item, how it comes about, USD, source and when it was seen."""
    known = {"offer_id": row["offer_id"]}
    terms = {
        term["term"]: term
        for term in to_rows(
            connection.execute("from marts.offer_terms where offer_id = $offer_id", known)
        )
    }
    origins = {
        origin["item"]: origin
        for origin in to_rows(
            connection.execute("from marts.price_sources where offer_id = $offer_id", known)
        )
    }
    facts = to_rows(
        connection.execute("from staging.current_offers where offer_id = $offer_id", known)
    )[0]
    price = f"{row['price_per_hour'].normalize():f} {row['currency']}/h"
    if row["currency"] != "USD":
        rate = first(
            connection.execute(
                "select rate_date from staging.fx_latest where currency = ?", [row["currency"]]
            )
        )
        day = rate[0] if rate else "an unknown day"
        price += f" ({row['price_usd_per_hour']:.4f} USD at the rate of {day})"
    seen = row["observed_at"].date().isoformat()
    lines = [
        line(
            "compute",
            f"{row['train_hours']:.2f} h training + {row['setup_hours']:.2f} h set-up in"
            f" {row['starts']} start(s), billed {row['billed_hours']:.4f} h"
            f" ({rounding(facts)}) x {price}"
            + (f" x {row['nodes']} machines" if row["nodes"] > 1 else ""),
            row["compute_usd"],
            row["source"],
            seen,
        )
    ]
    hours = ("billing_increment_seconds", "billing_minimum_seconds", "minimum_rental_hours")
    lines += [term_line(terms[name]) for name in hours if name in terms]
    if row["interruptions_per_hour"] is not None:
        lines.append(spot_line(connection, row, facts))
    lines.append(
        line(
            "between sessions",
            between(row),
            row["idle_usd"],
        )
    )
    if "stop_behaviour" in terms:
        lines.append(term_line(terms["stop_behaviour"]))
    lines += [
        *storage_lines(row, facts, origins),
        *transfer_lines(connection, row, facts, origins),
        *nat_lines(row, facts, origins),
        line("assumed", assumed(row), row["assumed_usd"]),
        line(
            "likely cost",
            f"low {row['cost_usd_low']:.4f}, high {row['cost_usd_high']:.4f};"
            f" not stated: {', '.join(row['unknown_terms']) or 'nothing'}",
            row["cost_usd"],
        ),
    ]
    return lines


def between(row: Mapping[str, Any]) -> str:
    """Say what becomes of the machine between sessions."""
    if row["sessions"] == 1:
        return f"one session (stop: {row['stop_behaviour']})"
    if row["is_kept_running"]:
        return f"kept running for {row['idle_hours']:g} h, which costs less than stopping"
    if row["stopped_gb_months"] > 0:
        return f"stopped for {row['idle_hours']:g} h (stop: {row['stop_behaviour']})"
    return (
        f"ended, and everything loaded again after {row['idle_hours']:g} h"
        f" (stop: {row['stop_behaviour']})"
    )


def line(
    item: str, how: str, usd: float | None, source: str | None = None, seen: str | None = None
) -> dict[str, Any]:
    """Return one line of a bill."""
    return {"item": item, "how": how, "usd": usd, "source": source, "seen": seen}


def rounding(facts: Mapping[str, Any]) -> str:
    """Say how hours are rounded."""
    increment, minimum = facts["billing_increment_seconds"], facts["billing_minimum_seconds"]
    text = (
        "to the second: the increment is not stated"
        if increment is None
        else f"rounded up to {increment} s"
    )
    return text + (f", at least {minimum} s a start" if minimum else "")


def assumed(row: Mapping[str, Any]) -> str:
    """Say what is charged though nobody states it."""
    parts = [t for t in row["unknown_terms"] if t.endswith("price")]
    prices = [f"pessimistic prices for: {', '.join(parts)}"] if parts else []
    if row["assumed_hours"] > 0:
        prices.append(f"{row['assumed_hours']:.4f} h more, were it billed by the hour")
    return "; ".join(prices) or "nothing"


def term_line(term: Mapping[str, Any]) -> dict[str, Any]:
    """Return the statement of a term, as a line without an amount."""
    return line(
        f"  {term['term']}",
        f"{term['value']}" + (f" ({term['applies_to']})" if term["applies_to"] else ""),
        None,
        term["source_url"],
        term["source_date"],
    )


def spot_line(
    connection: duckdb.DuckDBPyConnection, row: Mapping[str, Any], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Say what interruptions cost, and on what evidence."""
    prior = first(
        connection.execute(
            "select evidence, source_url from seeds.spot_priors where provider = ?",
            [facts["spot_prior"]],
        )
    )
    evidence, url = prior if prior else (None, None)
    return line(
        "spot rework",
        f"{row['interruptions_per_hour']:g} interruptions an hour"
        f" ({row['interruptions_per_hour_low']:g} to {row['interruptions_per_hour_high']:g}),"
        f" a checkpoint every {row['checkpoint_interval_hours'] * 60:.0f} min taking"
        f" {row['save_hours'] * 3600:.0f} s, {row['restart_hours'] * 60:.0f} min to restart,"
        f" {row['wait_hours']:g} h until there is capacity again ({row['wait_hours_low']:g} to"
        f" {row['wait_hours_high']:g});"
        f" {evidence}",
        row["spot_rework_usd"],
        url,
    )


def storage_lines(
    row: Mapping[str, Any], facts: Mapping[str, Any], origins: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Say what is stored, at whose price: on the running machine, while it is stopped, kept."""
    for item, kind in (
        ("storage", "disk"),
        ("storage stopped", "stopped"),
        ("storage kept", "kept"),
    ):
        volume = row[f"{kind}_gb_months"]
        price = row[f"{'storage' if kind == 'disk' else kind}_usd_per_gb_month"]
        if volume == 0 and item != "storage":
            continue
        how = f"{volume:.4f} GB-months x "
        if price is None:
            yield line(item, f"{how}no price stated", None)
            continue
        how += f"{price:.4g} USD/GB-month ({origins[item]['product']})"
        if item == "storage" and (included := facts["included_disk_gb"]):
            how += (
                ", apart from the machine's own disk, which a stop clears"
                if row["is_disk_apart"]
                else f", beyond the {included:.0f} GB that come with the machine"
            )
        usd = volume * price
        if item == "storage kept" and (least := row["kept_minimum_usd_per_month"]):
            how += f", at least {least:g} USD a month"
            usd = max(usd, least * row["kept_months"])
        yield line(item, how, usd, *seen_at(origins[item]))


def transfer_lines(
    connection: duckdb.DuckDBPyConnection,
    row: Mapping[str, Any],
    facts: Mapping[str, Any],
    origins: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Say what is moved, at whose price."""
    for item in ("egress", "ingress"):
        how = f"{row[f'{item}_gb']:.2f} GB"
        if item == "egress" and row["billed_egress_gb"] < row["egress_gb"]:
            how += f", {row['billed_egress_gb']:.2f} beyond what the machine's hours include"
        if row[f"{item}_usd"] is None:
            yield line(item, f"{how}, no price stated", None)
            continue
        price = facts[f"{item}_usd_per_gb"]
        how += f" x {price:.4g} USD" if price is not None else tiers(connection, row)
        how += f" ({origins[item]['product']})"
        yield line(item, how, row[f"{item}_usd"], *seen_at(origins[item]))


def nat_lines(
    row: Mapping[str, Any], facts: Mapping[str, Any], origins: Mapping[str, Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Say what a NAT gateway costs, where there is one."""
    if not row["behind_nat"]:
        return
    for item, unit, volume, price in (
        ("NAT traffic", "GB", row["nat_gb"], facts["nat_usd_per_gb"]),
        ("NAT hours", "h", row["nat_hours"], facts["nat_usd_per_hour"]),
    ):
        if row["nat_usd"] is None:
            yield line(item, f"{volume:.2f} {unit}, no price stated", None)
        else:
            how = f"{volume:.2f} {unit} x {price:.4g} USD"
            yield line(item, how, volume * price, *seen_at(origins[item]))


def tiers(connection: duckdb.DuckDBPyConnection, row: Mapping[str, Any]) -> str:
    """Say what a region's traffic costs, as far as the result reaches."""
    found = connection.execute(
        """
        select free_gb_per_month, from_tier_gb, usd_per_gb from staging.egress_tiers
        where provider = $provider and region = $region and from_tier_gb < $billed_egress_gb
        order by from_tier_gb
        """,
        {name: row[name] for name in ("provider", "region", "billed_egress_gb")},
    ).fetchall()
    free = f", {found[0][0]:g} GB a month free" if found and found[0][0] else ""
    return free + "".join(f", from {start:g} GB x {price:.4g} USD" for _, start, price in found)


def seen_at(origin: Mapping[str, Any]) -> tuple[str, str]:
    """Return where and on which day a price was stated."""
    return origin["source"], origin["source_date"]


def add_finish_probability(rows: Iterable[dict[str, Any]], deadline_hours: float) -> None:
    """Add to each ranked row the probability that its job ends within the deadline.

    The low, likely and high case of speed and set-up (and, on spot, of interruptions and of waiting
    for capacity after them) weigh as Swanson's rule says; in each case the spread of interrupted
    runs is that of `sizing.spot`.
    """
    from warehouse.sizing.spot import finish_within, spread_run

    for row in rows:
        left = deadline_hours - row["idle_hours"]
        levels = ("low", "", "high")
        chances = []
        for level in levels:
            suffix = f"_{level}" if level else ""
            rate = row[f"interruptions_per_hour{suffix}"]
            set_up = row[f"setup_hours{suffix}"]
            if rate is None:
                chances.append(float(row[f"hours{suffix}"] <= left))
                continue
            work = row[f"train_hours{suffix}"]
            spread = spread_run(
                work, min(work, row["checkpoint_interval_hours"]), row["save_hours"], rate,
                row["restart_hours"], set_up, wait_hours=row[f"wait_hours{suffix}"],
            )  # fmt: skip
            chances.append(finish_within(spread, left))
        row["finish_probability"] = sum(w * c for w, c in zip(SWANSON, chances, strict=True))
