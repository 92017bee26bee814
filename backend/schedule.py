"""The first frames of a job as text: a grid of steps and ranks.

All steps are equally long, and messages take none. A segment takes one step for a frame; where
ranks take turns, one that handles two of three frames takes three steps for two. What waits for
what, and for how many slots, is what the runtime's wiring says.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.pipeline.wiring import (
    CREDIT,
    Reader,
    RingSpec,
    Wiring,
    pairs_within_boards,
    wire_all,
)
from rankslice.backend.runtime.turns import ALL, Turns

_WIDTH = 88
"""Characters of a line, at most."""
_ROWS = 24
"""Steps that are shown, at most."""
_LONGEST = 1000
"""Steps after which no repetition is looked for any more."""
_IDLE = "."


def schedule(job: Job) -> str:
    """Return which rank computes which frame in which step, until the steps repeat.

    The text is ASCII, has no word of the job's own, and does not end in a line break.
    """
    has_several = any(len(_ranks(route)) < len(route.segments) for route in job.routes)
    cell = "1:f3 is frame 3 in segment 1 of the rank" if has_several else "f3 is frame 3"
    heading = "The first frames, if each segment takes one step and messages take no time.\n"
    if any(rank.turns != ALL for route in job.routes for rank in route.ranks):
        heading += "Of ranks in turn, one that handles a third of the frames takes three steps.\n"
    heading += f"In a cell, {cell}; a frame under out is a result."
    grids = [_of_route(route, has_several) for route in job.routes]
    if len(grids) > 1:
        names = ("On the usual route:", "On the second route:")
        grids = [f"{name}\n\n{grid}" for name, grid in zip(names, grids, strict=True)]
    return "\n\n".join([heading, *grids])


def _ranks(route: Job) -> list[int]:
    """Return the ranks that compute something."""
    return sorted({segment.rank for segment in route.segments})


def _of_route(route: Job, has_several: bool) -> str:
    ranks, (steps, begin) = _ranks(route), _run(route)
    cells = [
        [*(_cell(step.computed.get(rank), has_several) for rank in ranks), _frames(step.completed)]
        for step in steps[:_ROWS]
    ]
    lines = list(_grid(ranks, cells))
    if len(steps) > _ROWS:
        lines.append("  ...")
    if begin is not None:
        completed = sum(len(step.completed) for step in steps[begin:])
        lines += ["", _repetition(begin, len(steps) - 1, completed)]
    return "\n".join(lines)


def _cell(running: tuple[int, int] | None, has_several: bool) -> str:
    if running is None:
        return _IDLE
    segment, frame = running
    return f"{segment}:f{frame}" if has_several else f"f{frame}"


def _frames(numbers: Sequence[int]) -> str:
    return " ".join(f"f{number}" for number in numbers)


def _grid(ranks: Sequence[int], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table: a step each, a rank per column as far as there is room."""
    rows = [["step", *(f"rank {rank}" for rank in ranks), "out"]]
    rows += [[str(step), *row] for step, row in enumerate(cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = _WIDTH - widths[-1]
    shown = sum(ends <= room for ends in accumulate(width + 2 for width in widths[:-1]))
    for row in rows:
        texts = (text.ljust(width) for text, width in zip(row[1:shown], widths[1:], strict=False))
        yield "  ".join(["", row[0].rjust(widths[0]), *texts, row[-1]]).rstrip()
    if shown <= len(ranks):
        yield f"  (ranks {ranks[shown - 1]} to {ranks[-1]} are left out)"


def _repetition(begin: int, last: int, completed: int) -> str:
    frames = f"{completed} frame" + "s" * (completed != 1)
    if begin == last:
        return f"All further steps are like step {last}: {frames} in each."
    return f"Steps {begin} to {last} repeat: {frames} in {last - begin + 1} steps."


@dataclass(frozen=True, slots=True)
class _Step:
    """What happens in one step."""

    computed: dict[int, tuple[int, int]]
    """By rank: the index of its segment, and the frame."""
    completed: list[int]
    """Frames that leave at the end of the step."""


class _Ring:
    """The counters of a ring; they count the ring's own frames."""

    def __init__(self, spec: RingSpec) -> None:
        self.tensor, self.depth, self.turns = spec.tensor, spec.depth, spec.turns
        self.steps = spec.readers
        self.written = 0
        self.read = [steps.first for steps in spec.readers]

    @property
    def has_room(self) -> bool:
        return self.written - min(self.read, default=self.written) < self.depth

    def free(self, reader: int) -> None:
        self.read[reader] = self.steps[reader].after(self.read[reader])


@dataclass(slots=True)
class _Stage:
    """A segment, the source, or the sink."""

    inputs: Sequence[Sequence[tuple[_Ring, int]]]
    """By tensor: the rings that have it, and the number of the reader in each."""
    outputs: Sequence[_Ring]
    rank: int = 0
    index: int = 0
    turns: Turns = ALL
    done: int = 0
    """How many frames it has handled."""
    remaining: int = 0
    """Steps that its frame still takes; 0: it has none."""

    @property
    def frame(self) -> int:
        """The frame that it handles, or handles next."""
        return self.turns.frame(self.done)

    @property
    def steps(self) -> int:
        """How many steps its next frame takes, so that it takes a period for those of a period."""
        each, of = self.turns.period, len(self.turns.positions)
        return (self.done + 1) * each // of - self.done * each // of

    @property
    def is_ready(self) -> bool:
        has_inputs = all(any(self._takes(*maker) for maker in makers) for makers in self.inputs)
        return has_inputs and all(ring.has_room for ring in self.outputs)

    def _takes(self, ring: _Ring, reader: int) -> bool:
        """Whether its frame is there, in a ring."""
        read = ring.read[reader]
        return read < ring.written and ring.turns.frame(read) == self.frame

    def go_on(self) -> None:
        """Be done with its frame."""
        for makers in self.inputs:
            ring, reader = next(maker for maker in makers if self._takes(*maker))
            ring.free(reader)
        for ring in self.outputs:
            ring.written += 1
        self.done += 1


@dataclass(slots=True)
class _Machine:
    """All stages of a job on one route, and what moves frames between their ranks."""

    job: Job
    source: _Stage = field(init=False)
    sink: _Stage = field(init=False)
    segments: list[_Stage] = field(default_factory=list)
    rings: list[_Ring] = field(default_factory=list)
    messages: list[tuple[_Ring, int, _Ring]] = field(default_factory=list)
    """Where each channel begins, its number as a reader there, and where it ends."""
    views: list[tuple[_Ring, int, _Ring]] = field(default_factory=list)
    """The same of ranks that share memory."""

    def __post_init__(self) -> None:
        """Put the parts together as the wiring says."""
        wirings = wire_all(self.job, None, pairs_within_boards(self.job))
        rings = [[_Ring(spec) for spec in wiring.rings] for wiring in wirings]
        for rank, (wiring, own) in enumerate(zip(wirings, rings, strict=True)):
            self._add(rank, wiring, own)
        origins = {
            send.channel: (rings[rank][send.reader.ring], send.reader.index)
            for rank, wiring in enumerate(wirings)
            for send in (*wiring.sends, *wiring.shares)
        }
        for wiring, own in zip(wirings, rings, strict=True):
            for ends, found in ((wiring.receives, self.messages), (wiring.views, self.views)):
                found += [(*origins[end.channel], own[end.ring]) for end in ends]

    def _add(self, rank: int, wiring: Wiring, own: Sequence[_Ring]) -> None:
        def inputs(tensors: Sequence[Sequence[Reader]]) -> list[list[tuple[_Ring, int]]]:
            return [[(own[reader.ring], reader.index) for reader in each] for each in tensors]

        turns = self.job.ranks[rank].turns
        for segment, spec in wiring.segments:
            outputs = [own[ring] for ring in spec.outputs]
            self.segments.append(_Stage(inputs(spec.inputs), outputs, rank, segment.index, turns))
        if wiring.source is not None:
            self.source = _Stage((), [own[ring] for ring in wiring.entries[0]])
        if wiring.sink is not None:
            self.sink = _Stage(inputs(wiring.exits[0]), ())
        self.rings += [ring for ring in own if ring.tensor is not CREDIT]

    def move(self) -> None:
        """Move what can be moved between two steps: frames in and out, messages and tokens."""
        before = None
        while before != (before := self._counters()):
            while self.sink.is_ready:
                self.sink.go_on()
            for origin, reader, target in self.messages:
                while origin.read[reader] < origin.written and target.has_room:
                    target.written += 1
                    origin.free(reader)
            for origin, reader, view in self.views:
                view.written = origin.written
                while origin.read[reader] < min(view.read, default=view.written):
                    origin.free(reader)
            while self.source.is_ready and self.source.done - self.sink.done < self.job.window:
                self.source.go_on()

    def _counters(self) -> list[int]:
        return [count for ring in self.rings for count in (ring.written, *ring.read)]

    def step(self) -> _Step:
        """Let each rank compute for one step, the oldest frame first."""
        running = {stage.rank: stage for stage in self.segments if stage.remaining}
        for stage in sorted(self.segments, key=lambda stage: (stage.frame, stage.index)):
            if stage.rank not in running and stage.is_ready:
                stage.remaining = stage.steps
                running[stage.rank] = stage
        computed = {rank: (stage.index, stage.frame) for rank, stage in running.items()}
        for stage in running.values():
            stage.remaining -= 1
            if not stage.remaining:
                stage.go_on()
        before = self.sink.done
        self.move()
        return _Step(computed, list(range(before, self.sink.done)))

    def state(self) -> Hashable:
        """Return what decides all further steps, relative to the frames that are out."""
        out = self.sink.done
        return (
            tuple(out % rank.turns.period for rank in self.job.ranks),
            tuple(
                ring.turns.frame(count) - out
                for ring in self.rings
                for count in (ring.written, *ring.read)
            ),
            tuple((stage.frame - out, stage.remaining) for stage in self.segments),
            self.source.done - out,
        )


def _run(job: Job) -> tuple[list[_Step], int | None]:
    """Return the steps until they repeat, and from which one on; ``None``: none was found."""
    machine = _Machine(job)
    steps: list[_Step] = []
    seen: dict[Hashable, int] = {}
    machine.move()
    for number in count():
        begin = seen.setdefault(machine.state(), number)
        if begin < number or number == _LONGEST:
            return steps, begin if begin < number else None
        steps.append(machine.step())
    raise AssertionError("count() has no end")
