"""What the commands say to a person: summaries of a run, ranked costs, a bill, a sized job."""

from __future__ import annotations

import csv
import difflib
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import click
import duckdb

from flows.costs import Filters, count_ranked, explain_nothing, rank
from flows.explain import add_finish_probability, explain_bill, find_offer
from flows.jobs import DEFAULT_JOB, count, describe, find_job
from flows.refresh import ScopeResult, Summary, UsageError, load_models
from flows.show import age, flat, print_rows, usd
from warehouse.reader import open_published
from warehouse.sizing.model import ModelSpec


def report(summary: Summary, data: Path) -> None:
    """Say on stderr what a run came to: one line per provider, in words."""
    for provider, some in groupby(
        sorted(summary.results, key=lambda r: r.provider), lambda r: r.provider
    ):
        click.echo(describe_provider(provider, list(some)), err=True)
    if summary.rates_error:
        click.echo(f"exchange rates: {summary.rates_error}; the last known ones serve", err=True)
    if summary.baseline_offers:
        click.echo(
            f"baseline: {summary.baseline_offers} bundled offers loaded with the dates on which"
            " they were seen; live prices replace them scope by scope",
            err=True,
        )
    for finding in summary.findings:
        click.echo(f"note: {finding.check}: {finding.detail}", err=True)
    click.echo(f"published: {data / 'prices.duckdb'}", err=True)


def describe_provider(provider: str, results: list[ScopeResult]) -> str:
    """Say in one line what a provider's scopes came to."""
    ok = [r for r in results if r.status == "ok"]
    rest = [r for r in results if r.status != "ok"]
    parts = []
    if ok:
        offers, changes = sum(r.offers for r in ok), sum(r.changes for r in ok)
        parts.append(f"{offers} offers, {changes} changes")
        if withdrawn := sum(r.withdrawals for r in ok):
            parts.append(f"{withdrawn} withdrawn")
        if rejects := sum(r.rejects for r in ok):
            parts.append(f"{rejects} rows refused")
        if truncated := [r.scope for r in ok if r.truncated]:
            parts.append(f"cut short: {', '.join(filter(None, truncated)) or 'yes'}")
    if notes := [note for r in ok for note in r.notes]:
        parts.append(f"noted: {notes[0]}" + (f" and {len(notes) - 1} more" if notes[1:] else ""))
    for status in ("failed", "held", "skipped"):
        some = [r for r in rest if r.status == status]
        if some:
            of = f" {len(some)} of {len(results)} scopes" if len(results) > 1 else ""
            parts.append(f"{status}{of}: {some[0].error}")
    return f"{provider}: {'; '.join(parts)}"


def show_default_job(data: Path) -> None:
    """Print the ranking for the default job, and what to type next."""
    print_costs(data, find_job(DEFAULT_JOB), form="table", limit=10)
    click.echo(
        "\nNext: tunecost cost --model Qwen2.5-7B --method lora --tokens 20e6"
        "  ·  tunecost prices --gpu H100  ·  tunecost status  ·  tunecost --help"
    )


def check_names(connection: duckdb.DuckDBPyConnection, filters: Filters) -> None:
    """Refuse a provider, GPU, market or place that the published file does not know.

    Raises:
        UsageError: with the nearest names.
    """
    wanted = {
        "provider": (filters.providers, "select distinct provider from staging.offers"),
        "region": (filters.regions, "select distinct region from staging.offers"),
        "country": (
            filters.countries,
            "select distinct country from staging.offers where country is not null",
        ),
        "GPU": (filters.gpus, "select gpu from marts.gpus"),
        "market": (
            filters.markets,
            "from (values ('on_demand'), ('spot'), ('reserved'), ('capacity_block'))",
        ),
    }
    for kind, (names, query) in wanted.items():
        if not names:
            continue
        known = {row[0].lower(): row[0] for row in connection.execute(query).fetchall()}
        for name in names:
            lower = name.lower()
            is_family = kind == "GPU" and any(k.startswith(f"{lower}-") for k in known)
            if lower in known or is_family:
                continue
            near = difflib.get_close_matches(lower, known, n=3, cutoff=0.4)
            near += [k for k in known if lower in k and k not in near][:3]
            hint = f"; did you mean {', '.join(known[n] for n in near)}?" if near else ""
            raise UsageError(f"unknown {kind} {name!r}{hint}")


def find_card(name: str, cards: Any) -> str:
    """Return the name of a card, in any case.

    Raises:
        UsageError: no such card, with the nearest names.
    """
    known: dict[str, str] = {card.lower(): card for card in cards}
    if name.lower() in known:
        return known[name.lower()]
    near = [known[k] for k in known if k.startswith(name.lower())][:4]
    near = near or [known[k] for k in difflib.get_close_matches(name.lower(), known, 3, 0.4)]
    raise UsageError(
        f"unknown GPU {name!r}" + (f"; did you mean {', '.join(near)}?" if near else "")
    )


def print_costs(
    data: Path,
    job: dict[str, str],
    *,
    form: str,
    limit: int,
    filters: Filters | None = None,
    models: Mapping[str, ModelSpec] | None = None,
    deadline_hours: float | None = None,
    explain: str | None = None,
) -> None:
    """Rank offers for a job and print them, with the band, the reasons and the ages.

    Raises:
        UsageError: nothing can run the job, with the reason.
    """
    filters = filters or Filters()
    with open_published(data) as connection:
        check_names(connection, filters)
        # A deadline and an explanation choose among all rows.
        needs_all = deadline_hours is not None or explain is not None
        rows = rank(connection, job, models or load_models(), filters, None if needs_all else limit)
        if not rows:
            raise UsageError(explain_nothing(connection, filters))
        if deadline_hours is not None:
            rows[:] = [row for row in rows if row["elapsed_hours"] <= deadline_hours]
            add_finish_probability(rows, deadline_hours)
            if not rows:
                raise UsageError(too_late(job, deadline_hours))
        if explain is not None:
            offer = find_offer(connection, rows, explain)
            bill = explain_bill(connection, offer)
            print_bill(offer, bill, form)
            return
        total = len(rows) if needs_all else count_ranked(connection, filters)
    del rows[limit:]
    if form != "table":
        print_rows(rows, form)
        return
    frozen = "" if rows[0]["quant"] in (None, "none") else f", frozen weights in {rows[0]['quant']}"
    click.echo(
        f"{describe(job)}: {total} offers can run it, cheapest first (likely, low – high)\n"
        f"{rows[0]['framework']} defaults, {rows[0]['optimizer']}{frozen}; in"
        f" {job['weight_dtype'].upper()}"
        + (", or FP16 where a card has none" if job["weight_dtype"] == "bf16" else "")
    )
    print_rows(
        [
            row
            | {
                "cost": usd(row["cost_usd"]),
                "band": f"{usd(row['cost_usd_low'])} – {usd(row['cost_usd_high'])}",
                "machine": (f"{row['nodes']} × " if row["nodes"] > 1 else "")
                + f"{row['gpu_count']:g} × {row['gpu']}"
                + (
                    ""
                    if row["weight_dtype"] == job["weight_dtype"]
                    else f" {row['weight_dtype'].upper()}"
                ),
                "time": f"{row['elapsed_hours']:.1f} h",
                "in_time": f"{row.get('finish_probability', 0):.0%}",
                "where": " ".join(filter(None, [row["sku"], row["region"], row["tier"]])),
                "ties": f"{row['ties']} more" if row["ties"] else "–",
                "age": age(row["age_hours"]) + (" baseline" if row["is_baseline"] else ""),
                "unknown": ", ".join(row["unknown_terms"]) or "–",
            }
            for row in rows
        ],
        "table",
        {
            "cost": "cost",
            "band": "band",
            "machine": "machine",
            "time": "done in",
        }
        | ({} if deadline_hours is None else {"in_time": "in time"})
        | {
            "market": "market",
            "provider": "provider",
            "where": "offer",
            "ties": "same cost",
            "unknown": "assumed (not stated)",
            "age": "price seen",
        },
    )


def too_late(job: Mapping[str, str], deadline_hours: float) -> str:
    """Say why nothing ends in time."""
    gaps = (int(job["sessions"]) - 1) * float(job["idle_hours"])
    if gaps >= deadline_hours:
        return (
            f"the gaps between {job['sessions']} sessions alone last {gaps:g} hours,"
            f" the deadline is {deadline_hours:g}"
        )
    return f"no offer likely finishes within {deadline_hours:g} hours"


def print_bill(offer: Mapping[str, Any], bill: list[dict[str, Any]], form: str) -> None:
    """Print one bill line by line."""
    if form != "table":
        print_rows(bill, form)
        return
    where = " ".join(filter(None, [offer["sku"], offer["region"], offer["tier"], offer["market"]]))
    click.echo(f"{offer['title']} on {offer['provider']} {where} ({offer['offer_id']})")
    print_rows(
        [row | {"amount": "" if row["usd"] is None else usd(row["usd"])} for row in bill],
        "table",
        {"item": "item", "amount": "USD", "how": "how", "source": "source", "seen": "seen"},
    )


def print_sized_file(rows: Iterator[dict[str, Any]], form: str) -> None:
    """Print sized rows as they come: a bulk run is piped, and may be long."""
    if form != "csv":
        print_rows(list(rows), form)
        return
    writer = None
    for row in rows:
        if writer is None:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerow(row)
        writer.writerow([flat(value) for value in row.values()])


def print_size(result: dict[str, Any]) -> None:
    """Print one sized job for a person."""
    trained = f"{count(result['params_trainable'])} of {count(result['params_total'])} parameters"
    click.echo(
        f"{result['model']}, {result['method']} ({result['framework']} defaults),"
        f" {trained} trained;"
        f" {result['micro_batch']} × {result['seq_len']} tokens on {result['gpus']} GPU,"
        f" checkpointing {result['grad_checkpointing']}, {result['optimizer']},"
        f" {result['weight_dtype']}\n"
    )
    phases = [{"phase": name} | terms for name, terms in result["phases_gib"].items()]
    terms = [t for t in phases[0] if t != "phase" and any(row[t] > 0 for row in phases)]
    for row in phases:
        row["phase"] += "  ◀ peak" if row["phase"] == result["peak_phase"] else ""
        row.update({t: f"{row[t]:.2f}" for t in terms})
    print_rows(phases, "table", {"phase": "GiB per GPU"} | {t: t for t in terms})
    click.echo()
    for metric, band in result["peaks_gib"].items():
        what = {
            "live": "live tensors",
            "allocated": "allocated (torch)",
            "reserved": "reserved (torch)",
            "device": "device (nvidia-smi)",
        }[metric]
        click.echo(
            f"{what:20} {band['likely']:8.2f} GiB   90 %: {band['low']:.2f} – {band['high']:.2f}"
        )
    level = f"{result['safety_level']:.0%}"
    click.echo(f"\nA card must hold {result['needed_gib']:.2f} GiB ({level} of runs fit).")
    smallest = result["smallest"]
    if smallest is None:
        click.echo("No card holds it on up to 8 GPUs; the reasons are below.")
    else:
        layout = f"{smallest['gpus']} × {smallest['gpu']}"
        click.echo(
            f"Smallest that fits: {layout} ({smallest['sharding']}, checkpointing"
            f" {smallest['grad_checkpointing']}), micro-batch up to"
            f" {smallest['largest_micro_batch']}, sequences up to {smallest['largest_seq_len']}.\n"
        )
    print_rows(
        result["cards"],
        "table",
        {
            "gpu": "GPU",
            "usable_gib": "usable GiB",
            "gpus": "n",
            "weight_dtype": "precision",
            "sharding": "sharding",
            "grad_checkpointing": "checkpointing",
            "needed_gib": "needs GiB",
            "largest_micro_batch": "micro-batch ≤",
            "largest_seq_len": "sequence ≤",
            "reason": "why not",
        },
    )
