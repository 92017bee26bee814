"""Files of events, and what a failed job left, read strictly.

They may come from another machine, or from a killed rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import (
    COMPUTE,
    EVENT,
    FORMAT,
    FRAME,
    HEAD_BYTES,
    NAME,
    READ,
    RECEIVE,
    SEND,
    THREADS,
    VERSION,
    WAIT,
    WRITE,
)
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import Only, read_document
from rankslice.framework.reading.untrusted_json import from_other_machine
from rankslice.measurement.trace import (
    CLOCKS,
    FAILURE,
    FAILURE_VERSION,
    LAST_FAILURE,
    MAX_BYTES,
)
from rankslice.measurement.trace.clocks import (
    MAX_NS,
    SAME,
    Clock,
    Samples,
    clocks_of_boards,
    nothing,
    samples_by_board,
    samples_in,
)

Events = NDArray[np.void]
"""Of :data:`EVENTS`, by their ends."""

EVENTS = np.dtype(
    [
        ("begin_ns", "<i8"),
        ("end_ns", "<i8"),
        ("frame", "<i8"),
        ("kind", "u1"),
        ("route", "u1"),
        ("thread", "<u2"),
        ("number", "<i4"),
    ]
)
"""An event, as :data:`rankslice.backend.runtime.figures.events.EVENT` describes it."""
assert EVENTS.itemsize == EVENT.size

MAX_EVENTS = 1 << 22
"""That a rank may be asked to keep; 128 MiB."""

_MAX_FRAMES = 1 << 40
"""Of a stream."""

_SHAPE = "expected a file of events, made by a run of this build folder"


def in_order(events: Events, field: str) -> Events:
    ordered: Events = events[np.argsort(events[field], kind="stable")]
    return ordered


@dataclass(frozen=True, slots=True)
class RankEvents:
    """What one rank did, on the clock of the board that has the source."""

    rank: int
    events: Events
    lost: int | None
    """How many older ones were overwritten; ``None``: the rank did not come to its end."""
    samples: Samples = field(default_factory=nothing)
    """Of the clock of its board and that of the source's board."""
    clock: Clock = SAME
    """What was added to the times of its own board."""

    @property
    def error_ns(self) -> float:
        """Bound of the error of its times against the source's, in nanoseconds.

        Infinite: the clocks were never compared, and times are those of its own board.
        """
        return self.clock.error_ns

    def of(self, kind: int) -> Events:
        events: Events = self.events[self.events["kind"] == kind]
        return events


@dataclass(frozen=True, slots=True)
class Trace:
    """What all ranks of a job did, on one clock: that of the board that has the source."""

    plan: Plan
    ranks: tuple[RankEvents, ...]
    """By number."""

    @property
    def arrivals(self) -> Events:
        """Events of kind ``FRAME``, from arrival to completion, by frame."""
        return in_order(self.ranks[self.plan.job.source].of(FRAME), "frame")

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        """Latencies of the frames whose events are there, in seconds, by frame."""
        frames = self.arrivals
        latencies_s: NDArray[np.float64] = 1e-9 * (frames["end_ns"] - frames["begin_ns"])
        return latencies_s

    @property
    def error_ns(self) -> tuple[float, ...]:
        return tuple(rank.error_ns for rank in self.ranks)


def read_trace(folder: Path, plan: Plan, job_sha256: str) -> Trace:
    """Read the files of events in a folder, and put them on one clock.

    Raises:
        RankSliceError: one is missing, or not what a rank of this plan writes.
    """
    ranks = [
        read_events(folder / f"{NAME}{rank}", rank, job_sha256) for rank in range(len(plan.ranks))
    ]
    path = folder / CLOCKS
    return on_one_clock(plan, ranks, read_clocks(path) if path.exists() else {})


def on_one_clock(
    plan: Plan, ranks: Sequence[RankEvents], by_launcher: Mapping[str, Samples]
) -> Trace:
    """Return a trace of what ranks did, each by the clock of its own board.

    Args:
        by_launcher: samples of a board's clock and that of the launcher, by board.
    """
    ranks = [replace(rank, events=_own_events(plan, rank)) for rank in ranks]
    by_board: dict[str, list[RankEvents]] = {}
    for rank in ranks:
        by_board.setdefault(plan.ranks[rank.rank].board, []).append(rank)
    clocks = clocks_of_boards(
        plan.ranks[plan.job.source].board,
        {board: _span_ns(ranks) for board, ranks in by_board.items()},
        {board: _samples_of(ranks) for board, ranks in by_board.items()},
        by_launcher,
    )
    return Trace(
        plan, tuple(_converted(rank, clocks[plan.ranks[rank.rank].board]) for rank in ranks)
    )


def _own_events(plan: Plan, rank: RankEvents) -> Events:
    """Return the events of what a rank does by the plan; a damaged file has others."""
    known = [(READ, 0), (FRAME, 0)] if rank.rank == plan.job.source else []
    known += [(WRITE, 0)] if rank.rank == plan.job.sink else []
    for route in plan.routes:
        known += [(COMPUTE, segment.index) for segment in route.of_rank(rank.rank)]
        for channel in route.channels:
            known += [(SEND, channel.number)] if channel.source == rank.rank else []
            known += [(RECEIVE, channel.number)] if channel.destination == rank.rank else []
    kinds, numbers = rank.events["kind"], rank.events["number"]
    is_own = kinds == WAIT
    for kind, number in {*known}:
        is_own |= (kinds == kind) & (numbers == number)
    own: Events = rank.events[is_own]
    return own


def _span_ns(ranks: Sequence[RankEvents]) -> tuple[int, int]:
    events = np.concatenate([rank.events for rank in ranks])
    return (int(events["begin_ns"].min()), int(events["end_ns"].max())) if len(events) else (0, 0)


def _samples_of(ranks: Sequence[RankEvents]) -> Samples:
    return next((rank.samples for rank in ranks if len(rank.samples)), nothing())


def _converted(rank: RankEvents, clock: Clock) -> RankEvents:
    events = rank.events.copy()
    for name in ("begin_ns", "end_ns"):
        events[name] = clock.convert(events[name])
    return replace(rank, events=events, clock=clock)


def read_clocks(path: Path) -> dict[str, Samples]:
    """Read the samples of clocks that a launcher has written, by board.

    Raises:
        RankSliceError: it cannot be read, or is something else.
    """
    content = read_ordinary(path, "expected what a launcher wrote of clocks", MAX_BYTES)
    samples = samples_by_board(from_other_machine(content, str(path)))
    if samples is None:
        raise RankSliceError(Mistake(str(path), "has no samples of clocks by board"))
    return samples


def read_events(path: Path, rank: int, job_sha256: str) -> RankEvents:
    """Return a rank's file of events.

    Raises:
        RankSliceError: it cannot be read, or is not what this rank writes.
    """
    content = read_ordinary(path, _SHAPE, HEAD_BYTES + MAX_EVENTS * EVENT.size)
    head = from_other_machine(content[:HEAD_BYTES].rstrip(b"\0"), str(path), _SHAPE)
    if fault := _fault_of(head, len(content), rank, job_sha256):
        raise RankSliceError(Mistake(str(path), fault, _SHAPE))
    samples = samples_in(head.get("clock", []))
    if samples is None:
        raise RankSliceError(Mistake(str(path), "has invalid samples of clocks", _SHAPE))
    events = np.frombuffer(content, EVENTS, offset=HEAD_BYTES)
    # Places that were never used, and one that a killed rank was just writing, are no events.
    begins, ends = events["begin_ns"], events["end_ns"]
    is_event = (events["kind"] > 0) & (events["kind"] <= FRAME) & (events["thread"] < len(THREADS))
    is_event &= (begins >= 0) & (begins <= ends) & (ends > 0) & (ends < MAX_NS)
    is_event &= events["frame"] < _MAX_FRAMES
    events = events[is_event]
    total = head.get("events")
    lost = max(0, total - head["capacity"]) if isinstance(total, int) else None
    return RankEvents(rank, in_order(events, "end_ns"), lost, samples)


def _fault_of(head: Any, nbytes: int, rank: int, job_sha256: str) -> str:
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        return "is not a file of events"
    if head.get("version") != VERSION:
        return f"has version {head.get('version')!r}, not {VERSION}"
    if head.get("job_sha256") != job_sha256:
        return "is of another job"
    if head.get("rank") != rank:
        return f"is of rank {head.get('rank')!r}, not {rank}"
    capacity = head.get("capacity")
    if not isinstance(capacity, int) or not 0 < capacity <= MAX_EVENTS:
        return f"has room for {capacity!r} events"
    if nbytes != HEAD_BYTES + capacity * EVENT.size:
        return f"has {nbytes} bytes, and room for {capacity} events"
    return ""


def events_needed(plan: Plan, frames: int | None) -> int:
    """Return how many events a rank has to keep for so many frames; ``None``: nobody knows."""
    if frames is None:
        return MAX_EVENTS // 8
    ends = [0] * len(plan.ranks)
    for route in plan.routes:
        for segment in route.segments:
            ends[segment.rank] += 2  # a step and a wait
        for channel in route.channels:
            ends[channel.source] += 1
            ends[channel.destination] += 1
    # The source and the sink have a step and a wait each, and the source a frame under way.
    return min(MAX_EVENTS, max(1024, (max(ends) + 5) * frames))


def _are_samples(by_board: object) -> bool:
    return samples_by_board(by_board) is not None


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that has failed."""

    time: str
    """When: ISO 8601, UTC."""
    message: tuple[str, ...]
    """Why, in lines."""
    missing: tuple[int, ...]
    """Ranks whose events could not be kept."""
    job_sha256: str
    clocks: Annotated[
        dict[str, tuple[tuple[int, ...], ...]], Only(_are_samples, "samples of clocks")
    ]
    """Samples of a board's clock and that of the launcher, by board."""


def failure_of(folder: Path) -> Failure:
    """Read when and why the job that failed last in a build folder did so.

    Raises:
        RankSliceError: none has failed, or the file cannot be read, or is something else.
    """
    path = folder / LAST_FAILURE / FAILURE
    if not path.exists():
        found = "no job of this build folder has failed since it was built"
        raise RankSliceError(Mistake(str(folder), found))
    content = read_ordinary(path, "expected what a failed job has left", MAX_BYTES)
    text, remedy = content.decode(errors="replace"), "run the job again"
    head = ("failure", FAILURE_VERSION, "rankslice run", remedy)
    return read_document(Failure, text, str(path), *head)


def read_failure(folder: Path, plan: Plan) -> Trace:
    """Read the last events of each rank in the job that failed last; some may have none.

    Raises:
        RankSliceError: no job has failed, or a file cannot be read, or is something else.
    """
    failure = failure_of(folder)
    ranks = [
        RankEvents(rank, np.empty(0, EVENTS), None)
        if rank in failure.missing
        else read_events(folder / LAST_FAILURE / f"{NAME}{rank}", rank, failure.job_sha256)
        for rank in range(len(plan.ranks))
    ]
    return on_one_clock(plan, ranks, samples_by_board(failure.clocks) or {})
