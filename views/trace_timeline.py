"""What is drawn of a trace: slices on tracks, a track for each thread and each channel's lanes."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    READ,
    RECEIVE,
    SEND,
    THREADS,
    WAIT,
    WRITE,
)
from rankslice.backend.runtime.figures.operator_profile import RankOperators
from rankslice.framework.wording import quoted
from rankslice.measurement.trace.journeys import NEVER, Journeys, Reason
from rankslice.measurement.trace.trace_findings import Findings
from rankslice.measurement.trace.traced_operators import place_operators

MAX_DRAWN = 200_000
"""Slices; of more the last ones are drawn."""

WORK, WAITING, MESSAGE, OPERATOR = "work", "wait", "message", "operator"


@dataclass(frozen=True, slots=True)
class Track:
    """What is drawn in one line: slices on it do not overlap."""

    rank: int
    name: str
    kind: str
    """``work`` of a thread, ``message`` or ``operator``."""
    thread: int = NEVER


@dataclass(frozen=True, slots=True)
class Slice:
    """A step, a wait, a message, or an operator."""

    track: int
    begin_ns: int
    end_ns: int
    """Equal to the begin if it is a moment."""
    name: str
    frame: int
    kind: str
    is_critical: bool = False
    """Whether it is on the critical path."""
    comes_by: tuple[int, ...] = ()
    """Channels by which its inputs came, or the channel of the message."""
    leaves_by: tuple[int, ...] = ()
    """Channels by which its outputs go."""


@dataclass(frozen=True, slots=True)
class OperatorNote:
    """What must be known of the operators of a segment."""

    rank: int
    by: str
    """The accelerator that reported them; empty: the engine did."""
    error_ns: float
    """Bound of the error of their times; infinite: the accelerator does not report them."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """All that is drawn, by begin."""

    tracks: tuple[Track, ...]
    slices: tuple[Slice, ...]
    left_out: int
    """Earlier slices that are too many to be drawn."""
    inside: tuple[tuple[int, int], ...]
    """Times in nanoseconds, and how many frames are inside from then on."""
    operators: tuple[OperatorNote, ...] = ()
    """How exact the times of operators are."""


def timeline(findings: Findings, operators: Sequence[RankOperators] = ()) -> Timeline:
    drawing = _Drawing(findings)
    notes: list[OperatorNote] = []
    for rank in range(len(findings.journeys.plan.ranks)):
        drawing.add_threads(rank)
        for of_rank in operators[rank : rank + 1]:
            notes += drawing.add_operators(of_rank)
        drawing.add_messages(rank)
    # A message comes before the step that it lets begin.
    slices = sorted(drawing.slices, key=lambda one: (one.begin_ns, one.kind != MESSAGE))
    left_out = max(0, len(slices) - MAX_DRAWN)
    inside = tuple(_inside(findings.journeys))
    return Timeline((*drawing.tracks,), (*slices[left_out:],), left_out, inside, (*notes,))


class _Drawing:
    """Tracks and slices, rank by rank."""

    def __init__(self, findings: Findings) -> None:
        self._journeys = findings.journeys
        self._is_critical = np.zeros(findings.journeys.ends.shape, np.bool_)
        steps = findings.path.steps
        self._is_critical[steps[:, 0], steps[:, 1]] = True
        self.tracks: list[Track] = []
        self.slices: list[Slice] = []

    def add_threads(self, rank: int) -> None:
        journeys = self._journeys
        kinds = (COMPUTE, READ, WRITE)
        rows = [
            at for at, row in enumerate(journeys.rows) if row.rank == rank and row.kind in kinds
        ]
        for thread in sorted({journeys.rows[row].thread for row in rows}):
            track = self._new_track(Track(rank, THREADS[thread], WORK, thread))
            steps = []
            for row in (row for row in rows if journeys.rows[row].thread == thread):
                step, ways = journeys.rows[row], _channels(journeys, row)
                name = {READ: "read", WRITE: "write"}.get(step.kind, f"segment {step.number}")
                for frame in map(int, np.flatnonzero(journeys.ends[row] > NEVER)):
                    self._add(track, row, frame, name, WORK, *ways)
                    steps.append((row, frame))
            self.slices.extend(_waits(journeys, rank, thread, track, steps))

    def add_operators(self, of_rank: RankOperators) -> Iterator[OperatorNote]:
        """Add the operators of a rank's segments; yield how exact their times are."""
        journeys = self._journeys
        for segment in of_rank.segments:
            row = (COMPUTE, of_rank.rank, segment.index)
            places = [at for at, r in enumerate(journeys.rows) if (r.kind, r.rank, r.number) == row]
            for place in places:
                reporters = set()
                for placed in place_operators(
                    segment, journeys.begins[place], journeys.ends[place]
                ):
                    reporters.add(placed.by)
                    what = "queued" if segment.queued_by else "operators"
                    name = f"segment {segment.index} {f'on {placed.by}' if placed.by else what}"
                    track = self._new_track(Track(of_rank.rank, name, OPERATOR))
                    last_ns = 0
                    for step in placed.steps:
                        # Rounding, or several at once on an accelerator, makes neighbours overlap.
                        begin_ns = max(step.begin_ns, last_ns)
                        last_ns = max(step.end_ns, begin_ns)
                        frame = journeys.first + step.frame
                        one = Slice(track, begin_ns, last_ns, step.name, frame, OPERATOR)
                        self.slices.append(one)
                    yield OperatorNote(of_rank.rank, placed.by, placed.error_ns)
                if segment.queued_by and segment.queued_by not in reporters:
                    yield OperatorNote(of_rank.rank, segment.queued_by, math.inf)

    def add_messages(self, rank: int) -> None:
        """Add the messages of a rank, on as many lanes of a channel as are needed."""
        journeys = self._journeys
        for row, of in enumerate(journeys.rows):
            if of.rank != rank or of.kind not in (SEND, RECEIVE):
                continue
            channel = journeys.channel(of)
            other = f"to rank {channel.destination}"
            other = other if of.kind == SEND else f"from rank {channel.source}"
            way = f"{quoted(channel.tensor)} {other}"
            frames = np.flatnonzero(journeys.ends[row] > NEVER)
            frames = frames[np.argsort(journeys.begins[row, frames], kind="stable")]
            tracks: dict[int, int] = {}
            lanes = _lanes(journeys.begins[row, frames], journeys.ends[row, frames])
            for frame, lane in zip(frames, lanes, strict=True):
                if lane not in tracks:
                    tracks[lane] = self._new_track(Track(rank, way, MESSAGE))
                self._add(tracks[lane], row, int(frame), way, MESSAGE, (channel.number,))

    def _new_track(self, track: Track) -> int:
        self.tracks.append(track)
        return len(self.tracks) - 1

    def _add(
        self, track: int, row: int, frame: int, name: str, kind: str, *ways: tuple[int, ...]
    ) -> None:
        journeys = self._journeys
        times = int(journeys.begins[row, frame]), int(journeys.ends[row, frame])
        is_critical = bool(self._is_critical[row, frame])
        one = Slice(track, *times, name, journeys.first + frame, kind, is_critical, *ways)
        self.slices.append(one)


def _channels(journeys: Journeys, row: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the channels by which inputs of a row's steps come, and by which outputs go."""
    plan, step = journeys.plan, journeys.rows[row]
    if step.kind == COMPUTE:
        segment = next(s for s in plan.segments if (s.rank, s.index) == (step.rank, step.number))
        inputs, outputs = segment.inputs, segment.outputs
    else:
        inputs = plan.outputs if step.kind == WRITE else ()
        outputs = plan.inputs if step.kind == READ else ()
    return (
        tuple(c.number for c in plan.channels if c.destination == step.rank and c.tensor in inputs),
        tuple(c.number for c in plan.channels if c.source == step.rank and c.tensor in outputs),
    )


def _waits(
    journeys: Journeys, rank: int, thread: int, track: int, steps: Sequence[tuple[int, int]]
) -> Iterator[Slice]:
    """Yield the waits of a thread, each with what the step after it had waited for."""
    events = journeys.trace.ranks[rank].of(WAIT)
    events = events[events["thread"] == thread]
    steps = sorted(steps, key=lambda step: journeys.begins[step])
    begins = np.array([journeys.begins[step] for step in steps], np.int64)
    for event, place in zip(
        events, np.searchsorted(begins, events["end_ns"], side="left"), strict=True
    ):
        name, frame = "wait", NEVER
        if place < len(steps):
            row, at = steps[place]
            name, frame = f"wait {_reason(journeys, row, at)}", journeys.first + at
        times = int(event["begin_ns"]), int(event["end_ns"])
        yield Slice(track, *times, name, frame, WAITING)


def _reason(journeys: Journeys, row: int, frame: int) -> str:
    _, *others = journeys.causes[row]
    if not others:
        return ""
    last = max(others, key=lambda cause: int(cause.times[frame]))
    if last.times[frame] == NEVER or last.reason is Reason.frame:
        return "for a frame"
    if last.reason is Reason.window:
        return "for an older frame to come out"
    if last.reason is Reason.room:
        return f"for room for {quoted(last.tensor)}"
    maker = journeys.rows[int(last.rows[frame])]
    rank = journeys.channel(maker).source if maker.kind == RECEIVE else maker.rank
    return f"for {quoted(last.tensor)} of rank {rank}"


def _lanes(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> Iterator[int]:
    """Yield a lane for each slice, in the order of begins, such that none overlap."""
    free: list[int] = []
    taken: list[tuple[int, int]] = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        while taken and taken[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(taken)[1])
        lane = heapq.heappop(free) if free else len(taken)
        heapq.heappush(taken, (end, lane))
        yield lane


def _inside(journeys: Journeys) -> Iterator[tuple[int, int]]:
    changes: list[tuple[int, int]] = []
    for at, row in enumerate(journeys.rows):
        if row.kind in (READ, WRITE):
            is_there = journeys.ends[at] > NEVER
            times = journeys.begins[at] if row.kind == READ else journeys.ends[at]
            step = 1 if row.kind == READ else -1
            changes.extend((int(time), step) for time in times[is_there])
    changes.sort()
    # Of frames that had entered before the first event, only the ends are known.
    inside = max(0, -min(np.cumsum([step for _, step in changes]), default=0))
    for time, step in changes:
        inside += step
        yield time, inside
