"""The night under Prefect: the same functions, a task per provider and scope, a summary left."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from flows.refresh import Summary
from scrapers.collect import Outcome
from scrapers.offer import Offer
from scrapers.pages import Get, Pages, Provider, pages_of
from tests.server import Answer, Server, serving
from warehouse.ledger import Ledger
from warehouse.reader import open_published

ROOT = Path(__file__).parents[1]


def source(slug: str, server: Server) -> Any:
    """A provider with two scopes, each one page of one price."""

    def parse(pages: Pages) -> Iterator[Offer]:
        for page in pages_of(pages, "prices"):
            yield Offer(
                sku=page.json()["sku"], region="global", market="on_demand", gpu_label="H100 SXM",
                gpu_count=Decimal(1), price_per_hour=Decimal(2), currency="USD",
            )  # fmt: skip

    return SimpleNamespace(
        PROVIDER=Provider(slug, slug, f"https://{slug}.example/", seconds_between_calls=0),
        REQUESTS={
            f"prices-{zone}": Get(server.url(f"/{slug}/{zone}")) for zone in ("north", "south")
        },
        parse=parse,
    )


@dataclass(frozen=True)
class Schedule:
    """`tunecost schedule`, running in a process of its own."""

    log: Path
    api: str


@pytest.fixture(scope="module")
def schedule(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Schedule]:
    folder = tmp_path_factory.mktemp("schedule")
    environ = os.environ | {"PREFECT_HOME": str(folder), "PREFECT_LOGGING_LEVEL": "INFO"}
    command = [sys.executable, "-m", "flows", "schedule", "--cron", "5 4 * * *",
               "--data", str(folder / "data")]  # fmt: skip
    log = folder / "log"
    with log.open("wb") as stream, subprocess.Popen(
        command, env=environ, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 120
        while b"polling for scheduled runs" not in log.read_bytes():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)  # waits for the other process's word
        api = re.search(r"server on (http://\S+)", log.read_text())
        assert api, log.read_text()
        yield Schedule(log, f"{api[1]}/api")
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(30)


def test_schedule_serves_the_flow_from_one_process(schedule: Schedule) -> None:
    deployments = httpx.post(f"{schedule.api}/deployments/filter", json={}).json()
    assert [d["name"] for d in deployments] == ["nightly"]
    clock = deployments[0]["schedules"][0]["schedule"]
    assert (clock["cron"], clock["timezone"]) == ("5 4 * * *", "UTC")
    assert deployments[0]["parameters"]["data"] == str(schedule.log.parent / "data")
    assert "tunecost-nightly" in schedule.log.read_text()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failing_scope_degrades_the_night_and_stops_nothing(
    data: Path, schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    from flows import nightly as clock
    from flows import refresh as night

    async def collect(source: Any, *rest: Any, **named: Any) -> Any:
        if source.PROVIDER.slug == "broken":
            raise AssertionError("a fault of ours")
        return await collect_as_ever(source, *rest, **named)

    def keep(ledger: Ledger, outcome: Outcome, *rest: Any) -> Any:
        if outcome.provider == "unwritten":
            raise OSError("no space left")
        return keep_as_ever(ledger, outcome, *rest)

    collect_as_ever, keep_as_ever = clock.collect, night.keep
    monkeypatch.setattr(clock, "collect", collect)
    monkeypatch.setattr(night, "keep", keep)
    with serving() as server:
        slugs = ("good", "flaky", "broken", "unwritten")
        sources = {slug: source(slug, server) for slug in slugs}
        monkeypatch.setattr(night, "choose_sources", lambda names: sources)
        monkeypatch.setattr(night, "collect_rates", no_rates)
        for slug in sources:
            for zone in ("north", "south"):
                sku = json.dumps({"sku": f"{slug}-{zone}"}).encode()
                server.scripts[f"/{slug}/{zone}"] = [Answer(sku)]
        server.scripts["/flaky/south"] = [Answer(b"gone", 404)]

        async def run_twice() -> tuple[Any, Any, list[Any], list[Any]]:
            first: Any = await clock.nightly(str(data), return_state=True)  # type: ignore[misc]
            second: Any = await clock.nightly(str(data), return_state=True)  # type: ignore[misc]
            async with get_client() as client:
                return first, second, await client.read_task_runs(), await client.read_artifacts()

        with temporary_settings({PREFECT_API_URL: schedule.api}):
            first, second, tasks, artifacts = asyncio.run(run_twice())

    assert first.name == "Degraded"
    assert first.is_completed()
    assert first.message.endswith("not ok: broken, flaky, unwritten, exchange rates")
    assert second.name == "Degraded"
    states = {task.name: task.state_name for task in tasks}
    assert states["collect good"] == "Completed"
    assert states["keep good north"] == "Completed"
    assert states["keep flaky north"] == "Completed"
    assert states["keep flaky south"] == "Failed"
    assert states["collect broken"] == "Failed"
    assert states["keep unwritten north"] == "Failed"
    with open_published(data) as connection:
        live = connection.execute(
            "select sku from marts.current_prices where not is_baseline order by sku"
        ).fetchall()
        changes = connection.execute(
            "select count(*) from marts.price_history where not is_baseline"
        ).fetchone()
    assert live == [("flaky-north",), ("good-north",), ("good-south",)]
    assert changes == (3,)  # the second run of the night wrote nothing anew
    tables = [json.loads(a.data) for a in artifacts if a.key == "tunecost-night"]
    rows = {row["provider"]: row for row in tables[0]}
    assert rows["good"]["health"] == "ok"
    assert rows["flaky"]["health"] == "failed"
    assert "404" in rows["flaky"]["last_error"]
    assert rows["good"]["age_hours"] < 1


async def no_rates(ledger: Ledger, fetcher: Any, summary: Summary) -> None:
    """The test's bank does not answer."""
    summary.rates_error = "no answer"


def test_refresh_never_imports_prefect(data: Path, replay_dir: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from flows.refresh import refresh;"
        " refresh(Path(sys.argv[1]), replay_dir=Path(sys.argv[2])); print('prefect' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, str(data), str(replay_dir)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout == "False\n"


def test_telemetry_is_off_before_prefect_is_imported() -> None:
    script = (
        "import flows.nightly; from prefect.settings import get_current_settings as s;"
        " import os; print(os.environ['DO_NOT_TRACK'], s().server.analytics_enabled)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert result.stdout == "1 False\n"


def test_the_deployment_file_names_a_flow_that_exists() -> None:
    text = (ROOT / "prefect.yaml").read_text()
    assert "entrypoint: flows/nightly.py:nightly" in text
    assert 'cron: "0 3 * * *"' in text
    from flows.nightly import nightly

    assert nightly.name == "tunecost-nightly"
