"""Every state that small jobs can reach: room and order hold, and only ended jobs stand still.

The rings, stages and channel ends are the runtime's own, wired as a rank wires them. Threads and
MPI are replaced by a search: it does each thing that some thread or MPI could do next, in every
order. A stage's step counts as one thing, as nobody can tell its parts from a late start: what it
waits for stays, and each of its counters only lets others do more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from line_graphs import line_graph
from numpy.typing import NDArray
from plans import FIGURE_2, FIGURE_2_PLACEMENTS, FIGURE_2_RANKS, job_of, planned, plans

from rankslice.backend.runtime.job import Job, TensorSpec
from rankslice.backend.runtime.pipeline.loop import Incoming, Outgoing
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.stages import Input, SegmentStage, SinkStage, SourceStage
from rankslice.backend.runtime.pipeline.wiring import CREDIT, Reader, Wiring, connect, wire
from rankslice.backend.runtime.sources import EndOfStreamError
from rankslice.backend.runtime.sources.arrivals import Pulled
from rankslice.framework.plan import Plan

State = tuple[Any, ...]
Stage = SourceStage | SegmentStage | SinkStage
Action = tuple[str, Callable[[], bool]]
"""Its name, and what does it: returns whether it could be done."""

Thread = tuple[int, str]
"""Rank and name of a thread that runs stages."""

_END = -1


class WrongFrameError(Exception):
    """A slot holds another frame than its reader expects, or more frames than it has room for."""


class Frames:
    """Source, engine and receiver of results: a tensor's value is the number of its frame."""

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.computed = 0

    def read(self, index: int, slots: Sequence[NDArray[Any]]) -> None:
        if index >= self.frames:
            raise EndOfStreamError
        for slot in slots:
            slot[...] = index

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        self._check(self.computed, inputs)
        self.read(self.computed, outputs)
        self.computed += 1

    def write(self, frame: int, slots: Sequence[NDArray[Any]]) -> None:
        self._check(frame, slots)

    @staticmethod
    def _check(frame: int, slots: Sequence[NDArray[Any]]) -> None:
        found = [int(slot[0]) for slot in slots]
        if found != [frame] * len(found):
            raise WrongFrameError(f"frame {frame} expected, found {found}")

    def label(self, index: int) -> str:
        return str(index)

    def load(self, *_: object) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


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
        self.buffered: list[int] = []
        """Values of those that have left their slot: of the first ones in ``flying``."""
        self.posted: list[int] = []
        self.sent: list[int] = []
        """Slots of sends that are over and not told."""
        self.received: list[int] = []
        """Slots of receives that are over and not told."""
        self.end_slot = _END

    def send(self, lane: int, slot: int) -> None:
        self.flying.append(slot)

    def send_end(self, lane: int) -> None:
        self.flying.append(_END)

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
        slot = self.flying[len(self.buffered)]
        self.buffered.append(self._value(slot))
        self.sent.append(slot)
        return True

    def _move(self) -> bool:
        if not self.flying or not self.posted:
            return False
        if not self.buffered:
            self._buffer()
        slot, value, target = self.flying.pop(0), self.buffered.pop(0), self.posted.pop(0)
        if slot == _END:
            self.end_slot = target
        else:
            self.incoming.lane.slots[target][0] = value
        self.received.append(target)
        return True

    def _value(self, slot: int) -> int:
        return _END if slot == _END else int(self.outgoing.lane.slots[slot][0])

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
        self.incoming.complete(slot, slot == self.end_slot)
        return True


class World:
    """All ranks of a job, between two things that happen."""

    def __init__(
        self, job: Job, window: int, frames: int, manner: str = "late", *, knows_length: bool = True
    ) -> None:
        self.window = window
        self.frames = frames
        self.rings: list[Ring] = []
        self.stages: list[Stage] = []
        self.threads: list[Thread] = []
        """Of each stage, the one that runs it."""
        self.woken: set[Thread] = set()
        self._engines: list[Frames] = []
        self._arrivals = Pulled(frames if knows_length else None)
        outgoing: dict[int, Outgoing] = {}
        incoming: dict[int, Incoming] = {}
        for rank in range(len(job.ranks)):
            wiring = wire(job, rank, window)
            rings = [_small_ring(r.tensor, r.depth, r.readers) for r in wiring.rings]
            self.rings += rings
            self._add_stages(wiring, rings)
            names = [*["source"][: wiring.source is not None], *["compute"] * len(wiring.segments)]
            names += ["sink"][: wiring.sink is not None]
            self.threads += [(rank, name) for name in names]
            wakes = {name: partial(self.woken.add, (rank, name)) for name in names}
            connect(wiring, rings, wakes, lambda: None, self._take_credits)
            for s in wiring.sends:
                ring = rings[s.reader.ring]
                outgoing[s.channel] = Outgoing(s.channel, s.destination, ring, s.reader.index)
            for r in wiring.receives:
                incoming[r.channel] = Incoming(r.channel, r.sender, rings[r.ring])
        self.wires = [Wire(f"channel {c}", outgoing[c], incoming[c]) for c in sorted(outgoing)]
        self.actions = [*self._stage_actions(), *(a for w in self.wires for a in w.actions(manner))]
        parts: list[Any] = [*self.rings, *self.stages, *self._engines, self._arrivals, *self.wires]
        parts += [end for w in self.wires for end in (w.outgoing, w.incoming)]
        self._flags = [(part, name) for part in parts for name in _flags(part)]
        self._lists = [found for part in parts for found in _lists(part)]
        # Not the time of a credit, on which nothing depends.
        self._memory = [slot.reshape(-1)[:1] for ring in self.rings for slot in ring.slots]

    def _add_stages(self, wiring: Wiring, rings: Sequence[Ring]) -> None:
        def inputs(readers: Sequence[Reader]) -> list[Input]:
            return [Input(rings[reader.ring], reader.index) for reader in readers]

        if wiring.source is not None:
            outputs = [rings[ring] for ring in wiring.source.outputs]
            (credit,) = inputs(wiring.source.inputs)
            self.source = SourceStage(
                Frames(self.frames), self._arrivals, self.window, credit, outputs
            )
            self.stages.append(self.source)
        for segment, spec in wiring.segments:
            engine = Frames(self.frames)
            self._engines.append(engine)
            outputs = [rings[ring] for ring in spec.outputs]
            self.stages.append(
                SegmentStage(
                    segment.index, engine, inputs(spec.inputs), outputs, lambda frame, seconds: None
                )
            )
        if wiring.sink is not None:
            credit_ring = rings[wiring.sink.outputs[0]]
            self.sink = SinkStage([Frames(self.frames)], inputs(wiring.sink.inputs), credit_ring)
            self.stages.append(self.sink)

    def _stage_actions(self) -> Iterator[Action]:
        for number, stage in enumerate(self.stages):
            yield f"{stage.describe()} (stage {number})", partial(_step, stage)
        yield "take credits", self._take_credits

    def _take_credits(self) -> bool:
        took = self.source.take_credits()
        if took:
            self.woken.add(self.threads[self.stages.index(self.source)])
        return took

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
        )

    def restore(self, state: State) -> None:
        """Go back to a state."""
        values = iter(state)
        for part, name in self._flags:
            setattr(part, name, next(values))
        for found in self._lists:
            found[:] = next(values)
        for memory in self._memory:
            memory[:] = np.frombuffer(next(values), memory.dtype)

    def check(self) -> None:
        """Raise :class:`WrongFrameError` if a ring or the pipeline holds more than it may."""
        for ring in self.rings:
            if not all(0 <= ring.written - read <= ring.depth for read in ring.read):
                raise WrongFrameError(f"{ring.tensor.name}: overflow")
        if not 0 <= self.source.frame - self.sink.frame <= self.window:
            raise WrongFrameError("more frames inside than the window allows")

    def has_ended(self) -> bool:
        """Whether all is as it has to be at the end of the stream."""
        return (
            all(stage.finished and stage.frame == self.frames for stage in self.stages)
            and all(w.outgoing.finished and w.incoming.finished for w in self.wires)
            and not any(w.flying or w.sent or w.received for w in self.wires)
            and all(ring.written == ring.end == self.frames for ring in self.rings)
            and all({*ring.read} <= {self.frames} for ring in self.rings)
        )


def _small_ring(tensor: TensorSpec, depth: int, readers: int) -> Ring:
    if tensor is not CREDIT:
        tensor = TensorSpec(tensor.name, "uint8", (1,))
    return Ring(tensor, depth, readers)


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
        if isinstance(value, list) and all(v is None or isinstance(v, int) for v in value)
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
        for name, action in world.actions:
            world.woken.clear()
            if not action():
                continue
            steps += 1
            world.check()
            # Who had work before is awake: this holds for whoever just worked, too.
            if not world.ready() - busy <= world.woken:
                raise AsleepError(name)
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


CHAIN = line_graph("a: x -> s\nb: s -> y", outputs="y")
THREE = line_graph("a: x -> s\nb: s -> t\nc: t -> y", outputs="y")
SKIP = line_graph("a: x -> s\nb: s -> t\nc: s t -> y", outputs="y")

CASES = {
    "chain": job_of(planned(CHAIN, {"a": 0, "b": 1})),
    "there and back": job_of(planned(THREE, {"a": 0, "b": 1, "c": 0})),
    "there and back with a skip": job_of(planned(SKIP, {"a": 0, "b": 1, "c": 0})),
    "skip channel": job_of(planned(SKIP, {"a": 0, "b": 1, "c": 2})),
    "figure 2": job_of(planned(FIGURE_2, FIGURE_2_RANKS, FIGURE_2_PLACEMENTS)),
}


def found(case: str, window: int, frames: int, manner: str) -> Searched:
    seen = search(World(CASES[case], window, frames, manner))
    print(f"{case}, window {window}, {frames} frames, {manner}: {seen}")
    return seen


@pytest.mark.parametrize("case", ["chain", "there and back"])
def test_no_reachable_state_is_a_deadlock_if_the_end_is_found_by_reading(case: str) -> None:
    seen = search(World(CASES[case], 2, 2, "prompt", knows_length=False))
    assert seen.ends >= 1
    assert seen.states > 100


@pytest.mark.parametrize(
    ("case", "window", "frames", "manner", "least_states"),
    [
        ("chain", 1, 0, "buffered", 10),
        ("chain", 1, 3, "buffered", 1000),
        ("chain", 2, 2, "late", 10_000),
        ("chain", 3, 3, "prompt", 1000),
        ("there and back", 1, 3, "late", 900),
        ("there and back", 2, 3, "prompt", 1000),
        ("there and back", 3, 3, "prompt", 1000),
        ("there and back with a skip", 1, 2, "buffered", 1000),
        ("there and back with a skip", 3, 3, "prompt", 1000),
        ("skip channel", 1, 3, "prompt", 1000),
        ("skip channel", 2, 1, "prompt", 1000),
    ],
)
def test_no_reachable_state_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, manner: str, least_states: int
) -> None:
    assert found(case, window, frames, manner).states > least_states


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
    ],
)
def test_no_reachable_state_of_larger_jobs_is_a_deadlock_or_overflows(
    case: str, window: int, frames: int, manner: str
) -> None:
    assert found(case, window, frames, manner).states > 10_000


@settings(deadline=None, max_examples=60)
@given(plans(), st.integers(1, 6), st.integers(0, 9), st.randoms(use_true_random=False))
def test_any_plan_comes_to_its_end_whatever_happens_first(
    plan: Plan, window: int, frames: int, random: Random
) -> None:
    world = World(job_of(plan), window, frames, "buffered")
    actions = [action for _, action in world.actions]
    happened = True
    while happened:
        happened = False
        for action in random.sample(actions, len(actions)):
            if action():
                world.check()
                happened = True
    assert world.has_ended()


# What follows breaks a rule, to see that the search would notice.


def test_a_writer_that_does_not_ask_for_room_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "has_room", lambda ring: True)
    with pytest.raises(WrongFrameError):
        found("chain", 3, 3, "prompt")


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
        found("chain", 3, 3, "prompt")


def test_a_source_that_does_not_count_frames_is_found() -> None:
    world = World(CASES["chain"], 3, 3, "prompt")
    world.window = 2
    with pytest.raises(WrongFrameError, match="more frames inside"):
        search(world)


def test_a_change_that_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "_tell_readers", lambda ring: None)
    with pytest.raises(AsleepError):
        found("chain", 3, 3, "prompt")


def test_a_freed_slot_that_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Ring.free

    def silent(ring: Ring, reader: int) -> None:
        told, ring.on_freed = ring.on_freed, ()
        honest(ring, reader)
        ring.on_freed = told

    monkeypatch.setattr(Ring, "free", silent)
    with pytest.raises(AsleepError):
        found("chain", 3, 3, "prompt")


def test_messages_that_overtake_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "send", lambda end, lane, slot: end.flying.insert(0, slot))
    with pytest.raises(WrongFrameError, match="expected, found"):
        found("chain", 3, 3, "prompt")


def test_a_source_that_gets_no_credit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SourceStage, "take_credits", lambda stage: False)
    with pytest.raises(StuckError):
        found("chain", 2, 3, "prompt")


def test_slots_that_are_not_given_back_after_a_send_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = Outgoing.complete
    monkeypatch.setattr(
        Outgoing, "complete", lambda end, slot, is_end: is_end and honest(end, slot, is_end)
    )
    with pytest.raises(StuckError):
        found("chain", 2, 3, "prompt")


def test_a_rank_that_waits_for_a_particular_segment_is_found() -> None:
    world = World(CASES["there and back"], 1, 2, "prompt")
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
        found("chain", 1, 2, "prompt")
