"""Snapshots: sorted, the same bytes for the same data, harmless in a spreadsheet."""

import csv
import json
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.rows import offer, seen
from tests.test_publish import build
from warehouse.errors import DataFolderError
from warehouse.export import RELATIONS, export_snapshots, neutralise
from warehouse.reader import open_published

HOSTILE = ["=HYPERLINK(0)", "+1+1", "-2+3", "@SUM(A1)", '"quoted", and a comma', "plain"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export")
    rows = [offer(sku, "1.000000001", region="-eu=1") for sku in HOSTILE]
    return build(folder, seen(0, *rows))


def test_a_spreadsheet_runs_nothing(published: Path, tmp_path: Path) -> None:
    with open_published(published) as connection:
        export_snapshots(connection, tmp_path, "csv")
    for name in RELATIONS:
        with (tmp_path / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                for column, cell in row.items():
                    if cell[:1] in ("=", "@", "+") or (cell[:1] == "-" and not number(cell)):
                        pytest.fail(f"{name}.{column}: {cell!r}")
    with (tmp_path / "current_prices.csv").open(newline="", encoding="utf-8") as stream:
        prices = list(csv.DictReader(stream))
    assert {row["sku"].removeprefix("'") for row in prices} == set(HOSTILE)
    assert {row["price_per_hour"] for row in prices} == {"1.000000001"}


def number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def test_parquet_keeps_what_is_written(published: Path, tmp_path: Path) -> None:
    with open_published(published) as connection:
        export_snapshots(connection, tmp_path, "parquet")
    table = pq.read_table(tmp_path / "current_prices.parquet")
    assert set(table["sku"].to_pylist()) == set(HOSTILE)  # no spreadsheet opens it
    assert set(table["price_per_hour"].to_pylist()) == {Decimal("1.000000001")}


def test_the_same_data_in_another_order_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, skus in (("a", HOSTILE), ("b", HOSTILE[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        build(folder, seen(0, *(offer(sku) for sku in skus)))
        with open_published(folder) as connection:
            export_snapshots(connection, folder / "out", "csv")
    for path in sorted((tmp_path / "a" / "out").iterdir()):
        assert path.read_bytes() == (tmp_path / "b" / "out" / path.name).read_bytes(), path.name


def test_the_package_describes_every_column_and_hash(published: Path, tmp_path: Path) -> None:
    import hashlib

    with open_published(published) as connection:
        export_snapshots(connection, tmp_path, "csv")
    package = json.loads((tmp_path / "datapackage.json").read_text())
    for resource in package["resources"]:
        content = (tmp_path / resource["path"]).read_bytes()
        assert resource["bytes"] == len(content)
        assert resource["hash"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        header = content.decode().splitlines()[0].split(",")
        assert [field["name"] for field in resource["schema"]["fields"]] == header


def test_a_folder_that_cannot_be_written_is_named(published: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        open_published(published) as connection,
        pytest.raises(DataFolderError, match="cannot write to"),
    ):
        export_snapshots(connection, tmp_path / "file" / "out", "csv")


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@a", "\t=1", "\r=1"])
def test_what_looks_like_a_formula_gets_an_apostrophe(text: str) -> None:
    assert neutralise(text) == f"'{text}"
    assert neutralise("H100") == "H100"
