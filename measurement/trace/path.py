"""Where the time of a span went: the critical path, and what each rank did and waited for.

The critical path has the steps and waits that no other work hid, from the last result back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import COMPUTE, READ, RECEIVE, SEND, THREADS, WRITE
from rankslice.backend.runtime.summary.rates import frames_to_fill
from rankslice.measurement.trace.journeys import NEVER, Cause, Journeys, Reason, Times

_AT_ONCE_NS, _AT_ONCE = 30_000, 0.1
"""A thread that goes on to its next step within that time, or that share of the step before, has
waited for nothing."""


class Activity(Enum):
    """What a part of the critical path is."""

    rank = "rank"
    """A rank did a step of a segment, or came from one to the next."""
    link = "link"
    read = "read"
    """The source made a frame."""
    write = "write"
    """The sink took results."""
    arrivals = "arrivals"
    """The next frame had not arrived."""
    waking = "waking"
    """A frame was handed to another thread."""


@dataclass(frozen=True, slots=True)
class Part:
    """What took time on the critical path, and where."""

    activity: Activity
    rank: int = NEVER
    """That did it, or to which the message went."""
    channel: int = NEVER
    """Of a message."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time that is looked at, in nanoseconds."""

    begin_ns: int
    end_ns: int
    frames: int

    @property
    def period_ms(self) -> float:
        return (self.end_ns - self.begin_ns) / 1e6 / max(1, self.frames)


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Where the time between the first and the last result went."""

    shares: Mapping[Part, float]
    """Of the time, from 0 to 1; together 1."""
    rounds: int
    """How often it went from the entry of a frame to an older one that had to come out first."""
    steps: NDArray[np.int64]
    """[step, 2]: row and frame of each step, the last one first."""


def steady_span(journeys: Journeys) -> Span | None:
    """Return the time after the pipeline has filled; of very few frames all of it.

    ``None``: fewer than two results came out.
    """
    for row in (place for place, row in enumerate(journeys.rows) if row.kind == WRITE):
        written = np.flatnonzero(journeys.ends[row] > NEVER)
        if len(written) < 2:
            return None
        fill = frames_to_fill(journeys.window)
        # Where older events were overwritten, the pipeline was full already.
        skipped = fill - 1 if len(written) > 2 * fill and not journeys.first else 0
        first, last = written[skipped], written[-1]
        ends = journeys.ends[row]
        return Span(int(ends[first]), int(ends[last]), len(written) - 1 - skipped)
    return None


def whole_span(journeys: Journeys) -> Span:
    """Return the time of all steps, in which it does not count how many frames came out."""
    is_there = journeys.ends > NEVER
    return Span(int(journeys.begins[is_there].min()), int(journeys.ends[is_there].max()), 0)


def critical_path(journeys: Journeys, span: Span) -> CriticalPath:
    """Return the critical path of a span, which ends with its last result.

    From each step it goes back to what ended last of all that the step had to wait for.
    If no frames came out, it is empty.
    """
    if not span.frames:
        return CriticalPath({}, 0, np.empty((0, 2), np.int64))
    latest = _latest(journeys)
    begins, ends = journeys.begins, journeys.ends
    times: dict[Part, int] = defaultdict(int)
    steps: list[tuple[int, int]] = []
    sink = next(place for place, row in enumerate(journeys.rows) if row.kind == WRITE)
    row, frame = sink, int(np.flatnonzero(ends[sink] == span.end_ns)[-1])
    cursor, rounds = span.end_ns, 0

    def pass_by(part: Part, until_ns: int) -> None:
        nonlocal cursor
        until_ns = max(span.begin_ns, until_ns)
        if until_ns < cursor:
            times[part] += cursor - until_ns
            cursor = until_ns

    seen: set[tuple[int, int]] = set()
    while cursor > span.begin_ns and (row, frame) not in seen:
        seen.add((row, frame))  # clocks that disagree may lead in a circle
        steps.append((row, frame))
        kind = journeys.rows[row].kind
        is_message = kind in (SEND, RECEIVE)
        step = _part(journeys, row)
        if not is_message:
            pass_by(step, int(begins[row, frame]))
        cause = journeys.causes[row][latest[row][frame]]
        if cause.frames[frame] == NEVER:
            break
        if cause.reason is Reason.frame:
            pass_by(Part(Activity.waking, journeys.plan.job.source), int(cause.times[frame]))
            frame = frame - 1
            if frame < 0 or ends[row, frame] == NEVER:
                break
            pass_by(Part(Activity.arrivals), int(ends[row, frame]))
            continue
        stays = is_message or cause.reason is Reason.busy
        gap = step if stays else Part(Activity.waking, journeys.rows[row].rank)
        pass_by(gap, int(cause.times[frame]))
        rounds += cause.reason is Reason.window
        row, frame = int(cause.rows[frame]), int(cause.frames[frame])
    total = max(1, span.end_ns - span.begin_ns)
    # What comes before the first event that was kept is not known: the shares are of the rest.
    total -= cursor - span.begin_ns
    shares = {part: time / max(1, total) for part, time in times.items()}
    return CriticalPath(shares, rounds, np.array(steps, np.int64).reshape(-1, 2))


def _part(journeys: Journeys, place: int) -> Part:
    row = journeys.rows[place]
    if row.kind in (SEND, RECEIVE):
        return Part(Activity.link, journeys.channel(row).destination, row.number)
    activity = {COMPUTE: Activity.rank, READ: Activity.read, WRITE: Activity.write}[row.kind]
    return Part(activity, row.rank)


def _latest(journeys: Journeys) -> list[NDArray[np.int64]]:
    """Return by row, for each frame, the place of the cause that ended last.

    A thread that computes notes messages when its step has ended: what came shortly after a step
    may have come during the step, and is not what the next one waited for.
    """
    latest = []
    for place, (busy, *others) in enumerate(journeys.causes):
        last = np.argmax(np.stack([cause.times for cause in (busy, *others)]), axis=0)
        if journeys.rows[place].kind not in (SEND, RECEIVE):
            before = busy.rows, np.maximum(busy.frames, 0)
            took = journeys.ends[before] - journeys.begins[before]
            gap = journeys.begins[place] - busy.times
            at_once = gap <= np.maximum(_AT_ONCE_NS, _AT_ONCE * took)
            last = np.where((busy.frames > NEVER) & at_once, 0, last)
        latest.append(last)
    return latest


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
