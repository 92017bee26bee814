"""Stages on ranks that take turns: which frames they handle, and from which rings these come."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count, takewhile
from typing import Any

import pytest
from clocks import Clock
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from rankslice.backend.runtime.engines import Engine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.figures.rank_usage import MIN_WARM_UP, StepTimes
from rankslice.backend.runtime.job import ALL, EACH, Tensor, Turns
from rankslice.backend.runtime.pipeline import stages as stages_module
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.pipeline.stages import (
    Entry,
    Input,
    MergedInput,
    SegmentStage,
    SinkStage,
    SourceStage,
    make_inputs,
)
from rankslice.backend.runtime.pipeline.wiring import CREDIT, Reader
from rankslice.backend.runtime.sizes import Slot
from rankslice.backend.runtime.sources import arrivals as arrivals_module
from rankslice.backend.runtime.sources.arrivals import Arrivals, Pulled, Queue, Timed
from rankslice.framework.weighted_turns import by_weights

NUMBER = Tensor("t", "int64", (1,))


class Doubling(Engine):
    """An engine that doubles a number, and a sink that keeps numbers."""

    waited_s = 0.0

    def __init__(self) -> None:
        self.given: list[int] = []

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        self.given.append(int(inputs[0][0]))
        outputs[0][0] = 2 * inputs[0][0]

    def write(self, frame: int, slots: Sequence[Slot]) -> None:
        self.given.append(frame)
        self.given += [int(values[0]) for values in slots]

    def load(self, *_: object) -> None: ...

    def label(self, frame: int) -> str:
        return str(frame)

    def finish(self) -> None: ...


def put(ring: Ring, frame: int) -> None:
    """Put the number of a frame of the stream in, as the writer of the ring does."""
    assert frame == ring.turns.frame(ring.written)
    assert ring.has_room()
    ring.slots[ring.written % ring.depth][0] = frame
    ring.put()


def group(weights: Sequence[int]) -> list[Turns]:
    return [Turns(turns.period, turns.positions) for turns in by_weights(weights)]


def rings_of(makers: Sequence[Turns], reader: Turns = ALL, depth: int = 2) -> list[Ring]:
    """Return a ring for each maker; a reader has those with frames that it handles, too."""
    rings = []
    for turns in makers:
        common = turns.common(reader)
        steps = [common.steps_in(turns)] if common.positions else []
        rings.append(Ring(NUMBER, depth, steps, turns=turns))
    return rings


def merged(rings: Sequence[Ring]) -> MergedInput | Input:
    """Return what the reader sees of the rings."""
    readers = [Reader(number, 0) for number, ring in enumerate(rings) if ring.read]
    (reading,) = make_inputs([readers], rings)
    return reading


def test_a_tensor_of_one_maker_is_read_from_its_ring() -> None:
    (ring,) = rings_of([ALL])
    assert type(merged([ring])) is Input


def test_frames_of_several_makers_are_read_in_the_order_of_the_stream() -> None:
    first, second = rings_of(group([2, 1]))
    reading = merged([second, first])
    put(second, 1)
    assert not reading.is_settled()
    put(first, 0)
    put(first, 2)
    read = []
    for _ in range(3):
        assert reading.is_settled()
        read.append(int(reading.values()[0]))
        reading.done()
    assert [0, 1, 2] == read
    assert not reading.is_settled()


WEIGHTS = st.lists(st.integers(1, 3), min_size=1, max_size=3)


@given(WEIGHTS, WEIGHTS, st.integers(0, 30))
def test_whoever_makes_them_a_reader_gets_its_frames_once_in_order_and_then_the_end(
    makers: list[int], readers: list[int], frames: int
) -> None:
    for reader in group(readers):
        rings = rings_of(group(makers), reader, depth=40)
        for frame in range(frames):
            (maker,) = (ring for ring in rings if ring.turns.frame(ring.written) == frame)
            put(maker, frame)
        for ring in rings:
            ring.finish()
        reading = merged(rings)
        read = []
        while not reading.has_ended():
            assert reading.is_settled()
            read.append(int(reading.values()[0]))
            reading.done()
        assert read == [*takewhile(lambda frame: frame < frames, map(reader.frame, count()))]


@given(WEIGHTS, st.integers(0, 12), st.randoms(use_true_random=False))
def test_the_end_of_one_maker_ends_nothing_before_the_frames_of_others(
    weights: list[int], frames: int, random: Any
) -> None:
    rings = rings_of(group(weights), depth=40)
    handled = [[f for f in range(frames) if f % r.turns.period in r.turns.positions] for r in rings]
    steps = [*chain(*([number] * (len(frames) + 1) for number, frames in enumerate(handled)))]
    random.shuffle(steps)
    reading, read = merged(rings), []
    for number in steps:
        if handled[number]:
            put(rings[number], handled[number].pop(0))
        else:
            rings[number].finish()
        while reading.is_settled() and not reading.has_ended():
            read.append(int(reading.values()[0]))
            reading.done()
    assert list(range(frames)) == read
    assert reading.has_ended()


def stage_of(
    turns: Turns, weights: Sequence[int] = (1,)
) -> tuple[SegmentStage, list[Ring], Ring, Doubling, list[int]]:
    """Return a segment with the rings of those who make its input, its output and its engine.

    The last is the frames that were told as computed.
    """
    makers, engine, computed = rings_of(group(weights), turns, depth=9), Doubling(), list[int]()
    output = Ring(NUMBER, 9, (EACH,), turns=turns)

    def note(frame: int, seconds: float) -> None:
        assert seconds >= 0
        computed.append(frame)

    return (
        SegmentStage(0, engine, [merged(makers)], [output], note, turns),
        makers,
        output,
        engine,
        computed,
    )


@pytest.mark.parametrize("weights", [(1,), (1, 1), (3, 1, 2)])
def test_a_segment_handles_its_frames_and_names_them_by_their_numbers_in_the_stream(
    weights: tuple[int, ...],
) -> None:
    stage, makers, output, engine, computed = stage_of(Turns(3, (0, 2)), weights)
    assert ("segment 0", 0) == (stage.describe(), stage.frame)
    for frame in range(8):
        for maker in makers:
            if maker.turns.frame(maker.written) == frame:
                put(maker, frame)
        if stage.is_ready():
            stage.step()
    assert [0, 2, 3, 5, 6] == engine.given == computed
    assert 8 == stage.frame
    doubled = [int(output.slots[index][0]) for index in range(output.written)]
    assert [2 * frame for frame in computed] == doubled


def test_a_segment_ends_with_the_stream_though_its_next_frame_would_be_far() -> None:
    stage, (maker,), output, _, computed = stage_of(Turns(8, (5,)))
    assert 5 == stage.frame
    for frame in range(5):
        put(maker, frame)
        assert not stage.is_ready()
    maker.finish()
    assert stage.is_ready()
    stage.step()
    assert (True, 0, []) == (stage.finished, output.end, computed)


def test_inputs_of_other_makers_that_end_at_different_frames_are_a_mistake() -> None:
    second = Turns(2, (1,))
    rings = [*rings_of([ALL], second), *rings_of([second], second)]
    inputs = [Input(ring, 0) for ring in rings]
    stage = SegmentStage(0, Doubling(), inputs, [], lambda *_: None, second)
    put(rings[0], 0)
    put(rings[0], 1)
    for ring in rings:
        ring.finish()
    with pytest.raises(JobError, match="some inputs have ended before others"):
        stage.step()


def test_the_sink_takes_results_in_order_and_counts_all_frames() -> None:
    rings, keeping = rings_of(group([1, 1, 1])), Doubling()
    credit = Ring(CREDIT, 9, 1)
    sink = SinkStage([keeping], [merged(rings)], credit)  # type: ignore[list-item]
    for frame in (1, 2, 0, 4, 3):
        put(rings[frame % 3], frame)
        while sink.is_ready():
            sink.step()
    assert [0, 0, 1, 1, 2, 2, 3, 3, 4, 4] == keeping.given
    assert [0, 1, 2, 3, 4] == [int(credit.slots[index][0]) for index in range(credit.written)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (stages_module, arrivals_module):
        monkeypatch.setattr(module, "time", made)
    return made


class Slow:
    """A source that waits for each frame and works on it, and a sink that does so with results."""

    waited_s = 0.0
    can_replay = True

    def __init__(self, clock: Clock, works_s: float, waits_s: float) -> None:
        self.clock, self.works_s, self.waits_s = clock, works_s, waits_s

    def read(self, *_: object) -> None:
        self.clock.now_s += self.waits_s + self.works_s
        self.waited_s += self.waits_s

    write = read


def source_of(source: Slow, arrivals: Arrivals) -> SourceStage:
    """Return a stage with room for all frames, after the first of which its steady state begins."""
    ring, credits = Ring(NUMBER, 50, 0), Ring(CREDIT, 50, 1)
    stage = SourceStage(source, arrivals, [Entry([ring], 50)], Input(credits, 0))  # type: ignore[arg-type]
    stage.reads = StepTimes(1, 1, clock=source.clock)
    return stage


def test_work_and_waits_of_the_source_are_told_apart(clock: Clock) -> None:
    stage = source_of(Slow(clock, works_s=6e-3, waits_s=2e-3), Pulled(20))
    while not stage.finished:
        stage.step()
        clock.now_s += 2e-3  # there is no room
    assert (pytest.approx(0.6, rel=0.02), pytest.approx(0.2, rel=0.02)) == stage.reads.shares()
    assert 6 == pytest.approx(stage.figures().preprocess_ms["mean"])


def test_a_source_lacks_frames_until_they_arrive_by_the_clock(clock: Clock) -> None:
    arrivals = Timed(20, 100.0, Queue(20, "fail", clock))
    stage = source_of(Slow(clock, works_s=4e-3, waits_s=0.0), arrivals)
    while not stage.finished:
        if stage.is_ready():
            stage.step()
        else:
            clock.now_s += stage.pause_s() or 0
    assert (pytest.approx(0.4), pytest.approx(0.6)) == stage.reads.shares()


def test_a_source_that_waits_for_room_lacks_no_frames(clock: Clock) -> None:
    arrivals = Timed(20, 1000.0, Queue(20, "fail", clock))
    stage = source_of(Slow(clock, works_s=4e-3, waits_s=0.0), arrivals)
    while not stage.finished:
        if stage.is_ready():
            stage.step()
        clock.now_s += 6e-3
    assert (pytest.approx(0.4, rel=0.05), pytest.approx(0.0, abs=1e-6)) == stage.reads.shares()


def test_work_and_waits_of_the_sink_are_told_apart(clock: Clock) -> None:
    ring, credit = Ring(NUMBER, 20, 1), Ring(CREDIT, 30, 1)
    slow = Slow(clock, works_s=6e-3, waits_s=2e-3)
    sink = SinkStage([slow], [Input(ring, 0)], credit)  # type: ignore[list-item]
    sink.writes = StepTimes(1, 1, clock=clock)
    for frame in range(20):
        put(ring, frame)
        sink.step()
        clock.now_s += 2e-3
    assert (pytest.approx(0.6, rel=0.02), pytest.approx(0.2, rel=0.02)) == sink.writes.shares()
    assert 6e-3 == pytest.approx(sink.writes.histogram.mean_s)


def test_without_frames_after_the_first_ones_there_are_no_shares() -> None:
    times = StepTimes(1, 3)
    for frame in range(MIN_WARM_UP):
        times.add(frame, 1.0, 1.0)
    assert (0.0, 0.0) == times.shares()
