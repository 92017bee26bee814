"""What the keeper decides: one function from a state and an event to a state and actions.

A frame *waits* until it is sent into the job, and is *inside* until its result comes. Frames are
sent in the order in which they were given, and as a job keeps the order, each result belongs to
the oldest frame inside. A job may be followed by another one, which has the next *epoch*: frames
without a result are then sent again. What a former job still says is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class State:
    """All that decisions depend on."""

    ahead: int
    """Most frames inside."""
    epoch: int = 0
    is_ready: bool = False
    """Whether the job of this epoch takes frames."""
    waiting: tuple[int, ...] = ()
    """Frames by number, the oldest first."""
    inside: tuple[int, ...] = ()
    is_closing: bool = False
    """Whether no more frames are given."""
    has_ended: bool = False
    restarts: int = 0
    """How many more jobs may follow this one."""


@dataclass(frozen=True, slots=True)
class Given:
    """A frame was given."""

    frame: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """Whoever gave a frame does not want its result."""

    frame: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The source of a job has connected."""

    epoch: int


@dataclass(frozen=True, slots=True)
class CameOut:
    """A job's sink has sent a result."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Closed:
    """No more frames are given."""


@dataclass(frozen=True, slots=True)
class JobEnded:
    """A job is over, by itself or for a fault."""

    epoch: int


Event: TypeAlias = Given | Withdrawn | Ready | CameOut | Closed | JobEnded


@dataclass(frozen=True, slots=True)
class Send:
    """Send a frame into the job of an epoch."""

    epoch: int
    frame: int


@dataclass(frozen=True, slots=True)
class SendEnd:
    """Tell the job of an epoch that no more frames come."""

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
class Start:
    """Start the job of an epoch."""

    epoch: int


Action: TypeAlias = Send | SendEnd | Deliver | GiveUp | Start


class UnexpectedResultError(Exception):
    """A result came, and no frame is inside."""


def decide(state: State, event: Event) -> tuple[State, tuple[Action, ...]]:
    """Return what follows from an event.

    Raises:
        UnexpectedResultError: see there.
    """
    if state.has_ended:
        return state, (GiveUp(event.frame),) if isinstance(event, Given) else ()
    if isinstance(event, Given):
        return _sent(replace(state, waiting=(*state.waiting, event.frame)))
    if isinstance(event, Withdrawn):
        left = tuple(frame for frame in state.waiting if frame != event.frame)
        return _sent(replace(state, waiting=left)) if left != state.waiting else (state, ())
    if isinstance(event, Closed):
        return (state, ()) if state.is_closing else _sent(replace(state, is_closing=True))
    if event.epoch != state.epoch:
        return state, ()
    if isinstance(event, Ready):
        return _sent(replace(state, is_ready=True))
    if isinstance(event, CameOut):
        if not state.inside:
            raise UnexpectedResultError
        oldest, *inside = state.inside
        after, actions = _sent(replace(state, inside=tuple(inside)))
        return after, (Deliver(oldest), *actions)
    return _after_job(state)


def _sent(state: State) -> tuple[State, tuple[Action, ...]]:
    """Send what there is room for, and the end after the last frame."""
    if not state.is_ready:
        return state, ()
    room = state.ahead - len(state.inside)
    now, later = state.waiting[:room], state.waiting[room:]
    actions: tuple[Action, ...] = tuple(Send(state.epoch, frame) for frame in now)
    if state.is_closing and not later:
        # Sent once: what is not ready takes nothing.
        state, actions = replace(state, is_ready=False), (*actions, SendEnd(state.epoch))
    return replace(state, waiting=later, inside=(*state.inside, *now)), actions


def _after_job(state: State) -> tuple[State, tuple[Action, ...]]:
    left = (*state.inside, *state.waiting)
    is_over = state.is_closing and not left
    if is_over or not state.restarts:
        ended = replace(state, has_ended=True, is_ready=False, inside=(), waiting=())
        return ended, tuple(GiveUp(frame) for frame in left)
    epoch = state.epoch + 1
    again = replace(
        state,
        epoch=epoch,
        restarts=state.restarts - 1,
        is_ready=False,
        inside=(),
        waiting=left,
    )
    return again, (Start(epoch),)
