"""Source and sink of two routes, stage by stage, without threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.pipeline.routes import RoutedSink, RoutedSource
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.stages import CREDITS, Entry, Input
from rankslice.backend.runtime.pipeline.wiring import CREDIT
from rankslice.backend.runtime.sizes import Slot
from rankslice.backend.runtime.sources import EndOfStreamError
from rankslice.backend.runtime.sources.arrivals import Arrivals, Pulled, Queue, Timed
from rankslice.backend.runtime.sources.switching import SURGE, USUAL, Observation

NUMBER = Tensor("x", "int64", (1,))


class Numbers:
    """Frames with their number, and the numbers of the results that came."""

    can_replay = True
    waited_s = 0.0

    def __init__(self, frames: int | None) -> None:
        self.frames = frames
        self.written: list[int] = []

    def read(self, index: int, outputs: Sequence[Slot]) -> None:
        if index == self.frames:
            raise EndOfStreamError
        for values in outputs:
            values[...] = index

    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        assert [[frame]] * len(outputs) == [values.tolist() for values in outputs]
        self.written.append(frame)

    def label(self, index: int) -> str:
        return str(index)

    def finish(self) -> None:
        self.written.append(-1)

    def close(self) -> None:
        pass


class Told:
    """Chooses the route that it was told."""

    def __init__(self) -> None:
        self.route = USUAL
        self.asked: list[Observation] = []

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        self.asked.append(seen)
        return self.route, "told so"


class Job:
    """A source and a sink, and rings of two routes in between that the test moves frames through.

    On the usual route the inputs are the outputs. On the other one there are a stage and two rings
    of inputs, of which the sink sees both.
    """

    def __init__(
        self,
        frames: int = 9,
        windows: tuple[int, int] = (2, 3),
        *,
        knows_length: bool = True,
        arrivals: Arrivals | None = None,
    ) -> None:
        self.told = Told()
        self.usual = Ring(NUMBER, 3, 1)
        self.surge = [Ring(NUMBER, 4, 1) for _ in range(2)]
        self.credits = Ring(CREDIT, max(windows), 1)
        self.kept = Numbers(None)
        outputs = ([self.usual], self.surge)
        entries = [Entry(*each) for each in zip(outputs, windows, strict=True)]
        self.source = RoutedSource(
            Numbers(frames),
            arrivals or Pulled(frames if knows_length else None),
            entries,
            Input(self.credits, 0),
            self.told,
        )
        exits = [[Input(ring, 0) for ring in rings] for rings in outputs]
        self.sink = RoutedSink([self.kept], exits, self.credits)

    def let_in(self) -> int:
        """Let in as many frames as there is room for; return their number."""
        before = self.source.frame
        while not self.source.finished and self.source.is_ready():
            self.source.step()
        return self.source.frame - before

    def let_out(self, most: int = 99) -> int:
        """Take out the results that are there; return their number."""
        before = self.sink.frame
        while most and not self.sink.finished and self.sink.is_ready():
            self.sink.step()
            most -= 1
        return self.sink.frame - before


def test_frames_enter_the_usual_route_at_first_up_to_its_window() -> None:
    job = Job()
    assert 2 == job.let_in() == job.usual.written
    assert [0, 0] == [ring.written for ring in job.surge]
    assert [] == job.source.choice.changes


def test_a_surge_is_looked_at_while_no_frame_arrives() -> None:
    job = Job(arrivals=Timed(9, [0.0, 100.0], Queue(9, "fail", clock=lambda: 0.0)))
    assert 1 == job.let_in()
    assert 100.0 == job.source.pause_s()
    job.told.route = SURGE
    assert 1 == job.let_out()
    job.source.take_credits()
    assert 0 == job.let_in()
    assert 0.25 == job.source.pause_s()


def test_each_route_has_its_window() -> None:
    job = Job(windows=(2, 3))
    job.told.route = SURGE
    assert 3 == job.let_in()
    job = Job(windows=(3, 1))
    job.told.route = SURGE
    assert 1 == job.let_in()


def test_the_route_changes_once_nothing_is_inside() -> None:
    job = Job()
    job.let_in()
    job.told.route = SURGE
    for _ in range(2):
        assert not job.source.is_ready()
        assert CREDITS == job.source.lacks
        assert 0 == job.let_in()
        job.let_out(1)
        # The credit is there, but has not been taken.
        assert 0 == job.let_in()
        job.source.take_credits()
    assert job.source.is_ready()
    assert not job.source.lacks
    assert 3 == job.let_in()
    assert [2, 3, 3] == [ring.written for ring in (job.usual, *job.surge)]
    (change,) = job.source.choice.changes
    assert (2, "surge", 1, "told so") == (
        change.frame,
        change.route,
        change.waiting,
        change.reason,
    )


def test_the_choice_stands_while_frames_leave_the_old_route() -> None:
    job = Job()
    job.let_in()
    job.told.route = SURGE
    assert not job.source.is_ready()
    asked = len(job.told.asked)
    job.told.route = USUAL
    assert 0 == job.let_in()
    assert asked == len(job.told.asked)
    job.let_out()
    job.source.take_credits()
    # A frame takes the route that was chosen; then that for the next ones is chosen anew.
    assert 1 == job.let_in() == job.surge[0].written
    assert ["surge"] == [change.route for change in job.source.choice.changes]
    assert 1 == job.let_out()
    job.source.take_credits()
    assert 2 == job.let_in()
    assert ["surge", "normal"] == [change.route for change in job.source.choice.changes]


def test_what_the_choice_is_made_from_is_counted() -> None:
    job = Job()
    job.let_in()
    job.let_out(1)
    job.source.take_credits()
    job.let_in()
    seen = job.told.asked[-1]
    assert (4, 1, 1) == (seen.arrived, seen.waiting, seen.came_out)


@pytest.mark.parametrize("knows_length", [True, False])
def test_frames_come_in_order_whatever_routes_they_take(knows_length: bool) -> None:
    job = Job(frames=40, knows_length=knows_length)
    for step in range(400):
        job.told.route = (step // 7) % 2
        job.let_in()
        job.let_out(step % 3)
        job.source.take_credits()
    assert [*range(40), -1] == job.kept.written
    assert job.usual.end not in (None, 0, 40)
    assert [40] * 2 == [(job.usual.end or 0) + (ring.end or 0) for ring in job.surge]
    assert 40 == sum(count for _, _, count in job.source.latencies.counts_ms())
    assert 4 <= len(job.source.choice.changes)


@pytest.mark.parametrize("wanted", [USUAL, SURGE])
@pytest.mark.parametrize("knows_length", [True, False])
def test_the_end_reaches_both_routes(wanted: int, knows_length: bool) -> None:
    job = Job(frames=2, knows_length=knows_length)
    job.let_in()
    job.told.route = wanted
    for _ in range(3):
        job.let_out(1)
        job.source.take_credits()
        job.let_in()
    assert job.source.finished
    assert [2, 0, 0] == [ring.end for ring in (job.usual, *job.surge)]
    job.let_out()
    assert job.sink.finished
    assert [0, 1, -1] == job.kept.written


def test_a_change_before_a_frame_that_does_not_come_is_not_told() -> None:
    job = Job(frames=2, knows_length=False)
    job.let_in()
    job.let_out()
    job.source.take_credits()
    job.told.route = SURGE
    job.let_in()
    assert job.source.finished
    assert () == job.source.figures().switches


def test_the_sink_waits_for_all_results_of_a_frame() -> None:
    job = Job()
    first, second = job.surge
    first.put()
    assert not job.sink.is_ready()
    second.put()
    assert job.sink.is_ready()


def test_the_sink_waits_for_room_for_the_credit_and_for_the_end_of_both_routes() -> None:
    job = Job(windows=(1, 1))
    assert 1 == job.let_in() == job.let_out()
    job.usual.put()
    assert not job.sink.is_ready()
    job.source.take_credits()
    job.usual.slots[1][...] = 1
    assert 1 == job.let_out()
    for ring in job.surge:
        ring.finish()
    assert not job.sink.is_ready()
    job.usual.finish()
    assert job.sink.is_ready()


def test_times_of_changes_count_from_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    job = Job()
    # Other ranks load their sub-models.
    now_s = 160.0
    job.let_in()
    now_s = 162.5
    job.told.route = SURGE
    job.let_out()
    job.source.take_credits()
    job.let_in()
    assert [2.5] == [change.time_s for change in job.source.figures().switches]
