"""The rate of a job, as everything that reports one counts it, and the texts of runs.

Texts are those of a run or a simulation: rate, latency, the best classes of a frame.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..figures.rank_figures import RankFigures
from ..figures.rank_usage import MIN_WARM_UP
from ..job import Tensor
from ..job.wording import fixed_text, time_text
from ..sources.switching import ROUTE_NAMES, Change

NORMAL, SURGE = ROUTE_NAMES

STEADY = "steady state"
BOTH_ROUTES = "both routes"
TOO_FEW = "too few frames"


def frames_to_fill(window: int) -> int:
    """Return how many of the first frames are left out: while they pass, the pipeline fills."""
    return max(window, MIN_WARM_UP)


def too_few_text(frames: int, window: int) -> str:
    are = "are" if frames != 1 else "is"
    return (
        f"{frames_text(frames)} {are} too few to determine a rate or a bottleneck; give more than"
        f" {2 * frames_to_fill(window)}"
    )


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
    begins = [(0, NORMAL), *((switch.frame, switch.route) for switch in switches), (frames, NORMAL)]
    return [
        (begin, end, route)
        for (begin, route), (end, _) in itertools.pairwise(begins)
        if begin < end
    ]


def frames_text(number: int) -> str:
    return f"{number} frame{'s' if number != 1 else ''}"


def rate_text(
    completed: int, rate: float | None, of: str, window: int, surge_window: int | None = None
) -> str:
    """Return ``80 frames, 45.10 frames/s (steady state), window 3``.

    ``of`` says what the rate is of, or why it is unknown; ``surge_window`` is the window of the
    route for a surge, if there is one.
    """
    shown = "rate unknown" if rate is None else f"{fixed_text(rate)} frames/s"
    other = "" if surge_window is None else f" (for a surge {surge_window})"
    return f"{frames_text(completed)}, {shown} ({of}), window {window}{other}"


def latency_text(latency_ms: Mapping[str, float]) -> str:
    """Return ``latency p50 12.00 ms, p90 ...``."""
    names = ("p50", "p90", "p99", "max")
    return f"latency {', '.join(f'{name} {time_text(latency_ms[name])}' for name in names)}"


def compute_texts(rank: RankFigures) -> Iterator[str]:
    """Yield a rank's mean time on each route, of two only those on which it had frames."""
    if rank.surge is None or rank.frames:
        yield time_text(rank.compute_ms["mean"])
    if rank.surge is not None and rank.surge.frames:
        yield f"{time_text(rank.surge.compute_ms['mean'])} for a surge"


_ROUNDING = 0.01
"""Of the sum of a thousand float16."""


def scores_classes(output: Tensor) -> bool:
    """Return whether an output looks like a classifier's: a number for each of several classes."""
    classes = max(output.shape, default=1)
    if output.is_open or classes < 2 or math.prod(output.shape) != classes:
        return False
    kind = output.storage[0]
    return kind.name == output.dtype and kind.kind == "f"


def are_shares(scores: NDArray[Any]) -> bool:
    """Return whether numbers are from 0 to 1 and add up to 1, as after a softmax."""
    exact = scores.astype("float64")
    return bool(((exact >= 0) & (exact <= 1)).all() and abs(exact.sum() - 1) < _ROUNDING)


def top_classes(scores: NDArray[Any], count: int) -> list[tuple[int, float]]:
    """Return the ``count`` best classes with their scores, best first; [1, K] or [K] scores."""
    flat = scores.reshape(-1)
    best = (-flat.astype("float64")).argsort(kind="stable")[:count]
    return [(int(index), float(flat[index])) for index in best]
