"""When frames change the route, as a decision without threads or clocks."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources.switching import (
    SURGE,
    USUAL,
    Automatic,
    Fixed,
    Observation,
    surge_queue,
)

OPTIONS = RunOptions(normal_fps=25.0)


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
            wanted, _ = self.switching.decide(
                self.route, Observation(now_s, arrived, waiting, came_out)
            )
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
    assert SURGE == Fixed(SURGE).decide(USUAL, Observation(0.0, 1, 1, 0))[0]


@pytest.mark.parametrize("normal_fps", [25.0, None])
@pytest.mark.parametrize("seed", range(20))
def test_a_surge_changes_the_route_twice(normal_fps: float | None, seed: int) -> None:
    job = Job(Automatic(replace(OPTIONS, normal_fps=normal_fps), 1))
    job.run(arrivals(*WAVE, jitter=0.3, seed=seed))
    assert [SURGE, USUAL] == [route for _, route in job.changes]
    (begin_s, _), (end_s, _) = job.changes
    assert 10 <= begin_s < 11
    assert 21 <= end_s < 23
    assert job.most_waiting < 25


@pytest.mark.parametrize("fps", [18.0, 20.0, 22.0])
def test_a_rate_between_both_marks_changes_nothing_in_either_route(fps: float) -> None:
    job = Job(Automatic(OPTIONS, 1))
    job.run(arrivals((fps, 20.0)))
    assert [] == job.changes
    job = Job(Automatic(OPTIONS, 1), route=SURGE)
    job.run(arrivals((fps, 20.0)))
    assert [] == job.changes


def test_frames_that_wait_begin_a_surge_though_the_rate_is_not_known() -> None:
    switching = Automatic(replace(OPTIONS, normal_fps=None, surge_queue=5), 1)
    assert (USUAL, "") == switching.decide(USUAL, Observation(0.1, 4, 4, 0))
    assert (SURGE, "5 frames were waiting") == switching.decide(USUAL, Observation(0.2, 5, 5, 0))


@pytest.mark.parametrize(
    ("window", "queue", "mark"),
    [(2, None, 8), (7, None, 14), (7, 40, 14), (7, 20, 10), (2, 5, 2), (2, 1, 2)],
)
def test_frames_may_wait_beyond_the_mark_that_begins_a_surge(
    window: int, queue: int | None, mark: int
) -> None:
    assert mark == surge_queue(RunOptions(queue=queue), window)


def test_a_result_that_comes_with_each_arrival_is_no_sign_of_a_busy_route() -> None:
    switching = Automatic(replace(OPTIONS, normal_fps=None), 1)
    for frame in range(100):
        assert USUAL == switching.decide(USUAL, Observation(frame / 10, 1 + frame, 1, frame))[0]
    assert switching.normal_fps is None


def test_a_surge_of_few_frames_ends_with_a_reason() -> None:
    switching = Automatic(replace(OPTIONS, normal_fps=None, surge_queue=2), 1)
    assert SURGE == switching.decide(USUAL, Observation(0.0, 2, 2, 0))[0]
    assert SURGE == switching.decide(SURGE, Observation(1.0, 3, 1, 2))[0]
    ended = switching.decide(SURGE, Observation(2.0, 4, 1, 3))
    assert (USUAL, "few frames waited for 1 s") == ended


def test_arrivals_that_are_too_many_begin_a_surge_before_frames_wait() -> None:
    job = Job(Automatic(replace(OPTIONS, surge_queue=1000), 1))
    job.run(arrivals((15.0, 2.0), (24.0, 3.0)))
    assert [SURGE] == [route for _, route in job.changes]
    assert job.most_waiting < 3


def test_a_surge_ends_though_the_normal_rate_was_never_learnt() -> None:
    # All at once: none came out while they waited, so nothing is known of the normal route.
    job = Job(Automatic(replace(OPTIONS, normal_fps=None, surge_queue=2), 1))
    job.run([*arrivals((1000.0, 0.02)), *(1 + time_s for time_s in arrivals((5.0, 20.0)))])
    assert [SURGE, USUAL] == [route for _, route in job.changes[:2]]


def test_a_pause_ends_a_surge_at_the_next_frame() -> None:
    job = Job(Automatic(OPTIONS, 1))
    job.run([*arrivals((45.0, 5.0)), 60.0, 62.0, 64.0, 66.0])
    assert [SURGE, USUAL] == [route for _, route in job.changes]


def test_two_cameras_at_once_end_a_surge_though_a_frame_of_each_pair_waits() -> None:
    job = Job(Automatic(OPTIONS, 1), route=SURGE)
    job.run([time_s for time_s in arrivals((5.0, 5.0)) for _ in range(2)])
    assert [USUAL] == [route for _, route in job.changes]


def test_a_surge_does_not_end_while_more_than_half_of_the_mark_wait() -> None:
    switching = Automatic(replace(OPTIONS, surge_queue=8), 1)
    seen = [switching.decide(SURGE, Observation(float(now), 1, 5, 0))[0] for now in range(20)]
    assert {SURGE} == {*seen}
    assert SURGE == switching.decide(SURGE, Observation(20.0, 1, 4, 0))[0]
    assert USUAL == switching.decide(SURGE, Observation(21.0, 1, 4, 0))[0]


@pytest.mark.parametrize("seed", range(5))
def test_jitter_between_both_marks_changes_the_route_once_at_most(seed: int) -> None:
    for route in (USUAL, SURGE):
        job = Job(Automatic(OPTIONS, 1), route=route)
        job.run(arrivals((20.0, 60.0), jitter=0.3, seed=seed))
        assert len(job.changes) <= 1


@pytest.mark.parametrize("share", [0.5, 0.6, 0.7])
def test_arrivals_that_are_irregular_seldom_begin_a_surge(share: float) -> None:
    changes = []
    for seed in range(5):
        gaps_s = np.random.default_rng(seed).exponential(1 / (25 * share), round(25 * share * 60))
        job = Job(Automatic(OPTIONS, 1))
        job.run(np.cumsum(gaps_s).tolist())
        changes.append(len(job.changes))
    assert max(changes) <= 6
    assert sum(changes) / 5 <= 4


@pytest.mark.parametrize("seed", range(5))
def test_a_surge_of_irregular_arrivals_begins_and_ends(seed: int) -> None:
    random = np.random.default_rng(seed)
    gaps_s = np.concatenate([random.exponential(1 / fps, 10 * fps) for fps in (8, 60, 8)])
    job = Job(Automatic(OPTIONS, 1))
    job.run(np.cumsum(gaps_s).tolist())
    assert [SURGE, USUAL] == [route for _, route in job.changes]
    assert job.most_waiting < 20


def too_slow_at_first() -> Automatic:
    """Return what learnt 2 frames/s, as an accelerator was slow for two seconds; and is in a surge.

    Frames arrive at 15 a second, which it can handle otherwise.
    """
    switching = Automatic(replace(OPTIONS, normal_fps=None), 1)
    switching.decide(USUAL, Observation(0.0, 1, 1, 0))
    for second in range(5):
        switching.decide(USUAL, Observation(second / 2, 1 + second, 4, second))
    assert 2.0 == switching.normal_fps
    assert SURGE == switching.decide(USUAL, Observation(2.0, 5, 25, 4))[0]
    return switching


def test_a_rate_that_was_learnt_too_low_keeps_no_job_in_the_surge() -> None:
    job = Job(too_slow_at_first(), route=SURGE)
    job.run([3 + time_s for time_s in arrivals((15.0, 120.0), jitter=0.3)])
    assert [USUAL] == [route for _, route in job.changes]
    assert 30 <= job.changes[0][0] < 35


def test_a_rate_that_was_given_is_not_tried() -> None:
    job = Job(Automatic(OPTIONS, 1), route=SURGE)
    job.run(arrivals((45.0, 120.0)))
    assert [] == job.changes


@pytest.mark.parametrize("seed", range(5))
def test_a_long_surge_tries_the_usual_route_more_and_more_seldom(seed: int) -> None:
    job = Job(Automatic(replace(OPTIONS, normal_fps=None), 1))
    job.run(arrivals((15.0, 10.0), (45.0, 450.0), (15.0, 10.0), jitter=0.3, seed=seed))
    trials = [time_s for time_s, route in job.changes if route == USUAL][:-1]
    assert 4 >= len(trials) >= 2
    gaps_s = np.diff([10.0, *trials])
    assert all(gaps_s[1:] > 1.8 * gaps_s[:-1])
    assert USUAL == job.route
    assert job.most_waiting < 25


def test_what_is_learnt_after_a_change_is_the_rate_and_not_the_time_through_the_route() -> None:
    switching = Automatic(replace(OPTIONS, normal_fps=None, surge_queue=100), 1)
    switching.decide(SURGE, Observation(0.0, 20, 10, 10))
    # The route was empty: its first result takes two seconds, the others 0.1 s each.
    times_s = [1.0, 3.0, 3.1, 3.2, 3.3]
    for out, now_s in enumerate(times_s):
        switching.decide(USUAL, Observation(now_s, 40, 20, 15 + out))
    assert 10.0 == pytest.approx(switching.normal_fps)


@given(
    st.lists(st.tuples(st.sampled_from([5.0, 15.0, 45.0, 70.0]), st.floats(1, 8)), max_size=5),
    st.sampled_from([25.0, None]),
    st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_no_job_stays_in_a_surge_that_is_over(
    parts: list[tuple[float, float]], normal_fps: float | None, seed: int
) -> None:
    job = Job(Automatic(replace(OPTIONS, normal_fps=normal_fps), 1))
    job.run(arrivals(*parts, (8.0, 70.0), jitter=0.3, seed=seed))
    assert USUAL == job.route
    over_s = sum(seconds for _, seconds in parts)
    after = [time_s for time_s, _ in job.changes if time_s > over_s + 3]
    assert len(after) <= (0 if normal_fps else 2)
