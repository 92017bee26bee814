"""Intervals of repeated measurements, and of their ratios.

Frames of one start are not independent: whatever a start settles on (pages, frequency, threads)
they share. So the starts are the repetitions, each with one value, as Kalibera and Jones,
"Rigorous benchmarking in reasonable time" (ISMM 2013), have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, log, sqrt
from statistics import fmean, stdev, variance

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import RankSliceError

MISSING = "rankslice bench needs scipy: pip install 'rankslice[bench]'"
CONFIDENCE = 0.95
_MAX_COUNT = 100_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and where it is with a confidence of 95 per cent."""

    value: float
    low: float
    high: float
    """Infinite on both sides where a single start tells nothing."""

    @property
    def is_known(self) -> bool:
        return self.high - self.low < inf

    @property
    def half_width(self) -> float:
        """Half of the interval, over the value."""
        return (self.high - self.low) / 2 / abs(self.value) if self.value else inf


def check_installed() -> None:
    _student(1)


def mean_interval(values: Iterable[float]) -> Interval:
    """Return the mean of one value per start, and Student's interval of it."""
    values = list(values)
    middle = fmean(values)
    if len(values) < 2:
        return Interval(middle, -inf, inf)
    half = _student(len(values) - 1) * stdev(values) / sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def paired_ratio(measured: Sequence[float], reference: Sequence[float]) -> Interval:
    """Return the geometric mean of the ratios of values that were measured in pairs.

    What both values of a pair share, such as a machine that has become slower, is not in it.

    Args:
        measured: a value above 0 per start.
        reference: of the start that was measured beside it.
    """
    logs = [log(a / b) for a, b in zip(measured, reference, strict=True)]
    return _exponential(mean_interval(logs))


def unpaired_ratio(measured: Sequence[float], reference: Sequence[float]) -> Interval:
    """Return the ratio of geometric means of values of different times, and Welch's interval."""
    logs = [log(a) for a in measured], [log(b) for b in reference]
    middle = fmean(logs[0]) - fmean(logs[1])
    if min(map(len, logs)) < 2:
        return Interval(exp(middle), 0.0, inf)
    parts = [variance(side) / len(side) for side in logs]
    if not sum(parts):
        return Interval(exp(middle), exp(middle), exp(middle))
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, logs, strict=True)
    )
    half = _student(freedom) * sqrt(sum(parts))
    return _exponential(Interval(middle, middle - half, middle + half))


def is_significant(ratio: Interval) -> bool:
    """Return whether an interval of a ratio leaves out 1."""
    return not ratio.low <= 1 <= ratio.high


def percentile(values: NDArray[np.int64], percent: float) -> float:
    """Return a percentile by an estimate that is right in the median, however few values there are.

    A rank rounded up or down would be off by more than the starts differ (Hyndman and Fan, 1996,
    definition 8).
    """
    return float(np.percentile(values, percent, method="median_unbiased"))


def percentile_interval(starts: Iterable[NDArray[np.int64]], percent: float) -> Interval:
    """Return the mean of the starts' own percentiles, and Student's interval of it.

    A bootstrap over few starts would be too narrow: it sees too little of what makes them differ.
    """
    return mean_interval(percentile(values, percent) for values in starts)


@dataclass(frozen=True, slots=True)
class Components:
    """How much of the variance of a mean comes from where."""

    starts: float
    """Variance among starts, of what all frames of a start share."""
    frames: float
    """Variance among the frames of a start, counted as if they were independent."""


def components(starts: Sequence[NDArray[np.int64]]) -> Components | None:
    """Return the variance by level; ``None``: there is one start.

    Neighbouring frames are alike, so those of a start count by means of batches, which are nearly
    independent.
    """
    if len(starts) < 2:
        return None
    frames = fmean(_batch_variance(values) for values in starts)
    among = variance(float(values.mean()) for values in starts)
    rest = fmean(1 / len(values) for values in starts) * frames
    return Components(max(0.0, among - rest), frames)


def _batch_variance(values: NDArray[np.int64]) -> float:
    """Return the variance of a value that would give the mean's if all were independent."""
    size = max(1, round(sqrt(len(values))))
    count = len(values) // size
    if count < 2:
        return float(values.var())
    means = values[: count * size].reshape(count, size).mean(axis=1)
    return float(size * means.var(ddof=1))


@dataclass(frozen=True, slots=True)
class Advice:
    """What would give a mean to a wanted accuracy in the least time."""

    frames: int
    """Of each start, after the warm-up."""
    starts: int


def advice(
    parts: Components, mean: float, start_s: float, frame_s: float, accuracy: float = 0.01
) -> Advice:
    """Return how many frames a start is to have, and how many starts there are to be.

    As Kalibera and Jones have it, frames are worth their time as long as they add less to the
    variance than a further start would take away.

    Args:
        start_s: time of a start without its frames, the warm-up included.
        frame_s: time that a further frame takes.
        accuracy: half of the wanted interval, over the mean.
    """
    if parts.starts > 0:
        frames = ceil(sqrt(start_s / frame_s * parts.frames / parts.starts))
    else:
        frames = ceil(start_s / frame_s)
    frames = min(max(frames, 1), _MAX_COUNT)
    of_start = parts.starts + parts.frames / frames
    starts = 2
    while starts < _MAX_COUNT and _student(starts - 1) * sqrt(of_start / starts) > accuracy * mean:
        starts += max(1, starts // 20)
    return Advice(frames, starts)


def significantly(ratio: Interval, more: str, less: str) -> str:
    """Return the verdict of a ratio's interval; ``more`` is that of one above 1: ``slower``."""
    if not ratio.is_known:
        return "one start gives no interval"
    if not is_significant(ratio):
        return "not significant"
    return more if ratio.value > 1 else less


def mapped(interval: Interval, change: Callable[[float], float]) -> Interval:
    return Interval(change(interval.value), change(interval.low), change(interval.high))


def _exponential(logs: Interval) -> Interval:
    return mapped(logs, lambda value: exp(value) if value < 700 else inf)


def _student(freedom: float) -> float:
    """Return by how many standard errors the mean may be off."""
    try:
        from scipy.special import stdtrit
    except ImportError:
        raise RankSliceError(MISSING) from None
    return float(stdtrit(freedom, 0.5 + CONFIDENCE / 2))
