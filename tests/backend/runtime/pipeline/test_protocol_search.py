"""Every state that small jobs can reach: room and order hold, and only ended jobs stand still.

The rings, stages, ends of channels, tokens and their pipes are the runtime's own, wired as ranks
wire them. Threads and MPI are replaced by a search: it does each thing that some thread or MPI
could do next, in every order. A stage's step with the tokens that it sends counts as one thing, as
nobody can tell its parts from a late start: what it waits for stays, and each of its counters only
lets others do more.
"""

from __future__ import annotations

import fcntl
import gc
import os
import socket
import struct
import termios
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from board_ranks import open_descriptors
from hypothesis import given, strategies as st
from line_graphs import line_graph, opened
from numpy.typing import NDArray
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, job_of, planned, plans, routed
from strategies import pairs_of

from rankslice.backend.runtime.direct.neighbours import Neighbour
from rankslice.backend.runtime.direct.tokens import (
    _TOKEN,
    ENDED,
    FREED,
    WRITTEN,
    Inbox,
    Outbox,
)
from rankslice.backend.runtime.engines import Engine
from rankslice.backend.runtime.errors import FrameError, JobError
from rankslice.backend.runtime.frame_records import Failure
from rankslice.backend.runtime.job import (
    ALL as EVERY,
    Job,
    PlacedSegment,
    Steps,
    Tensor,
    Turns,
    typed_view,
)
from rankslice.backend.runtime.pipeline.direct_channels import MAIN, NEWS, DirectChannels, Post
from rankslice.backend.runtime.pipeline.executor import Executor
from rankslice.backend.runtime.pipeline.loop import Incoming, Outgoing
from rankslice.backend.runtime.pipeline.routes import RouteChoice, RoutedSink, RoutedSource
from rankslice.backend.runtime.pipeline.slots import Ring, View
from rankslice.backend.runtime.pipeline.stages import (
    Entry,
    Input,
    MergedInput,
    SegmentStage,
    SinkStage,
    SourceStage,
    make_inputs,
)
from rankslice.backend.runtime.pipeline.wiring import (
    CREDIT,
    Pairs,
    Wiring,
    connect,
    wire_all,
)
from rankslice.backend.runtime.sizes import HEADER_BYTES, OpenSlot, Slot
from rankslice.backend.runtime.sources import EndOfStreamError
from rankslice.backend.runtime.sources.arrivals import Pulled
from rankslice.backend.runtime.sources.switching import Observation
from rankslice.framework.plan import Plan

State = tuple[Any, ...]
Stage = SourceStage | SegmentStage | SinkStage
Action = tuple[str, Callable[[], bool]]
"""Its name, and what does it: returns whether it could be done."""

Thread = tuple[int, str]
"""Rank and name of a thread that runs stages."""

_END = -1

UNSURE = "perhaps"
"""Begins the names of things that may not happen, though they could."""


class WrongFrameError(Exception):
    """A slot holds another frame than its reader expects, or more frames than it has room for."""


REASON = "no"
"""Reason frames fail."""

Step = tuple[int, int]
"""Rank and segment, -1 for the source."""

SIZES = (2, 0, 1)
"""Of tensors with an open size: frame by frame, over and over."""


class Frames(Engine):
    """Source, engine and receiver of results: a tensor's values are the number of its frame."""

    waited_s = 0.0
    fails: Collection[int] = frozenset()
    """Frames whose values it refuses."""
    lost: Collection[int] = frozenset()
    """Frames that have failed before it."""

    def __init__(self, frames: int, turns: Turns = EVERY) -> None:
        self.frames = frames
        self._steps = turns.steps_in(EVERY)
        self.computed = self._steps.first
        """The frame that is to be computed next."""

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        if index >= self.frames:
            raise EndOfStreamError
        if index in self.fails:
            raise FrameError(REASON)
        for slot in slots:
            values = slot.shaped((_size(index),)) if isinstance(slot, OpenSlot) else slot
            values[...] = index

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        while self.computed in self.lost:
            self.computed = self._steps.after(self.computed)
        frame, self.computed = self.computed, self._steps.after(self.computed)
        self._check(frame, inputs)
        self.read(frame, outputs)

    def write(self, frame: int, slots: Sequence[NDArray[Any]]) -> None:
        self._check(frame, slots)

    @staticmethod
    def _check(frame: int, slots: Sequence[NDArray[Any]]) -> None:
        for values in slots:
            numbers = values.tolist()
            if numbers not in ([frame], [frame] * _size(frame)):
                raise WrongFrameError(f"frame {frame} expected, found {numbers}")

    def pass_on(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        """Write the frame that the inputs have, which is a later one than the last."""
        (frame,) = {int(values[0]) for values in inputs}
        if frame < self.computed:
            raise WrongFrameError(f"frame {frame} comes after {self.computed - 1}")
        self._check(frame, inputs)
        self.computed = frame + 1
        self.read(frame, outputs)

    def label(self, index: int) -> str:
        return str(index)

    def load(self, *_: object) -> None: ...

    def finish(self) -> None: ...


def _size(frame: int) -> int:
    return SIZES[frame % len(SIZES)]


class Sunk(Frames):
    """A sink that knows which frames fail, and where."""

    failing: Mapping[int, Collection[Step]] = {}
    """By frame, the steps that may be said to have failed; the frame may also have results if they
    are those of one of two routes."""

    def write(self, frame: int, slots: Sequence[NDArray[Any]]) -> None:
        if frame in self.lost:
            raise WrongFrameError(f"frame {frame} has results")
        super().write(frame, slots)

    def fail(self, frame: int, failure: Failure) -> None:
        place = failure.rank, failure.segment
        if place not in self.failing.get(frame, ()) or failure.reason != REASON:
            raise WrongFrameError(f"frame {frame} has failed: {failure}")


class PassingFrames(Frames):
    """An engine of one of two routes: it cannot know which frame comes, and passes it on."""

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[Slot]) -> None:
        self.pass_on(inputs, outputs)


class Whim:
    """Changes the route at any time, some times."""

    def __init__(self, times: int) -> None:
        self.route = 0
        self.left = times

    def decide(self, route: int, seen: Observation) -> tuple[int, str]:
        return self.route, "by whim"

    def change(self) -> bool:
        if not self.left:
            return False
        self.left -= 1
        self.route = 1 - self.route
        return True


class Wire:
    """Both ends of a channel, and the messages in between: does what MPI may do, bit by bit.

    A message meets the receive that was started first. It may be moved out of its slot before
    that, into a buffer. Transfers that are over are told in any order.
    """

    def __init__(self, name: str, outgoing: Outgoing, incoming: Incoming) -> None:
        self.name = name
        self.outgoing = outgoing
        self.incoming = incoming
        self.flying: list[int] = []
        """Slots of the messages under way, oldest first."""
        self.lengths: list[int] = []
        """Their lengths in bytes."""
        self.buffered: list[bytes] = []
        """Those that have left their slot: the first ones in ``flying``."""
        self.posted: list[int] = []
        self.sent: list[int] = []
        """Slots of sends that are over and not told."""
        self.received: list[int] = []
        """Slots of receives that are over and not told."""
        self.came = [0] * len(incoming.lane.slots)
        """By slot, the length of the message that came last."""

    def send(self, lane: int, slot: int) -> None:
        self.send_part(lane, slot, self.outgoing.lane.usual(slot).nbytes)

    def send_part(self, lane: int, slot: int, nbytes: int) -> None:
        self.flying.append(slot)
        self.lengths.append(self.outgoing.lane.slots[slot][:nbytes].nbytes)

    def send_end(self, lane: int) -> None:
        self.send_part(lane, _END, 0)

    def receive(self, lane: int, slot: int) -> None:
        self.posted.append(slot)

    def actions(self, manner: str) -> Iterator[Action]:
        """Yield what can happen.

        Args:
            manner: ``prompt``: a message that was moved is told on both sides at once; ``late``:
                both are told at any later time; ``buffered``: it may also leave its slot before.
        """
        yield f"start sends of {self.name}", partial(self.outgoing.advance, self, 0)
        yield f"start receives of {self.name}", partial(self.incoming.advance, self, 0)
        if manner == "prompt":
            yield f"deliver a message of {self.name}", self._deliver
            return
        yield f"move a message of {self.name}", self._move
        if manner == "buffered":
            yield f"buffer a message of {self.name}", self._buffer
        for slot in range(_END, len(self.outgoing.lane.slots)):
            yield f"tell send {slot} of {self.name}", partial(self._tell_sent, slot)
        for slot in range(len(self.incoming.lane.slots)):
            yield f"tell receive {slot} of {self.name}", partial(self._tell_received, slot)

    def _deliver(self) -> bool:
        return (
            self._move() and self._tell_sent(self.sent[0]) and self._tell_received(self.received[0])
        )

    def _buffer(self) -> bool:
        if len(self.buffered) == len(self.flying):
            return False
        slot, nbytes = self.flying[len(self.buffered)], self.lengths[len(self.buffered)]
        lane = self.outgoing.lane
        # Not the time of a credit, on which nothing depends.
        is_whole = lane.is_open or nbytes == lane.slots[slot].nbytes
        kept = nbytes if is_whole else min(1, nbytes)
        self.buffered.append(lane.slots[slot][:kept].tobytes())
        self.sent.append(slot)
        return True

    def _move(self) -> bool:
        if not self.flying or not self.posted:
            return False
        if not self.buffered:
            self._buffer()
        message, target = self.buffered.pop(0), self.posted.pop(0)
        self.came[target] = self.lengths.pop(0)
        del self.flying[0]
        self.incoming.lane.slots[target][: len(message)] = np.frombuffer(message, np.uint8)
        self.received.append(target)
        return True

    def _tell_sent(self, slot: int) -> bool:
        if slot not in self.sent:
            return False
        self.sent.remove(slot)
        self.sent.sort()
        self.outgoing.complete(slot, slot == _END)
        return True

    def _tell_received(self, slot: int) -> bool:
        if slot not in self.received:
            return False
        self.received.remove(slot)
        self.received.sort()
        self.incoming.complete(slot, self.came[slot] == 0, self.came[slot])
        return True


class Inboxes:
    """The pipes of a thread."""

    def __init__(self, executor: Executor | None, post: Post) -> None:
        self._executor = executor
        """The thread; ``None``: the main thread, which takes all that has come."""
        inboxes = dict(post.inboxes)
        self.news = [inboxes.pop(NEWS)] if NEWS in inboxes else []
        self.room = [*inboxes.values()]
        """Those of room, and of credits."""

    def awaits(self, unfinished: Sequence[Stage]) -> bool:
        """Whether something has come that ends the thread's sleep."""
        return _has_any(self.news) or (
            _has_any(self.room) and (self._is_main(unfinished) or _has_any(self._lacked()))
        )

    def take(self, unfinished: Sequence[Stage]) -> bool:
        """Take tokens as before the next look for a ready stage."""
        before = [*map(_waiting_bytes, (*self.news, *self.room))]
        if self._is_main(unfinished):
            self.take_all()
        elif self._executor is not None:
            self._executor._next_ready()
        return before != [*map(_waiting_bytes, (*self.news, *self.room))]

    def take_all(self) -> None:
        for inbox in (*self.news, *self.room):
            inbox.take()

    def _lacked(self) -> Sequence[Inbox]:
        """Return the inboxes that the thread watches while it sleeps, besides the news."""
        if self._executor is None:
            return ()
        self._executor._lacked = []
        self._executor._next_ready(takes_tokens=False)
        watched = dict(self._executor._lacked)
        return [inbox for inbox in self.room if inbox.descriptor in watched]

    def _is_main(self, unfinished: Sequence[Stage]) -> bool:
        """Note which stages the thread has; return whether the main thread takes its tokens."""
        if self._executor is not None:
            self._executor._stages = sorted(unfinished, key=lambda stage: stage.precedence)
        return not unfinished


def _has_any(inboxes: Sequence[Inbox]) -> bool:
    return any(map(_waiting_bytes, inboxes))


def _waiting_bytes(inbox: Inbox) -> int:
    waiting = fcntl.ioctl(inbox.descriptor, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", waiting)[0])


def _contents(inbox: Inbox) -> tuple[tuple[int, int, int], ...]:
    """Return the tokens that lie in a pipe, without their times, on which nothing depends."""
    size = _waiting_bytes(inbox)
    if not size:
        return ()
    data = os.read(inbox.descriptor, size)
    os.write(inbox.entry, data)
    return tuple((kind, channel, count) for kind, channel, count, _ in _TOKEN.iter_unpack(data))


def _refill(inbox: Inbox, contents: Sequence[tuple[int, int, int]]) -> None:
    if size := _waiting_bytes(inbox):
        os.read(inbox.descriptor, size)
    if contents:
        os.write(inbox.entry, b"".join(_TOKEN.pack(*token, 0) for token in contents))


def handed_over(
    wirings: Sequence[Wiring], direct: Pairs, joined: Collection[str] = ()
) -> list[DirectChannels]:
    """Return the rings of all ranks, after those that share memory have handed it over.

    ``joined``: the stages that run in the thread of the segments.
    """
    neighbours: list[dict[int, Neighbour]] = [{} for _ in wirings]
    with ExitStack() as streams:
        for low, high in sorted(direct):
            for rank, other, end in zip((low, high), (high, low), socket.socketpair(), strict=True):
                neighbours[rank][other] = Neighbour(other, end, sends_first=rank < other)
                streams.callback(neighbours[rank][other].close)
        channels = [
            DirectChannels(*ends, joined=joined) for ends in zip(wirings, neighbours, strict=True)
        ]
        if direct:
            with ThreadPoolExecutor(len(wirings)) as pool:
                list(pool.map(DirectChannels.hand_over, channels))
    return channels


class World:
    """All ranks of a job, between two things that happen."""

    def __init__(
        self,
        job: Job,
        window: int | None,
        frames: int,
        manner: str = "late",
        *,
        direct: Pairs = frozenset(),
        knows_length: bool = True,
        has_one_thread: bool = False,
        changes: int = 2,
        failing: Mapping[int, Collection[Step]] = {},
    ) -> None:
        """Wire all ranks.

        Args:
            job: the plan.
            window: frames inside at most; ``None``: as many as the job says for each route.
            frames: how many there are.
            manner: what MPI does with messages: see :meth:`Wire.actions`.
            direct: pairs of ranks that share memory.
            knows_length: whether the source knows how many frames there are.
            has_one_thread: whether source and sink run in the thread of the segments.
            changes: how many times the route may change, if there are two.
            failing: by frame, the steps that refuse its values.
        """
        self._failing, self._before = failing, _before(job)
        self._whim = Whim(changes)
        self.is_routed = job.surge is not None
        self._windows = [window or route.window for route in job.routes]
        self.window = max(self._windows)
        self.frames = frames
        self.stages: list[Stage] = []
        self.threads: list[Thread] = []
        """Of each stage, the one that runs it."""
        self.woken: set[Thread] = set()
        self.reverses = False
        """Whether tokens overtake each other."""
        self._engines: list[Frames] = []
        self._arrivals = Pulled(frames if knows_length else None)
        self._direct = direct
        self._routes = [route.segments for route in job.routes]
        wirings = [_small(wiring) for wiring in wire_all(job, window, direct)]
        joined = ("source", "sink") if has_one_thread else ()
        self._channels = handed_over(wirings, direct, joined)
        self.rings = [ring for channels in self._channels for ring in channels.rings]
        self.inboxes: dict[Thread, Inboxes] = {}
        outgoing: dict[int, Outgoing] = {}
        incoming: dict[int, Incoming] = {}
        for rank, (wiring, channels) in enumerate(zip(wirings, self._channels, strict=True)):
            rings = channels.rings
            first = len(self.stages)
            self._add_stages(wiring, rings, [route.ranks[rank].turns for route in job.routes])
            names = [*["source"][: wiring.source is not None], *["compute"] * len(wiring.segments)]
            names += ["sink"][: wiring.sink is not None]
            thread_of = {name: "compute" if has_one_thread else name for name in names}
            self.threads += [(rank, thread_of[name]) for name in names]
            for thread in sorted(set(thread_of.values())):
                post = channels.post(thread)
                stages = [
                    stage
                    for stage, name in zip(self.stages[first:], names, strict=True)
                    if thread_of[name] == thread
                ]
                executor = Executor(thread, stages, on_failure=lambda *_: None, post=post)
                self.inboxes[rank, thread] = Inboxes(executor, post)
            self.inboxes[rank, MAIN] = Inboxes(None, channels.post(MAIN))
            wake = {
                thread: partial(self.woken.add, (rank, thread)) for thread in thread_of.values()
            }
            wakes = {name: wake[thread] for name, thread in thread_of.items()}
            connect(wiring, rings, wakes, lambda: None, self._take_credits)
            for s in wiring.sends:
                ring = rings[s.reader.ring]
                outgoing[s.channel] = Outgoing(s.channel, s.destination, ring, s.reader.index)
            for r in wiring.receives:
                incoming[r.channel] = Incoming(r.channel, r.sender, rings[r.ring])
        self.wires = [Wire(f"channel {c}", outgoing[c], incoming[c]) for c in sorted(outgoing)]
        receives_credits = any(wiring.receives_credits for wiring in wirings)
        self.actions = [
            *self._stage_actions(),
            *[("take credits", self._take_credits)][:receives_credits],
            *[("change the route", self._change_route)][: self.is_routed],
            *self._token_actions(),
            *(a for w in self.wires for a in w.actions(manner)),
        ]
        parts: list[Any] = [*self.rings, *self.stages, *self._engines, *self.wires]
        parts += [self._arrivals, self._whim]
        parts += [self.source.choice] if isinstance(self.source, RoutedSource) else []
        parts += [end for w in self.wires for end in (w.outgoing, w.incoming)]
        if failing:
            for stage, (rank, _) in zip(self.stages, self.threads, strict=True):
                stage.rank = rank
        self._flags = [(part, name) for part in parts for name in _flags(part)]
        self._lists = [kept for part in parts for kept in _lists(part)]
        self._memory = [
            raw if ring.tensor.is_open else raw[:1]
            for ring in self.rings
            if not isinstance(ring, View)
            for raw in ring.raw
        ]
        self._memory += [
            np.asarray(record)[:_RECORD_HEAD]
            for ring in self.rings
            if not isinstance(ring, View) and failing
            for record in ring.records
        ]
        self.pipes = [
            pipe for inboxes in self.inboxes.values() for pipe in (*inboxes.news, *inboxes.room)
        ]

    def close(self) -> None:
        """Release all pipes."""
        for channels in self._channels:
            channels.close()

    def _add_stages(self, wiring: Wiring, rings: Sequence[Ring], turns_of: Sequence[Turns]) -> None:
        if wiring.source is not None:
            self.source = self._make_source(wiring, rings)
            self.stages.append(self.source)
        for segment, spec in wiring.segments:
            number = next(n for n, segments in enumerate(self._routes) if segment in segments)
            turns = turns_of[number]
            engine = (PassingFrames if self.is_routed else Frames)(self.frames, turns)
            step = segment.rank, segment.index
            engine.fails = {frame for frame, steps in self._failing.items() if step in steps}
            engine.lost = {f for f, steps in self._failing.items() if self._before[step] & {*steps}}
            self._engines.append(engine)
            outputs = [rings[ring] for ring in spec.outputs]
            inputs = make_inputs(spec.inputs, rings)
            self.stages.append(
                SegmentStage(segment.index, engine, inputs, outputs, lambda *_: None, turns)
            )
        if wiring.sink is not None:
            credit_ring = rings[wiring.sink.outputs[0]]
            exits = [make_inputs(parts, rings) for parts in wiring.exits]
            kept = [Sunk(self.frames)]
            kept[0].lost = frozenset() if self.is_routed else frozenset(self._failing)
            kept[0].failing = {f: self._blamed(steps) for f, steps in self._failing.items()}
            self.sink = (
                RoutedSink(kept, exits, credit_ring)
                if self.is_routed
                else SinkStage(kept, exits[0], credit_ring)
            )
            self.stages.append(self.sink)

    def _blamed(self, steps: Collection[Step]) -> Collection[Step]:
        """Return the step that is said to have failed; on two routes, one of them."""
        first = [step for step in steps if not self._before[step] & {*steps}]
        return first if self.is_routed else [min(first)]

    def _make_source(self, wiring: Wiring, rings: Sequence[Ring]) -> SourceStage:
        assert wiring.source is not None
        (reader,) = wiring.source.readers
        credit = Input(rings[reader.ring], reader.index)
        entries = [[rings[ring] for ring in outputs] for outputs in wiring.entries]
        frames = Frames(self.frames)
        own = {step for step in self._before if step[1] < 0}
        frames.fails = {f for f, steps in self._failing.items() if own & {*steps}}
        routes = [Entry(*parts) for parts in zip(entries, self._windows, strict=True)]
        if not self.is_routed:
            return SourceStage(frames, self._arrivals, routes, credit)
        source = RoutedSource(frames, self._arrivals, routes, credit, self._whim)
        # When they were made is no part of a state.
        source.choice.changes = deque(maxlen=0)  # type: ignore[assignment]
        return source

    def _change_route(self) -> bool:
        """Let the source see something that has it change the route."""
        self.woken.add(self.threads[self.stages.index(self.source)])
        return self.is_routed and not self.source.finished and self._whim.change()

    def _stage_actions(self) -> Iterator[Action]:
        for number, stage in enumerate(self.stages):
            yield f"{stage.describe()} (stage {number})", partial(_step, stage)

    def _take_credits(self) -> bool:
        took = self.source.take_credits()
        if took:
            self.woken.add(self.threads[self.stages.index(self.source)])
        return took

    def _token_actions(self) -> Iterator[Action]:
        for thread, inboxes in self.inboxes.items():
            if inboxes.news or inboxes.room:
                rank, name = thread
                yield f"rank {rank}, {name}, takes tokens", partial(self._take, thread)
                yield f"{UNSURE} rank {rank}, {name}", partial(self._take_unasked, thread)

    def _take(self, thread: Thread) -> bool:
        """Let a thread take tokens that wake it."""
        self.woken.add(thread)
        inboxes, unfinished = self.inboxes[thread], self._unfinished(thread)
        return inboxes.awaits(unfinished) and inboxes.take(unfinished)

    def _take_unasked(self, thread: Thread) -> bool:
        """Let a thread take tokens for which it would not wake: it looks for another reason."""
        self.woken.add(thread)
        inboxes, unfinished = self.inboxes[thread], self._unfinished(thread)
        return not inboxes.awaits(unfinished) and inboxes.take(unfinished)

    def _unfinished(self, thread: Thread) -> list[Stage]:
        pairs = zip(self.stages, self.threads, strict=True)
        return [stage for stage, each in pairs if each == thread and not stage.finished]

    def do(self, action: Callable[[], bool], busy: set[Thread]) -> bool:
        """Let something happen, if it can; return whether it could.

        Args:
            action: what happens.
            busy: the threads that are awake, as they have something to do.

        Raises:
            AsleepError: it gave work to a sleeping thread and did not wake it.
            WrongFrameError: a slot was overwritten, or too many frames are inside.
        """
        self.woken.clear()
        if not action():
            return False
        self._send_tokens()
        if self.reverses:
            for pipe in self.pipes:
                _refill(pipe, _contents(pipe)[::-1])
        self.check()
        # Who had work before is awake: this holds for whoever just worked, too.
        if asleep := self.ready() - busy - self.woken:
            raise AsleepError(f"{asleep} were not woken")
        return True

    def _send_tokens(self) -> None:
        for channels in self._channels:
            for outbox in (post.outbox for post in channels._posts.values()):
                outbox.flush()

    def check_sleepers(self, busy: set[Thread]) -> None:
        """Raise :class:`AsleepError` if a thread would get work by tokens that do not wake it."""
        state: State = ()
        for thread, inboxes in self.inboxes.items():
            unfinished = self._unfinished(thread)
            if thread in busy or not unfinished or not _has_any(inboxes.room):
                continue
            if not inboxes.awaits(unfinished):
                state = state or self.state()
                inboxes.take_all()
                if self.ready() - busy:
                    raise AsleepError(f"{thread} does not look at its tokens")
                self.restore(state)

    def ready(self) -> set[Thread]:
        """Return the threads that have something to do."""
        pairs = zip(self.stages, self.threads, strict=True)
        return {thread for stage, thread in pairs if not stage.finished and stage.is_ready()}

    def state(self) -> State:
        """Return all counters, flags and slots; equal states have the same future."""
        return (
            *(getattr(part, name) for part, name in self._flags),
            *map(tuple, self._lists),
            *(memory.tobytes() for memory in self._memory),
            *map(_contents, self.pipes),
        )

    def restore(self, state: State) -> None:
        """Go back to a state."""
        self._send_tokens()
        values = iter(state)
        for part, name in self._flags:
            setattr(part, name, next(values))
        for kept in self._lists:
            kept[:] = next(values)
        for memory in self._memory:
            memory[:] = np.frombuffer(next(values), memory.dtype)
        for pipe in self.pipes:
            _refill(pipe, next(values))

    def check(self) -> None:
        """Raise :class:`WrongFrameError` if a ring or the pipeline holds more than it may."""
        for ring in self.rings:
            for read, steps in zip(ring.read, ring.steps, strict=True):
                if not -len(steps.jumps) < ring.written - read <= ring.depth:
                    raise WrongFrameError(f"{ring.tensor.name}: overflow")
        for pipe in self.pipes:
            if _waiting_bytes(pipe) > pipe._capacity * _TOKEN.size:
                raise WrongFrameError("more tokens under way than their pipe has room for")
        if not 0 <= self.source.frame - self.sink.frame <= self.window:
            raise WrongFrameError("more frames inside than the window allows")

    def has_ended(self) -> bool:
        """Whether all is as it has to be at the end of the stream."""
        if self.source.frame != self.frames or self.sink.frame != self.frames:
            return False
        return (
            all(stage.finished and self._is_past(stage) for stage in self.stages)
            and all(w.outgoing.finished and w.incoming.finished for w in self.wires)
            and not any(w.flying or w.sent or w.received for w in self.wires)
            and all(self.is_routed or ring.end == self._frames_of(ring) for ring in self.rings)
            and all(isinstance(ring, View) or ring.written == ring.end for ring in self.rings)
            and all(min(ring.read, default=ring.end) >= (ring.end or 0) for ring in self.rings)
        )

    def _is_past(self, stage: Stage) -> bool:
        """Whether a stage has done the last frame that it handles, and none after it."""
        if isinstance(stage, SegmentStage) and self.is_routed:
            return True
        frame = stage._steps.first
        while frame < self.frames:
            frame = stage._steps.after(frame)
        return stage.frame == frame

    def _frames_of(self, ring: Ring) -> int:
        return sum(ring.turns.frame(index) < self.frames for index in range(self.frames))


_RECORD_HEAD = 20
"""Bytes of a failure record that are not the same in all."""


def _before(job: Job) -> dict[Step, set[Step]]:
    """Return the steps on which each one depends: the source, and segments."""
    source = job.source, -1
    before: dict[Step, set[Step]] = {source: set()}
    for route in job.routes:
        makers: dict[str, list[PlacedSegment]] = {}
        for segment in route.segments:
            step = segment.rank, segment.index
            before[step] = {source}
            for maker in (each for name in segment.inputs for each in makers.get(name, [])):
                before[step] |= {(maker.rank, maker.index), *before[maker.rank, maker.index]}
            for name in segment.outputs:
                makers.setdefault(name, []).append(segment)
    return before


def _small(wiring: Wiring) -> Wiring:
    """Return a wiring whose tensors are numbers; with an open size, as many as that is."""

    def small(tensor: Tensor) -> Tensor:
        if tensor.is_open:
            return Tensor(tensor.name, "uint8", (max(SIZES),), ("n",))
        return tensor if tensor is CREDIT else Tensor(tensor.name, "uint8", (1,))

    rings = [replace(ring, tensor=small(ring.tensor)) for ring in wiring.rings]
    return replace(wiring, rings=rings)


def _step(stage: Stage) -> bool:
    if stage.finished or not stage.is_ready():
        return False
    stage.step()
    return True


def _flags(part: object) -> list[str]:
    # Names are not listed here, so that a counter which the runtime gains is part of the state.
    return [
        name
        for name, value in vars(part).items()
        if value is None or (isinstance(value, int) and not name.isupper())
    ]


def _lists(part: object) -> list[list[Any]]:
    return [
        value
        for value in vars(part).values()
        if isinstance(value, list) and all(isinstance(v, int | bytes | None) for v in value)
    ]


@dataclass(frozen=True)
class Searched:
    """What a search has seen."""

    states: int
    steps: int
    ends: int
    """Ended states; the others all have a next one."""


class AsleepError(Exception):
    """A thread has got work and was not woken."""


class StuckError(Exception):
    """Nothing can happen, and the job has not ended; tells how it came to this."""


def search(world: World) -> Searched:
    """Go through all states.

    Raises:
        AsleepError: something gave work to a sleeping thread and did not wake it.
        StuckError: a deadlock.
        WrongFrameError: a slot was overwritten, or too many frames are inside.
    """
    start = world.state()
    origin: dict[State, tuple[State, str] | None] = {start: None}
    waiting = [start]
    steps = ends = 0
    while waiting:
        state = waiting.pop()
        before = steps
        world.restore(state)
        busy = world.ready()
        world.check_sleepers(busy)
        for name, action in world.actions:
            if not world.do(action, busy):
                continue
            steps += not name.startswith(UNSURE)
            reached = world.state()
            if reached not in origin:
                origin[reached] = (state, name)
                waiting.append(reached)
            world.restore(state)
        if steps == before:
            if not world.has_ended():
                raise StuckError("\n".join(_way(origin, state)))
            ends += 1
    return Searched(len(origin), steps, ends)


def _way(origin: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    names = []
    while (step := origin[state]) is not None:
        state, name = step
        names.append(name)
    return names[::-1]


ONE = line_graph("a: x -> y", outputs="y")
CHAIN = line_graph("a: x -> s\nb: s -> y", outputs="y")
THREE = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")
TWO = line_graph("a: x -> s\nb: s -> y", outputs="s y")
SKIP = line_graph("a: x -> s\nb: s -> t\nc: s t -> y", outputs="y")
BRANCHES = line_graph("a: x -> s\nb: x -> t\nc: s t -> y", outputs="y")

CASES = {
    "chain": job_of(planned(CHAIN, {"a": 0, "b": 1})),
    "there and back": job_of(planned(THREE, {"a": 0, "b": 1, "c": 0})),
    "there and back with a skip": job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0})),
    "read by two threads": job_of(planned(TWO, {"a": 0, "b": 1})),
    "skip channel": job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2})),
    "two branches": job_of(planned(BRANCHES, {"a": 0, "b": 1, "c": 2})),
    "figure 2": job_of(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)),
    # Sizes change from frame to frame.
    "open chain": job_of(planned(opened(CHAIN, "x", "s", "y"), {"a": 0, "b": 1})),
    "open there, fixed back": job_of(planned(opened(THREE, "s"), {"a": 0, "b": 1, "c": 0})),
    "open skip channel": job_of(planned(opened(SKIP, "s"), {"a": 0, "b": 1, "c": 2})),
    # Ranks take turns.
    "second of two in turn": job_of(planned(CHAIN, {"a": 0, "b": 1}, weights={1: (1, 1)})),
    "first of two in turn": job_of(planned(CHAIN, {"a": 0, "b": 1}, weights={0: (1, 1)})),
    "middle in turn": job_of(planned(THREE, {"a": 0, "b": 1, "c": 0}, weights={1: (1, 1)})),
    "middle in unequal turns": job_of(
        planned(THREE, {"a": 0, "b": 1, "c": 0}, weights={1: (2, 1)})
    ),
    "two in turn": job_of(planned(ONE, {"a": 0}, weights={0: (1, 1)})),
    "three in turn": job_of(planned(ONE, {"a": 0}, weights={0: (1, 1, 1)})),
    "skip over turns": job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2}, weights={1: (1, 1)})),
    "turns after other turns": job_of(
        planned(CHAIN, {"a": 0, "b": 1}, weights={0: (1, 1), 1: (2, 1)})
    ),
    # There are two routes.
    "whole, or in two": job_of(routed(CHAIN, {"a": 0, "b": 0}, {"a": 0, "b": 1})),
    "whole, or in two, with two outputs": job_of(routed(TWO, {"a": 0, "b": 0}, {"a": 0, "b": 1})),
    "whole, or in two elsewhere": job_of(
        routed(CHAIN, {"a": 0, "b": 0}, {"a": 0, "b": 1}, shift=1)
    ),
    "whole, or in turn": job_of(
        routed(ONE, {"a": 0}, {"a": 0}, shift=1, surge_weights={0: (1, 1)})
    ),
    "in two, or whole in turn": job_of(
        routed(CHAIN, {"a": 0, "b": 1}, {"a": 0, "b": 0}, surge_weights={0: (1, 1)})
    ),
}

PAIR = frozenset({(0, 1)})
ALL = frozenset({(0, 1), (0, 2), (1, 2)})
BETWEEN_FOUR = frozenset(combinations(range(4), 2))
NONE: Pairs = frozenset()


def searched(
    case: str, window: int | None, frames: int, manner: str, *direct: tuple[int, int]
) -> Searched:
    with closing(World(CASES[case], window, frames, manner, direct=frozenset(direct))) as world:
        seen = search(world)
    print(f"{case}, window {window}, {frames} frames, {manner}, direct {direct}: {seen}")
    return seen


@pytest.mark.parametrize("case", ["chain", "there and back"])
def test_no_reachable_state_is_a_deadlock_if_the_end_is_found_by_reading(case: str) -> None:
    with closing(World(CASES[case], 2, 2, "prompt", knows_length=False)) as world:
        seen = search(world)
    assert seen.ends >= 1
    assert seen.states > 100


@pytest.mark.parametrize(
    ("case", "window", "frames", "manner", "least_states"),
    [
        ("chain", 1, 0, "buffered", 10),
        ("chain", 1, 3, "buffered", 1000),
        pytest.param("chain", 2, 2, "late", 10_000, marks=pytest.mark.ci),
        pytest.param("chain", 3, 3, "prompt", 1000, marks=pytest.mark.ci),
        ("there and back", 1, 3, "late", 900),
        ("there and back", 2, 3, "prompt", 1000),
        pytest.param("there and back", 3, 3, "prompt", 1000, marks=pytest.mark.ci),
        pytest.param("there and back with a skip", 1, 2, "buffered", 1000, marks=pytest.mark.ci),
        pytest.param("there and back with a skip", 3, 3, "prompt", 1000, marks=pytest.mark.ci),
        ("skip channel", 1, 3, "prompt", 1000),
        pytest.param("skip channel", 2, 1, "prompt", 1000, marks=pytest.mark.ci),
        ("open chain", 1, 4, "buffered", 1000),
        pytest.param("open chain", 3, 4, "prompt", 1000, marks=pytest.mark.ci),
        ("open there, fixed back", 2, 3, "prompt", 1000),
        pytest.param("open skip channel", 1, 2, "prompt", 500, marks=pytest.mark.ci),
        pytest.param("second of two in turn", 1, 4, "prompt", 2000, marks=pytest.mark.ci),
        ("middle in turn", 1, 2, "prompt", 1000),
        pytest.param("two in turn", 3, 4, "prompt", 1000, marks=pytest.mark.ci),
        pytest.param("three in turn", 1, 4, "prompt", 1000, marks=pytest.mark.ci),
    ],
)
def test_no_reachable_state_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, manner: str, least_states: int
) -> None:
    assert searched(case, window, frames, manner).states > least_states


@pytest.mark.parametrize(
    ("case", "window", "frames", "direct", "least_states"),
    [
        ("chain", 1, 0, PAIR, 5),
        ("chain", 1, 3, PAIR, 40),
        ("chain", 2, 3, PAIR, 120),
        pytest.param("chain", 3, 5, PAIR, 500, marks=pytest.mark.ci),
        ("there and back", 2, 3, PAIR, 200),
        ("there and back with a skip", 3, 4, PAIR, 800),
        ("read by two threads", 3, 4, PAIR, 400),
        ("skip channel", 1, 2, ALL, 160),
        # s travels to rank 1 alone, where rank 2 reads it, too.
        ("skip channel", 1, 2, frozenset({(1, 2)}), 200),
        pytest.param("skip channel", 2, 1, frozenset({(1, 2)}), 280, marks=pytest.mark.ci),
        pytest.param("skip channel", 1, 1, frozenset({(0, 1), (1, 2)}), 400, marks=pytest.mark.ci),
        ("skip channel", 1, 1, frozenset({(0, 2)}), 80),
        ("open chain", 2, 4, PAIR, 120),
        pytest.param("open skip channel", 1, 2, ALL, 160, marks=pytest.mark.ci),
        pytest.param("open skip channel", 1, 2, frozenset({(1, 2)}), 200, marks=pytest.mark.ci),
        ("second of two in turn", 1, 4, ALL, 160),
        ("middle in turn", 1, 3, frozenset({(0, 1)}), 200),
        pytest.param("three in turn", 2, 4, ALL, 400, marks=pytest.mark.ci),
    ],
)
def test_no_reachable_state_of_direct_channels_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, direct: Pairs, least_states: int
) -> None:
    assert searched(case, window, frames, "prompt", *direct).states > least_states


@pytest.mark.ci
@pytest.mark.parametrize(
    ("case", "window", "frames", "direct"),
    [
        ("second of two in turn", 2, 3, NONE),
        ("second of two in turn", 2, 4, ALL),
        ("second of two in turn", 2, 2, frozenset({(1, 2)})),
        ("first of two in turn", 1, 3, NONE),
        ("first of two in turn", 2, 4, ALL),
        ("middle in turn", 1, 3, NONE),
        ("middle in turn", 2, 3, ALL),
        ("middle in unequal turns", 1, 4, NONE),
        ("middle in unequal turns", 2, 4, ALL),
        ("three in turn", 1, 4, ALL),
        ("three in turn", 2, 3, NONE),
        ("skip over turns", 1, 1, BETWEEN_FOUR),
        ("skip over turns", 1, 2, BETWEEN_FOUR),
        ("turns after other turns", 1, 2, BETWEEN_FOUR),
    ],
)
def test_no_reachable_state_of_ranks_in_turn_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, direct: Pairs
) -> None:
    assert searched(case, window, frames, "prompt", *direct).states > 100


@pytest.mark.parametrize(
    ("case", "window", "frames", "direct"),
    [
        ("whole, or in two", 1, 2, NONE),
        pytest.param("whole, or in two", 2, 3, PAIR, marks=pytest.mark.ci),
        ("whole, or in two elsewhere", 1, 2, ALL),
        pytest.param("whole, or in two elsewhere", 1, 1, NONE, marks=pytest.mark.ci),
        ("whole, or in two", None, 2, PAIR),
        ("whole, or in two, with two outputs", 2, 2, PAIR),
        pytest.param("whole, or in two", 2, 3, NONE, marks=pytest.mark.ci),
        pytest.param("whole, or in two elsewhere", 2, 3, ALL, marks=pytest.mark.ci),
        pytest.param("whole, or in turn", 1, 3, ALL, marks=pytest.mark.ci),
        pytest.param("whole, or in turn", 1, 2, NONE, marks=pytest.mark.ci),
        pytest.param("whole, or in two", None, 3, NONE, marks=pytest.mark.ci),
        pytest.param("whole, or in two, with two outputs", 2, 3, PAIR, marks=pytest.mark.ci),
        pytest.param("in two, or whole in turn", 1, 3, PAIR, marks=pytest.mark.ci),
        pytest.param("in two, or whole in turn", 2, 3, PAIR, marks=pytest.mark.slow),
        pytest.param("in two, or whole in turn", 1, 2, NONE, marks=pytest.mark.slow),
    ],
)
def test_no_reachable_state_of_two_routes_is_a_deadlock_or_overflows(
    case: str, window: int | None, frames: int, direct: Pairs
) -> None:
    seen = searched(case, window, frames, "prompt", *direct)
    assert seen.states > 500
    # The route may have changed never, once or twice, before any frame.
    assert seen.ends > frames


@pytest.mark.parametrize(
    ("window", "direct"), [(2, PAIR), pytest.param(1, NONE, marks=pytest.mark.ci)]
)
def test_no_reachable_state_of_two_routes_is_a_deadlock_if_the_end_is_found_by_reading(
    window: int, direct: Pairs
) -> None:
    job = CASES["whole, or in two"]
    with closing(World(job, window, 2, "prompt", direct=direct, knows_length=False)) as world:
        assert search(world).states > 300


@pytest.mark.parametrize(
    ("case", "window", "frames"),
    [("there and back with a skip", 3, 4), ("whole, or in two", 2, 3)],
)
def test_no_reachable_state_is_a_deadlock_if_a_rank_has_one_thread(
    case: str, window: int, frames: int
) -> None:
    job = CASES[case]
    with closing(World(job, window, frames, "prompt", direct=PAIR, has_one_thread=True)) as world:
        assert search(world).states > 500


def searched_failing(
    case: str,
    window: int,
    frames: int,
    failing: Mapping[int, Collection[Step]],
    direct: Pairs = NONE,
    manner: str = "prompt",
) -> Searched:
    with closing(
        World(CASES[case], window, frames, manner, direct=direct, failing=failing)
    ) as world:
        return search(world)


@pytest.mark.parametrize(
    ("case", "window", "frames", "failing", "direct", "manner"),
    [
        ("chain", 1, 3, {0: [(0, 0)], 1: [(1, 0)]}, NONE, "buffered"),
        ("chain", 2, 4, {0: [(0, 0)], 3: [(0, 0)]}, PAIR, "prompt"),
        ("chain", 1, 3, {1: [(0, -1)], 2: [(1, 0)]}, NONE, "prompt"),
        ("open chain", 1, 3, {0: [(0, 0)]}, NONE, "prompt"),
        ("open chain", 2, 4, {0: [(0, -1)], 1: [(0, 0)], 3: [(1, 0)]}, PAIR, "prompt"),
        ("two branches", 1, 2, {0: [(0, 0), (1, 0)]}, ALL, "prompt"),
        ("skip channel", 1, 3, {0: [(1, 0)], 1: [(2, 0)]}, ALL, "prompt"),
        ("there and back", 2, 3, {0: [(1, 0)], 1: [(0, 1)], 2: [(0, 0)]}, NONE, "prompt"),
        pytest.param(
            *("chain", 3, 4, {0: [(0, 0)], 2: [(1, 0)]}, NONE, "prompt"), marks=pytest.mark.ci
        ),
        pytest.param(
            *("two branches", 1, 2, {0: [(0, 0), (1, 0)], 1: [(1, 0)]}, NONE, "prompt"),
            marks=pytest.mark.ci,
        ),
        pytest.param(
            *("second of two in turn", 2, 4, {1: [(0, 0)], 2: [(1, 0)]}, ALL, "prompt"),
            marks=pytest.mark.ci,
        ),
        pytest.param(
            *("three in turn", 2, 4, {1: [(1, 0)], 3: [(0, 0)]}, ALL, "prompt"),
            marks=pytest.mark.ci,
        ),
        pytest.param(
            *("whole, or in two", 2, 3, {1: [(0, 0), (0, 1), (1, 0)]}, PAIR, "prompt"),
            marks=pytest.mark.ci,
        ),
    ],
)
def test_no_reachable_state_is_a_deadlock_if_frames_fail(
    case: str,
    window: int,
    frames: int,
    failing: Mapping[int, Collection[Step]],
    direct: Pairs,
    manner: str,
) -> None:
    seen = searched_failing(case, window, frames, failing, direct, manner)
    print(case, seen)
    assert seen.states > 100


def test_tokens_that_overtake_each_other_do_no_harm() -> None:
    with closing(World(CASES["chain"], 3, 3, "prompt", direct=PAIR)) as world:
        world.reverses = True
        assert search(world).states > 500


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "window", "frames", "manner", "direct"),
    [
        ("chain", 5, 8, "prompt", PAIR),
        ("skip channel", 2, 3, "prompt", ALL),
        ("skip channel", 2, 2, "late", frozenset({(1, 2)})),
        ("skip channel", 1, 2, "late", frozenset({(0, 1), (1, 2)})),
        ("skip channel", 2, 2, "prompt", frozenset({(0, 2)})),
        ("figure 2", 1, 2, "prompt", ALL),
        ("figure 2", 2, 1, "prompt", frozenset({(0, 1)})),
        ("second of two in turn", 3, 5, "prompt", ALL),
        ("second of two in turn", 2, 3, "late", frozenset({(1, 2)})),
        ("middle in unequal turns", 3, 5, "prompt", ALL),
        ("three in turn", 4, 7, "prompt", ALL),
        ("skip over turns", 2, 2, "prompt", BETWEEN_FOUR),
        ("turns after other turns", 2, 3, "prompt", BETWEEN_FOUR),
    ],
)
def test_no_reachable_state_of_larger_jobs_with_direct_channels_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, manner: str, direct: Pairs
) -> None:
    assert searched(case, window, frames, manner, *direct).states > 2000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "window", "frames", "manner"),
    [
        ("chain", 2, 3, "buffered"),
        ("chain", 3, 3, "late"),
        ("there and back", 2, 3, "late"),
        ("skip channel", 1, 1, "late"),
        ("skip channel", 2, 2, "prompt"),
        ("figure 2", 1, 1, "prompt"),
        ("open chain", 2, 3, "late"),
        ("open skip channel", 2, 2, "prompt"),
        ("first of two in turn", 2, 3, "late"),
        ("second of two in turn", 2, 3, "late"),
        ("middle in turn", 3, 4, "prompt"),
        ("three in turn", 3, 4, "prompt"),
        ("skip over turns", 1, 2, "prompt"),
    ],
)
def test_no_reachable_state_of_larger_jobs_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, manner: str
) -> None:
    assert searched(case, window, frames, manner).states > 10_000


def failing_steps(job: Job, frames: int) -> st.SearchStrategy[dict[int, list[Step]]]:
    """Draw by frame some steps that handle it and fail."""

    def some(frame: int) -> st.SearchStrategy[list[Step]]:
        segments = [each for each in job.segments if job.ranks[each.rank].turns.has(frame)]
        steps = [(job.source, -1), *((segment.rank, segment.index) for segment in segments)]
        return st.lists(st.sampled_from(steps), unique=True, max_size=2)

    chosen = st.fixed_dictionaries({frame: some(frame) for frame in range(frames)})
    return chosen.map(lambda drawn: {frame: steps for frame, steps in drawn.items() if steps})


@given(st.data(), plans(), st.integers(1, 6), st.integers(0, 9), st.booleans())
def test_any_plan_comes_to_its_end_whatever_happens_first(
    data: st.DataObject, plan: Plan, window: int, frames: int, has_one_thread: bool
) -> None:
    job = job_of(plan)
    direct = data.draw(pairs_of(len(job.ranks)))
    random = data.draw(st.randoms(use_true_random=False))
    failing = data.draw(st.just({}) | failing_steps(job, frames))
    with closing(
        World(
            *(job, window, frames, "buffered"),
            direct=direct,
            has_one_thread=has_one_thread,
            failing=failing,
        )
    ) as world:
        actions = [action for name, action in world.actions if not name.startswith(UNSURE)]
        happened = True
        while happened:
            world.check_sleepers(world.ready())
            happened = False
            for action in random.sample(actions, len(actions)):
                happened |= world.do(action, world.ready())
        assert world.has_ended()


# What follows breaks a rule, to see that the search would notice.


def test_a_writer_that_does_not_ask_for_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_ready(stage: SegmentStage) -> bool:
        return all(part.is_settled() for part in stage._inputs)

    monkeypatch.setattr(SegmentStage, "is_ready", is_ready)
    with pytest.raises(WrongFrameError):
        searched("chain", 3, 3, "prompt")


def test_receives_into_slots_that_are_still_read_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Incoming.advance

    def hasty(end: Incoming, transport: Any, lane: int) -> bool:
        ring = end._ring
        read, ring.read = ring.read, [ring.written]
        try:
            return honest(end, transport, lane)
        finally:
            ring.read = read

    monkeypatch.setattr(Incoming, "advance", hasty)
    with pytest.raises(WrongFrameError):
        searched("chain", 3, 3, "prompt")


def test_a_source_that_does_not_count_frames_is_found() -> None:
    with closing(World(CASES["chain"], 3, 3, "prompt")) as world:
        world.window = 2
        with pytest.raises(WrongFrameError, match="more frames inside"):
            search(world)


def test_a_change_that_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "subscribe", lambda ring, reader, call: None)
    with pytest.raises(AsleepError):
        searched("chain", 3, 3, "prompt")


def test_a_freed_slot_that_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ring.free

    def silent(ring: Ring, reader: int) -> None:
        calls, ring.on_freed = ring.on_freed, ()
        honest(ring, reader)
        ring.on_freed = calls

    monkeypatch.setattr(Ring, "free", silent)
    with pytest.raises(AsleepError):
        searched("chain", 3, 3, "prompt")


def test_messages_that_overtake_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Wire.send

    def overtaking(wire: Wire, lane: int, slot: int) -> None:
        honest(wire, lane, slot)
        wire.flying.insert(0, wire.flying.pop())

    monkeypatch.setattr(Wire, "send", overtaking)
    with pytest.raises(WrongFrameError, match="expected, found"):
        searched("chain", 3, 3, "prompt")


def test_a_source_that_gets_no_credit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceStage, "take_credits", lambda stage: False)
    with pytest.raises(StuckError):
        searched("chain", 2, 3, "prompt")


def test_slots_that_are_not_given_back_after_a_send_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Outgoing.complete
    monkeypatch.setattr(
        Outgoing, "complete", lambda end, slot, is_end: is_end and honest(end, slot, is_end)
    )
    with pytest.raises(StuckError):
        searched("chain", 2, 3, "prompt")


def test_a_rank_that_waits_for_a_particular_segment_is_found(
    request: pytest.FixtureRequest,
) -> None:
    world = World(CASES["there and back"], 1, 2, "prompt")
    request.addfinalizer(world.close)
    first, second = (stage for stage in world.stages[1:3] if isinstance(stage, SegmentStage))

    def stubborn() -> bool:
        return first.finished and _step(second)

    world.actions = [
        (name, stubborn if name == "segment 1 (stage 2)" else action)
        for name, action in world.actions
    ]
    with pytest.raises(StuckError):
        search(world)


def test_the_way_into_a_deadlock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceStage, "take_credits", lambda stage: False)
    with pytest.raises(StuckError, match=r"source \(stage 0\)\n(.*\n)*sink \(stage 3\)"):
        searched("chain", 1, 2, "prompt")


def without(monkeypatch: pytest.MonkeyPatch, kind: int, count: int | None = None) -> None:
    """Lose the tokens of a kind, or the one with a count."""
    written, freed = Outbox.add_written, Outbox.add_freed

    def add_written(outbox: Outbox, ring: Ring, entry: int, channel: int) -> None:
        token = (WRITTEN, ring.written) if ring.end is None else (ENDED, ring.end)
        if token != (kind, count):
            written(outbox, ring, entry, channel)

    def add_freed(outbox: Outbox, ring: Ring, entry: int, channel: int) -> None:
        if kind != FREED:
            freed(outbox, ring, entry, channel)

    monkeypatch.setattr(Outbox, "add_written", add_written)
    monkeypatch.setattr(Outbox, "add_freed", add_freed)


@pytest.mark.parametrize(("kind", "count"), [(WRITTEN, 3), (ENDED, 3), (FREED, None)])
def test_a_token_that_is_lost_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: int, count: int | None
) -> None:
    without(monkeypatch, kind, count)
    with pytest.raises(StuckError):
        searched("chain", 2, 3, "prompt", (0, 1))


def test_a_receiver_that_does_not_learn_of_slots_freed_by_other_ranks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without(monkeypatch, FREED)
    with pytest.raises(StuckError):
        searched("skip channel", 1, 2, "prompt", (1, 2))


def test_a_slot_that_is_told_to_be_free_while_it_is_read_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(view: View, reader: int) -> None:
        is_first = view.read[reader] == max(view.read)
        view.read[reader] = view.steps[reader].after(view.read[reader])
        view.freed = max(view.read)
        if is_first:
            for notify in view.on_freed:
                notify()

    monkeypatch.setattr(View, "free", hasty)
    with pytest.raises(WrongFrameError, match="expected, found"):
        searched("read by two threads", 5, 5, "prompt", (0, 1))


def test_a_thread_that_does_not_look_for_the_room_it_lacks_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SegmentStage, "lacks", property(lambda stage: "", lambda *_: None), False)
    with pytest.raises(AsleepError, match="does not look at its tokens"):
        searched("chain", 1, 2, "prompt", (0, 1))


def test_counters_that_go_back_when_tokens_overtake_each_other_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(View, "arrive", lambda view, written: setattr(view, "written", written))
    with closing(World(CASES["chain"], 3, 3, "prompt", direct=PAIR)) as world:
        world.reverses = True
        with pytest.raises((StuckError, WrongFrameError)):
            search(world)


def test_an_end_that_is_told_instead_of_the_last_frame_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Outbox.add_written

    def hasty(outbox: Outbox, ring: Ring, entry: int, channel: int) -> None:
        end, ring.end = ring.end, 3 if ring.written == 3 else None
        honest(outbox, ring, entry, channel)
        ring.end = end

    monkeypatch.setattr(Outbox, "add_written", hasty)
    with pytest.raises(StuckError):
        searched("chain", 2, 3, "prompt", (0, 1))


def test_credits_that_nobody_takes_once_the_sources_thread_has_ended_are_found() -> None:
    with closing(World(CASES["chain"], 2, 3, "prompt", direct=PAIR)) as world:

        def take_until_it_ends(action: Callable[[], bool]) -> bool:
            return not world.source.finished and action()

        world.actions = [
            (name, partial(take_until_it_ends, action) if "rank 0, source" in name else action)
            for name, action in world.actions
        ]
        with pytest.raises(StuckError):
            search(world)


def test_a_pipe_without_room_for_a_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Inbox.expect

    def narrow(inbox: Inbox, most: int) -> None:
        honest(inbox, most - 1)

    monkeypatch.setattr(Inbox, "expect", narrow)
    with pytest.raises(WrongFrameError, match="more tokens under way"):
        searched("chain", 2, 3, "prompt", (0, 1))


def test_a_writer_that_is_not_woken_by_a_reader_that_leaves_frames_out_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def free(ring: Ring, reader: int) -> None:
        ring.read[reader] = ring.steps[reader].after(ring.read[reader])
        # As if the ring could be full only if it is so after the step.
        if ring.on_freed and ring.written - ring.read[reader] == ring.depth - 1:
            for notify in ring.on_freed:
                notify()

    monkeypatch.setattr(Ring, "free", free)
    assert searched("chain", 2, 3, "prompt").ends
    with pytest.raises(AsleepError):
        searched("two in turn", 4, 4, "prompt")


@pytest.mark.parametrize("direct", [(), ((0, 1), (0, 2), (1, 2))])
def test_a_reader_that_waits_for_frames_of_others_is_found(
    monkeypatch: pytest.MonkeyPatch, direct: tuple[tuple[int, int], ...]
) -> None:
    honest = Turns.steps_in

    def each_from_the_first(turns: Turns, other: Turns) -> Steps:
        return Steps(honest(turns, other).first)

    monkeypatch.setattr(Turns, "steps_in", each_from_the_first)
    with pytest.raises((StuckError, WrongFrameError)):
        searched("second of two in turn", 2, 3, "prompt", *direct)


def test_results_that_are_taken_as_they_come_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_there(merged: MergedInput) -> Input:
        return next(filter(Input.has_frame, merged._parts), merged._parts[0])

    monkeypatch.setattr(MergedInput, "_next", first_there)
    with pytest.raises((StuckError, WrongFrameError, JobError)):
        searched("three in turn", 2, 3, "prompt")


def test_an_end_that_only_the_reader_of_the_last_frame_gets_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Outgoing.advance

    def advance(end: Outgoing, transport: Any, lane: int) -> bool:
        ring, true_end = end._ring, end._ring.end
        ring.end = true_end if true_end == end._next else None
        try:
            return honest(end, transport, lane)
        finally:
            ring.end = true_end

    monkeypatch.setattr(Outgoing, "advance", advance)
    with pytest.raises(StuckError):
        searched("second of two in turn", 2, 3, "prompt")


def test_tokens_of_frames_that_others_handle_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def subscribe(ring: Ring, reader: int, call: Callable[[], None]) -> None:
        ring.on_written += (call,)

    monkeypatch.setattr(Ring, "subscribe", subscribe)
    with pytest.raises(WrongFrameError, match="more tokens under way"):
        searched("second of two in turn", 2, 4, "prompt", (0, 1), (0, 2), (1, 2))


def test_ranks_that_count_their_own_frames_only_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Turns, "frame", lambda turns, index: index)
    with pytest.raises((StuckError, WrongFrameError, JobError)):
        searched("three in turn", 2, 4, "prompt")


def test_a_route_that_changes_while_frames_are_inside_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(choice: RouteChoice, seen: Observation, frame: int) -> None:
        choice.route = choice.wanted = choice._switching.decide(0, seen)[0]

    monkeypatch.setattr(RouteChoice, "update", hasty)
    with pytest.raises((StuckError, WrongFrameError, JobError)):
        searched("whole, or in two", 2, 3, "prompt")


def test_a_sink_that_looks_at_one_route_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        RoutedSink,
        "_find",
        lambda sink: sink._exits[0] if all(map(Input.has_frame, sink._exits[0])) else (),
    )
    with pytest.raises(StuckError):
        searched("whole, or in two", 1, 2, "prompt", (0, 1))


def test_a_sink_that_takes_what_is_there_of_a_frame_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def take(sink: RoutedSink) -> list[Input]:
        return [each for inputs in sink._exits for each in inputs if each.has_frame()]

    monkeypatch.setattr(RoutedSink, "_find", take)
    with pytest.raises((WrongFrameError, JobError)):
        searched("whole, or in two, with two outputs", 2, 3, "prompt", (0, 1))


def test_a_sink_that_stops_at_the_end_of_one_route_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        RoutedSink, "_is_over", lambda sink: any(map(Input.has_ended, sink._inputs))
    )
    with pytest.raises(StuckError):
        searched("whole, or in two", 1, 2, "prompt", (0, 1))


def test_an_end_that_only_the_route_in_use_gets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(source: RoutedSource) -> None:
        for ring in source._writes:
            ring.finish()
        source.finished = True

    monkeypatch.setattr(RoutedSource, "_end", end)
    with pytest.raises(StuckError):
        searched("whole, or in two", 1, 2, "prompt", (0, 1))


either = pytest.mark.parametrize("by_messages", [True, False])


def searched_open(*, by_messages: bool = True) -> Searched:
    """Search a job with an open channel by messages, or a direct one; slots are used again."""
    return searched("open chain", 1, 4, "prompt", *() if by_messages else PAIR)


def test_an_empty_frame_that_is_sent_as_the_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Wire.send_part

    def without_header(wire: Wire, lane: int, slot: int, nbytes: int) -> None:
        honest(wire, lane, slot, 0 if nbytes == HEADER_BYTES else nbytes)

    monkeypatch.setattr(Wire, "send_part", without_header)
    with pytest.raises((StuckError, WrongFrameError)):
        searched_open()


@either
def test_a_header_that_is_not_written_again_is_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    honest = OpenSlot.shaped

    def lazy(slot: OpenSlot, shape: Sequence[int]) -> NDArray[Any]:
        before = bytes(slot._header)
        values = honest(slot, shape)
        if any(before):
            slot._header[:] = before
        return values

    monkeypatch.setattr(OpenSlot, "shaped", lazy)
    with pytest.raises((JobError, WrongFrameError)):
        searched_open(by_messages=by_messages)


@either
def test_values_of_a_larger_frame_before_are_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    monkeypatch.setattr(OpenSlot, "read", lambda slot: typed_view(slot.spec, slot._values))
    monkeypatch.setattr(OpenSlot, "check_message", lambda slot, nbytes: None)
    with pytest.raises(WrongFrameError, match="expected, found"):
        searched_open(by_messages=by_messages)


def lie(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let the headers of frames of one value tell another size between the ranks."""
    honest = OpenSlot.shaped

    def lying(slot: OpenSlot, shape: Sequence[int]) -> NDArray[Any]:
        values = honest(slot, shape)
        if slot.spec.name == "s" and tuple(shape) == (1,):
            struct.pack_into("<i", slot._header, 16, size)
        return values

    monkeypatch.setattr(OpenSlot, "shaped", lying)


BEYOND = max(SIZES) + 1


@either
@pytest.mark.parametrize(
    ("size", "message"), [(BEYOND, "beyond its bound"), (-1, "dimension 0 is -1")]
)
def test_a_header_that_lies_about_its_size_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool, size: int, message: str
) -> None:
    lie(monkeypatch, size)
    with pytest.raises(JobError, match=message):
        searched_open(by_messages=by_messages)


@either
def test_a_reader_that_trusts_a_header_beyond_the_bound_is_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    def trusting(slot: OpenSlot) -> NDArray[Any]:
        (size,) = struct.unpack_from("<i", slot._header, 16)
        return slot._values[:size]

    lie(monkeypatch, BEYOND)
    monkeypatch.setattr(OpenSlot, "read", trusting)
    monkeypatch.setattr(OpenSlot, "check_message", lambda slot, nbytes: None)
    with pytest.raises(WrongFrameError, match="expected, found"):
        searched_open(by_messages=by_messages)


def test_a_message_shorter_than_its_header_says_ends_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Wire.send_part
    monkeypatch.setattr(
        Wire, "send_part", lambda wire, lane, slot, n: honest(wire, lane, slot, min(n, 65))
    )
    with pytest.raises(
        JobError, match="message of rank 0, frame 0: tensor 's' came in a message of 65 bytes"
    ):
        searched_open()


def test_a_send_that_is_over_and_told_of_another_slot_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Outgoing.complete

    # As if a send of its own were noted at the lane's first slot, whatever slot it sends.
    monkeypatch.setattr(
        Outgoing, "complete", lambda end, slot, is_end: honest(end, min(slot, 0), is_end)
    )
    with pytest.raises((StuckError, WrongFrameError)):
        searched("open chain", 2, 4, "prompt")


def test_a_world_releases_its_descriptors() -> None:
    gc.collect()
    before = open_descriptors()
    with closing(World(CASES["skip channel"], 2, 1, "prompt", direct=ALL)):
        assert open_descriptors() > before
    gc.collect()
    assert before == open_descriptors()


ONE_FAILS: Mapping[int, Collection[Step]] = {0: [(0, 0)]}


@either
def test_a_slot_that_still_says_that_an_older_frame_has_failed_is_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    honest = SegmentStage._place
    monkeypatch.setattr(SegmentStage, "_place", lambda stage: honest(stage)._replace(made=[]))
    with pytest.raises(WrongFrameError, match=r"frame \d has failed"):
        searched_failing("chain", 1, 3, ONE_FAILS, NONE if by_messages else PAIR)


def test_a_received_slot_that_still_says_that_an_older_frame_has_failed_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Incoming.complete

    def lazy(end: Incoming, slot: int, is_end: bool, nbytes: int = 0) -> None:
        record, before = end._ring.records[slot], end._ring.records[slot][0]
        honest(end, slot, is_end, nbytes)
        record[0] |= before

    monkeypatch.setattr(Incoming, "complete", lazy)
    with pytest.raises(WrongFrameError, match=r"frame \d has failed"):
        searched_failing("chain", 1, 3, ONE_FAILS)


@pytest.mark.parametrize("case", ["chain", "open chain"])
def test_a_failed_frame_that_is_sent_as_values_is_found(
    monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    honest = Wire.send_part

    def short(wire: Wire, lane: int, slot: int, nbytes: int) -> None:
        honest(wire, lane, slot, min(nbytes, len(wire.outgoing.lane.usual(slot))))

    monkeypatch.setattr(Wire, "send_part", short)
    with pytest.raises((WrongFrameError, JobError)):
        searched_failing(case, 1, 3, ONE_FAILS)


@either
def test_a_segment_that_computes_from_a_failed_frame_is_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    monkeypatch.setattr(
        Input, "values", lambda end: end.ring.slots[end.ring.read[end.reader] % end.ring.depth]
    )
    honest = SegmentStage._place
    monkeypatch.setattr(SegmentStage, "_place", lambda stage: honest(stage)._replace(came=[]))
    with pytest.raises(WrongFrameError):
        searched_failing("chain", 1, 3, ONE_FAILS, NONE if by_messages else PAIR)


@either
def test_a_failed_frame_that_is_left_out_is_found(
    monkeypatch: pytest.MonkeyPatch, by_messages: bool
) -> None:
    def drop(stage: SegmentStage, failure: Failure) -> None:
        stage._writes = ()

    monkeypatch.setattr(SegmentStage, "_fail", drop)
    with pytest.raises((StuckError, WrongFrameError)):
        searched_failing("chain", 2, 3, ONE_FAILS, NONE if by_messages else PAIR)


def test_a_failed_frame_without_a_credit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(stage: SinkStage, failure: Failure) -> None:
        stage._writes[0].written -= 1  # as if it were not put

    monkeypatch.setattr(SinkStage, "_fail", keep)
    with pytest.raises((StuckError, WrongFrameError)):
        searched_failing("chain", 2, 3, ONE_FAILS)


def test_a_reason_that_depends_on_which_input_is_asked_first_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def last(stage: SegmentStage, error: FrameError) -> Failure:
        failures = [failure for part in stage._reads if (failure := part.failure()) is not None]
        return failures[-1] if failures else Failure(stage.rank or 0, stage.index, str(error))

    monkeypatch.setattr(SegmentStage, "_failure", last)
    with pytest.raises(WrongFrameError, match="frame 0 has failed"):
        searched_failing("two branches", 1, 2, {0: [(0, 0), (1, 0)]}, ALL)
