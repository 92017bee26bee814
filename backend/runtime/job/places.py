"""What follows from a job: the levels of its segments, and the numbers of its channels."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..errors import JobError
from .facts import NO_FACTS, Facts
from .turns import ALL, Turns

if TYPE_CHECKING:
    from .records import Job, Segment


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """One sub-model file of a rank, with its place in the job."""

    rank: int
    index: int
    """Number within the rank, from 0, in the order in which a frame passes them; those of a second
    route follow."""
    file: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    level: int
    """Length of the longest path from the source to this segment, itself included, in segments
    and hops between ranks; a segment of ranks that take turns counts :attr:`levels`."""
    levels: int = 1
    """How many steps of the pipeline it may take for a frame: more than one if its rank does not
    handle every frame."""
    facts: Facts = NO_FACTS
    """Of its sub-model."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One tensor that goes from one rank to another, in every frame that both handle."""

    number: int
    """Also the MPI tag; from 1, since tag 0 is the completion credit's."""
    tensor: str
    source: int
    destination: int


_Origin: TypeAlias = tuple[int, int]
"""A segment: its rank, and its position there."""


class _Levels:
    """Finds the level of one segment after the other."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._of: dict[_Origin, int] = {}
        self._makers: dict[str, list[_Origin]] = defaultdict(list)
        self._segments: dict[_Origin, Segment] = {}
        for rank in job.ranks:
            for index, segment in enumerate(rank.runs):
                self._segments[rank.rank, index] = segment
                for name in segment.outputs:
                    self._makers[name].append((rank.rank, index))
        self._inputs = {tensor.name for tensor in job.inputs}

    def _made(self, turns: Turns, names: Iterable[str]) -> Iterator[_Origin]:
        """Yield the segments that make tensors in frames of those given."""
        for name in names:
            for rank, index in self._makers.get(name, ()):
                if turns.shared_with(self._job.ranks[rank].turns):
                    yield rank, index

    def _before(self, rank: int, turns: Turns, names: Iterable[str]) -> int:
        """Return the highest level of what comes in; a hop between ranks counts."""
        names = [*names]
        hop = not self._inputs.isdisjoint(names) and rank != self._job.source
        found = (self._of[each] + (each[0] != rank) for each in self._made(turns, names))
        return max(found, default=0) if not hop else max([1, *found])

    def in_order(self) -> Iterator[tuple[_Origin, int]]:
        """Yield segments and their levels, each after those before it, as far as there are any."""
        before: dict[_Origin, set[_Origin]] = {}
        after: dict[_Origin, list[_Origin]] = defaultdict(list)
        for (rank, index), segment in self._segments.items():
            turns = self._job.ranks[rank].turns
            needed = {*self._made(turns, segment.inputs)}
            if index:
                needed.add((rank, index - 1))
            before[rank, index] = needed
            for each in needed:
                after[each].append((rank, index))
        missing = {each: len(needed) for each, needed in before.items()}
        ready = [(self._level(each), *each) for each, count in missing.items() if not count]
        heapq.heapify(ready)
        while ready:
            level, *place = heapq.heappop(ready)
            origin = place[0], place[1]
            yield origin, level
            for each in after[origin]:
                missing[each] -= 1
                if not missing[each]:
                    heapq.heappush(ready, (self._level(each), *each))

    def _level(self, origin: _Origin) -> int:
        turns = self._job.ranks[origin[0]].turns
        inputs = self._segments[origin].inputs
        level = self._of[origin] = self._before(origin[0], turns, inputs) + turns.levels
        return level

    def at_sink(self) -> int:
        """Return the highest level of what comes out."""
        return self._before(self._job.sink, ALL, (tensor.name for tensor in self._job.outputs))


def places_of(job: Job) -> tuple[tuple[PlacedSegment, ...], int]:
    """Return the segments with their levels, and the longest path from source to sink.

    Raises:
        JobError: segments wait for each other.
    """
    levels = _Levels(job)
    before = [len(rank.runs) for rank in job.usual.ranks] if job.usual else [0] * len(job.ranks)
    segments = []
    for (number, index), level in levels.in_order():
        rank = job.ranks[number]
        segment = rank.runs[index]
        segments.append(
            PlacedSegment(
                number,
                before[number] + index,
                segment.file,
                segment.inputs,
                segment.outputs,
                level,
                rank.turns.levels,
                segment.facts,
            )
        )
    if len(segments) < sum(len(rank.runs) for rank in job.ranks):
        raise JobError("segments wait for each other")
    return tuple(segments), levels.at_sink()


def channels_of(job: Job) -> tuple[Channel, ...]:
    """Return the channels, of which each goes by its number."""
    sends: dict[tuple[int, str], list[int]] = defaultdict(list)
    for rank in job.ranks:
        for send in rank.sends:
            sends[rank.rank, send.tensor].append(send.to)
    made = [(job.source, tensor.name) for tensor in job.inputs]
    made += [(segment.rank, name) for segment in job.segments for name in segment.outputs]
    ends = [(*origin, to) for origin in made for to in sends[origin]]
    first = 1 + (len(job.usual.channels) if job.usual else 0)
    return tuple(
        Channel(number, tensor, source, to)
        for number, (source, tensor, to) in enumerate(ends, first)
    )
