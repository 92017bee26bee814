"""When frames change the route, as a decision without threads or clocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from rankslice.backend.runtime.sources.switching import (
    SURGE,
    USUAL,
    Automatic,
    Fixed,
    Seen,
    SwitchingRules,
)

RULES = SwitchingRules(normal_fps=25.0)


@dataclass
class Job:
    """Frames that pass a job of two routes; it is asked at each arrival and each result."""

    switching: Automatic
    fps: tuple[float, float] = (25.0, 75.0)
    """What each route can handle."""
    route: int = USUAL
    changes: list[tuple[float, int]] = field(default_factory=list)
    most_waiting: int = 0

    def run(self, arrivals_s: list[float]) -> None:
        """Let frames arrive."""
        waiting = came_out = arrived = 0
        free_s, left = 0.0, list(arrivals_s)
        while left or waiting:
            next_out_s = free_s if waiting else float("inf")
            if left and left[0] <= next_out_s:
                now_s = left.pop(0)
                arrived += 1
                waiting += 1
                if waiting == 1:
                    free_s = now_s + 1 / self.fps[self.route]
            else:
                now_s = next_out_s
                waiting -= 1
                came_out += 1
                free_s = now_s + 1 / self.fps[self.route]
            self.most_waiting = max(self.most_waiting, waiting)
            wanted, _ = self.switching.decide(self.route, Seen(now_s, arrived, waiting, came_out))
            if wanted != self.route:
                self.route = wanted
                self.changes.append((now_s, wanted))


def arrivals(*parts: tuple[float, float], jitter: float = 0.0, seed: int = 0) -> list[float]:
    """Return when frames arrive at rates that last for some seconds each: (fps, seconds)."""
    random = np.random.default_rng(seed)
    times, begin_s = [], 0.0
    for fps, seconds in parts:
        count = round(fps * seconds)
        gaps = random.uniform(1 - jitter, 1 + jitter, count) / fps
        times += (begin_s + np.cumsum(gaps)).tolist()
        begin_s += seconds
    return sorted(times)


WAVE = ((15.0, 10.0), (45.0, 10.0), (15.0, 10.0))


def test_a_fixed_choice_never_changes() -> None:
    assert SURGE == Fixed(SURGE).decide(USUAL, Seen(0.0, 1, 1, 0))[0]


@pytest.mark.parametrize("normal_fps", [25.0, None])
@pytest.mark.parametrize("seed", range(20))
def test_a_surge_changes_the_route_twice(normal_fps: float | None, seed: int) -> None:
    job = Job(Automatic(replace(RULES, normal_fps=normal_fps)))
    job.run(arrivals(*WAVE, jitter=0.3, seed=seed))
    assert [SURGE, USUAL] == [route for _, route in job.changes]
    (begin_s, _), (end_s, _) = job.changes
    assert 10 <= begin_s < 11
    assert 21 <= end_s < 23
    assert job.most_waiting < 25


@pytest.mark.parametrize("fps", [18.0, 20.0, 22.0])
def test_a_rate_between_both_marks_changes_nothing_in_either_route(fps: float) -> None:
    job = Job(Automatic(RULES))
    job.run(arrivals((fps, 20.0)))
    assert [] == job.changes
    job = Job(Automatic(RULES), route=SURGE)
    job.run(arrivals((fps, 20.0)))
    assert [] == job.changes


def test_frames_that_wait_begin_a_surge_though_the_rate_is_not_known() -> None:
    switching = Automatic(replace(RULES, normal_fps=None, surge_queue=5))
    assert (USUAL, "") == switching.decide(USUAL, Seen(0.1, 4, 4, 0))
    assert (SURGE, "5 frames were waiting") == switching.decide(USUAL, Seen(0.2, 5, 5, 0))


def test_arrivals_that_are_too_many_begin_a_surge_before_frames_wait() -> None:
    job = Job(Automatic(replace(RULES, surge_queue=1000)))
    job.run(arrivals((15.0, 2.0), (24.0, 3.0)))
    assert [SURGE] == [route for _, route in job.changes]
    assert job.most_waiting < 3


def test_a_surge_ends_though_the_normal_rate_was_never_learnt() -> None:
    # All at once: none came out while they waited, so nothing is known of the normal route.
    job = Job(Automatic(replace(RULES, normal_fps=None, surge_queue=2)))
    job.run([*arrivals((1000.0, 0.02)), *(1 + time_s for time_s in arrivals((5.0, 20.0)))])
    assert [SURGE, USUAL] == [route for _, route in job.changes[:2]]


def test_a_pause_ends_a_surge_at_the_next_frame() -> None:
    job = Job(Automatic(RULES))
    job.run([*arrivals((45.0, 5.0)), 60.0, 62.0, 64.0, 66.0])
    assert [SURGE, USUAL] == [route for _, route in job.changes]
