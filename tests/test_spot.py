"""Spot arithmetic against worked values, a simulation written here, and its own properties."""

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.evidence import SHARED, needs_evidence
from warehouse.sizing.errors import SizingError
from warehouse.sizing.spot import (
    break_even_ratio,
    choose_interval,
    daly_interval,
    expected_run,
    finish_within,
    gamma_share,
    quantile_hours,
    spread_run,
    young_interval,
)

SECOND = 1 / 3600
MINUTE = 1 / 60

# W, tau, C, lam, R, expected billed, expected interruptions, billed with the restart exposed.
# Values of the closed form as worked in the published table (five digits), R0 = R.
WORKED = {
    "A": (4, 0.5, 5 * SECOND, 0.05, 0.10, 4.1821, 0.2031, 4.1822),
    "B": (4, 0.5, 5 * SECOND, 0.50, 0.10, 4.8866, 2.2793, 4.8924),
    "C": (12, 1.0, 3 * MINUTE, 0.10, 0.25, 13.8674, 1.3285, 13.8716),
    "D": (12, 1.0, 6 * MINUTE, 0.30, 0.25, 17.0616, 4.6916, 17.1067),
    "E": (48, 2.0, 15 * MINUTE, 0.10, 0.75, 65.8493, 6.0557, 66.0239),
    "F": (4, 4.0, 5 * SECOND, 0.30, 0.10, 8.0705, 2.3215, 8.0740),
    "G": (12, 0.1, 3 * MINUTE, 0.10, 0.25, 18.8391, 1.8136, 18.8448),
    "H": (12, 1.0, 3 * MINUTE, 0.00007026, 0.25, 12.8507, 0.0009, 12.8507),
}
BREAK_EVEN = {
    "A": 0.981, "B": 0.839, "C": 0.887, "D": 0.724,
    "E": 0.744, "F": 0.508, "G": 0.653, "H": 0.957,
}  # fmt: skip
BEST = {  # Young, Daly
    "A": (0.2357, 0.2348),
    "B": (0.0745, 0.0736),
    "C": (1.0, 0.9669),
    "D": (0.8165, 0.7512),
    "E": (2.2361, 2.0725),
}
P90 = {"A": 4.46, "B": 5.73, "C": 15.23, "D": 19.85, "E": 72.93, "F": 14.67, "G": 19.47}


@pytest.mark.parametrize("case", WORKED)
def test_worked_values(case):
    work, tau, save, rate, restart, billed, interruptions, exposed = WORKED[case]
    run = expected_run(work, tau, save, rate, restart)
    assert run.billed_hours == pytest.approx(billed, abs=6e-5)
    assert run.interruptions == pytest.approx(interruptions, abs=6e-5)
    both = expected_run(work, tau, save, rate, restart, restart_exposed=True)
    assert both.billed_hours == pytest.approx(exposed, abs=6e-5)
    assert break_even_ratio(run, work, save, restart) == pytest.approx(BREAK_EVEN[case], abs=6e-4)


@pytest.mark.parametrize("case", BEST)
def test_best_intervals(case):
    _, _, save, rate, *_ = WORKED[case]
    assert young_interval(save, rate) == pytest.approx(BEST[case][0], abs=6e-5)
    assert daly_interval(save, rate) == pytest.approx(BEST[case][1], abs=6e-5)


@pytest.mark.parametrize(
    ("kept", "billed"), [(0.0, 16.162), (0.5, 14.915), (0.9, 14.008), (1.0, 13.795)]
)
def test_notice_saves_work(kept, billed):
    run = expected_run(12, 1, 3 * MINUTE, 0.30, 0.25, notice_kept=kept)
    assert run.billed_hours == pytest.approx(billed, rel=0.005)


def simulate(rng, work, tau, save, rate, restart, wait=0.0):
    """One run by the clock: (billed hours, hours with waiting)."""
    billed, waited, done = restart, 0.0, 0.0
    gap = rng.expovariate(rate)
    while done < work - 1e-12:
        step = min(tau, work - done) + save
        if gap >= step:
            gap -= step
            billed += step
            done += min(tau, work - done)
        else:
            billed += gap + restart
            waited += rng.expovariate(1 / wait) if wait else 0.0
            gap = rng.expovariate(rate)
    return billed, billed + waited


GRID = [
    (work, tau, save, rate, 0.2)
    for work, tau in ((3.0, 0.5), (10.0, 1.0), (10.0, 3.0))
    for save in (10 * SECOND, 5 * MINUTE)
    for rate in (0.02, 0.1, 0.4)
]


@pytest.mark.parametrize("case", GRID)
def test_simulation_agrees_within_one_percent(case):
    rng = random.Random(f"{case}")
    runs = [simulate(rng, *case)[0] for _ in range(12_000)]
    mean = sum(runs) / len(runs)
    assert expected_run(*case).billed_hours == pytest.approx(mean, rel=0.01)
    spread = spread_run(*case)
    assert spread.mean == pytest.approx(expected_run(*case).billed_hours, rel=1e-9)
    deviation = math.sqrt(sum((run - mean) ** 2 for run in runs) / len(runs))
    assert spread.deviation == pytest.approx(deviation, rel=0.05)
    for q in (0.5, 0.9):
        deadline = sorted(runs)[int(q * len(runs))]
        share = sum(run <= deadline + 1e-9 for run in runs) / len(runs)
        assert finish_within(spread, deadline + 1e-6) == pytest.approx(share, abs=0.05)


@pytest.mark.parametrize("case", P90)
def test_ninetieth_percentile(case):
    work, tau, save, rate, restart, *_ = WORKED[case]
    spread = spread_run(work, tau, save, rate, restart)
    assert quantile_hours(spread, 0.9) == pytest.approx(P90[case], rel=0.02)


def test_waiting_lengthens_the_clock_not_the_bill():
    case = (12, 1.0, 6 * MINUTE, 0.30, 0.25)
    clock = spread_run(*case, wait_hours=0.5)
    assert clock.mean == pytest.approx(19.41, abs=0.01)  # 17.06 billed + 4.69 x 0.5 h
    assert spread_run(*case).mean == pytest.approx(17.0616, abs=6e-5)


def test_no_checkpoint_never_ends():
    day = expected_run(24, 24, 5 * SECOND, 0.3, 0.1)
    assert day.billed_hours == pytest.approx(4600, rel=0.02)
    month = expected_run(730, 730, 5 * SECOND, 0.3, 0.1)
    assert math.isinf(month.billed_hours)
    assert break_even_ratio(month, 730, 5 * SECOND, 0.1) == 0.0
    assert quantile_hours(spread_run(7300, 7300, 0.01, 0.5, 0.1), 0.5) == math.inf


def test_on_demand_has_no_rework():
    run = expected_run(10, 10, 0.1, 0.0, 0.2)
    assert run.billed_hours == pytest.approx(10.3)
    assert run.interruptions == 0
    assert finish_within(spread_run(10, 10, 0.1, 0.0, 0.2), 10.3) == 1.0
    assert finish_within(spread_run(10, 10, 0.1, 0.0, 0.2), 10.2) == 0.0


@pytest.mark.parametrize(
    ("shape", "x", "share"),
    [(1.0, 1.0, 1 - math.exp(-1)), (0.5, 0.5, math.erf(math.sqrt(0.5))), (3.0, 0.0, 0.0),
     (2.0, 5.0, 1 - 6 * math.exp(-5)), (30.0, 20.0, 0.0218)],
)  # fmt: skip
def test_incomplete_gamma(shape, x, share):
    assert gamma_share(shape, x) == pytest.approx(share, abs=1e-4)


@pytest.mark.parametrize(
    "arguments",
    [(0, 1, 0.1, 0.1, 0.1), (1, 0, 0.1, 0.1, 0.1), (1, 1, -0.1, 0.1, 0.1), (1, 1, 0.1, -1, 0.1),
     (1, 1, 0.1, math.nan, 0.1), (math.inf, 1, 0.1, 0.1, 0.1)],
)  # fmt: skip
def test_refusals(arguments):
    with pytest.raises(SizingError):
        expected_run(*arguments)


HOURS = st.floats(0.05, 50)
RATES = st.floats(0.0, 1.0)


@given(HOURS, HOURS, st.floats(0, 0.5), RATES, st.floats(0, 1), st.floats(1.0, 3.0))
def test_more_of_anything_never_bills_less(work, tau, save, rate, restart, factor):
    base = expected_run(work, tau, save, rate, restart).billed_hours
    assert expected_run(work, tau, save, rate * factor, restart).billed_hours >= base - 1e-9
    assert expected_run(work, tau, save * factor, rate, restart).billed_hours >= base - 1e-9
    assert expected_run(work, tau, save, rate, restart * factor).billed_hours >= base - 1e-9
    assert expected_run(work * factor, tau, save, rate, restart).billed_hours >= base - 1e-9
    assert base >= work


@given(HOURS, st.floats(0.001, 0.5), st.floats(0.001, 0.5))
def test_chosen_interval_is_near_the_best(work, save, rate):
    chosen = choose_interval(work, save, rate)
    billed = expected_run(work, chosen, save, rate, 0.2).billed_hours
    for count in range(1, 60):
        other = expected_run(work, work / count, save, rate, 0.2).billed_hours
        assert billed <= other * 1.03


@given(HOURS, HOURS, st.floats(0.0, 0.5), st.floats(0.001, 0.5), st.floats(0.05, 0.95))
def test_quantile_inverts_the_probability(work, tau, save, rate, probability):
    spread = spread_run(work, tau, save, rate, 0.1)
    hours = quantile_hours(spread, probability)
    if math.isfinite(hours):
        assert finish_within(spread, hours) >= probability - 1e-6
        assert hours >= spread.floor


def up_runs(trace):
    """(hours up, whether it is cut by the end of the trace) of each spell with all nodes there."""
    tick = trace["gap_seconds"] / 3600
    most = max(value for value, _ in trace["rle"])
    spells = []
    for value, ticks in trace["rle"]:
        if value == most:
            spells.append(ticks * tick)
    return spells


def replay(spells, start, offset, work, tau, save, restart):
    """Billed hours of a run begun inside a spell; None when the trace ends first."""
    billed, done = 0.0, 0.0
    left = spells[start] - offset
    for spell in range(start, len(spells)):
        if spell > start:
            left = spells[spell]
        if left < restart:
            billed += left
            continue
        left -= restart
        billed += restart
        while done < work - 1e-9:
            step = min(tau, work - done) + save
            if left < step:
                billed += left
                break
            left -= step
            billed += step
            done += min(tau, work - done)
        if done >= work - 1e-9:
            return billed
    return None


@needs_evidence
def test_replays_real_preemptions_within_fifteen_percent():
    """Fed with a trace's own rate, the law bills what a replay of the trace bills."""
    path = SHARED / "traces" / "skypilot_spot_traces_rle.json"
    errors = []
    for name, trace in json.loads(path.read_text())["traces"].items():
        spells = up_runs(trace)
        rate = (len(spells) - 1) / sum(spells)
        bills = []
        for index, hours in enumerate(spells):
            for hour in range(int(hours) + 1):
                bill = replay(spells, index, min(hour, hours), 4, 0.5, 5 * SECOND, 0.1)
                if bill is not None:
                    bills.append(bill)
        if len(bills) < 20:
            continue
        law = expected_run(4, 0.5, 5 * SECOND, rate, 0.1, restart_exposed=True)
        errors.append((law.billed_hours / (sum(bills) / len(bills)) - 1, name))
    assert len(errors) >= 20
    within = sum(abs(error) <= 0.15 for error, _ in errors)
    assert within / len(errors) >= 0.85, sorted(errors)
