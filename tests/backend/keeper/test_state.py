"""What the keeper decides, over all orders of what may happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from rankslice.backend.keeper.state import (
    CameOut,
    Closed,
    Deliver,
    Event,
    Given,
    GiveUp,
    JobEnded,
    Ready,
    Send,
    SendEnd,
    Start,
    State,
    UnexpectedResultError,
    Withdrawn,
    decide,
)

FRAMES = 3


@dataclass(frozen=True)
class World:
    """A keeper, the jobs of all epochs, and whoever gives frames."""

    state: State
    given: int = 0
    withdrawn: frozenset[int] = frozenset()
    is_closed: bool = False
    delivered: tuple[int, ...] = ()
    given_up: tuple[int, ...] = ()
    in_jobs: tuple[tuple[int, ...], ...] = ((),)
    """By epoch, the frames that were sent and did not come out."""
    ready: frozenset[int] = frozenset()
    over: frozenset[int] = frozenset()
    ended_streams: frozenset[int] = frozenset()

    def events(self) -> Iterator[Event]:
        """Yield all that may happen next; also what a job says that has been replaced."""
        if self.given < FRAMES and not self.is_closed:
            yield Given(self.given)
        for frame in range(self.given):
            if frame not in self.withdrawn and frame in self.state.waiting:
                yield Withdrawn(frame)
        if not self.is_closed:
            yield Closed()
        for epoch, inside in enumerate(self.in_jobs):
            if epoch in self.over:
                continue
            if epoch not in self.ready:
                yield Ready(epoch)
            if inside:
                yield CameOut(epoch)
            yield JobEnded(epoch)

    def after(self, event: Event) -> World:
        """Return the world after an event."""
        world = self._noted(event)
        state, actions = decide(world.state, event)
        world = replace(world, state=state)
        for action in actions:
            if isinstance(action, Send):
                assert action.epoch == state.epoch
                assert action.epoch not in world.ended_streams
                jobs = list(world.in_jobs)
                jobs[action.epoch] = (*jobs[action.epoch], action.frame)
                world = replace(world, in_jobs=tuple(jobs))
            elif isinstance(action, SendEnd):
                assert action.epoch not in world.ended_streams
                world = replace(world, ended_streams=world.ended_streams | {action.epoch})
            elif isinstance(action, Start):
                assert len(world.in_jobs) == action.epoch
                world = replace(world, in_jobs=(*world.in_jobs, ()))
            elif isinstance(action, Deliver):
                assert isinstance(event, CameOut)
                # The result that has come is that of this frame.
                assert action.frame == self.in_jobs[event.epoch][0]
                world = replace(world, delivered=(*world.delivered, action.frame))
            elif isinstance(action, GiveUp):
                world = replace(world, given_up=(*world.given_up, action.frame))
        return world

    def _noted(self, event: Event) -> World:
        if isinstance(event, Given):
            return replace(self, given=self.given + 1)
        if isinstance(event, Withdrawn):
            return replace(self, withdrawn=self.withdrawn | {event.frame})
        if isinstance(event, Closed):
            return replace(self, is_closed=True)
        if isinstance(event, Ready):
            return replace(self, ready=self.ready | {event.epoch})
        if isinstance(event, JobEnded):
            return replace(self, over=self.over | {event.epoch})
        jobs = list(self.in_jobs)
        jobs[event.epoch] = jobs[event.epoch][1:]
        return replace(self, in_jobs=tuple(jobs))

    def check(self) -> None:
        """Each frame is kept, or had exactly one end; results are in order."""
        assert sorted(self.delivered) == list(self.delivered)
        ends = [*self.delivered, *self.given_up, *self.withdrawn]
        kept = [*self.state.inside, *self.state.waiting]
        assert sorted([*ends, *kept]) == [*range(self.given)]
        assert kept == sorted(kept)
        assert len(self.state.inside) <= self.state.ahead
        if self.state.has_ended:
            assert [] == kept


@pytest.mark.parametrize(("ahead", "restarts"), [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
def test_no_order_of_events_loses_a_frame_or_delivers_it_twice(ahead: int, restarts: int) -> None:
    left = [World(State(ahead, restarts=restarts))]
    seen = {*left}
    ends = set()
    while left:
        world = left.pop()
        world.check()
        nexts = [world.after(event) for event in world.events()]
        if world.state.has_ended:
            ends.add((len(world.delivered), len(world.given_up)))
        for after in nexts:
            if after not in seen:
                seen.add(after)
                left.append(after)
    assert len(seen) > 100
    assert {(FRAMES, 0), (0, FRAMES), (1, FRAMES - 1)} <= ends


def test_frames_are_sent_again_into_the_job_that_follows() -> None:
    state = State(2, restarts=1)
    for event in (Given(0), Given(1), Given(2), Ready(0), CameOut(0)):
        state, actions = decide(state, event)
    assert (Deliver(0), Send(0, 2)) == actions
    state, actions = decide(state, JobEnded(0))
    assert (Start(1),) == actions
    state, actions = decide(state, Ready(1))
    assert (Send(1, 1), Send(1, 2)) == actions
    assert (state, ()) == decide(state, CameOut(0))


def test_a_result_that_nobody_waits_for_is_an_error() -> None:
    with pytest.raises(UnexpectedResultError):
        decide(State(1, is_ready=True), CameOut(0))
