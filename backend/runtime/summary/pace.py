"""How fast frames came out, and what limited that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .bottleneck import Arrivals, bottleneck_of_routes
from .stretches import stretches
from .throughput import (
    BOTH_ROUTES,
    STEADY,
    TOO_FEW,
    frames_to_fill,
    throughput_fps,
    too_few_text,
)
from .work import RankWork


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate of a run."""

    completed: int
    """How many frames came out."""
    fps: float | None
    """After the first frames; ``None``: there were too few frames to tell."""
    of: str
    """``steady state``, ``both routes`` if frames changed the route, or ``too few frames``."""
    bottleneck: str
    """A sentence."""


def pace_of(
    records: Sequence[Mapping[str, Any]],
    ranks: Sequence[RankWork],
    completed_s: NDArray[np.float64] | None,
) -> Pace:
    """Return the rate of a run.

    Args:
        records: the ranks' measurements, as the report has them.
        ranks: the same as records.
        completed_s: times of completion in seconds, in order; ``None``: they were not kept, and
            all frames that did not fail came out.
    """
    source = next(record["source"] for record in records if "source" in record)
    sink = next(record["sink"] for record in records if "sink" in record)
    switches = tuple(source.get("switches", ()))
    window = max(source["window"], source.get("surge_window") or 0)
    if completed_s is None:
        completed = source["frames"] - sink.get("failed", 0)
        wall_s = max(record["wall_s"] for record in records)
        found = completed / wall_s if wall_s else 0.0
        of = STEADY if completed > 2 * frames_to_fill(window) else ""
    else:
        completed, (found, of) = len(completed_s), throughput_fps(completed_s, window)
    if not found or of != STEADY:
        return Pace(completed, None, TOO_FEW, too_few_text(completed, window))
    takes_both = len({route for _, _, route in stretches(switches, completed)}) > 1
    of = BOTH_ROUTES if takes_both else STEADY
    if completed_s is None:
        if takes_both:
            text = "unknown: frames took two routes, and their results were not kept"
            return Pace(completed, found, of, text)
        completed_s = np.broadcast_to(0.0, completed)  # on one route only their number counts
    text = bottleneck_of_routes(ranks, found, Arrivals.of(source), switches, completed_s)
    return Pace(completed, found, of, text)
