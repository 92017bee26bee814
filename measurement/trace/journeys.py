"""The journey of each frame: when each step of it began and ended, and what it waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    FRAME,
    READ,
    RECEIVE,
    SEND,
    WAIT,
    WRITE,
)
from rankslice.backend.runtime.job import Channel
from rankslice.backend.runtime.pipeline.wiring import (
    NO_PAIRS,
    Wiring,
    pairs_within_boards,
    wire_all,
)
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.measurement.trace.trace_events import Events, RankEvents, Trace

Times = NDArray[np.int64]
"""Nanoseconds, by frame; :data:`NEVER` where there is none."""

NEVER = -1
_MAX_FRAMES = 1 << 20
"""That are looked at: the last ones."""


class Reason(Enum):
    """What a step of a frame may have waited for."""

    busy = "busy"
    """Its thread did another step, or the channel brought an earlier frame."""
    input = "input"
    """A tensor that it reads."""
    room = "room"
    """A slot for what it writes: a reader was not done with an older frame."""
    window = "window"
    """An older frame to come out."""
    frame = "frame"
    """The frame's arrival."""


@dataclass(frozen=True, slots=True)
class Row:
    """Steps of one kind, one for each frame."""

    kind: int
    """``COMPUTE``, ``READ``, ``WRITE``, ``SEND`` or ``RECEIVE``."""
    rank: int
    number: int = 0
    """Of the segment in its rank, or of the channel."""
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Cause:
    """Something that must have happened before a step of a row could begin."""

    reason: Reason
    rows: Times
    """For each frame, the row of that; :data:`NEVER`: nothing that the pipeline does."""
    frames: Times
    """For each frame, the place of the frame of that; :data:`NEVER`: it waits for none."""
    times: Times
    tensor: str = ""
    """That is read or written."""


@dataclass(frozen=True, slots=True)
class Journeys:
    """All steps of all frames, in arrays of [row, frame], and what each could have waited for."""

    trace: Trace
    plan: Plan
    window: int
    first: int
    rows: tuple[Row, ...]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    arrived: Times
    """Of each frame, on the clock of the source."""
    out: Times
    causes: tuple[tuple[Cause, ...], ...]
    """By row."""

    @property
    def frames(self) -> int:
        return len(self.arrived)

    def channel(self, row: Row) -> Channel:
        return channel_of(self.plan, row.number)


def channel_of(plan: Plan, number: int) -> Channel:
    return next(channel for channel in plan.channels if channel.number == number)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Frames that follow each other and took the same of two routes."""

    route: int
    """0: the usual one, 1: that for a surge."""
    begin: int
    """Number of the first one in the stream."""
    end: int
    before: int
    """How many frames had taken this route before."""

    @property
    def shift(self) -> int:
        """What is added to the route's count of frames to get that of the stream."""
        return self.begin - self.before


def stretches_of(trace: Trace) -> list[Stretch]:
    """Return the stretches of a job with two routes, in order.

    The last one includes frames that have not come out. Frames of older ones that the source's
    events do not have are left out.
    """
    events = trace.ranks[trace.plan.job.source]
    out = trace.arrivals
    if not len(out):
        return []
    shifts = out["frame"] - out["number"]
    changes = np.flatnonzero((np.diff(out["route"]) != 0) | (np.diff(shifts) != 0)) + 1
    parts = np.split(out, changes)
    read = events.of(READ)
    read = read[read["route"] == out["route"][-1]]
    last = max(int(out["frame"][-1]), int(read["frame"].max(initial=NEVER)))
    ends = [*(int(part["frame"][0]) for part in parts[1:]), last + 1]
    return [
        Stretch(int(first["route"]), int(first["frame"]), end, int(first["number"]))
        for (first, *_), end in zip(parts, ends, strict=True)
    ]


def _on_stretch(trace: Trace, stretch: Stretch) -> Trace:
    """Select the ranks' events of the frames of a stretch, numbered as the route counts them."""
    plan = trace.plan.routes[stretch.route]
    channels = [channel.number for channel in plan.channels]
    last = stretch.before + stretch.end - stretch.begin

    def own(rank: RankEvents) -> RankEvents:
        events = rank.events.copy()
        kinds = events["kind"]
        events["frame"] -= np.where(np.isin(kinds, (READ, WRITE, FRAME)), stretch.shift, 0)
        is_of_route = np.where(kinds == COMPUTE, events["route"] == stretch.route, True)
        is_message = (kinds == SEND) | (kinds == RECEIVE)
        is_of_route &= ~is_message | np.isin(events["number"], channels)
        is_of_route &= (kinds != READ) | (events["route"] == stretch.route)
        inside = (events["frame"] >= stretch.before) & (events["frame"] < last)
        return replace(rank, events=events[is_of_route & (inside | (kinds == WAIT))])

    return replace(trace, plan=plan, ranks=tuple(map(own, trace.ranks)))


def journeys(trace: Trace, window: int | None = None, stretch: Stretch | None = None) -> Journeys:
    """Return the journeys of the frames whose events are there.

    Args:
        window: frames inside at most; the plan's by default.
        stretch: of a job with two routes, the frames to look at.

    Raises:
        RankSliceError: there are no events, or it is not told which route frames took.
    """
    if stretch is not None and trace.plan.surge is not None:
        trace = _on_stretch(trace, stretch)
    plan = trace.plan
    if plan.surge is not None:
        unclear = "has two routes, and no result shows which frames took which"
        raise RankSliceError(Mistake("the job", unclear, "trace a run that does not fail"))
    window = window or plan.job.window
    present = [_frames_of(rank) for rank in trace.ranks if len(rank.events)]
    if not present:
        raise RankSliceError(Mistake("the trace", "has no events", "give more --frames"))
    last = max(int(numbers.max(initial=NEVER)) for numbers in present)
    earliest = min(int(numbers.min(initial=last)) for numbers in present)
    first = max(last - _MAX_FRAMES + 1, 0, earliest)
    count = max(0, last - first + 1)
    rows, begins, ends = _rows(trace, first, count)
    framed = trace.ranks[plan.job.source].of(FRAME)
    arrived = _by_frame(framed, "begin_ns", first, count)
    out = _by_frame(framed, "end_ns", first, count)
    row_causes = _Causes(plan, _wirings(trace, plan, window), rows, begins, ends)
    causes = tuple(tuple(row_causes.of(row, arrived, out, window)) for row in range(len(rows)))
    first += stretch.shift if stretch is not None else 0
    return Journeys(trace, plan, window, first, rows, begins, ends, arrived, out, causes)


def longest_journeys(
    trace: Trace, window: int, surge_window: int | None
) -> tuple[Journeys, Stretch | None]:
    """Return the journeys of a run; of a job with two routes those of its longest stretch.

    Raises:
        RankSliceError: there are no events, or it is not told which route frames took.
    """
    if trace.plan.surge is None:
        return journeys(trace, window), None
    stretches = stretches_of(trace)
    longest = max(stretches, key=lambda stretch: stretch.end - stretch.begin, default=None)
    on_surge = longest is not None and longest.route
    return journeys(trace, (on_surge and surge_window) or window, longest), longest


def _frames_of(rank: RankEvents) -> NDArray[np.int64]:
    kinds, numbers = rank.events["kind"], rank.events["frame"]
    return np.asarray(numbers[(kinds != WAIT) & (kinds != FRAME) & (numbers >= 0)], np.int64)


def _by_frame(events: Events, field: str, first: int, count: int) -> Times:
    times = np.full(count, NEVER, np.int64)
    places = events["frame"] - first
    inside = (places >= 0) & (places < count)
    times[places[inside]] = events[field][inside]
    return times


def _rows(
    trace: Trace, first: int, count: int
) -> tuple[tuple[Row, ...], NDArray[np.int64], NDArray[np.int64]]:
    rows, begins, ends = [], [], []
    for rank in trace.ranks:
        for kind in (READ, COMPUTE, WRITE, SEND, RECEIVE):
            events = rank.of(kind)
            for number in np.unique(events["number"]):
                own = events[events["number"] == number]
                rows.append(Row(kind, rank.rank, int(number), int(own["thread"][0])))
                begins.append(_by_frame(own, "begin_ns", first, count))
                ends.append(_by_frame(own, "end_ns", first, count))
    if not rows:
        raise RankSliceError(Mistake("the trace", "has no steps", "give more --frames"))
    return tuple(rows), np.array(begins), np.array(ends)


def _wirings(trace: Trace, plan: Plan, window: int) -> tuple[Wiring, ...]:
    """Wire the ranks as in the run: those of a board share memory unless they sent messages."""
    job = plan.job
    board = [rank.board for rank in plan.ranks]
    within = {c.number for c in plan.channels if board[c.source] == board[c.destination]}
    sent = {int(number) for rank in trace.ranks for number in np.unique(rank.of(SEND)["number"])}
    direct = NO_PAIRS if within & sent else pairs_within_boards(job)
    return wire_all(job, window, direct)


_Ring = tuple[int, int]
"""A rank, and the number of one of its rings with slots of its own."""


class _Causes:
    """What steps of each row could have waited for."""

    def __init__(
        self,
        plan: Plan,
        wirings: Sequence[Wiring],
        rows: Sequence[Row],
        begins: NDArray[np.int64],
        ends: NDArray[np.int64],
    ) -> None:
        self._rows = rows
        self._begins, self._ends = begins, ends
        self._sink = plan.job.sink
        self._place = {(row.kind, row.rank, row.number): at for at, row in enumerate(rows)}
        self._inputs: dict[int, list[tuple[_Ring, str]]] = defaultdict(list)
        self._outputs: dict[int, list[tuple[_Ring, str]]] = defaultdict(list)
        self._writers: dict[_Ring, int] = {}
        self._readers: dict[_Ring, list[int]] = defaultdict(list)
        self._depths: dict[_Ring, int] = {}
        for rank, wiring in enumerate(wirings):
            self._add(rank, wiring, _homes(rank, wiring, wirings))

    def _add(self, rank: int, wiring: Wiring, homes: dict[int, _Ring]) -> None:
        rings = wiring.rings
        for number, ring in enumerate(rings):
            if ring.home is None:
                self._depths[rank, number] = ring.depth
        stages = [(COMPUTE, segment.index, stage) for segment, stage in wiring.segments]
        if wiring.sink is not None:
            stages.append((WRITE, 0, wiring.sink))
        for kind, index, stage in stages:
            row = self._place.get((kind, rank, index))
            if row is None:
                continue
            for reader in stage.readers:
                home = homes.get(reader.ring, (rank, reader.ring))
                self._inputs[row].append((home, rings[reader.ring].tensor.name))
                self._readers[home].append(row)
            if kind == COMPUTE:
                self._write(row, rank, stage.outputs, wiring)
        for outputs in wiring.entries if wiring.source is not None else ():
            if (row := self._place.get((READ, rank, 0))) is not None:
                self._write(row, rank, outputs, wiring)
        for send in wiring.sends:
            if (row := self._place.get((SEND, rank, send.channel))) is not None:
                sent = rank, send.reader.ring
                self._inputs[row].append((sent, rings[send.reader.ring].tensor.name))
                self._readers[sent].append(row)
        for receive in wiring.receives:
            if (row := self._place.get((RECEIVE, rank, receive.channel))) is not None:
                self._write(row, rank, (receive.ring,), wiring)

    def _write(self, row: int, rank: int, rings: Sequence[int], wiring: Wiring) -> None:
        for ring in rings:
            self._outputs[row].append(((rank, ring), wiring.rings[ring].tensor.name))
            self._writers[rank, ring] = row

    def of(self, row: int, arrived: Times, out: Times, window: int) -> Iterator[Cause]:
        yield self._busy(row)
        kind = self._rows[row].kind
        if kind == RECEIVE:
            for sender in self._other_ends(row, SEND):
                yield from self._made(sender)
        if kind == SEND:
            yield from self._taken(row)
        yield from self._made(row)
        for ring, tensor in self._outputs[row]:
            yield from self._room(row, ring, tensor)
        if kind == READ:
            yield from self._entry(row, arrived, out, window)

    def _after(self, reason: Reason, row: int, frames: Times, tensor: str = "") -> Cause:
        """Return the cause that a row's steps of these frames had to end."""
        times = np.where(frames > NEVER, self._ends[row, frames], NEVER)
        return Cause(reason, np.full(len(frames), row), frames, times, tensor)

    def _made(self, row: int) -> Iterator[Cause]:
        """Yield what made the inputs of a row's steps."""
        for ring, tensor in self._inputs[row]:
            if (writer := self._writers.get(ring)) is not None:
                yield self._after(Reason.input, writer, np.arange(self._ends.shape[1]), tensor)

    def _other_ends(self, row: int, kind: int) -> list[int]:
        """Return the row of the same channel of another kind, if it is there."""
        wanted = (kind, self._rows[row].number)
        return [at for at, other in enumerate(self._rows) if (other.kind, other.number) == wanted]

    def _taken(self, row: int) -> Iterator[Cause]:
        """Yield when a message had been received, if its slot could not be used before that."""
        for place in self._other_ends(row, RECEIVE):
            ends = self._ends[place]
            is_before = (ends > NEVER) & (ends <= self._ends[row])
            frames = np.where(is_before, np.arange(len(ends)), NEVER)
            yield self._after(Reason.input, place, frames)

    def _busy(self, row: int) -> Cause:
        """Return the step of the thread, or of the channel, before each step."""
        mine = self._rows[row]
        if mine.kind in (SEND, RECEIVE):
            beside = [row]
        else:
            beside = [
                place
                for place, other in enumerate(self._rows)
                if other.rank == mine.rank
                and other.thread == mine.thread
                and other.kind not in (SEND, RECEIVE)
            ]
        count = self._ends.shape[1]
        places, frames = np.nonzero(self._ends[beside] > NEVER)
        order = np.argsort(self._begins[beside][places, frames], kind="stable")
        places, frames = np.asarray(beside)[places[order]], frames[order]
        before_row, before_frame = np.full(count, NEVER), np.full(count, NEVER)
        own = np.flatnonzero(places == row)
        own = own[own > 0]
        before_row[frames[own]] = places[own - 1]
        before_frame[frames[own]] = frames[own - 1]
        times = np.where(before_row > NEVER, self._ends[before_row, before_frame], NEVER)
        return Cause(Reason.busy, before_row, before_frame, times)

    def _room(self, row: int, ring: _Ring, tensor: str) -> Iterator[Cause]:
        """Yield which readers had to be done with which older frames."""
        depth, count = self._depths[ring], self._ends.shape[1]
        written = np.flatnonzero(self._ends[row] > NEVER)
        if len(written) <= depth:
            return
        freed = np.full(count, NEVER)
        freed[written[depth:]] = written[:-depth]
        for reader in dict.fromkeys(self._readers[ring]):
            # A reader that takes turns had to be done with the last of its frames up to that one.
            places = np.where(self._ends[reader] > NEVER, np.arange(count), NEVER)
            latest = np.maximum.accumulate(places)
            frames = np.where(freed > NEVER, latest[freed], NEVER)
            yield self._after(Reason.room, reader, frames, tensor)

    def _entry(self, row: int, arrived: Times, out: Times, window: int) -> Iterator[Cause]:
        count = len(arrived)
        # A source without a clock of its own has the frame only once it is asked for it.
        came = (arrived > NEVER) & (arrived < self._begins[row])
        frames = np.where(came, np.arange(count), NEVER)
        times = np.where(came, arrived, NEVER)
        yield Cause(Reason.frame, np.full(count, NEVER), frames, times)
        sink = self._place.get((WRITE, self._sink, 0))
        if sink is not None and count > window:
            frames = np.full(count, NEVER)
            frames[window:] = np.arange(count - window)
            times = np.full(count, NEVER, np.int64)
            times[window:] = out[:-window]
            frames = np.where(times > NEVER, frames, NEVER)
            yield Cause(Reason.window, np.full(count, sink), frames, times)


def _homes(rank: int, wiring: Wiring, wirings: Sequence[Wiring]) -> dict[int, _Ring]:
    """Return whose slots the rings of a rank show that have none of their own."""
    return {
        view.ring: (view.sender, share.reader.ring)
        for view in wiring.views
        for share in wirings[view.sender].shares
        if (share.channel, share.destination) == (view.channel, rank)
    }
