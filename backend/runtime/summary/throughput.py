"""The rate of a job, as everything that tells one counts it, and the routes of its frames."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..figures.rank_usage import MIN_WARM_UP
from ..sources.switching import ROUTE_NAMES, Change

NORMAL, SURGE = ROUTE_NAMES

STEADY = "steady state"
BOTH_ROUTES = "both routes"
TOO_FEW = "too few frames"


def frames_to_fill(window: int) -> int:
    """Return how many of the first frames are left out: while they pass, the pipeline fills."""
    return max(window, MIN_WARM_UP)


def too_few_text(frames: int, window: int) -> str:
    needed = f"more than {2 * frames_to_fill(window)}"
    plural = "frames are" if frames != 1 else "frame is"
    return f"{frames} {plural} too few to determine a rate or a bottleneck; give {needed}"


def throughput_fps(completed_s: NDArray[np.float64], window: int) -> tuple[float, str]:
    """Return frames per second at the sink, and of what.

    With w = max(window, 10), it is (N - w) / (t_N - t_w): the start, while the pipeline fills, is
    left out. For N <= 2 w all frames count.
    """
    count, warm_up = len(completed_s), frames_to_fill(window)
    steady = count > 2 * warm_up
    first = warm_up - 1 if steady else 0
    elapsed = float(completed_s[-1] - completed_s[first]) if count > 1 else 0.0
    rate = (count - 1 - first) / elapsed if elapsed > 0 else 0.0
    return rate, STEADY if steady else "all frames"


def stretches(switches: Sequence[Change], frames: int) -> list[tuple[int, int, str]]:
    """Return first frame, the one after the last, and route of frames that took the same one."""
    begins = [(0, NORMAL), *((each.frame, each.route) for each in switches), (frames, NORMAL)]
    return [
        (begin, end, route)
        for (begin, route), (end, _) in itertools.pairwise(begins)
        if begin < end
    ]
