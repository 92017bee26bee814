"""Which route frames take: the usual one, or that for a surge."""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..job.wording import digits

if TYPE_CHECKING:
    from ..options import RunOptions

USUAL, SURGE = range(2)
"""Numbers of the routes."""
ROUTE_NAMES = ("normal", "surge")

_MIN_GAPS, _MAX_GAPS = 10, 60
"""The rate of arrivals is that of so many at least and at most."""
_PRECISE = 0.1
"""Relative standard error at which no more arrivals are needed: regular ones need the fewest."""
_MIN_RESULTS = 3
"""So many have to come out while others wait, to tell the rate of the usual route."""
_FIRST_TRIAL_S = 30.0
"""After this time of a surge the usual route is tried, if its rate was learnt; then after twice the
time, and so on."""


def surge_queue(options: RunOptions, window: int) -> int:
    """Return how many waiting frames begin a surge; ``window``: of the usual route."""
    if options.surge_queue is not None:
        return options.surge_queue
    most = max(8, 2 * window)
    # Half of the queue is left for those that come until the change has helped. A frame that has
    # just arrived waits, too.
    return most if options.queue is None else max(2, min(most, options.queue // 2))


@dataclass(frozen=True, slots=True)
class Observation:
    """What the source sees when it decides."""

    now_s: float
    arrived: int
    """Frames that have arrived."""
    waiting: int
    came_out: int


@dataclass(frozen=True, slots=True)
class Change:
    time_s: float
    """Since the start."""
    frame: int
    """The first one on the new route."""
    route: str
    waiting: int
    """Frames that waited then."""
    reason: str


class Fixed:
    def __init__(self, route: int, reason: str = "as --switch says") -> None:
        self._route = route
        self._reason = reason

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        return self._route, self._reason


class Automatic:
    """Frames take the usual route, and the other one while too many come."""

    def __init__(self, options: RunOptions, window: int) -> None:
        """Decide as the options say; ``window``: of the usual route."""
        self._options = options
        self._surge_queue = surge_queue(options, window)
        self.normal_fps = options.normal_fps
        """Rate of the usual route, as far as it is known."""
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_MAX_GAPS + 1)
        self._last_out: int | None = None
        """How many had come out at the last decision on the usual route; not after a change."""
        self._busy_since: tuple[float, int] | None = None
        """When the first result came while frames waited on the usual route, and its number."""
        self._began_s = 0.0
        """When the surge began."""
        self._began_fps: float | None = None
        """Rate of arrivals by then."""
        self._trial_s = _FIRST_TRIAL_S
        self._calm_since_s: float | None = None

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        options = self._options
        if not self._arrivals or self._arrivals[-1][1] < seen.arrived:
            self._arrivals.append((seen.now_s, seen.arrived))
        rate, error = self._arrival_fps(seen.now_s)
        if route == USUAL:
            self._learn(seen)
            if seen.waiting >= self._surge_queue:
                return self._begin(seen, f"{seen.waiting} frames were waiting")
            limit = options.surge_above * (self.normal_fps or math.inf)
            # Irregular arrivals come close to each other by chance.
            if rate is not None and rate * (1 - 2 * error) > limit:
                reason = f"{digits(rate)} frames/s arrived, more than {digits(limit)}"
                return self._begin(seen, reason)
            return USUAL, ""
        self._last_out = None
        # Of a rate that is not known, half of what was too much is assumed.
        assumed_fps = self.normal_fps or (self._began_fps or math.inf) / 2
        limit = options.normal_below * assumed_fps
        # A frame that has just arrived waits, too, until it is let in; several may come at once.
        few_wait = seen.waiting <= max(1, self._surge_queue // 2)
        if not few_wait or (rate is not None and rate >= limit):
            self._calm_since_s = None
        elif self._calm_since_s is None:
            self._calm_since_s = seen.now_s
        elif seen.now_s - self._calm_since_s >= options.normal_after_s:
            self._trial_s = _FIRST_TRIAL_S
            few = f"fewer than {digits(limit)} frames/s arrived"
            few = "few frames waited" if math.isinf(limit) else few
            return USUAL, f"{few} for {options.normal_after_s:g} s"
        if few_wait and options.normal_fps is None and seen.now_s - self._began_s >= self._trial_s:
            return self._try(seen)
        return SURGE, ""

    def _begin(self, seen: Observation, reason: str) -> tuple[int, str]:
        self._busy_since = self._calm_since_s = None
        self._began_s, self._began_fps = seen.now_s, None
        if len(self._arrivals) > _MIN_GAPS:
            # More of them would be from before.
            (first_s, first), (last_s, last) = self._arrivals[-1 - _MIN_GAPS], self._arrivals[-1]
            self._began_fps = (last - first) / (last_s - first_s) if last_s > first_s else None
        return SURGE, reason

    def _try(self, seen: Observation) -> tuple[int, str]:
        """Return to the usual route to learn its rate anew: what was learnt may be wrong.

        An accelerator may have been slow for a moment, say, and no rate that arrives then would be
        low enough to end the surge.
        """
        passed_s, self._trial_s = seen.now_s - self._began_s, 2 * self._trial_s
        self.normal_fps = None
        return USUAL, f"a trial, after {digits(passed_s)} s, of what the normal route can handle"

    def _arrival_fps(self, now_s: float) -> tuple[float | None, float]:
        """Return the rate of the last arrivals, and its relative standard error.

        It is the rate of as few arrivals as tell it precisely. A frame that is late counts as
        arriving now.
        """
        if len(self._arrivals) <= _MIN_GAPS:
            return None, 0.0
        last_s, last = later_s, later = self._arrivals[-1]
        mean_s = error = squares = 0.0
        for gaps, (time_s, number) in enumerate(
            itertools.islice(reversed(self._arrivals), 1, None), 1
        ):
            squares += (later_s - time_s) ** 2 / (later - number)
            later_s, later = time_s, number
            if gaps < _MIN_GAPS:
                continue
            count = last - number
            mean_s = (last_s - time_s) / count
            if mean_s <= 0:
                return None, 0.0
            error = math.sqrt(max(0.0, squares / count / mean_s**2 - 1) / gaps)
            if error <= _PRECISE:
                break
        passed_s = last_s - later_s
        if now_s - last_s > 2 * mean_s:
            passed_s = now_s - later_s
        return (last - later) / passed_s, error

    def _learn(self, seen: Observation) -> None:
        """Measure the usual route while frames wait: then it is as fast as it can be."""
        if self._options.normal_fps is not None:
            return
        came_out = self._last_out is not None and seen.came_out > self._last_out
        self._last_out = seen.came_out
        # One may wait only because it has just arrived.
        if seen.waiting <= 1:
            self._busy_since = None
        elif came_out and self._busy_since is None:
            self._busy_since = seen.now_s, seen.came_out
        elif came_out and self._busy_since is not None:
            since_s, before = self._busy_since
            count, passed_s = seen.came_out - before, seen.now_s - since_s
            if count >= _MIN_RESULTS and passed_s > 0:
                self.normal_fps = count / passed_s
