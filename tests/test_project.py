"""What the repository promises of itself: lock, wheel, walls."""

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_lock_holds_names_versions_and_hashes_and_no_host() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "--index" not in text
    locked = set(re.findall(r"^([a-z0-9._-]+)==", text, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    for requirement in wanted:
        name = re.split(r"[\[<>=,~! ]", requirement)[0].lower().replace("_", "-")
        assert name in locked, f"{name} is not locked: compile requirements.lock again"
    pinned = len(re.findall(r"^[a-z0-9._-]+==", text, re.MULTILINE))
    assert text.count("--hash=sha256:") >= pinned


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
