"""Runs on machines that can be taken away: billed hours, checkpoint interval, deadlines.

Interruptions come at a constant rate per hour of running (exponential gaps). Real ones are
clustered; replayed on published traces the memoryless law is off by a median of 2 % for 4-hour and
7 % for 12-hour jobs, and by far more where the *rate* is wrong: know the rate first. A month's
reclaim share (the buckets that clouds publish) is not an hourly rate and is never read as one here.

Symbols, hours throughout: W work without interruption, tau work between checkpoints, C blocking
save, lam interruptions per hour of running, R billed restart, R0 first start. The job is
k = ceil(W / tau) segments of tau + C, the last one shorter.

    E[billed] = R0 + sum_i (1 / lam + R) (exp(lam s_i) - 1)

Sources: J. W. Young, CACM 17:9 (1974), first-order optimum; J. T. Daly, FGCS 22 (2006),
equations 20 and 37, restart exposed to interruption and the higher-order optimum.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from warehouse.sizing.errors import SizingError

HOPELESS_HOURS: Final = 100_000.0
"""Expected billed hours above which a run is called one that never finishes (eleven years)."""

_NEVER: Final = 1e-12
"""Expected interruptions below which there are none: 1 / lam would lose all digits."""


class SpotRun(NamedTuple):
    """What a spot run is expected to bill.

    `billed_hours` counts every hour the machine is up, lost work and restarts included;
    `interruptions` is their expected number, `checkpoints` the saves of a run without any;
    `rework_hours` is what is billed beyond the first start and the work itself.
    """

    billed_hours: float
    interruptions: float
    checkpoints: int
    rework_hours: float


def _check(work_hours: float, rate_per_hour: float, **hours: float) -> None:
    if not (math.isfinite(work_hours) and work_hours > 0):
        raise SizingError(f"work is {work_hours} hours; it must be positive")
    if not (math.isfinite(rate_per_hour) and rate_per_hour >= 0):
        raise SizingError(
            f"the interruption rate is {rate_per_hour} per hour; it must be 0 or more"
        )
    for name, value in hours.items():
        if not (math.isfinite(value) and value >= 0):
            raise SizingError(f"{name} is {value}; it must be 0 or more")


def split_segments(
    work_hours: float, interval_hours: float, save_hours: float
) -> tuple[int, float, float]:
    """The run as (full segments, hours of each with its save, hours of the last with its save).

    The last segment carries what is left of the work and the final save; there is always one.

    Raises:
        SizingError: the interval is not positive.
    """
    if not (math.isfinite(interval_hours) and interval_hours > 0):
        raise SizingError(f"the checkpoint interval is {interval_hours} hours; it must be positive")
    count = max(1, math.ceil(work_hours / interval_hours - 1e-9))
    rest = work_hours - (count - 1) * interval_hours
    return count - 1, interval_hours + save_hours, rest + save_hours


def expected_run(
    work_hours: float,
    interval_hours: float,
    save_hours: float,
    rate_per_hour: float,
    restart_hours: float,
    first_start_hours: float | None = None,
    *,
    notice_kept: float = 0.0,
    restart_exposed: bool = False,
) -> SpotRun:
    """Expected billed hours of a run with checkpoints.

    Args:
        work_hours: training time without interruption, W.
        interval_hours: work between checkpoints, tau.
        save_hours: how long a checkpoint blocks the run, C.
        rate_per_hour: interruptions per hour of running, lam; 0 for on-demand.
        restart_hours: billed start after an interruption, R.
        first_start_hours: billed first start, R0; as `restart_hours` when None.
        notice_kept: probability q that the last save fits in the notice, so that no work is lost.
            Between 0 and 1 the two ends are blended (within 0.5 % of a simulation).
        restart_exposed: whether a restart can itself be interrupted (Daly's form).

    Returns: the expectation. `billed_hours` is infinite where a segment can hardly ever finish
    (the exponent overflows or `HOPELESS_HOURS` is passed): such a run must be refused.

    Raises:
        SizingError: an argument is negative, not finite, or a probability outside 0..1.
    """
    first = restart_hours if first_start_hours is None else first_start_hours
    _check(
        work_hours,
        rate_per_hour,
        save_hours=save_hours,
        restart_hours=restart_hours,
        first_start_hours=first,
    )
    if not 0.0 <= notice_kept <= 1.0:
        raise SizingError(f"notice_kept is {notice_kept}; it must lie between 0 and 1")
    full, segment, last = split_segments(work_hours, interval_hours, save_hours)
    count = full + 1
    clean = work_hours + count * save_hours
    if rate_per_hour * clean < _NEVER:
        return SpotRun(first + clean, 0.0, count, clean - work_hours)
    try:
        grown = full * math.expm1(rate_per_hour * segment) + math.expm1(rate_per_hour * last)
        if restart_exposed:
            lost = grown * math.exp(rate_per_hour * restart_hours) / rate_per_hour
        else:
            lost = grown * (1.0 / rate_per_hour + restart_hours)
    except OverflowError:
        grown = lost = math.inf
    kept = clean + rate_per_hour * clean * restart_hours
    kept_count = rate_per_hour * clean
    if notice_kept == 1.0:
        billed, interruptions = kept, kept_count
    elif notice_kept == 0.0:
        billed, interruptions = lost, grown
    else:
        billed = notice_kept * kept + (1.0 - notice_kept) * lost
        interruptions = notice_kept * kept_count + (1.0 - notice_kept) * grown
    if billed > HOPELESS_HOURS:
        return SpotRun(math.inf, math.inf, count, math.inf)
    return SpotRun(first + billed, interruptions, count, billed - work_hours)


def young_interval(save_hours: float, rate_per_hour: float) -> float:
    """Young's interval, sqrt(2 C / lam), in hours; infinite where nothing interrupts."""
    if rate_per_hour <= 0.0:
        return math.inf
    return math.sqrt(2.0 * save_hours / rate_per_hour)


def daly_interval(save_hours: float, rate_per_hour: float) -> float:
    """Daly's interval (2006, equation 37), in hours; infinite where nothing interrupts.

    sqrt(2 C M) (1 + sqrt(C / 2M) / 3 + (C / 2M) / 9) - C for C < 2 M, else M; M = 1 / lam.
    """
    if rate_per_hour <= 0.0:
        return math.inf
    mean = 1.0 / rate_per_hour
    if save_hours >= 2.0 * mean:
        return mean
    half = save_hours / (2.0 * mean)
    return (
        math.sqrt(2.0 * save_hours * mean) * (1.0 + math.sqrt(half) / 3.0 + half / 9.0) - save_hours
    )


def choose_interval(
    work_hours: float, save_hours: float, rate_per_hour: float, floor_hours: float = 1.0 / 60.0
) -> float:
    """The checkpoint interval to run with: Daly's, within a minute and the whole job.

    Args:
        work_hours: W; without interruptions the job saves once, at its end.
        save_hours: C.
        rate_per_hour: lam.
        floor_hours: no interval below this; programs save between steps, not all the time.

    Raises:
        SizingError: an argument is negative or not finite.
    """
    _check(work_hours, rate_per_hour, save_hours=save_hours, floor_hours=floor_hours)
    best = max(daly_interval(save_hours, rate_per_hour), floor_hours)
    if best >= work_hours:
        return work_hours
    # equal segments, none of them short: the better of the two counts around Daly's
    more = math.ceil(work_hours / best)
    choices = (work_hours / max(1, more - 1), work_hours / more)
    return min(
        choices,
        key=lambda tau: expected_run(work_hours, tau, save_hours, rate_per_hour, 0.0).billed_hours,
    )


def break_even_ratio(
    run: SpotRun, work_hours: float, save_hours: float, start_hours: float
) -> float:
    """The spot / on-demand price ratio below which spot pays: (R0 + W + C) / E[billed].

    0.0 where the spot run never finishes.
    """
    if not math.isfinite(run.billed_hours):
        return 0.0
    return (start_hours + work_hours + save_hours) / run.billed_hours


class Spread(NamedTuple):
    """How long a run may take, in hours: mean, standard deviation, and the least it can be.

    `undisturbed` is the probability that nothing interrupts it, so that it takes just `floor`.
    """

    mean: float
    deviation: float
    floor: float
    undisturbed: float


def spread_run(
    work_hours: float,
    interval_hours: float,
    save_hours: float,
    rate_per_hour: float,
    restart_hours: float,
    first_start_hours: float | None = None,
    *,
    wait_hours: float = 0.0,
) -> Spread:
    """Mean and deviation of a run's hours, with the mean wait for capacity after each interruption.

    One segment of s hours is retried until a gap exceeds s. The number of failures is geometric
    with success probability p = exp(-lam s); each failure costs a gap cut off at s (mean
    1/lam - s e^(-lam s) / (1 - e^(-lam s))), a restart R and a wait (exponential, mean
    `wait_hours`). Segments are independent: their variances add.

    `wait_hours` of 0 gives billed hours; more gives wall-clock hours.

    Raises:
        SizingError: an argument is negative or not finite.
    """
    first = restart_hours if first_start_hours is None else first_start_hours
    _check(work_hours, rate_per_hour, save_hours=save_hours, wait_hours=wait_hours)
    full, segment, last = split_segments(work_hours, interval_hours, save_hours)
    floor = first + full * segment + last
    if rate_per_hour * floor < _NEVER:
        return Spread(floor, 0.0, floor, 1.0)
    mean, variance = first, 0.0
    for count, hours in ((full, segment), (1, last)):
        if not count:
            continue
        one_mean, one_variance = _segment_moments(hours, rate_per_hour, restart_hours, wait_hours)
        mean += count * one_mean
        variance += count * one_variance
    return Spread(mean, math.sqrt(variance), floor, math.exp(-rate_per_hour * (floor - first)))


def _segment_moments(hours: float, rate: float, restart: float, wait: float) -> tuple[float, float]:
    """Mean and variance of the hours that one segment takes in the end."""
    exponent = rate * hours
    if exponent > 500.0:
        return math.inf, math.inf
    success = math.exp(-exponent)
    failure = -math.expm1(-exponent)
    if failure == 0.0:
        return hours, 0.0
    gap = 1.0 / rate - hours * success / failure
    gap_square = 2.0 / rate**2 - (hours**2 + 2.0 * hours / rate) * success / failure
    cost = gap + restart + wait
    cost_variance = max(0.0, gap_square - gap**2) + wait**2
    failures = failure / success
    failures_variance = failure / success**2
    return hours + failures * cost, failures * cost_variance + failures_variance * cost**2


def finish_within(spread: Spread, deadline_hours: float) -> float:
    """Probability that a run ends by a deadline, 0..1.

    With the exact chance of no interruption the run takes its floor; otherwise the hours beyond it
    are taken as gamma-distributed with the run's own mean and deviation (within 0.03 of a
    simulation over the cases in the tests).
    """
    if deadline_hours < spread.floor - 1e-12:
        return 0.0
    disturbed = 1.0 - spread.undisturbed
    if disturbed <= 0.0:
        return 1.0
    if not math.isfinite(spread.deviation):
        return spread.undisturbed
    excess = (spread.mean - spread.floor) / disturbed
    square = (spread.deviation**2 + (spread.mean - spread.floor) ** 2) / disturbed
    variance = square - excess**2
    if variance <= 0.0:
        return 1.0 if deadline_hours >= spread.floor + excess else spread.undisturbed
    share = gamma_share(excess**2 / variance, (deadline_hours - spread.floor) * excess / variance)
    return spread.undisturbed + disturbed * share


def quantile_hours(spread: Spread, probability: float) -> float:
    """The hours that a run stays within with a given probability.

    Raises:
        SizingError: the probability is not between 0 and 1.
    """
    if not 0.0 < probability < 1.0:
        raise SizingError(f"probability is {probability}; it must lie between 0 and 1")
    if probability <= spread.undisturbed:
        return spread.floor
    if not math.isfinite(spread.deviation):
        return math.inf
    low, high = spread.floor, spread.mean + 10.0 * spread.deviation
    while finish_within(spread, high) < probability:
        high = spread.floor + 2.0 * (high - spread.floor)
    for _ in range(60):
        middle = 0.5 * (low + high)
        if finish_within(spread, middle) < probability:
            low = middle
        else:
            high = middle
    return high


def gamma_share(shape: float, x: float) -> float:
    """The regularised lower incomplete gamma function P(shape, x).

    Series below shape + 1, Lentz's continued fraction above (Numerical Recipes, section 6.2).
    """
    if x <= 0.0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1.0:
        term = total = 1.0 / shape
        denominator = shape
        for _ in range(500):
            denominator += 1.0
            term *= x / denominator
            total += term
            if abs(term) < abs(total) * 1e-12:
                break
        return min(1.0, total * front)
    tiny = 1e-300
    b = x + 1.0 - shape
    c = 1.0 / tiny
    d = 1.0 / b
    fraction = d
    for i in range(1, 500):
        an = -i * (i - shape)
        b += 2.0
        d = an * d + b
        d = 1.0 / (d if abs(d) > tiny else tiny)
        c = b + an / c
        c = c if abs(c) > tiny else tiny
        step = d * c
        fraction *= step
        if abs(step - 1.0) < 1e-12:
            break
    return max(0.0, 1.0 - front * fraction)
