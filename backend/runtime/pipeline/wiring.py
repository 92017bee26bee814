"""From a plan to what one rank must set up: rings, stages, sends and receives.

How many slots a ring gets follows from the *level* of its writer and of its last reader. The
level of a stage is the length of the longest path to it, in segments and hops. While every
stage works, a stage of level L is busy with frame t - L in step t; so a tensor written at
level w and read at level r must be kept for r - w + 1 frames, or its writer would have to
wait: a skip connection would throttle the pipeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..job import ChannelSpec, Job, RankSpec, SegmentSpec, TensorSpec
from .slots import Ring

CREDIT = TensorSpec("completion credit", "uint64", (1,))
"""Number of a frame that has left the pipeline, sent from the sink to the source."""

CREDIT_CHANNEL = 0

_Levels = TypeVar("_Levels", int, NDArray[np.int64])


def slots(written: _Levels, last_read: _Levels) -> _Levels:
    """Return how many slots a tensor needs, unless the window is smaller.

    Args:
        written: level of what writes it: of a segment, 0 of the source, and for a tensor that was
            received one more than the level of the segment that made it.
        last_read: highest level of what reads it: of segments, of the sink, and for a tensor that
            is sent one more than ``written``.
    """
    return last_read - written + 1


@dataclass(frozen=True, slots=True)
class RingSpec:
    """One ring of slots."""

    tensor: TensorSpec
    depth: int
    readers: int


@dataclass(frozen=True, slots=True)
class Reader:
    """One of the readers of a ring."""

    ring: int
    index: int


@dataclass(frozen=True, slots=True)
class StageSpec:
    """What a stage reads and writes: indices of rings."""

    inputs: tuple[Reader, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SendSpec:
    """An outgoing channel."""

    channel: int
    destination: int
    reader: Reader


@dataclass(frozen=True, slots=True)
class ReceiveSpec:
    """An incoming channel."""

    channel: int
    sender: int
    ring: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """All that one rank must set up for a job with a given window."""

    rings: tuple[RingSpec, ...]
    segments: tuple[tuple[SegmentSpec, StageSpec], ...]
    source: StageSpec | None
    """Writes the model inputs; its input is the completion credit."""
    sink: StageSpec | None
    """Reads the model outputs; its output is the completion credit."""
    sends: tuple[SendSpec, ...]
    receives: tuple[ReceiveSpec, ...]


class _Rings:
    """Collects the rings of a rank while their readers register."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.tensors: list[TensorSpec] = []
        self.writer_levels: list[int] = []
        self.reader_levels: dict[int, list[int]] = defaultdict(list)
        self.of_tensor: dict[str, int] = {}

    def add(self, tensor: TensorSpec, writer_level: int) -> int:
        self.tensors.append(tensor)
        self.writer_levels.append(writer_level)
        self.of_tensor[tensor.name] = len(self.tensors) - 1
        return len(self.tensors) - 1

    def reader(self, ring: int, level: int) -> Reader:
        self.reader_levels[ring].append(level)
        return Reader(ring, len(self.reader_levels[ring]) - 1)

    def reader_of(self, tensor: str, level: int) -> Reader:
        return self.reader(self.of_tensor[tensor], level)

    def stage(self, segment: SegmentSpec) -> StageSpec:
        return StageSpec(
            tuple(self.reader_of(name, segment.level) for name in segment.inputs),
            tuple(self.of_tensor[name] for name in segment.outputs),
        )

    def specs(self) -> tuple[RingSpec, ...]:
        specs = []
        for ring, (tensor, level) in enumerate(zip(self.tensors, self.writer_levels, strict=True)):
            readers = self.reader_levels[ring]
            depth = slots(level, max(readers, default=level))
            specs.append(RingSpec(tensor, min(self.window, depth), len(readers)))
        return tuple(specs)


def wire(job: Job, rank: int, window: int) -> Wiring:
    """Return what ``rank`` sets up to run ``job`` with at most ``window`` frames inside."""
    return _wire(job, rank, window, _producer_levels(job))


def wire_all(job: Job, window: int) -> tuple[Wiring, ...]:
    """Return what each rank sets up: :func:`wire` of all, in a time that grows with the job."""
    levels = _producer_levels(job)
    segments: dict[int, list[SegmentSpec]] = defaultdict(list)
    channels: dict[int, list[ChannelSpec]] = defaultdict(list)
    for segment in job.segments:
        segments[segment.rank].append(segment)
    for channel in job.channels:
        channels[channel.sender].append(channel)
        channels[channel.destination].append(channel)
    return tuple(
        _wire(
            replace(job, segments=tuple(segments[rank]), channels=tuple(channels[rank])),
            rank,
            window,
            levels,
        )
        for rank in range(len(job.ranks))
    )


def _wire(job: Job, rank: int, window: int, levels: Mapping[str, int]) -> Wiring:
    """Return the wiring of a rank whose segments and channels, at least, a job has."""
    rings = _Rings(window)
    segments = job.segments_of(rank)
    is_source, is_sink = rank == job.source_rank, rank == job.sink_rank

    source_outputs = tuple(rings.add(tensor, 0) for tensor in job.inputs) if is_source else ()
    for segment in segments:
        for name in segment.outputs:
            rings.add(job.tensors[name], segment.level)
    receives = [
        ReceiveSpec(c.number, c.sender, rings.add(job.tensors[c.tensor], levels[c.tensor] + 1))
        for c in job.channels
        if c.destination == rank
    ]
    # All rings are there before the first reader.
    stages = tuple((segment, rings.stage(segment)) for segment in segments)
    sends = [
        SendSpec(c.number, c.destination, rings.reader_of(c.tensor, levels[c.tensor] + 1))
        for c in job.channels
        if c.sender == rank
    ]
    outputs = job.outputs if is_sink else ()
    sink_inputs = tuple(rings.reader_of(each.name, job.path_length + 1) for each in outputs)

    # The credit's ring is as deep as the window on both sides, so it never holds up the sink.
    credit = rings.add(CREDIT, 0) if is_source or is_sink else -1
    if is_sink and not is_source:
        reader = rings.reader(credit, window)
        sends.append(SendSpec(CREDIT_CHANNEL, job.source_rank, reader))
    if is_source and not is_sink:
        receives.append(ReceiveSpec(CREDIT_CHANNEL, job.sink_rank, credit))
    return Wiring(
        segments=stages,
        source=StageSpec((rings.reader(credit, window),), source_outputs) if is_source else None,
        sink=StageSpec(sink_inputs, (credit,)) if is_sink else None,
        sends=tuple(sends),
        receives=tuple(receives),
        rings=rings.specs(),
    )


def _producer_levels(job: Job) -> dict[str, int]:
    levels = {tensor.name: 0 for tensor in job.inputs}
    for segment in job.segments:
        levels.update(dict.fromkeys(segment.outputs, segment.level))
    return levels


def connect(
    wiring: Wiring,
    rings: Sequence[Ring],
    wakes: Mapping[str, Callable[[], None]],
    wake_loop: Callable[[], None],
    take_credits: Callable[[], None],
) -> None:
    """Let each ring wake the threads that may wait for it.

    Messages are polled regularly, so a thread is woken for them only if something can be sent at
    once. Room in a received ring wakes nobody: after a step that frees a slot, the computing thread
    polls soon. The polling thread takes credits of another rank; a sink on the source's own rank
    hands over each credit at once. Both wake the source.

    Args:
        wiring: of one rank.
        rings: made from ``wiring.rings``, in that order.
        wakes: what wakes the threads ``compute``, ``source`` and ``sink``, as far as there are any.
        wake_loop: has a thread poll the messages.
        take_credits: takes the credits that are there, and wakes the source.
    """

    def wake_on(stage: StageSpec, wake: Callable[[], None]) -> None:
        for reader in stage.inputs:
            rings[reader.ring].on_written += (wake,)
        for ring in stage.outputs:
            rings[ring].on_freed += (wake,)

    for _, segment in wiring.segments:
        wake_on(segment, wakes["compute"])
    if wiring.sink is not None:
        wake_on(wiring.sink, wakes["sink"])
    if wiring.source is not None:
        wake_on(StageSpec((), wiring.source.outputs), wakes["source"])
    if wiring.source is not None and wiring.sink is not None:
        rings[wiring.source.inputs[0].ring].on_written += (take_credits,)
    for send in wiring.sends:
        rings[send.reader.ring].on_written += (wake_loop,)


def threadless_stages(rank: RankSpec, *, is_timed: bool) -> frozenset[str]:
    """Return which stages beside the segments have no thread of their own.

    On a rank of a single core a thread more can do nothing at the same time, but costs a sleep
    and a wake-up per frame. A source that waits for its frames keeps its thread: they come, and
    may be lost, while a segment computes.

    Args:
        rank: where the stages are.
        is_timed: whether its frames come at times of their own.
    """
    if rank.accelerator != "cpu" or len(rank.cores) != 1:
        return frozenset()
    return frozenset({"sink"} if is_timed else {"source", "sink"})
