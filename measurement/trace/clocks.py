"""The clocks of boards, compared with one of them by offset and drift.

A sample is a message that was answered: the clock of this board in the middle of the round trip,
what the other clock showed when it answered, and the length of the round trip. It answered within
the round trip, so the true offset lies within half of it, whatever the two ways took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int64]
"""Nanoseconds, of shape [n, 3]: this clock, the other clock, the round trip."""

Floats = NDArray[np.floating[Any]]

MAX_DRIFT = 500e-6
"""How much faster than another one a clock may run. Linux disciplines its clock within this."""
_ABSURD_DRIFT = 0.01
"""Samples that show more are none of clocks."""
_USUAL_DRIFT = 50e-6
"""Of the quartz of a board: what is assumed as far as samples say nothing."""
_BINS = 32
_KEPT_IN_A_BIN = 8
_MIN_TRIP_NS = 200.0
"""Round trips are weighted as if none was shorter."""


@dataclass(frozen=True, slots=True)
class Clock:
    """What another clock shows, told from this one: a straight line."""

    at_ns: int = 0
    """A time of this clock."""
    offset_ns: int = 0
    """How much the other clock was ahead then."""
    drift: float = 0.0
    """How much this grows per nanosecond of this clock."""
    error_ns: float = 0.0
    """Bound of the error over the time for which the line was fitted, if both clocks run evenly.
    Infinite: nothing is known of the other clock."""

    def convert(self, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return times of this clock as times of the other one, in nanoseconds."""
        grown = np.rint(self.drift * (times_ns - self.at_ns)).astype(np.int64)
        converted: NDArray[np.int64] = times_ns + self.offset_ns + grown
        return converted

    def inverse(self) -> Clock:
        drift = -self.drift / (1 + self.drift)
        return Clock(self.at_ns + self.offset_ns, -self.offset_ns, drift, self.error_ns)


SAME = Clock()
UNKNOWN = Clock(error_ns=math.inf)


def fit_clock(samples: Samples, begin_ns: int, end_ns: int) -> Clock:
    """Return the line through samples, weighted by the inverse squares of their round trips.

    The error bound is half the round trip of a sample plus its distance from the line, at two
    samples, and in between and beyond them as far as a straight line then allows; at one sample, if
    the drift between two of them is less certain than :data:`MAX_DRIFT`. The samples that allow
    least are taken. What other samples exclude of the line is added.

    Args:
        samples: of the two clocks, in any order.
        begin_ns: the time for which the bound holds, from here by this clock.
        end_ns: to here.

    Returns:
        :data:`UNKNOWN` where there are no samples, or none that two clocks can have.
    """
    if not len(samples):
        return UNKNOWN
    kept = _spread(samples)
    best = kept[np.argmin(kept[:, 2])]
    at_ns, offset_ns = int(best[0]), int(best[1] - best[0])
    passed_s = 1e-9 * (kept[:, 0] - at_ns)
    ahead_ns = (kept[:, 1] - kept[:, 0] - offset_ns).astype(np.float64)
    half_ns = kept[:, 2].astype(np.float64) / 2
    intercept_ns, drift_ns = _line(passed_s, ahead_ns, np.maximum(half_ns, _MIN_TRIP_NS / 2))
    if abs(drift_ns) > 1e9 * _ABSURD_DRIFT:
        return UNKNOWN
    away_ns = np.abs(ahead_ns - intercept_ns - drift_ns * passed_s)
    span_s = 1e-9 * (np.array([begin_ns, end_ns]) - at_ns)
    error_ns = _bound(passed_s, half_ns + away_ns, span_s, MAX_DRIFT + 1e-9 * abs(drift_ns))
    excluded_ns = float(np.max(away_ns - half_ns, initial=0.0))
    offset_ns += round(intercept_ns)
    return Clock(at_ns, offset_ns, 1e-9 * drift_ns, error_ns + excluded_ns)


def _spread(samples: Samples) -> Samples:
    ordered = samples[np.argsort(samples[:, 0], kind="stable")]
    passed = ordered[:, 0] - ordered[0, 0]
    bins = passed * _BINS // (int(passed[-1]) + 1)
    parts = (ordered[bins == number] for number in np.unique(bins))
    return np.concatenate(
        [part[np.argsort(part[:, 2], kind="stable")][:_KEPT_IN_A_BIN] for part in parts]
    )


def _line(passed_s: Floats, ahead_ns: Floats, sigma_ns: Floats) -> tuple[float, float]:
    """Return where a line begins, in nanoseconds, and its slope in nanoseconds per second.

    The usual drift of a quartz counts as an observation: it decides where samples are so close
    together that they do not.
    """
    weights = 1 / sigma_ns
    rows = np.column_stack([weights, weights * passed_s])
    rows = np.vstack([rows, [0.0, 1 / (1e9 * _USUAL_DRIFT)]])
    values = np.append(weights * ahead_ns, 0.0)
    (intercept_ns, drift_ns), *_ = np.linalg.lstsq(rows, values, rcond=None)
    return float(intercept_ns), float(drift_ns)


def _bound(passed_s: Floats, error_ns: Floats, span_s: Floats, max_drift: float) -> float:
    """Return how far a line may be from the true one over a time.

    Args:
        passed_s: times of samples.
        error_ns: how far it may be there.
        span_s: begin and end of the time.
        max_drift: how much the slopes may differ.
    """
    away_s = np.abs(span_s[None] - passed_s[:, None])
    by_one = np.min(np.max(error_ns[:, None] + 1e9 * max_drift * away_s, axis=1))
    between_s = np.abs(passed_s[:, None] - passed_s[None])
    with np.errstate(divide="ignore", invalid="ignore"):
        share = away_s[None] / between_s[:, :, None]
        at_ends = error_ns[:, None, None] * share + error_ns[None, :, None] * share.swapaxes(0, 1)
        by_two = np.max(at_ends, axis=2)
    return float(min(by_one, np.min(by_two[between_s > 0], initial=math.inf)))


def clocks_of_boards(
    source: str,
    spans_ns: Mapping[str, tuple[int, int]],
    by_ranks: Mapping[str, Samples],
    by_launcher: Mapping[str, Samples],
) -> dict[str, Clock]:
    """Return for each board what the clock of the source's board shows.

    Args:
        source: the board that has the source.
        spans_ns: begin and end of what is to be converted, by board, on its own clock.
        by_ranks: samples of a board's clock and that of the source's board.
        by_launcher: samples of a board's clock and that of the launcher, which every board may
            have: so the launcher's clock leads from any board to that of the source.
    """
    clocks = {source: SAME}
    launcher = _launcher_to_source(by_launcher.get(source, nothing()))
    for board, (begin_ns, end_ns) in spans_ns.items():
        if board == source:
            continue
        samples = [by_ranks.get(board, nothing())]
        if launcher is not None and board in by_launcher:
            samples.append(_through(by_launcher[board], launcher))
        clocks[board] = fit_clock(np.concatenate(samples), begin_ns, end_ns)
    return clocks


def _launcher_to_source(samples: Samples) -> Clock | None:
    """Return the clock of the source's board as a function of that of the launcher."""
    if not len(samples):
        return None
    times = samples[:, 0]
    clock = fit_clock(samples, int(times.min()), int(times.max()))
    return None if clock == UNKNOWN else clock.inverse()


def _through(samples: Samples, launcher: Clock) -> Samples:
    """Return samples of a clock and the launcher's as samples of that clock and the source's."""
    through = samples.copy()
    through[:, 1] = launcher.convert(samples[:, 1])
    through[:, 2] += math.ceil(2 * launcher.error_ns)
    return through


def nothing() -> Samples:
    return np.empty((0, 3), np.int64)


def samples_in(value: object) -> Samples | None:
    """Return the samples in a value from a file or a board; ``None``: it has none."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not all(map(_is_sample, value)):
        return None
    return np.array(value, np.int64).reshape(-1, 3)


def samples_by_board(value: object) -> dict[str, Samples] | None:
    """Return the samples by board in a value from a file; ``None``: it has none."""
    if not isinstance(value, dict):
        return None
    by_board = {str(board): samples_in(samples) for board, samples in value.items()}
    known = {board: samples for board, samples in by_board.items() if samples is not None}
    return known if len(known) == len(by_board) else None


def _is_sample(value: object) -> bool:
    return (
        isinstance(value, Sequence)
        and len(value) == 3
        and all(type(number) is int and 0 <= number < MAX_NS for number in value)
    )


MAX_NS = 1 << 60
"""Of a clock that counts from when its board was started: 36 years."""
