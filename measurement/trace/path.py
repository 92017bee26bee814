"""The critical path: the steps and waits that no other work hid, from the last result back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import COMPUTE, READ, RECEIVE, SEND, WRITE
from rankslice.backend.runtime.summary.rates import frames_to_fill
from rankslice.measurement.trace.journeys import NEVER, Journeys, Reason

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
