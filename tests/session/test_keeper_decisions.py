"""What the keeper decides, over all orders of what may happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from rankslice.session.keeper.decisions import (
    NO_JOB,
    Closed,
    Deliver,
    Event,
    GiveUp,
    JobEnded,
    Ready,
    Replace,
    Replaced,
    ResultArrived,
    Send,
    SendEnd,
    State,
    Submitted,
    UnexpectedResultError,
    Withdrawn,
    decide,
)


@dataclass(frozen=True)
class World:
    """A keeper, the jobs of all epochs, and whoever gives frames."""

    state: State
    jobs: int = 1
    """How many have been started; all but the first one wait, or start when they are needed."""
    most_jobs: int = 1
    frames: int = 3
    given: int = 0
    withdrawn: frozenset[int] = frozenset()
    is_closed: bool = False
    delivered: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    in_jobs: tuple[tuple[int, ...], ...] = ((), (), (), ())
    """By epoch, the frames that were sent and did not come out."""
    ready: frozenset[int] = frozenset()
    over: frozenset[int] = frozenset()
    ended_streams: frozenset[int] = frozenset()
    sought_for: int | None = None
    """The job for which another one is sought."""

    def events(self) -> Iterator[tuple[Event, World]]:
        """Yield all that may happen next; also what a job says that has been replaced."""
        if self.given < self.frames and not self.is_closed:
            yield Submitted(self.given), replace(self, given=self.given + 1)
        for frame in range(self.given):
            if frame not in self.withdrawn and frame in self.state.waiting:
                yield Withdrawn(frame), replace(self, withdrawn=self.withdrawn | {frame})
        if not self.is_closed:
            yield Closed(), replace(self, is_closed=True)
        for epoch, inside in enumerate(self.in_jobs[: self.jobs]):
            if epoch in self.over:
                continue
            if epoch not in self.ready:
                yield Ready(epoch), replace(self, ready=self.ready | {epoch})
            if inside:
                yield ResultArrived(epoch), self.with_frames(epoch, inside[1:])
            yield JobEnded(epoch), replace(self, over=self.over | {epoch})
            # A job may be known to have failed, and still say something.
            yield JobEnded(epoch), self
        if self.sought_for is not None:
            found = replace(self, sought_for=None)
            yield Replaced(None), found
            for epoch in range(self.sought_for + 1, self.jobs):
                yield Replaced(epoch), found
            if self.jobs < self.most_jobs:
                yield Replaced(self.jobs), replace(found, jobs=self.jobs + 1)

    def with_frames(self, epoch: int, frames: tuple[int, ...]) -> World:
        """Return the world with these frames in a job."""
        jobs = list(self.in_jobs)
        jobs[epoch] = frames
        return replace(self, in_jobs=tuple(jobs))

    def after(self, event: Event, noted: World) -> World:
        """Return the world after an event, which the noted one knows."""
        state, actions = decide(self.state, event)
        world = replace(noted, state=state)
        for action in actions:
            if isinstance(action, Send):
                assert action.epoch == state.epoch
                assert action.epoch not in world.ended_streams
                frames = (*world.in_jobs[action.epoch], action.frame)
                world = world.with_frames(action.epoch, frames)
            elif isinstance(action, SendEnd):
                assert action.epoch not in world.ended_streams
                assert action.epoch in world.ready
                world = replace(world, ended_streams=world.ended_streams | {action.epoch})
            elif isinstance(action, Replace):
                assert world.sought_for is None
                assert action.epoch in state.over
                world = replace(world, sought_for=action.epoch)
            elif isinstance(action, Deliver):
                assert isinstance(event, ResultArrived)
                # The result that has come is that of this frame.
                assert action.frame == self.in_jobs[event.epoch][0]
                world = replace(world, delivered=(*world.delivered, action.frame))
            elif isinstance(action, GiveUp):
                world = replace(world, given_up=(*world.given_up, action.frame))
        return world

    def check(self) -> None:
        """Each frame is kept or had one end; results are in order; no job waits forever."""
        assert sorted(self.delivered) == list(self.delivered)
        ends = [*self.delivered, *self.given_up, *self.withdrawn]
        kept = [*self.state.inside, *self.state.waiting]
        assert sorted([*ends, *kept]) == [*range(self.given)]
        assert kept == sorted(kept)
        assert len(self.state.inside) <= self.state.ahead
        if self.state.has_ended:
            assert [] == kept
            assert self.ready - self.state.over <= self.ended_streams
        elif self.state.epoch == NO_JOB:
            assert self.sought_for is not None
        else:
            assert self.state.epoch not in self.state.over


@pytest.mark.parametrize(
    ("ahead", "waiting", "jobs", "frames"),
    [
        (1, 0, 1, 3),
        (2, 0, 1, 3),
        (1, 0, 2, 3),
        (1, 1, 2, 2),
        pytest.param(1, 1, 3, 2, marks=pytest.mark.ci),
        pytest.param(2, 2, 3, 2, marks=pytest.mark.ci),
        pytest.param(2, 2, 3, 3, marks=pytest.mark.slow),
        pytest.param(1, 0, 3, 3, marks=pytest.mark.slow),
    ],
)
def test_no_order_of_events_loses_a_frame_or_delivers_it_twice(
    ahead: int, waiting: int, jobs: int, frames: int
) -> None:
    """A job for each board that may be lost, and those that wait beside."""
    left = [World(State(ahead), jobs=1 + waiting, most_jobs=jobs, frames=frames)]
    seen = {*left}
    ends = set()
    while left:
        world = left.pop()
        world.check()
        if world.state.has_ended:
            ends.add((len(world.delivered), len(world.given_up)))
        for event, noted in world.events():
            after = world.after(event, noted)
            if after not in seen:
                seen.add(after)
                left.append(after)
    assert len(seen) > 100
    assert {(frames, 0), (0, frames), (1, frames - 1)} <= ends


def test_frames_are_sent_again_into_the_job_that_follows() -> None:
    state = State(2)
    for event in (Submitted(0), Submitted(1), Submitted(2), Ready(0), ResultArrived(0)):
        state, actions = decide(state, event)
    assert (Deliver(0), Send(0, 2)) == actions
    state, actions = decide(state, JobEnded(0))
    assert (Replace(0),) == actions
    state, actions = decide(state, Replaced(1))
    assert () == actions
    state, actions = decide(state, Ready(1))
    assert (Send(1, 1), Send(1, 2)) == actions
    assert (state, ()) == decide(state, ResultArrived(0))


def test_a_job_that_waits_gets_the_frames_at_once() -> None:
    state = State(2)
    for event in (Ready(0), Ready(1), Submitted(0), JobEnded(0)):
        state, _ = decide(state, event)
    _, actions = decide(state, Replaced(1))
    assert (Send(1, 0),) == actions


def test_a_successor_that_has_ended_meanwhile_is_replaced() -> None:
    state = State(2)
    for event in (Ready(0), Ready(1), Submitted(0), JobEnded(0), JobEnded(1)):
        state, _ = decide(state, event)
    _, actions = decide(state, Replaced(1))
    assert (Replace(1),) == actions


def test_jobs_that_wait_are_ended_with_the_last_result() -> None:
    state = State(2)
    for event in (Ready(0), Ready(1), Submitted(0), Closed(), ResultArrived(0)):
        state, _ = decide(state, event)
    state, actions = decide(state, JobEnded(0))
    assert (SendEnd(1),) == actions
    assert (state, (SendEnd(2),)) == decide(state, Ready(2))


def test_a_result_that_nobody_waits_for_is_an_error() -> None:
    with pytest.raises(UnexpectedResultError):
        decide(State(1, ready=frozenset({0})), ResultArrived(0))
