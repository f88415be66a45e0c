"""The night on a clock: the same functions as `tunecost refresh`, as a Prefect flow.

One task collects each provider, one keeps each scope; a failing provider fails its own tasks and
the night goes on, ending as Completed(Degraded). The summary is a table artifact with every
provider's outcome and age. A second run of the same night writes only what changed.

Prefect is imported here and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable

# Before Prefect is imported: no telemetry, and no log of its own start and stop.
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("PREFECT_SERVER_LOGGING_LEVEL", "CRITICAL")
# Twenty seconds, Prefect's own choice, is too short for a small machine under load.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prefect import flow, serve, task
from prefect.artifacts import acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.schedules import Cron
from prefect.states import Completed, Failed

from flows import refresh as night
from scrapers.collect import Outcome, collect
from scrapers.fetch import Fetcher
from scrapers.pages import Source
from warehouse.ledger import Ledger
from warehouse.reader import LEDGER, open_published

if TYPE_CHECKING:
    from prefect.deployments.runner import RunnerDeployment

PROVIDERS_AT_ONCE = 8


@task(task_run_name="collect {slug}", cache_policy=NO_CACHE)
async def collect_provider(
    slug: str, source: Source, fetcher: Fetcher, previous: dict[str, int] | None
) -> list[Outcome]:
    """Ask one provider; its scopes' failures are outcomes, not exceptions."""
    return await collect(source, fetcher, previous=previous, clock=night.now)


@task(task_run_name="keep {slug} {scope}", cache_policy=NO_CACHE)
async def keep_scope(
    slug: str, scope: str, outcome: Outcome, ledger: Ledger, source: Source, summary: night.Summary
) -> Any:
    """Write one scope to the ledger; the returned state says how it went."""
    kept = night.keep(ledger, outcome, source.PROVIDER.pricing_url, summary, night.ignore)
    if kept.status in ("failed", "held"):
        return Failed(message=kept.error or outcome.error)
    if kept.status == "skipped":
        return Completed(name="Skipped", message=outcome.error)
    return Completed(message=f"{len(outcome.offers)} offers, {kept.changes} changes")


@flow(name="tunecost-nightly", log_prints=False)
async def nightly(data: str = "data", providers: list[str] | None = None) -> State[Any]:
    """Collect every provider, keep what came, publish, and leave a summary.

    Args:
        data: the data folder.
        providers: provider modules to ask; all when empty.
    """
    folder = Path(data)
    sources = night.choose_sources(providers or [])
    summary = night.Summary()
    with Ledger(folder / LEDGER) as ledger:
        summary.baseline_offers = night.load_baseline(ledger)
        previous = night.previous_rows(ledger)
        summary.run_id = night.start_run(ledger, "live")
        turns = asyncio.Semaphore(PROVIDERS_AT_ONCE)

        async def collect_one(slug: str, source: Source) -> None:
            # States, not results: what breaks in one task must not end the night.
            async with turns:
                collecting = collect_provider(
                    slug, source, fetcher, previous.get(slug), return_state=True
                )
                collected = await cast("Awaitable[State[list[Outcome]]]", collecting)
            if not collected.is_completed():
                note_broken(summary, slug, "*", collected)
                return
            for outcome in await collected.aresult():
                keeping = keep_scope(
                    slug, outcome.scope, outcome, ledger, source, summary, return_state=True
                )
                kept = await cast("Awaitable[State[Any]]", keeping)
                if not any((r.provider, r.scope) == (slug, outcome.scope) for r in summary.results):
                    note_broken(summary, slug, outcome.scope, kept)

        async with Fetcher(folder / night.ARCHIVE, summary.run_id, os.environ) as fetcher:
            await asyncio.gather(
                night.collect_rates(ledger, fetcher, summary),
                *(collect_one(slug, source) for slug, source in sources.items()),
            )
        summary.findings = night.publish_now(ledger, folder)
    await leave_summary(folder)
    if troubled := summary.troubled():
        return Completed(name="Degraded", message=f"kept the rest; not ok: {', '.join(troubled)}")
    return Completed(message=f"{len(summary.results)} scopes ok")


def note_broken(summary: night.Summary, slug: str, scope: str, state: State[Any]) -> None:
    """Count a task that broke, rather than answered, as a failed scope."""
    summary.results.append(night.ScopeResult(slug, scope, "failed", error=state.message))


async def leave_summary(folder: Path) -> None:
    """Leave each provider's outcome and age as a table artifact."""
    columns = ("provider", "health", "offers", "scopes_ok", "scopes", "age_hours", "last_error")
    with open_published(folder) as connection:
        rows = connection.execute(
            f"select {', '.join(columns)} from marts.provider_health order by provider"
        ).fetchall()
    await acreate_table_artifact(
        key="tunecost-night",
        table=[dict(zip(columns, row, strict=True)) for row in rows],
        description="Each provider's outcome and the age of its prices in hours.",
    )


def serve_nightly(cron: str, data: Path) -> None:
    """Serve the flow on a schedule (UTC) from this process until it is stopped.

    Raises:
        UsageError: the cron expression is not one.
    """
    try:
        when = Cron(cron, timezone="UTC")
    except ValueError as error:
        raise night.UsageError(f'{cron!r} is no cron expression, e.g. "0 3 * * *"') from error
    # Called outside an event loop, it returns the deployment itself.
    deployment = cast(
        "RunnerDeployment",
        nightly.to_deployment(
            name="nightly", schedule=when, parameters={"data": str(data)}, concurrency_limit=1
        ),
    )
    serve(deployment)


if __name__ == "__main__":
    serve_nightly("0 3 * * *", Path(os.environ.get("TUNECOST_DATA", "data")).absolute())
