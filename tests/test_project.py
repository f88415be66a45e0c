"""What the repository promises of itself: lock, wheel, walls."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def locked() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    asked = [
        Requirement(line.rstrip(" \\")) for line in lines if line.strip() and not line[0].isspace()
    ]
    return {canonicalize_name(one.name): one for one in asked}


def test_the_lock_holds_names_versions_and_hashes_and_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index" not in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    for name in (canonicalize_name(Requirement(one).name) for one in wanted):
        assert name in locked(), f"{name} is not locked: compile requirements.lock again"
    assert all(str(one.specifier).startswith("==") for one in locked().values())
    assert text.count("--hash=sha256:") >= len(locked())


def test_the_lock_names_every_extra_that_is_asked_for() -> None:
    """Older pips, asked for `httpx[http2]`, overlook a lock that pins `httpx` alone: they take the
    newest release instead, and refuse it for want of a hash, on the day when one appears."""
    asked = 0
    for name, pin in locked().items():
        try:
            needs = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # locked for another platform
            continue
        for need in map(Requirement, needs):
            extras = [{"extra": extra} for extra in ("", *pin.extras)]
            if not need.marker or any(need.marker.evaluate(extra) for extra in extras):
                asked += len(need.extras)
                missing = need.extras - locked()[canonicalize_name(need.name)].extras
                assert not missing, f"{name} needs {need}: lock it with its extras"
    assert asked >= 3


def test_every_direct_dependency_is_imported_somewhere() -> None:
    """One that nothing uses any more is dropped."""
    modules = {
        "vl-convert-python": "vl_convert",
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    code = "\n".join(
        path.read_text()
        for room in ("scrapers", "warehouse", "flows", "dashboards")
        for path in (ROOT / room).rglob("*.py")
    )
    for requirement in project["dependencies"]:
        name = re.split(r"[\[<>=,~! ]", requirement)[0].lower()
        module = modules.get(name, name.replace("-", "_"))
        assert re.search(rf"^\s*(import|from) {module}\b", code, re.MULTILINE), name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    return next(folder.glob("*.whl"))


def test_the_wheel_holds_the_four_rooms_and_their_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    rooms = {name.split("/")[0] for name in names}
    assert {r for r in rooms if not r.endswith(".dist-info")} == {
        "flows", "scrapers", "warehouse", "dashboards",
    }  # fmt: skip
    for room in ("flows", "scrapers", "warehouse", "dashboards"):
        for path in (ROOT / room).rglob("*"):
            if path.suffix in {".py", ".csv", ".sql", ".html", ".css", ".js"}:
                assert path.relative_to(ROOT).as_posix() in names


def test_the_installed_wheel_imports_every_provider_and_seed(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import scrapers.collect as c, warehouse.seeds as s, warehouse.publish as p\n"
        "assert c.__file__.startswith(sys.argv[1]), c.__file__\n"
        "found = c.discover()\n"
        "assert all(source.REQUESTS for source in found.values())\n"
        "assert s.load('baseline_offers') and p.load_relations() and p.load_columns()\n"
        "print(len(found))"
    )
    result = subprocess.run(
        [sys.executable, "-I", "-c", script, str(tmp_path)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= 6


def test_no_file_speaks_of_a_registry_host() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    hosts = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian")
    for name in filter(None, files):
        if name == "tests/test_project.py" or not (ROOT / name).is_file():
            continue
        text = (ROOT / name).read_bytes().decode("utf-8", "replace")
        assert not hosts.search(text), name
