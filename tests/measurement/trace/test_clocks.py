from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rankslice.measurement.trace.clocks import (
    MAX_DRIFT,
    SAME,
    Clock,
    Samples,
    clocks_of_boards,
    fit_clock,
    nothing,
    samples_by_board,
    samples_in,
)

START_NS = 10**15
S = 10**9
OFFSET_NS = 10_000_000
DRIFT = 50e-6
REMOVED_NS = 50_000


@dataclass(frozen=True)
class Other:
    """A clock to compare with: synthetic, and so known."""

    offset_ns: int = OFFSET_NS
    drift: float = DRIFT
    way_ns: float = 30_000.0
    """Of a message, at least."""
    uneven: float = 0.0
    """By which share of it the way there is longer, and the way back shorter."""

    def at(self, times_ns: NDArray[Any]) -> NDArray[np.float64]:
        """Return by how much the other clock is ahead, in nanoseconds."""
        ahead_ns: NDArray[np.float64] = self.offset_ns + self.drift * (times_ns - START_NS)
        return ahead_ns

    def samples(self, begin_ns: int, seed: int, *, kept: int = 8) -> Samples:
        """Return the samples with the shortest round trips among fifty messages.

        Each waits for an exponential time on each way, and one in ten for much longer.
        """
        random = np.random.default_rng(seed)
        waits = random.exponential(20e3, (2, 50))
        waits += (random.random((2, 50)) < 0.1) * random.exponential(500e3, (2, 50))
        there = self.way_ns * (1 + self.uneven) + waits[0]
        back = self.way_ns * (1 - self.uneven) + waits[1]
        sent = begin_ns + 300_000 * np.arange(50)
        answered = sent + there
        found = np.column_stack(
            [sent + (there + back) / 2, answered + self.at(answered), there + back]
        )
        return found[np.argsort(found[:, 2])][:kept].astype(np.int64)

    def error_ns(self, clock: Clock, begin_ns: int, end_ns: int) -> float:
        """Return how far a line is from this clock, at most."""
        times = np.linspace(begin_ns, end_ns, 100).astype(np.int64)
        return float(np.max(np.abs(clock.convert(times) - times - self.at(times))))


@pytest.mark.parametrize("seconds", [0.1, 1, 10, 1000])
@pytest.mark.parametrize("drift", [DRIFT, 0.0, -100e-6])
def test_offset_and_drift_are_removed_but_for_less_than_the_bound(
    seconds: float, drift: float
) -> None:
    other, end_ns = Other(drift=drift), START_NS + round(seconds * S)
    for seed in range(20):
        samples = np.concatenate([other.samples(START_NS, seed), other.samples(end_ns, 99 - seed)])
        clock = fit_clock(samples, START_NS, end_ns)
        assert other.error_ns(clock, START_NS, end_ns) <= clock.error_ns < REMOVED_NS


def test_ways_of_unlike_length_are_within_the_bound() -> None:
    other, end_ns = Other(uneven=1.0), START_NS + 10 * S
    samples = np.concatenate([other.samples(START_NS, 1), other.samples(end_ns, 2)])
    clock = fit_clock(samples, START_NS, end_ns)
    error_ns = other.error_ns(clock, START_NS, end_ns)
    assert 0.5 * other.way_ns < error_ns <= clock.error_ns


def test_a_single_burst_bounds_the_error_by_what_clocks_may_drift() -> None:
    other, begin_ns = Other(drift=-0.9 * MAX_DRIFT), START_NS - 20 * S
    clock = fit_clock(other.samples(START_NS, 3), begin_ns, START_NS)
    assert other.error_ns(clock, begin_ns, START_NS) <= clock.error_ns
    assert 20 * S * MAX_DRIFT < clock.error_ns < 1.1 * 20 * S * MAX_DRIFT


def test_a_clock_that_changes_its_rate_has_a_larger_bound() -> None:
    slow, fast = Other(drift=0.0), Other(drift=100e-6)
    middle = fast.samples(START_NS + 50 * S, 5)
    even = [fast.samples(START_NS, 4), middle, fast.samples(START_NS + 100 * S, 6)]
    uneven = [even[0], slow.samples(START_NS + 50 * S, 5), even[2]]
    errors_ns = [
        fit_clock(np.concatenate(found), START_NS, START_NS + 100 * S).error_ns
        for found in (even, uneven)
    ]
    # The line misses the middle by 5 ms, less where weights let it move.
    assert errors_ns[0] < REMOVED_NS < 1_000_000 < errors_ns[1]


def test_slow_answers_count_for_little() -> None:
    near, far = Other(), Other(offset_ns=OFFSET_NS, way_ns=1e6, uneven=0.8)
    ends = [near.samples(START_NS, 7), near.samples(START_NS + 10 * S, 8)]
    between = [far.samples(START_NS + second * S, second, kept=1) for second in range(1, 10)]
    clock = fit_clock(np.concatenate([*ends, *between]), START_NS, START_NS + 10 * S)
    assert near.error_ns(clock, START_NS, START_NS + 10 * S) <= clock.error_ns < REMOVED_NS


def test_boards_are_compared_through_the_launcher_where_ranks_have_not_done_so() -> None:
    launcher = Other(offset_ns=-7 * S, drift=20e-6)  # told from the source's board
    board = Other(offset_ns=3 * S, drift=-30e-6)  # the launcher, told from another board
    spans = {"a": (START_NS, START_NS + 10 * S), "b": (START_NS, START_NS + 10 * S)}
    told = {
        "a": np.concatenate([launcher.samples(START_NS + n * S, n, kept=1) for n in range(10)]),
        "b": np.concatenate([board.samples(START_NS + n * S, 50 + n, kept=1) for n in range(10)]),
    }
    clocks = clocks_of_boards("a", spans, {}, told)
    assert SAME == clocks["a"]
    times = np.linspace(*spans["b"], 100).astype(np.int64)
    by_launcher = times + board.at(times)
    # The inverse of x + offset + drift (x - START), solved for x.
    ahead = by_launcher - START_NS - launcher.offset_ns
    true = START_NS + ahead / (1 + launcher.drift)
    assert np.max(np.abs(clocks["b"].convert(times) - true)) <= clocks["b"].error_ns < 1e6
    assert math.inf == clocks_of_boards("a", spans, {}, {"b": told["b"]})["b"].error_ns


def test_nothing_is_known_without_samples() -> None:
    clock = fit_clock(nothing(), START_NS, START_NS + S)
    assert math.inf == clock.error_ns
    assert [START_NS] == clock.convert(np.array([START_NS])).tolist()


def test_the_inverse_of_a_line_leads_back() -> None:
    clock = Clock(START_NS, 3 * S, 200e-6)
    times = START_NS + np.arange(0, 10**12, 10**10)
    assert np.max(np.abs(clock.inverse().convert(clock.convert(times)) - times)) <= 1


@pytest.mark.parametrize(
    "found",
    [None, "x", 3, [1], [[1, 2]], [[1, 2, -3]], [[1, 2, 3.5]], [[1, True, 3]], [[1, 2, 1 << 62]]],
)
def test_what_are_no_samples_is_refused(found: object) -> None:
    assert samples_in(found) is None
    assert samples_by_board({"edge01": found}) is None


def test_samples_are_read() -> None:
    samples = samples_by_board({"edge01": [[1, 2, 3]], "edge02": []})
    assert samples is not None
    assert [[1, 2, 3]] == samples["edge01"].tolist()
    assert (0, 3) == samples["edge02"].shape


@pytest.mark.parametrize("launcher", [False, True])
def test_samples_that_no_clocks_can_have_tell_nothing(*, launcher: bool) -> None:
    absurd = samples_in([[1, 1, 1], [1 + S, 1 << 59, 1], [1 + 2 * S, 5, 1]])
    assert absurd is not None
    by_launcher = {"here": absurd, "there": absurd} if launcher else {}
    by_ranks = {} if launcher else {"there": absurd}
    clocks = clocks_of_boards("here", {"there": (0, 3 * S)}, by_ranks, by_launcher)
    assert math.isinf(clocks["there"].error_ns)
