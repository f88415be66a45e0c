"""How far predictions lie from traced and measured runs: a bound that must not slip."""

from __future__ import annotations

import pytest

from tests.evidence import SHARED, needs_evidence

accuracy = pytest.importorskip("benchmarks.sizing_accuracy", reason="needs the dev extra's scipy")
FACTS = SHARED / "facts"


@pytest.fixture(scope="module")
def models():
    return accuracy.read_models(FACTS)


@pytest.fixture(scope="module")
def traced(models):
    return accuracy.make_cases(accuracy.read_rows(FACTS / "vram_traced.csv"), models)


@pytest.fixture(scope="module")
def measured(models):
    return accuracy.make_cases(accuracy.read_rows(FACTS / "vram_measured.csv"), models)


@needs_evidence
def test_traced_rows(traced):
    cases, refused = traced
    assert refused == []
    assert len(cases) > 200
    score = accuracy.score(cases)
    assert score.median < 0.1
    assert score.p90 < 1
    assert max(abs(case.error) for case in cases) < 0.02


@needs_evidence
def test_measured_rows(measured):
    cases, refused = measured
    assert refused == []
    assert len(cases) > 500
    everything = accuracy.macro(cases)
    assert everything.median < 6
    assert everything.mean < 10
    assert everything.p90 < 21
    assert everything.under < 15
    assert accuracy.score(cases).under < 8.5
    assert 85 <= everything.covered <= 95


@needs_evidence
@pytest.mark.parametrize(
    ("kind", "sharded", "median"),
    [
        ("allocated", False, 3),
        ("allocated", True, 3),
        ("reserved", False, 6),
        ("nvidia-smi", True, 6),
    ],
)
def test_measured_rows_by_kind(measured, kind, sharded, median):
    group = [
        c for c in measured[0] if c.row["kind"] == kind and (c.found.setup.gpus > 1) == sharded
    ]
    assert accuracy.macro(group).median < median


@needs_evidence
def test_better_than_the_naive_baseline_everywhere(measured):
    for name, group in accuracy.by(measured[0], lambda case: case.framework).items():
        ours, naive = accuracy.score(group), accuracy.score(group, accuracy.naive_gib)
        assert ours.median < naive.median, name


@needs_evidence
def test_a_framework_left_out_is_still_predicted(measured):
    left_out = accuracy.leave_out(measured[0])
    assert accuracy.macro(left_out).median < 10


def test_absent_evidence_is_said_plainly(tmp_path, capsys):
    assert accuracy.main([str(tmp_path)]) == 1
    assert "no evidence" in capsys.readouterr().err
