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


def find_offer(rows: Sequence[Mapping[str, Any]], wanted: str) -> Mapping[str, Any]:
    """Return the cheapest ranked row that a user means: an offer_id, a SKU, or provider/SKU.

    Raises:
        UsageError: no row, or rows of several providers.
    """
    text = wanted.casefold()
    found = [
        row
        for row in rows
        if text in (row["sku"].casefold(), f"{row['provider']}/{row['sku']}".casefold())
        or (len(text) >= 6 and row["offer_id"].startswith(text))
    ]
    if not found:
        raise UsageError(
            f"no ranked offer {wanted!r}; give an offer_id, a sku or provider/sku as"
            " `tunecost cost --format json` prints them"
        )
    providers = {row["provider"] for row in found}
    if len(providers) > 1:
        raise UsageError(f"{wanted!r} is sold by {', '.join(sorted(providers))}; say provider/sku")
    return found[0]


def explain_bill(
    connection: duckdb.DuckDBPyConnection, row: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the lines of a bill: item, how it comes about, USD, source and when it was seen."""
    terms = terms_of(connection, row["offer_id"])
    facts = to_rows(
        connection.execute(
            """
            select o.*, t.price_from as egress_price_from
            from staging.current_offers as o
            left join staging.egress_tiers as t on o.place_id = t.place_id and t.from_tier_gb = 0
            where o.offer_id = ?
            """,
            [row["offer_id"]],
        )
    )[0]
    price = f"{row['price_per_hour'].normalize():f} {row['currency']}"
    if row["currency"] != "USD":
        price += f" = {row['price_usd_per_hour']:.4f} USD"
    seen = row["observed_at"].date().isoformat()
    lines = [
        line(
            "compute",
            f"{row['train_hours']:.2f} h training + {row['setup_hours']:.2f} h set-up in"
            f" {row['starts']} start(s), billed {row['billed_hours']:.4f} h"
            f" ({rounding(facts)}) x {price}/h"
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
        *storage_lines(connection, row, facts, terms),
        transfer_line("egress", row["egress_gb"], row["egress_usd"], facts, terms, row),
        transfer_line("ingress", row["ingress_gb"], row["ingress_usd"], facts, terms, row),
        line(
            "assumed",
            "pessimistic prices for: "
            + (", ".join(t for t in row["unknown_terms"] if t.endswith("price")) or "nothing"),
            row["assumed_usd"],
        ),
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
        "increment not stated, taken as an hour"
        if increment is None
        else f"rounded up to {increment} s"
    )
    return text + (f", at least {minimum} s a start" if minimum else "")


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
        f" {row['save_hours'] * 3600:.0f} s, {row['restart_hours'] * 60:.0f} min to restart;"
        f" {evidence}",
        row["spot_rework_usd"],
        url,
    )


def storage_lines(
    connection: duckdb.DuckDBPyConnection,
    row: Mapping[str, Any],
    facts: Mapping[str, Any],
    terms: Mapping[str, Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Say what is stored, at whose price: on the running machine, while it is stopped, kept."""
    own = facts["storage_price_from"]
    stopped = "stopped terms" if facts["stopped_storage_usd_per_gb_month"] is not None else own
    for item, volume, price, origin in (
        ("storage", row["disk_gb_months"], row["storage_usd_per_gb_month"], own),
        ("storage stopped", row["stopped_gb_months"], row["stopped_usd_per_gb_month"], stopped),
        ("storage kept", row["kept_gb_months"], row["kept_usd_per_gb_month"],
         facts["kept_price_from"]),
    ):  # fmt: skip
        if volume == 0 and item != "storage":
            continue
        product, source, seen = storage_origin(connection, row, terms, origin, item)
        how = f"{volume:.4f} GB-months x " + (
            "no price stated" if price is None else f"{price:.4g} USD/GB-month{product}"
        )
        if item == "storage" and (included := facts["included_disk_gb"]):
            how += (
                ", apart from the machine's own disk, which a stop clears"
                if row["is_disk_apart"]
                else f", beyond the {included:.0f} GB that come with the machine"
            )
        yield line(item, how, None if price is None else volume * price, source, seen)


def storage_origin(
    connection: duckdb.DuckDBPyConnection,
    row: Mapping[str, Any],
    terms: Mapping[str, Mapping[str, Any]],
    origin: str | None,
    item: str,
) -> tuple[str, str | None, str | None]:
    """Return the product in brackets, the source, and when a storage price was seen there."""
    if origin == "offer":
        return "", row["source"], row["observed_at"].date().isoformat()
    if origin == "price list":
        column = "cheapest_product" if item == "storage kept" else "product"
        found = first(
            connection.execute(
                f"select {column}, observed_at from staging.storage_prices"
                " where provider = $provider and region in ($region, 'global')"
                f" and {column} is not null order by region = 'global' limit 1",
                {"provider": row["provider"], "region": row["region"]},
            )
        )
        if found:
            return f" ({found[0]})", row["source"], found[1].date().isoformat()
        return "", row["source"], None
    names = {
        "terms": ("storage_price_per_gb_month",),
        "stopped terms": ("stopped_storage_price_per_gb_month",),
        "kept terms": (
            "network_storage_price_per_gb_month",
            "object_storage_price_per_gb_month",
        ),
    }
    stated = [terms[name] for name in names.get(origin or "", ()) if name in terms]
    if not stated:
        return "", None, None
    term = min(stated, key=lambda t: float(t["value"]))
    return f" ({term['term']})", term["source_url"], term["source_date"]


def transfer_line(
    kind: str,
    volume_gb: float,
    usd: float | None,
    facts: Mapping[str, Any],
    terms: Mapping[str, Mapping[str, Any]],
    row: Mapping[str, Any],
) -> dict[str, Any]:
    """Say what is moved, at whose price."""
    own = facts[f"{kind}_usd_per_gb"]
    term = terms.get(f"{kind}_price_per_gb")
    if own is not None and (kind == "egress" or "ingress_price_per_gb" not in terms):
        how = f"{volume_gb:.2f} GB x {own:.4g} USD (the offer's own price)"
        return line(kind, how, usd, row["source"], row["observed_at"].date().isoformat())
    if usd is None:
        return line(kind, f"{volume_gb:.2f} GB, no price stated", None)
    free = facts["egress_free_gb_per_month"] if kind == "egress" else None
    how = f"{volume_gb:.2f} GB" + (f", {free:g} GB a month free" if free else "")
    if kind == "egress" and facts["egress_price_from"] == "price list":
        return line(kind, f"{how}, by the price list of the region", usd, row["source"])
    if term is None:
        allowance = terms.get("egress_free_gb_per_month", {})
        return line(kind, how, usd, allowance.get("source_url"), allowance.get("source_date"))
    price = f"from {term['value']} {term['currency'] or 'USD'} per GB"
    return line(kind, f"{how}, {price}", usd, term["source_url"], term["source_date"])


def terms_of(connection: duckdb.DuckDBPyConnection, offer_id: str) -> dict[str, Mapping[str, Any]]:
    """Return, by term, the statement that holds for an offer: of the adopted the most specific."""
    rows = to_rows(
        connection.execute(
            """
            select t.*
            from staging.offers as o inner join seeds.provider_terms as t using (provider)
            where
                o.offer_id = ? and t.status = 'adopted'
                and coalesce(t.from_tier_gb, 0) = 0
                and (t.market is null or t.market = o.market)
                and (t.tier is null or t.tier = o.tier)
                and (t.sku_like is null or o.sku like t.sku_like)
                and (t.region_like is null or o.region like t.region_like)
            order by
                (t.sku_like is not null)::int * 8 + (t.tier is not null)::int * 4
                + (t.market is not null)::int * 2 + (t.region_like is not null)::int
            """,
            [offer_id],
        )
    )
    return {row["term"]: row for row in rows}


def add_finish_probability(rows: Iterable[dict[str, Any]], deadline_hours: float) -> None:
    """Add to each ranked row the probability that its job ends within the deadline.

    The low, likely and high case of speed (and, on spot, of interruptions) weigh as Swanson's rule
    says; in each case the spread of interrupted runs is that of `sizing.spot`.
    """
    from warehouse.sizing.spot import finish_within, spread_run

    for row in rows:
        left = deadline_hours - row["idle_hours"]
        levels = ("low", "", "high")
        chances = []
        for level in levels:
            suffix = f"_{level}" if level else ""
            rate = row[f"interruptions_per_hour{suffix}"]
            if rate is None:
                chances.append(float(row[f"hours{suffix}"] <= left))
                continue
            work = row[f"train_hours{suffix}"]
            spread = spread_run(
                work, min(work, row["checkpoint_interval_hours"]), row["save_hours"], rate,
                row["restart_hours"], row["setup_hours"],
            )  # fmt: skip
            chances.append(finish_within(spread, left))
        row["finish_probability"] = sum(w * c for w, c in zip(SWANSON, chances, strict=True))
