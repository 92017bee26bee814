"""What the keeper decides: one function from a state and an event to a state and actions.

A frame *waits* until it is sent into a job, and is *inside* until its result comes. Frames are
sent in the order in which they were given, and as a job keeps the order, each result belongs to
the oldest frame inside. Each job has a number of its own, its *epoch*. One of them has the frames;
others may be loaded and wait. When that one is over, frames without a result are sent again, into
the job that replaces it. What other jobs say of results is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

NO_JOB = -1


@dataclass(frozen=True, slots=True)
class State:
    ahead: int
    """Most frames inside."""
    epoch: int = 0
    """Of the job that has the frames; :data:`NO_JOB` while another one is sought."""
    ready: frozenset[int] = frozenset()
    over: frozenset[int] = frozenset()
    """Jobs that have ended, or are known to have failed."""
    waiting: tuple[int, ...] = ()
    """Frames by number, the oldest first."""
    inside: tuple[int, ...] = ()
    is_closing: bool = False
    """Whether no more frames are given."""
    has_ended: bool = False

    @property
    def is_ready(self) -> bool:
        return self.epoch in self.ready


@dataclass(frozen=True, slots=True)
class Submitted:
    frame: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Whoever gave a frame does not want its result."""

    frame: int


@dataclass(frozen=True, slots=True)
class Ready:
    epoch: int


@dataclass(frozen=True, slots=True)
class ResultArrived:
    """A job's sink has sent a result."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Closed:
    pass


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job is over, or known to have failed. It may be said twice."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Replaced:
    """What takes over the frames was found."""

    epoch: int | None
    """The job; ``None``: there is none."""


Event: TypeAlias = Submitted | Withdrawn | Ready | ResultArrived | Closed | JobEnded | Replaced


@dataclass(frozen=True, slots=True)
class Send:
    epoch: int
    frame: int


@dataclass(frozen=True, slots=True)
class SendEnd:
    epoch: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand the result that has come to whoever gave the frame."""

    frame: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Tell whoever gave the frame that there will be no result."""

    frame: int


@dataclass(frozen=True, slots=True)
class Replace:
    """Find a job that takes over from one that is over."""

    epoch: int


Action: TypeAlias = Send | SendEnd | Deliver | GiveUp | Replace


class UnexpectedResultError(Exception):
    pass


def decide(state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    if state.has_ended:
        if isinstance(event, Submitted):
            return state, (GiveUp(event.frame),)
        return state, (SendEnd(event.epoch),) if isinstance(event, Ready) else ()
    if isinstance(event, Submitted):
        return _sent(replace(state, waiting=(*state.waiting, event.frame)))
    if isinstance(event, Withdrawn):
        left = tuple(frame for frame in state.waiting if frame != event.frame)
        return _sent(replace(state, waiting=left)) if left != state.waiting else (state, ())
    if isinstance(event, Closed):
        return (state, ()) if state.is_closing else _sent(replace(state, is_closing=True))
    if isinstance(event, Replaced):
        return _after_replacement(state, event.epoch)
    if event.epoch in state.over:
        return state, ()
    if isinstance(event, Ready):
        return _sent(replace(state, ready=state.ready | {event.epoch}))
    if isinstance(event, JobEnded):
        return _after_job(state, event.epoch)
    if event.epoch != state.epoch:
        return state, ()
    if not state.inside:
        raise UnexpectedResultError
    oldest, *inside = state.inside
    after, actions = _sent(replace(state, inside=tuple(inside)))
    return after, (Deliver(oldest), *actions)


def _sent(state: State) -> tuple[State, tuple[Action, ...]]:
    """Send what there is room for, and the end after the last frame."""
    if not state.is_ready:
        return state, ()
    room = state.ahead - len(state.inside)
    now, later = state.waiting[:room], state.waiting[room:]
    actions: tuple[Action, ...] = tuple(Send(state.epoch, frame) for frame in now)
    if state.is_closing and not later:
        # Sent once: what is not ready takes nothing.
        state = replace(state, ready=state.ready - {state.epoch})
        actions = (*actions, SendEnd(state.epoch))
    return replace(state, waiting=later, inside=(*state.inside, *now)), actions


def _after_job(state: State, epoch: int) -> tuple[State, tuple[Action, ...]]:
    state = replace(state, ready=state.ready - {epoch}, over=state.over | {epoch})
    if epoch != state.epoch:
        return state, ()
    left = (*state.inside, *state.waiting)
    if state.is_closing and not left:
        return _ended(state)
    return replace(state, epoch=NO_JOB, inside=(), waiting=left), (Replace(epoch),)


def _after_replacement(state: State, epoch: int | None) -> tuple[State, tuple[Action, ...]]:
    if state.epoch != NO_JOB:
        return state, ()
    if epoch is None:
        return _ended(state)
    if epoch in state.over:  # it has ended meanwhile
        return state, (Replace(epoch),)
    return _sent(replace(state, epoch=epoch))


def _ended(state: State) -> tuple[State, tuple[Action, ...]]:
    ended = replace(state, has_ended=True, ready=frozenset(), waiting=(), inside=())
    left = (*state.inside, *state.waiting)
    ends = (SendEnd(epoch) for epoch in sorted(state.ready))
    return ended, (*map(GiveUp, left), *ends)
