"""What a simulated job showed: the records."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.rates import (
    BOTH_ROUTES,
    STEADY,
    SURGE,
    TOO_FEW,
    stretches,
)
from rankslice.measurement.trace.trace_events import Trace

Times: TypeAlias = NDArray[np.float64]

_PERCENTS = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class RankUse:
    """What a rank did."""

    rank: int
    key: str
    busy_ms: float
    """Mean time for each frame that it handles, messages and runtime included."""
    utilisation: float
    """Share of the time from the first frame to the last in which it was busy, from 0 to 1."""
    queue_mean: float
    """Frames for it that wait in its slots when it is done with one, on average."""
    queue_max: int


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What one direction of a board's link did."""

    board: str
    is_outgoing: bool
    messages: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulated job showed."""

    frames: int
    """How many arrived."""
    completed: int
    dropped: tuple[int, ...]
    """Arrivals that found no room, by number."""
    window: int
    """Most frames inside, on the usual route."""
    throughput_fps: float
    throughput_of: str
    """``steady state``, or ``all frames`` where there were too few to leave the start out."""
    latency_ms: dict[str, float]
    """``mean``, ``p50``, ``p90``, ``p99`` and ``max``, from arrival to completion."""
    waiting_mean: float
    """Frames that an arriving frame found waiting at the source, on average."""
    waiting_max: int
    ranks: tuple[RankUse, ...]
    links: tuple[LinkUse, ...]
    """Those that carried something."""
    duration_s: float
    """From the first arrival to the last completion."""
    trace: Trace
    """The events of the first frames, as many as were traced: those that ranks record in a run."""
    completed_s: Times
    """When each frame came out, in seconds."""
    latencies_s: Times
    """Of each frame that came out, in order."""
    switches: tuple[Change, ...] = ()
    surge_window: int | None = None
    """Most frames inside on the route for a surge; ``None``: there is one route."""

    @property
    def most_inside(self) -> int:
        return max(self.window, self.surge_window or 0)

    @property
    def on_surge(self) -> int:
        return sum(end - begin for begin, end, route in self._stretches if route == SURGE)

    @property
    def rate_of(self) -> str:
        """What the rate is of, or why none is told."""
        if not self.is_steady:
            return TOO_FEW
        routes = {route for _, _, route in self._stretches}
        return BOTH_ROUTES if len(routes) > 1 else STEADY

    @property
    def _stretches(self) -> list[tuple[int, int, str]]:
        return stretches(self.switches, self.completed)

    @property
    def is_steady(self) -> bool:
        return self.throughput_of == STEADY

    def to_json(self) -> dict[str, Any]:
        return {
            "frames": self.frames,
            "completed": self.completed,
            "window": self.window,
            "surge_window": self.surge_window,
            "switches": [asdict(change) for change in self.switches],
            "throughput_fps": self.throughput_fps if self.is_steady else None,
            "throughput_of": self.rate_of,
            "dropped": list(self.dropped),
            "latency_ms": self.latency_ms,
            "waiting_mean": self.waiting_mean,
            "waiting_max": self.waiting_max,
            "duration_s": self.duration_s,
            "ranks": [asdict(rank) for rank in self.ranks],
            "links": [asdict(link) for link in self.links],
        }


def latency_summary(seconds: Times) -> dict[str, float]:
    """Return mean, percentiles and maximum, in milliseconds; NaN if there are none."""
    if not len(seconds):
        return dict.fromkeys(("mean", *(f"p{percent}" for percent in _PERCENTS), "max"), math.nan)
    milliseconds = 1e3 * seconds
    values = np.percentile(milliseconds, _PERCENTS).tolist()
    named = {f"p{percent}": value for percent, value in zip(_PERCENTS, values, strict=True)}
    return {"mean": float(milliseconds.mean()), **named, "max": float(milliseconds.max())}
