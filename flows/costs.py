"""Rank offers for a job: a plan per machine type in, rows of `marts.cost_of` out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from flows.refresh import load_cards
from warehouse.ledger import first
from warehouse.publish import load_relations, make_plans_table, register_rows
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import plan_jobs


@dataclass(frozen=True)
class Filters:
    """What an offer must satisfy; None or empty asks nothing."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    markets: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    max_hours: float | None = None
    max_age_hours: float | None = None
    needs: tuple[str, ...] = ()

    def where(self) -> tuple[str, dict[str, Any]]:
        """Return the condition in SQL and its values."""
        parts, values = ["true"], dict[str, Any]()
        lists = {
            "provider": self.providers,
            "region": self.regions,
            "country": self.countries,
            "market": self.markets,
        }
        for column, wanted in lists.items():
            if wanted:
                parts.append(f"lower({column}) in (select lower(unnest(${column}::varchar[])))")
                values[column] = list(wanted)
        if self.gpus:
            # A name matches a whole variant (A100-80GB-SXM) or a family (A100).
            parts.append(
                "exists (from unnest($gpus::varchar[]) as w(name)"
                " where lower(gpu) = lower(w.name)"
                " or starts_with(lower(gpu), lower(w.name) || '-'))"
            )
            values["gpus"] = list(self.gpus)
        if self.max_hours is not None:
            parts.append("elapsed_hours <= $max_hours")
            values["max_hours"] = self.max_hours
        if self.max_age_hours is not None:
            parts.append("age_hours <= $max_age_hours")
            values["max_age_hours"] = self.max_age_hours
        parts += [NEEDS[need] for need in self.needs]
        return " and ".join(parts), values


NEEDS = {
    "ssh": "has_ssh",
    "docker": "has_docker",
    "jupyter": "has_jupyter",
    # A bridge joins pairs, and where it is sold it need not be fitted.
    "nvlink": "(gpu_count <= 1 or regexp_matches(interconnect, 'nvlink|nvswitch|nvl72', 'i')"
    " and not regexp_matches(interconnect, 'bridge', 'i'))",
    "persistent-storage": "(has_persistent_storage or storage_survives_stop)",
    "availability": "is_available",
}
"""What `--needs` can ask -> its condition. An unknown term does not satisfy a need."""


def rank(
    connection: duckdb.DuckDBPyConnection,
    job: Mapping[str, str],
    models: Mapping[str, ModelSpec],
    filters: Filters,
    limit: int | None = None,
) -> Rows:
    """Return what the job costs on each offer that can run it, cheapest first, up to a limit.

    A custom job is costed by the same statement as the reference jobs: its plans and its row go
    into temporary tables shaped like theirs.
    """
    machines = connection.execute(
        "select distinct gpu, gpu_count from staging.current_offers where gpu is not null"
        " order by all"
    ).fetchall()
    for table in ("custom_plans", "custom_jobs", "custom_hours"):
        connection.execute(f"drop table if exists temp.{table}")
    make_plans_table(
        connection, "custom_plans", plan_jobs([job], models, load_cards(), machines), temporary=True
    )
    register_rows(connection, "raw_jobs", [dict(job)])
    jobs = next(r for r in load_relations() if r.full_name == "seeds.jobs")
    connection.execute(f"create temp table custom_jobs as {jobs.sql}")
    connection.execute(
        "create temp table custom_hours as from marts.hours_of('custom_plans', 'custom_jobs')"
    )
    where, values = filters.where()
    result = connection.execute(
        f"""
        select *, count(*) over (partition by round(cost_usd, 4)) - 1 as ties
        from marts.cost_of('custom_hours', 'staging.current_offers')
        where is_eligible and {where}
        order by cost_usd, cost_usd_high, provider, sku, region, "zone", market, tier, offer_id
        {"limit $limit" if limit is not None else ""}
        """,
        values | ({"limit": limit} if limit is not None else {}),
    )
    return to_rows(result)


def count_ranked(connection: duckdb.DuckDBPyConnection, filters: Filters) -> int:
    """Return how many offers can run the job that `rank` has just looked at."""
    where, values = filters.where()
    found = first(
        connection.execute(
            "select count(*)"
            " from marts.cost_of('custom_hours', 'staging.current_offers')"
            f" where is_eligible and {where}",
            values,
        )
    )
    return int(found[0]) if found else 0


def explain_nothing(connection: duckdb.DuckDBPyConnection, filters: Filters) -> str:
    """Say in one line why no offer can run the job that `rank` has just looked at."""
    plans = first(
        connection.execute(
            """
            select
                count(*), count(*) filter (fits),
                case when count(distinct reason) filter (not fits) = 1
                    then min(reason) filter (not fits) end,
                arg_max(
                    printf('%g', gpu_count) || ' x ' || gpu || ': ' || reason,
                    vram_usable_gib * gpu_count
                ) filter (not fits and vram_usable_gib is not null),
                min(reason) filter (not fits)
            from custom_plans
            """
        )
    )
    total, fitting, common, largest, some = plans or (0, 0, None, None, None)
    if total == 0:
        return "no offer with a known GPU is in force; run `tunecost refresh`"
    if fitting == 0:
        why = common or (f"the largest, {largest}" if largest else some)
        return f"no machine on sale can run the job: {why}"
    if filters != Filters():
        return explain_filters(connection, filters, fitting)
    return "every machine that fits the job is sold out or sold only with a commitment"


def explain_filters(connection: duckdb.DuckDBPyConnection, filters: Filters, fitting: int) -> str:
    """Say in one line which filters leave no offer: a card that is too small, or what to drop."""
    if filters.gpus:
        where, values = Filters(gpus=filters.gpus).where()
        plans = first(
            connection.execute(
                f"""
                select
                    bool_or(fits),
                    arg_max(
                        printf('%g', gpu_count) || ' x ' || gpu || ': ' || reason,
                        vram_usable_gib * gpu_count
                    ) filter (not fits)
                from custom_plans where {where}
                """,
                values,
            )
        )
        fits, largest = plans or (None, None)
        if fits is None:
            return f"no machine with that GPU is on sale; {fitting} others fit the job"
        if not fits:
            return f"no machine with that GPU can run the job: the largest, {largest}"
    asked = {
        "--provider": "providers",
        "--region": "regions",
        "--country": "countries",
        "--market": "markets",
        "--gpu": "gpus",
        "--max-hours": "max_hours",
        "--max-age-hours": "max_age_hours",
        "--needs": "needs",
    }
    counts = {}
    for option, name in asked.items():
        if (value := getattr(filters, name)) not in ((), None):
            dropped: dict[str, Any] = {name: () if isinstance(value, tuple) else None}
            counts[option] = count_ranked(connection, replace(filters, **dropped))
    hints = [f"without {option} {n} would" for option, n in counts.items() if n]
    hint = ", ".join(hints) or "nor with any one of them dropped"
    return f"{fitting} machine types fit the job, but no offer passes the filters ({hint})"


class Rows(list[dict[str, Any]]):
    """The rows of a result; the columns are known though there may be no row."""

    columns: tuple[str, ...] = ()


def to_rows(result: duckdb.DuckDBPyConnection) -> Rows:
    """Return a result as mappings; a column whose name an earlier one has is called `name_1`."""
    columns: list[str] = []
    for name, *_ in result.description or ():
        unique, n = name, 0
        while unique in columns:
            n += 1
            unique = f"{name}_{n}"
        columns.append(unique)
    rows = Rows(dict(zip(columns, row, strict=True)) for row in result.fetchall())
    rows.columns = tuple(columns)
    return rows
