"""A data folder that the main job has filled once, for tests that only read it."""

import shutil
from pathlib import Path

import pytest

from flows.refresh import Summary, refresh
from warehouse.planned import CACHE
from warehouse.reader import LEDGER

PAYLOADS = Path(__file__).parent / "payloads"
# The case of each provider that a healthy night looks like; the others provoke faults.
HEALTHY = {
    "aws": "markets",
    "azure": "markets",
    "gcp": "page_and_skus",
    "linode": "plans_by_region",
    "oci": "parts_and_look_alikes",
    "runpod": "spot_and_one_answer",
    "scaleway": "minute_and_hour",
    "vast": "both_ends",
}


def lay_replay(folder: Path) -> Path:
    """Lay a healthy recorded night in the replay layout."""
    for provider, case in HEALTHY.items():
        target = folder / provider
        shutil.copytree(
            PAYLOADS / provider / case, target, ignore=shutil.ignore_patterns("expected.csv")
        )
        (target / "observed_at").write_text("2026-11-30T03:00:00Z\n")
    return folder


@pytest.fixture(scope="session")
def replay_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_replay(tmp_path_factory.mktemp("replay"))


@pytest.fixture(scope="session")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds the bundled baseline and nothing else. Read only."""
    folder = tmp_path_factory.mktemp("baseline")
    refresh(folder, offline=True)
    return folder


@pytest.fixture(scope="session")
def night(
    tmp_path_factory: pytest.TempPathFactory, replay_dir: Path, baseline: Path
) -> tuple[Path, Summary]:
    """A data folder after one replayed night, and what it came to. Read only."""
    data = tmp_path_factory.mktemp("data")
    shutil.copy(baseline / CACHE, data)  # plans take seconds to make
    return data, refresh(data, replay_dir=replay_dir)


@pytest.fixture
def fresh(tmp_path: Path, filled: Path) -> Path:
    """An empty data folder to write to, with the plans remembered."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(filled / CACHE, folder)
    return folder


@pytest.fixture
def data(fresh: Path, baseline: Path) -> Path:
    """A data folder to write to, as it stands before the first live answer."""
    shutil.copy(baseline / LEDGER, fresh)
    return fresh


@pytest.fixture(scope="session")
def filled(night: tuple[Path, Summary]) -> Path:
    """The data folder alone. Read only."""
    return night[0]
