"""Where the warm-up of a start ends: a rule that needs no eye.

The thesis estimates it by eye, for all starts alike. MSER-5 (White, Cobb, Spratt 2000), the usual
rule of simulations, leaves out what makes the mean uncertain: a stall of the machine in the first
half, too, which is no warm-up, and belongs into the percentiles. So the warm-up here is only what
lies before the first frames that take as long as those of the last half.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BATCH = 5
"""Frames whose median counts, as a single one may be slow for any reason."""
MIN_FRAMES = 8 * BATCH
_RUN = 2
"""So many batches in a row are to be like the last half."""
_FENCE = 1.5
"""Tukey's: so many interquartile ranges beyond the quartiles is still usual."""
_MIN_SHARE = 0.02
"""Of the median: a difference that is no warm-up in any case."""
_TREND = 0.05
"""Difference of the last two quarters, over the median, from which a start has not settled."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The first frames of a start that do not count."""

    frames: int
    settled: bool
    """Whether the others are alike; otherwise there is no steady state to measure."""


def find_warm_up(times_ns: NDArray[np.int64]) -> WarmUp:
    """Return how many of the first frames are warm-up.

    Medians of five frames each are compared with those of the last half. The warm-up ends at the
    first two medians in a row that lie within Tukey's fences of these: the quartiles, and 1.5
    interquartile ranges beyond, at least 2 % of the median. A start has not settled if that does
    not happen in the first half, or if the medians of the third and the last quarter differ by
    more than 5 %, and by more than 1.5 interquartile ranges of both. Then half of the frames
    are left out.

    Args:
        times_ns: latencies or times of a stage, by frame.
    """
    count = len(times_ns) // BATCH
    if count < MIN_FRAMES // BATCH:
        return WarmUp(0, settled=True)
    medians = np.median(times_ns[: count * BATCH].reshape(count, BATCH), axis=1)
    half = count // 2
    low, middle, high = np.percentile(medians[half:], (25, 50, 75))
    margin = max(_FENCE * (high - low), _MIN_SHARE * middle)
    usual = (medians >= low - margin) & (medians <= high + margin)
    ends = [n for n in range(half + 1) if usual[n : n + _RUN].all()]
    if not ends or _has_trend(medians[half:], middle):
        return WarmUp(half * BATCH, settled=False)
    return WarmUp(ends[0] * BATCH, settled=True)


def _has_trend(medians: NDArray[np.float64], middle: float) -> bool:
    quarters = np.array_split(medians, 2)
    third, last = (np.percentile(quarter, (25, 50, 75)) for quarter in quarters)
    difference = abs(third[1] - last[1])
    usual = _FENCE * max(third[2] - third[0], last[2] - last[0])
    return bool(difference > max(_TREND * middle, usual))
