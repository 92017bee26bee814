"""From a job to what one rank must set up: rings, stages, sends and receives.

How many slots a ring gets follows from the *level* of its writer and of its last reader. The
level of a stage is the length of the longest path to it, in segments and hops. While every
stage works, a stage of level L is busy with frame t - L in step t; so a tensor written at
level w and read at level r must be kept for r - w + 1 frames, or its writer would have to
wait: a skip connection would throttle the pipeline.

Where ranks take turns, each has a ring of its own for what it makes, and its reader takes frame
after frame from the ring of whoever handles it. Such a segment may take several steps for a
frame, and counts as many levels. A ring then has as many slots as its writer handles at most among
so many frames that follow each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..job import ALL, EACH, Channel, Job, PlacedSegment, Rank, Steps, Tensor, Turns
from .slots import Ring

CREDIT = Tensor("completion credit", "uint64", (2,))
"""Number of a frame that has left the pipeline, and the time in nanoseconds of the monotonic clock;
sent from the sink to the source."""

CREDIT_CHANNEL = 0

BEAT = Tensor("heartbeat", "uint8", (64,))
"""What a rank works on, as text; sent to the next rank, and from the last one to the first."""

HEARTBEAT_CHANNEL = -1

_Levels = TypeVar("_Levels", int, NDArray[np.int64])


def slots(written: _Levels, last_read: _Levels) -> _Levels:
    """How many slots a tensor needs, unless the window is smaller.

    Args:
        written: level of what writes it: of a segment, 0 of the source, and for a tensor that was
            received one more than the level of the segment that made it. The first one of a segment
            that has several.
        last_read: highest level of what reads it: of segments, of the sink, and for a tensor that
            is sent one more than ``written``.
    """
    return last_read - written + 1


Pairs: TypeAlias = frozenset[tuple[int, int]]
"""Pairs of ranks, the lower one first, that share memory: channels between them are direct."""

NO_PAIRS: Pairs = frozenset()


def pairs_within_boards(job: Job) -> Pairs:
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank in job.ranks:
        ranks[rank.board].append(rank.rank)
    return NO_PAIRS.union(*(combinations(numbers, 2) for numbers in ranks.values()))


@dataclass(frozen=True, slots=True)
class RingSpec:
    tensor: Tensor
    depth: int
    readers: tuple[Steps, ...] = ()
    turns: Turns = ALL
    is_shared: bool = False
    """Whether other ranks read its slots."""
    home: int | None = None
    """The rank whose ring this one shows; ``None``: it has slots of its own."""


@dataclass(frozen=True, slots=True)
class Reader:
    ring: int
    index: int


@dataclass(frozen=True, slots=True)
class StageSpec:
    inputs: tuple[tuple[Reader, ...], ...]
    """By tensor: a reader for each rank that makes it, several if these take turns."""
    outputs: tuple[int, ...]

    @property
    def readers(self) -> tuple[Reader, ...]:
        return tuple(reader for parts in self.inputs for reader in parts)


@dataclass(frozen=True, slots=True)
class SendSpec:
    """An outgoing channel: by messages, or of a ring whose slots the destination reads itself."""

    channel: int
    destination: int
    reader: Reader
    compress: str = "none"


@dataclass(frozen=True, slots=True)
class ReceiveSpec:
    """An incoming channel: by messages, or of a ring that shows one of ``sender``."""

    channel: int
    sender: int
    ring: int
    compress: str = "none"

    @property
    def carries_frames(self) -> bool:
        return self.channel >= 0


@dataclass(slots=True)
class Wiring:
    """What a rank sets up. :func:`wire_all` fills it in; nothing changes it afterwards."""

    rank: int
    rings: list[RingSpec] = field(default_factory=list)
    segments: list[tuple[PlacedSegment, StageSpec]] = field(default_factory=list)
    source: StageSpec | None = None
    """Writes the model inputs; its input is the completion credit."""
    sink: StageSpec | None = None
    """Reads the model outputs; its output is the completion credit."""
    sends: list[SendSpec] = field(default_factory=list)
    receives: list[ReceiveSpec] = field(default_factory=list)
    shares: list[SendSpec] = field(default_factory=list)
    """Direct channels from this rank; also those of tensors that it has received by a message."""
    views: list[ReceiveSpec] = field(default_factory=list)
    entries: list[tuple[int, ...]] = field(default_factory=list)
    """At the source: by route, the rings of the model inputs; the source's outputs are all."""
    exits: list[tuple[tuple[Reader, ...], ...]] = field(default_factory=list)
    """At the sink: by route, the readers of the model outputs; the sink's inputs are all."""

    @property
    def receives_credits(self) -> bool:
        return any(receive.channel == CREDIT_CHANNEL for receive in self.receives)

    @property
    def compresses(self) -> bool:
        """Whether some messages are compressed."""
        ends: list[SendSpec | ReceiveSpec] = [*self.sends, *self.receives]
        return any(end.compress != "none" for end in ends)

    def add_ring(self, spec: RingSpec) -> int:
        self.rings.append(spec)
        return len(self.rings) - 1

    def add_reader(self, ring: int, turns: Turns, *, elsewhere: bool = False) -> Reader:
        """Add a reader of the frames that it handles, too.

        ``elsewhere``: it is on another rank, which reads the slots themselves.
        """
        spec = self.rings[ring]
        common = spec.turns.common(turns)
        steps = EACH if common == spec.turns else common.steps_in(spec.turns)
        self.rings[ring] = replace(
            spec, readers=(*spec.readers, steps), is_shared=spec.is_shared or elsewhere
        )
        return Reader(ring, len(spec.readers))


_Origin: TypeAlias = tuple[str, int]
"""A tensor and a rank that makes it."""


def _add_route(
    wiring: Wiring,
    job: Job,
    window: int,
    ways: _Ways,
    segments: Sequence[PlacedSegment],
    channels: Sequence[Channel],
) -> None:
    """Add a rank's part of one route: its segments, and the channels that concern it."""
    rank = wiring.rank
    rings: dict[str, dict[int, int]] = defaultdict(dict)
    """By tensor and rank that makes it."""

    def add(tensor: str, maker: int = rank, home: int | None = None) -> int:
        ring = wiring.add_ring(ways.ring(rank, (tensor, maker), window, home))
        rings[tensor][maker] = ring
        return ring

    def readers(tensor: str, turns: Turns) -> tuple[Reader, ...]:
        return tuple(
            wiring.add_reader(ring, turns)
            for ring in rings[tensor].values()
            if wiring.rings[ring].turns.common(turns).positions
        )

    inputs = job.inputs if rank == job.source else ()
    wiring.entries.append(tuple(add(tensor.name) for tensor in inputs))
    written = [tuple(map(add, segment.outputs)) for segment in segments]
    for c in (channel for channel in channels if channel.destination == rank):
        home = ways.homes[c.number]
        if home == rank:
            ring = add(c.tensor, c.source)
            wiring.receives.append(ReceiveSpec(c.number, c.source, ring, c.compress))
        else:
            wiring.views.append(ReceiveSpec(c.number, home, add(c.tensor, c.source, home)))
    # All rings are there before the first reader.
    turns = job.ranks[rank].turns
    for segment, outputs in zip(segments, written, strict=True):
        read = tuple(readers(name, turns) for name in segment.inputs)
        wiring.segments.append((segment, StageSpec(read, outputs)))
    for c in channels:
        home, is_elsewhere = ways.homes[c.number], c.destination != rank
        is_shared = home == rank and is_elsewhere
        if is_shared or (c.source == rank and home == c.destination):
            ring = rings[c.tensor][c.source]
            reader = wiring.add_reader(ring, ways.carried[c.number], elsewhere=is_shared)
            ends = wiring.shares if is_shared else wiring.sends
            ends.append(SendSpec(c.number, c.destination, reader, c.compress))
    results = job.outputs if rank == job.sink else ()
    wiring.exits.append(tuple(readers(tensor.name, ALL) for tensor in results))


class _Ways:
    """How tensors get to the ranks that read them, and how long their slots are needed."""

    def __init__(self, job: Job, direct: Pairs) -> None:
        self._job = job
        self._direct = direct
        self.homes: dict[int, int] = {}
        """By channel, the rank whose slots its destination reads: its own if a message comes."""
        self._home_of: dict[tuple[_Origin, int], int] = {}
        """By what is made and a rank that reads it elsewhere."""
        self._made_at = {(tensor.name, job.source): (0, 0) for tensor in job.inputs}
        """The first and the last level of what makes a tensor."""
        for segment in job.segments:
            levels = segment.level - segment.levels + 1, segment.level
            self._made_at |= {(name, segment.rank): levels for name in segment.outputs}
        self._makers: dict[str, list[int]] = defaultdict(list)
        for name, maker in self._made_at:
            self._makers[name].append(maker)
        self.carried: dict[int, Turns] = {}
        """By channel, the frames in which its destination needs the tensor."""
        for channel in job.channels:
            made = job.turns_of_maker(channel.source, channel.tensor)
            needed = job.turns_of_reader(channel.destination, channel.tensor)
            self.carried[channel.number] = made.common(needed)
        self._turns: dict[tuple[int, _Origin], Turns] = {}
        """By home, the frames that come there by messages."""
        messages = self._find_homes()
        self._last_read: dict[tuple[int, _Origin], int] = {}
        """By home, the highest level of a reader."""
        for segment in job.segments:
            for name in segment.inputs:
                self._read(segment.rank, name, segment.level)
        for tensor in job.outputs:
            self._read(job.sink, tensor.name, job.path_length + 1)
        for channel in messages:
            origin = channel.tensor, channel.source
            self._read_at(channel.source, origin, self._made_at[origin][1] + 1)

    def is_direct(self, one: int, other: int) -> bool:
        return _is_pair(self._direct, one, other)

    def _find_homes(self) -> list[Channel]:
        """Find the homes; return the channels by messages.

        A tensor travels once to ranks that share memory and need it in the same frames, or in some
        of them: the first of these ranks gets the message.
        """
        messages: dict[_Origin, list[Channel]] = defaultdict(list)
        # Those of most frames come first.
        shares = {channel: self.carried[channel.number].share for channel in self._job.channels}
        for channel in sorted(shares, key=lambda channel: (-shares[channel], channel.number)):
            origin, rank = (channel.tensor, channel.source), channel.destination
            if self.is_direct(channel.source, rank):
                home = channel.source
            else:
                home = next(self._homes(messages[origin], channel), rank)
                if home == rank:
                    messages[origin].append(channel)
                    self._turns[rank, origin] = self.carried[channel.number]
            self.homes[channel.number] = self._home_of[origin, rank] = home
        return sorted(chain(*messages.values()), key=lambda channel: channel.number)

    def _homes(self, messages: Sequence[Channel], channel: Channel) -> Iterator[int]:
        wanted = self.carried[channel.number]
        for other in messages:
            has_all = self.carried[other.number].covers(wanted)
            if has_all and self.is_direct(other.destination, channel.destination):
                yield other.destination

    def _read(self, rank: int, tensor: str, level: int) -> None:
        for maker in self._makers[tensor]:
            origin = tensor, maker
            if maker == rank:
                self._read_at(rank, origin, level)
            elif (origin, rank) in self._home_of:
                self._read_at(self._home_of[origin, rank], origin, level)

    def _read_at(self, home: int, origin: _Origin, level: int) -> None:
        self._last_read[home, origin] = max(level, self._last_read.get((home, origin), 0))

    def ring(self, rank: int, origin: _Origin, window: int, home: int | None = None) -> RingSpec:
        """Describe the ring in which a rank has what another one, or itself, makes.

        ``home``: the rank with the slots, if it is another one.
        """
        tensor, maker = origin
        owner = rank if home is None else home
        first, last = self._made_at[origin]
        written, turns = (
            (first, self._job.turns_of_maker(maker, tensor))
            if owner == maker
            else (last + 1, self._turns[owner, origin])
        )
        frames = slots(written, self._last_read.get((owner, origin), last))
        depth = turns.most_in(min(window, frames))
        return RingSpec(self._job.tensors[tensor], depth, turns=turns, home=home)


def wire_all(
    job: Job, window: int | None = None, direct: Pairs = NO_PAIRS, *, heartbeats: bool = False
) -> tuple[Wiring, ...]:
    """Derive what each rank sets up to run ``job``, on all of its routes.

    ``window``: frames inside at most; ``None``: as many as the job says for each route. Ranks that
    are no pair in ``direct`` exchange messages. With ``heartbeats``, the last two rings of each
    rank are those of its own heartbeats, and of those that it hears.
    """
    wirings = tuple(Wiring(rank.rank) for rank in job.ranks)
    for route in job.routes:
        ways = _Ways(route, direct)
        segments: dict[int, list[PlacedSegment]] = defaultdict(list)
        channels: dict[int, list[Channel]] = defaultdict(list)
        for segment in route.segments:
            segments[segment.rank].append(segment)
        for channel in route.channels:
            for rank in {channel.source, channel.destination, ways.homes[channel.number]}:
                channels[rank].append(channel)
        for wiring in wirings:
            of_rank = segments[wiring.rank], channels[wiring.rank]
            _add_route(wiring, route, window or route.window, ways, *of_rank)
    _add_credits(wirings[job.sink], wirings[job.source], job, window, direct)
    if heartbeats:
        _add_heartbeats(wirings, direct)
    return wirings


def _add_credits(sink: Wiring, source: Wiring, job: Job, window: int | None, direct: Pairs) -> None:
    # The ring is as deep as the window on both sides, so it never holds up the sink.
    ring = RingSpec(CREDIT, window or max(route.window for route in job.routes), (EACH,))
    sent = came = sink.add_ring(ring)
    if sink is not source:
        came = source.add_ring(ring)
        _add_channel(CREDIT_CHANNEL, sink, sent, source, came, direct)
    source.source = StageSpec(((Reader(came, 0),),), tuple(chain(*source.entries)))
    sink.sink = StageSpec(tuple(chain(*sink.exits)), (sent,))


def _add_heartbeats(wirings: Sequence[Wiring], direct: Pairs) -> None:
    """Have each rank send to the next one, the last one to the first; a single rank to none."""
    for wiring in wirings:
        wiring.rings += [RingSpec(BEAT, 2, (EACH,))] * 2
    for sender, receiver in zip(wirings, [*wirings[1:], *wirings[:1]], strict=True):
        if sender is not receiver:
            sent, came = len(sender.rings) - 2, len(receiver.rings) - 1
            _add_channel(HEARTBEAT_CHANNEL, sender, sent, receiver, came, direct)


def _add_channel(
    channel: int, sender: Wiring, sent: int, receiver: Wiring, came: int, direct: Pairs
) -> None:
    """Connect a ring of one rank with a ring of another."""
    send = SendSpec(channel, receiver.rank, Reader(sent, 0))
    receive = ReceiveSpec(channel, sender.rank, came)
    if not _is_pair(direct, sender.rank, receiver.rank):
        sender.sends.append(send)
        receiver.receives.append(receive)
        return
    sender.rings[sent] = replace(sender.rings[sent], is_shared=True)
    receiver.rings[came] = replace(receiver.rings[came], home=sender.rank)
    sender.shares.append(send)
    receiver.views.append(receive)


def _is_pair(direct: Pairs, one: int, other: int) -> bool:
    return (min(one, other), max(one, other)) in direct


def readers_of(wiring: Wiring) -> dict[int, set[str]]:
    threads: dict[int, set[str]] = defaultdict(set)
    for thread, stage in stages(wiring):
        for reader in stage.readers:
            threads[reader.ring].add(thread)
    return threads


def writers_of(wiring: Wiring) -> dict[int, str]:
    return {ring: thread for thread, stage in stages(wiring) for ring in stage.outputs}


def stages(wiring: Wiring) -> Iterator[tuple[str, StageSpec]]:
    for _, segment in wiring.segments:
        yield "compute", segment
    if wiring.sink is not None:
        yield "sink", wiring.sink
    if wiring.source is not None:
        yield "source", wiring.source


def connect(
    wiring: Wiring,
    rings: Sequence[Ring],
    wakes: Mapping[str, Callable[[], object]],
    wake_loop: Callable[[], object],
    take_credits: Callable[[], object],
) -> None:
    """Let each ring wake the threads that may wait for it.

    Messages are polled regularly, so a thread is woken for them only if something can be sent at
    once. Room in a ring that is received wakes nobody: after a step that frees a slot, the
    computing thread polls soon; if other ranks read it as well, room has the messages polled.
    Credits by messages are taken by the thread that polls, those by tokens by the thread that takes
    the tokens; a sink on the source's own rank hands over each credit at once.

    ``wakes``: what wakes the threads ``compute``, ``source`` and ``sink``, as far as there are any;
    ``wake_loop`` has a thread poll the messages; ``take_credits`` also wakes the source.
    """
    readers, writers = readers_of(wiring), writers_of(wiring)
    views = {view.ring for view in wiring.views}
    sent = {send.reader.ring for send in wiring.sends}
    for thread, stage in stages(wiring):
        # The source does not wait in its thread for a credit that has come.
        for reader in stage.readers if thread != "source" else ():
            writer = writers.get(reader.ring)
            # The only reader of a view takes its tokens itself; so does a thread its own frames.
            if reader.ring in views:
                is_woken = len({wakes[reading] for reading in readers[reader.ring]}) > 1
            else:
                is_woken = writer is None or wakes[writer] != wakes[thread]
            if is_woken:
                rings[reader.ring].subscribe(reader.index, wakes[thread])
        for ring in stage.outputs:
            # Slots that this thread frees, or tokens that it takes, do not wake it.
            if ring in sent or {wakes[reading] for reading in readers[ring]} - {wakes[thread]}:
                rings[ring].on_freed += (wakes[thread],)
    if wiring.source is not None and not wiring.receives_credits:
        (credit,) = wiring.source.readers
        rings[credit.ring].subscribe(credit.index, take_credits)
    for send in wiring.sends:
        rings[send.reader.ring].subscribe(send.reader.index, wake_loop)
    shared = {share.reader.ring for share in wiring.shares}
    for received in {receive.ring for receive in wiring.receives} & shared:
        rings[received].on_freed += (wake_loop,)


def threadless_stages(rank: Rank, *, is_timed: bool) -> frozenset[str]:
    """List the stages beside the segments that have no thread of their own.

    On a rank of a single core a thread more can do nothing at the same time, but costs a sleep and
    a wake-up per frame. A source that waits for its frames keeps its thread: they come, and may be
    lost, while a segment computes. If ranks take turns, both keep theirs: they handle the frames of
    the other ranks while this one computes its own.
    """
    if rank.accelerator != "cpu" or len(rank.cores) != 1 or rank.turns != ALL:
        return frozenset()
    return frozenset({"sink"} if is_timed else {"source", "sink"})
