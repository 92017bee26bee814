"""What each rank did with its time: computed, waited for what, sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import COMPUTE, READ, RECEIVE, SEND, THREADS, WRITE
from rankslice.measurement.trace.journeys import NEVER, Cause, Journeys, Reason, Times
from rankslice.measurement.trace.path import Span

_COMPUTES = THREADS.index("compute")


@dataclass(frozen=True, slots=True)
class Wait:
    """What the computing thread of a rank waited for."""

    reason: Reason
    share: float
    """Of the time, from 0 to 1."""
    tensor: str = ""
    """That it read or had to write."""
    rank: int = NEVER
    """That makes the tensor, or was not done with older frames of it."""
    channel: int = NEVER
    """By which the tensor came; :data:`NEVER`: it lies in memory that the ranks share."""
    on_the_way: float = 0.0
    """Share of the time in which the message was on its way."""


@dataclass(frozen=True, slots=True)
class RankUse:
    """What a rank did with its time; shares of it are from 0 to 1."""

    rank: int
    compute: float
    ends: float
    """In which the computing thread read frames or wrote results."""
    waits: tuple[Wait, ...]
    send: float
    """In which at least one message was on its way out; overlaps the others."""
    compute_ms: float
    """Mean time per frame that it handled."""

    @property
    def rest(self) -> float:
        """Share that is nothing of these: woken but not yet at work, say."""
        return max(0.0, 1 - self.compute - self.ends - sum(wait.share for wait in self.waits))

    def waits_for(self, *reasons: Reason) -> float:
        return sum(wait.share for wait in self.waits if wait.reason in reasons)


def uses(journeys: Journeys, span: Span) -> tuple[RankUse, ...]:
    return tuple(_use(journeys, span, rank.rank) for rank in journeys.plan.ranks)


def busy_share(journeys: Journeys, span: Span, ranks: Sequence[int]) -> float:
    """Return in which share of a span at least one of some ranks' computing threads did a step."""
    rows = [
        place
        for place, row in enumerate(journeys.rows)
        if row.rank in ranks and row.kind in (COMPUTE, READ, WRITE) and row.thread == _COMPUTES
    ]
    return _union(journeys, span, rows) / max(1, span.end_ns - span.begin_ns)


def _use(journeys: Journeys, span: Span, rank: int) -> RankUse:
    total = max(1, span.end_ns - span.begin_ns)
    rows = [(place, row) for place, row in enumerate(journeys.rows) if row.rank == rank]
    computes = [place for place, row in rows if row.kind == COMPUTE]
    sends = [place for place, row in rows if row.kind == SEND]
    ends = [p for p, row in rows if row.kind in (READ, WRITE) and row.thread == _COMPUTES]
    waits: dict[tuple[Reason, str, int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for place in (*computes, *ends):
        _add_waits(journeys, span, place, waits)
    frames = int((journeys.ends[computes] > NEVER).any(axis=0).sum()) if computes else 0
    whole = sum(int((journeys.ends[p] - journeys.begins[p]).sum()) for p in computes)
    longest = sorted(waits.items(), key=lambda item: -item[1][0])
    return RankUse(
        rank,
        compute=_within(journeys, span, computes) / total,
        ends=_within(journeys, span, ends) / total,
        waits=tuple(
            Wait(reason, share / total, tensor, maker, channel, way / total)
            for (reason, tensor, maker, channel), (share, way) in longest
            if share > 0
        ),
        send=_union(journeys, span, sends) / total,
        compute_ms=whole / 1e6 / frames if frames else 0.0,
    )


def _within(journeys: Journeys, span: Span, rows: Sequence[int]) -> float:
    return float(_clipped(journeys.begins[rows], journeys.ends[rows], span).sum())


def _clipped(begins: Times, ends: Times, span: Span) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = np.minimum(ends, span.end_ns) - np.maximum(begins, span.begin_ns)
    return np.maximum(lengths, 0)


def _union(journeys: Journeys, span: Span, rows: Sequence[int]) -> float:
    """Return how long at least one step of rows was under way within a span."""
    if not rows:
        return 0.0
    is_there = journeys.ends[rows] > NEVER
    begins, ends = journeys.begins[rows][is_there], journeys.ends[rows][is_there]
    order = np.argsort(begins)
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    # Each one counts from where all before it had ended.
    begins[1:] = np.maximum(begins[1:], ends[:-1])
    return float(_clipped(begins, ends, span).sum())


def _add_waits(
    journeys: Journeys,
    span: Span,
    row: int,
    waits: dict[tuple[Reason, str, int, int], list[float]],
) -> None:
    """Add what the steps of a row waited for after their thread had done the one before.

    A wait for input lasts until the last tensor is there. What is left of it until the last slot is
    free is a wait for room.
    """
    busy, *others = journeys.causes[row]
    cursor = np.where(busy.times > NEVER, busy.times, journeys.begins[row])
    for reasons in ((Reason.frame, Reason.input), (Reason.window, Reason.room)):
        causes = [cause for cause in others if cause.reason in reasons]
        if not causes:
            continue
        times = np.stack([cause.times for cause in causes])
        last = np.argmax(times, axis=0)
        until = np.minimum(times.max(axis=0), journeys.begins[row])
        is_wait = (until > cursor) & (journeys.ends[row] > NEVER)
        for number, cause in enumerate(causes):
            own = is_wait & (last == number)
            if own.any():
                entry = waits[_key(journeys, cause, own)]
                entry[0] += float(_clipped(cursor[own], until[own], span).sum())
                entry[1] += _on_the_way(journeys, span, cause, cursor, until, own)
        cursor = np.where(is_wait, until, cursor)


def _key(journeys: Journeys, cause: Cause, own: NDArray[np.bool_]) -> tuple[Reason, str, int, int]:
    place = int(cause.rows[own][0])
    if place == NEVER:
        return cause.reason, "", NEVER, NEVER
    row = journeys.rows[place]
    if row.kind not in (SEND, RECEIVE):
        return cause.reason, cause.tensor, row.rank, NEVER
    channel = journeys.channel(row)
    rank = channel.source if row.kind == RECEIVE else channel.destination
    return cause.reason, cause.tensor, rank, row.number


def _on_the_way(
    journeys: Journeys,
    span: Span,
    cause: Cause,
    cursor: Times,
    until: Times,
    own: NDArray[np.bool_],
) -> float:
    """Return for how long of these waits the message was on its way."""
    row = int(cause.rows[own][0])
    if row == NEVER or journeys.rows[row].kind != RECEIVE:
        return 0.0
    made = [cause.times for cause in journeys.causes[row] if cause.reason is Reason.input]
    if not made:
        return 0.0
    begun = np.maximum(cursor, np.stack(made).max(axis=0))
    return float(_clipped(begun[own], until[own], span).sum())
