"""A night as plain functions: collect, keep, publish. `nightly.py` runs the same on a clock.

Each scope is kept in a transaction of its own as soon as it is judged, and the published file is
swapped in at the end: killed at any moment, the next run continues from what was kept.
"""

from __future__ import annotations

import asyncio
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scrapers import rates
from scrapers.collect import Outcome, archived_runs, collect, discover, replay
from scrapers.errors import SourceError
from scrapers.fetch import Fetcher
from scrapers.offer import Offer
from scrapers.pages import Source
from scrapers.replay import read_observed_at, read_pages
from warehouse import seeds
from warehouse.checks import Finding
from warehouse.ledger import Kept, Ledger, Observation, RunKind, naive
from warehouse.planned import remember
from warehouse.publish import publish
from warehouse.reader import LEDGER, PUBLISHED
from warehouse.sizing.card import Card
from warehouse.sizing.model import ModelSpec
from warehouse.sizing.plans import plan_jobs

ARCHIVE = "payloads"


class UsageError(Exception):
    """The caller asked for something that does not exist; one line, with the nearest names."""


@dataclass(frozen=True)
class ScopeResult:
    """What one scope's run came to."""

    provider: str
    scope: str
    status: str
    offers: int = 0
    changes: int = 0
    withdrawals: int = 0
    rejects: int = 0
    truncated: bool = False
    error: str | None = None
    seconds: float = 0
    notes: tuple[str, ...] = ()
    """What the checks noted of it, though it was kept."""


@dataclass
class Summary:
    """What a run came to, for a person or a log."""

    run_id: str = ""
    results: list[ScopeResult] = field(default_factory=list)
    baseline_offers: int = 0
    rates_error: str | None = None
    findings: list[Finding] = field(default_factory=list)

    def failed(self) -> bool:
        """Tell whether something went wrong, though the rest was kept."""
        return bool(self.troubled())

    def troubled(self) -> list[str]:
        """Return what went wrong: providers, and the exchange rates."""
        bad = sorted({r.provider for r in self.results if r.status in ("failed", "held")})
        return [*bad, *(["exchange rates"] if self.rates_error is not None else [])]


OnResult = Callable[[ScopeResult], None]


def now() -> datetime:
    """Return the time, aware."""
    return datetime.now(UTC)


def ignore(result: ScopeResult) -> None:
    """Report to nobody."""


def choose_sources(names: Sequence[str]) -> dict[str, Source]:
    """Return the named provider modules, or all of them.

    Raises:
        UsageError: a name that no module has, with the nearest ones.
    """
    sources = discover()
    for name in names:
        if name not in sources:
            near = difflib.get_close_matches(name.lower(), sources, n=3, cutoff=0.4)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UsageError(f"no provider module {name!r}{hint} (all: {', '.join(sources)})")
    return {name: sources[name] for name in (names or sources)}


def refresh(
    data: Path,
    names: Sequence[str] = (),
    *,
    replay_dir: Path | None = None,
    offline: bool = False,
    on_result: OnResult = ignore,
    environ: Mapping[str, str] = os.environ,
) -> Summary:
    """Run the night by hand: baseline where nothing is known, live or replayed answers, publish.

    Args:
        data: the data folder.
        names: provider modules to ask; all when empty.
        replay_dir: read recorded answers from here instead of the network.
        offline: ask nobody; publish what is there.
        on_result: called after each scope is kept.
        environ: where providers' keys are looked up.

    Raises:
        UsageError: an unknown provider, or a replay folder that does not exist.
        WarehouseError: the data folder cannot be used, or a check forbids publishing.
    """
    sources = choose_sources(names)
    if replay_dir is not None:
        sources = _recorded_sources(sources, replay_dir, named=bool(names))
    summary = Summary()
    with Ledger(data / LEDGER) as ledger:
        summary.baseline_offers = load_baseline(ledger)
        if replay_dir is not None:
            _replay_all(ledger, sources, replay_dir, summary, on_result)
        elif not offline:
            asyncio.run(_collect_all(ledger, sources, data, summary, on_result, environ))
        summary.findings = publish_now(ledger, data)
    return summary


def reparse(data: Path, names: Sequence[str] = (), on_result: OnResult = ignore) -> Summary:
    """Derive history again from the archived bytes with today's parsers, then publish.

    Raises:
        UsageError: an unknown provider.
        WarehouseError: as for `refresh`.
    """
    sources = choose_sources(names)
    summary = Summary()
    with Ledger(data / LEDGER) as ledger:
        for slug, source in sources.items():
            known: dict[str, int] = {}
            for _, folder in archived_runs(data / ARCHIVE, slug):
                # A run for each night: of two statements about a night the later run's counts.
                summary.run_id = start_run(ledger, "reparse")
                outcomes = replay(source, folder, previous=known, clock=now)
                known |= {o.scope: len(o.offers) + len(o.fees) for o in outcomes}
                for outcome in outcomes:
                    keep(ledger, outcome, source.PROVIDER.pricing_url, summary, on_result)
        summary.findings = publish_now(ledger, data)
    return summary


def start_run(ledger: Ledger, kind: RunKind) -> str:
    """Open a run in the ledger."""
    return ledger.start_run(kind, now(), version("tunecost"))


def load_baseline(ledger: Ledger) -> int:
    """Give each scope that nothing as new is known of the bundled, dated prices; return how many.

    They keep the time at which they were seen, and live answers replace them scope by scope.
    """
    known = ledger.scopes_known()
    rows = seeds.load("baseline_offers")
    groups = [
        ((provider, scope), list(some))
        for (provider, scope), some in groupby(rows, lambda r: (r["provider"], r["scope"]))
    ]
    fresh = [
        (where, some)
        for where, some in groups
        if where not in known
        or naive(datetime.fromisoformat(some[0]["observed_at"])) > known[where]
    ]
    if not fresh:
        return 0
    with ledger.transaction():
        start_run(ledger, "baseline")
        for (provider, scope), some in fresh:
            ledger.keep(
                Observation(
                    provider=provider,
                    scope=scope,
                    status="ok",
                    observed_at=datetime.fromisoformat(some[0]["observed_at"]),
                    offers=[read_offer(row).model_dump() for row in some],
                    source_url=some[0]["source_url"],
                )
            )
    return sum(len(some) for _, some in fresh)


def read_offer(row: Mapping[str, str]) -> Offer:
    """Read an offer from text columns; an empty cell is an absent value.

    Raises:
        SeedError: the contract refuses the row.
    """
    stated = {k: v for k, v in row.items() if k in Offer.model_fields and v != ""}
    try:
        return Offer.model_validate_strings(stated)
    except ValidationError as error:
        line = " ".join(str(error).split())[:200]
        raise seeds.SeedError(f"baseline {row['provider']} {row['sku']}: {line}") from error


def keep(
    ledger: Ledger, outcome: Outcome, pricing_url: str, summary: Summary, on_result: OnResult
) -> Kept:
    """Write one scope's outcome to the ledger and note the result."""
    own = [f.url for f in outcome.fetches if f.url]
    kept = ledger.keep(
        Observation(
            provider=outcome.provider,
            scope=outcome.scope,
            status=outcome.status,
            observed_at=outcome.observed_at,
            offers=[offer.model_dump() for offer in outcome.offers],
            fees=[fee.model_dump() for fee in outcome.fees],
            rejects=[reject.model_dump() for reject in outcome.rejects],
            fetches=[
                asdict(f) | {"fetched_at": f.fetched_at.astimezone(UTC).replace(tzinfo=None)}
                for f in outcome.fetches
            ],
            duplicates=outcome.duplicates,
            truncated=outcome.truncated,
            error=outcome.error,
            seconds=outcome.seconds,
            source_url=own[0] if own else pricing_url,
        )
    )
    result = ScopeResult(
        provider=outcome.provider,
        scope=outcome.scope,
        status=kept.status,
        offers=len(outcome.offers),
        changes=kept.changes,
        withdrawals=kept.withdrawals,
        rejects=len(outcome.rejects),
        truncated=outcome.truncated,
        error=kept.error or outcome.error,
        seconds=outcome.seconds,
        notes=tuple(f"{f.check}: {f.detail}" for f in kept.findings if f.severity == "warn"),
    )
    summary.results.append(result)
    on_result(result)
    return kept


def publish_now(ledger: Ledger, data: Path) -> list[Finding]:
    """Build and swap in the published file."""
    return publish(
        ledger,
        data / PUBLISHED,
        remember(plan_reference_jobs, data),
        published_at=now(),
        version=version("tunecost"),
    )


def plan_reference_jobs(machines: Sequence[tuple[str, float]]) -> Iterable[Mapping[str, Any]]:
    """Plan the seeded jobs on the machine types on sale: the seam between warehouse and sizing."""
    return plan_jobs(seeds.load("jobs"), load_models(), load_cards(), machines)


def load_models() -> dict[str, ModelSpec]:
    """Return the seeded model architectures by Hugging Face id."""
    return {row["hf_id"]: ModelSpec.from_row(row) for row in seeds.load("models")}


def load_cards() -> dict[str, Card]:
    """Return the seeded accelerators by name."""
    return {row["gpu"]: Card.from_row(row) for row in seeds.load("gpus")}


def previous_rows(ledger: Ledger) -> dict[str, dict[str, int]]:
    """Return, per provider, the rows of each scope's last ok run."""
    known: dict[str, dict[str, int]] = {}
    for (provider, scope), rows in ledger.scopes_seen().items():
        known.setdefault(provider, {})[scope] = rows
    return known


async def collect_rates(ledger: Ledger, fetcher: Fetcher, summary: Summary) -> None:
    """Fetch the day's euro reference rates; without them the last known ones serve."""
    try:
        page, fetched = await fetcher.fetch(rates.PROVIDER, "rates", 1, rates.REQUEST)
        ledger.keep_rates([asdict(r) for r in rates.parse(page)], fetched.fetched_at)
    except SourceError as error:
        summary.rates_error = " ".join(str(error).split())


async def _collect_all(
    ledger: Ledger,
    sources: Mapping[str, Source],
    data: Path,
    summary: Summary,
    on_result: OnResult,
    environ: Mapping[str, str],
) -> None:
    previous = previous_rows(ledger)
    summary.run_id = start_run(ledger, "live")

    async def collect_one(slug: str, source: Source) -> None:
        for outcome in await collect(source, fetcher, previous=previous.get(slug), clock=now):
            keep(ledger, outcome, source.PROVIDER.pricing_url, summary, on_result)

    async with Fetcher(data / ARCHIVE, summary.run_id, environ) as fetcher:
        await asyncio.gather(
            collect_rates(ledger, fetcher, summary),
            *(collect_one(slug, source) for slug, source in sources.items()),
        )


def _replay_all(
    ledger: Ledger,
    sources: Mapping[str, Source],
    folder: Path,
    summary: Summary,
    on_result: OnResult,
) -> None:
    previous = previous_rows(ledger)
    summary.run_id = start_run(ledger, "replay")
    if (folder / rates.PROVIDER.slug).is_dir():
        try:
            seen = read_observed_at(folder / rates.PROVIDER.slug) or now()
            for page in read_pages(folder / rates.PROVIDER.slug).get("rates", []):
                ledger.keep_rates([asdict(r) for r in rates.parse(page)], seen)
        except SourceError as error:
            summary.rates_error = " ".join(str(error).split())
    for slug, source in sources.items():
        for outcome in replay(source, folder / slug, previous=previous.get(slug), clock=now):
            keep(ledger, outcome, source.PROVIDER.pricing_url, summary, on_result)


def _recorded_sources(
    sources: Mapping[str, Source], folder: Path, *, named: bool
) -> dict[str, Source]:
    """Return the sources that the replay folder has answers of.

    Raises:
        UsageError: no such folder, or nothing in it that a module could read.
    """
    if not folder.is_dir():
        raise UsageError(f"the replay folder {folder} does not exist or is no folder")
    there = {slug: source for slug, source in sources.items() if (folder / slug).is_dir()}
    if named and (missing := sorted(set(sources) - set(there))):
        raise UsageError(f"{folder} has no folder {' or '.join(missing)}")
    if not there:
        raise UsageError(
            f"{folder} holds no provider's folder; expected e.g. {folder / 'vast'}"
            " (layout: <provider>/<request-name>[.N].<json|html|csv|xml>[.gz])"
        )
    return there
