"""The three kinds of stages: a source of frames, a segment of the model, the sink of results."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from ..engines import Engine
from ..errors import BoundError, FrameError, JobError
from ..failed_frames import SOURCE, Failure
from ..figures.events import COMPUTE, FRAME, READ, WRITE, EventRing
from ..figures.histogram import Histogram
from ..figures.rank_figures import NOT_COMPUTED, StepTimes
from ..job import ALL, Rank, Turns
from ..keeper import Entered
from ..recording import TakeFrame
from ..sinks import Sink
from ..sizes import Slot, disagreement, values_in
from ..sources import EndOfStreamError, Source
from ..sources.arrivals import Arrivals, Live, Pulled, Timed
from ..sources.switching import ROUTE_NAMES
from .slots import Ring
from .wiring import Reader

MOST_FAILURES = 100
"""Failed frames that a report names."""


class Input:
    """A ring as one of its readers sees it."""

    __slots__ = ("reader", "ring")

    def __init__(self, ring: Ring, reader: int) -> None:
        self.ring = ring
        self.reader = reader

    def has_frame(self) -> bool:
        """Whether the next frame is there."""
        return self.ring.has_frame(self.reader)

    def has_ended(self) -> bool:
        """Whether no further frame will come."""
        return self.ring.has_ended(self.reader)

    def is_settled(self) -> bool:
        """Whether the next frame is there, or none will come."""
        ring, reader = self.ring, self.reader
        return ring.read[reader] < ring.written or ring.has_ended(reader)

    def values(self) -> Any:
        """The next frame's values, an array.

        Raises:
            FrameError: the frame has failed.
            JobError: the header of an open slot does not fit the tensor.
        """
        ring = self.ring
        slot = ring.read[self.reader] % ring.depth
        if ring.records[slot][0]:
            raise FrameError(Failure.from_bytes(ring.records[slot]).reason)
        return values_in(ring.slots[slot])

    def failure(self) -> Failure | None:
        """Why the next frame has failed, if it has."""
        ring = self.ring
        record = ring.records[ring.read[self.reader] % ring.depth]
        return Failure.from_bytes(record) if record[0] else None

    def done(self) -> None:
        """Give the slot back."""
        self.ring.free(self.reader)


class MergedInput(Input):
    """A tensor that several ranks make in turn: the ring of the next frame is the input."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Input]) -> None:
        """Take what the reader sees of the rings of all who make the tensor."""
        self._parts = parts

    def _next(self) -> Input:
        """Return the part with the frame that the reader needs next."""
        return min(self._parts, key=_next_frame)

    @property
    def ring(self) -> Ring:  # type: ignore[override]
        """The ring of that part."""
        return self._next().ring

    @property
    def reader(self) -> int:  # type: ignore[override]
        """Its number there."""
        return self._next().reader


def _next_frame(part: Input) -> int:
    return part.ring.turns.frame(part.ring.read[part.reader])


def make_inputs(readers: Sequence[Sequence[Reader]], rings: Sequence[Ring]) -> list[Input]:
    """Return what a stage sees of the tensors that it reads, each in the rings of its makers."""
    parts = [[Input(rings[each.ring], each.index) for each in makers] for makers in readers]
    return [MergedInput(each) if len(each) > 1 else each[0] for each in parts]


def _free_slots(outputs: Sequence[Ring]) -> list[Slot]:
    """Return where the next frame goes, which has not failed yet."""
    for ring in outputs:
        ring.renew()
    return [ring.slots[ring.written % ring.depth] for ring in outputs]


class _Stage(ABC):
    """What all stages share: the frame they work on, and how one ends and the next begins.

    Frames have the numbers of the stream, whoever handles them. Where there are two routes, a
    segment counts those of its route, as the source decides which way a frame takes.
    """

    route = ""
    """Of a segment, if there are several."""
    way = 0
    """Number of the route of the frame that the stage has done last."""
    precedence = 1
    kind = COMPUTE
    index = 0
    record: TakeFrame | None = None
    """Takes what each frame reads and writes, if it is to be kept."""
    rank: int | None = None
    """Its rank, if frames that fail are handed on as failed ones; ``None``: they end the job."""

    def __init__(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Ring],
        turns: Turns = ALL,
    ) -> None:
        self._steps = turns.steps_in(ALL)
        self.frame = self._steps.first
        self.finished = False
        self._inputs = inputs
        self._outputs = outputs

    def is_ready(self) -> bool:
        """All inputs are there and all outputs have room, or the stream is over."""
        if not all(each.is_settled() for each in self._inputs):
            return False
        return not self.lacks_room() or self._is_over()

    def lacks_room(self) -> bool:
        """Whether an output has no free slot."""
        return not all(ring.has_room() for ring in self._written())

    def step(self) -> None:
        """Do one frame, or end the stream."""
        if self._is_over():
            self._end()
            return
        read, written = self._read(), self._written()
        outputs = _free_slots(written)
        try:
            inputs = [each.values() for each in read]
            self._work(inputs, outputs)
            if self.record is not None:
                self.record(self.frame, inputs, outputs)
        except EndOfStreamError:
            self._end()
            return
        except FrameError as error:
            self._fail(self._failure(error, read), written)
        self._advance(read, written)

    def _read(self) -> Sequence[Input]:
        """Return where the next frame is."""
        return self._inputs

    def _written(self) -> Sequence[Ring]:
        """Return where its results go."""
        return self._outputs

    @abstractmethod
    def _work(self, inputs: list[NDArray[Any]], outputs: list[Slot]) -> None:
        """Do frame ``frame``, from slots to slots."""

    def _failure(self, error: FrameError, read: Sequence[Input]) -> Failure:
        """Return why frame ``frame`` fails, of several reasons always the same, or end the job."""
        if self.rank is None:
            raise error
        step = self.index if read else SOURCE
        found = [failure for each in read if (failure := each.failure()) is not None]
        return min(found, default=Failure(self.rank, step, str(error)))

    def _fail(self, failure: Failure, written: Sequence[Ring]) -> None:
        """Write, in the place of frame ``frame``, why it has failed."""
        for ring in written:
            ring.fail(failure)

    def _is_over(self) -> bool:
        ended = [each.has_ended() for each in self._inputs]
        if any(ended) and not all(ended):
            raise JobError("some inputs have ended before others")
        return all(ended)

    def _advance(self, read: Sequence[Input], written: Sequence[Ring]) -> None:
        """Hand the frame's outputs on, give its inputs back, and go to the next frame."""
        for ring in written:
            ring.put()
        for each in read:
            each.done()
        self.frame = self._steps.after(self.frame)

    def _end(self) -> None:
        for ring in self._outputs:
            ring.finish()
        self.finished = True

    def pause_s(self) -> float | None:
        """Return after how many seconds the stage may be ready; ``None``: not by the clock."""
        return None


class SegmentStage(_Stage):
    """Runs one sub-model on each frame."""

    def __init__(
        self,
        index: int,
        engine: Engine,
        inputs: Sequence[Input],
        outputs: Sequence[Ring],
        on_computed: Callable[[int, float], None],
        turns: Turns = ALL,
        route: str = "",
    ) -> None:
        """Take a loaded engine; ``on_computed(frame, seconds)`` is called after each frame.

        ``turns``: the frames that it handles; ``route``: on which route, if there are several.
        """
        super().__init__(inputs, outputs, turns)
        self.route = route
        self.way = ROUTE_NAMES.index(route) if route else 0
        self.index = index
        self._engine = engine
        self._on_computed = on_computed
        self._took_s = 0.0

    def _work(self, inputs: list[NDArray[Any]], outputs: list[Slot]) -> None:
        begin = time.perf_counter()
        try:
            self._engine.run(inputs, outputs)
        except BoundError as error:
            raise FrameError(str(error)) from None
        self._took_s = time.perf_counter() - begin

    def _advance(self, read: Sequence[Input], written: Sequence[Ring]) -> None:
        frame = self.frame
        super()._advance(read, written)
        self._on_computed(frame, self._took_s)

    def _fail(self, failure: Failure, written: Sequence[Ring]) -> None:
        super()._fail(failure, written)
        self._took_s = NOT_COMPUTED

    def describe(self) -> str:
        """Name the segment."""
        return f"segment {self.index}"


class SourceStage(_Stage):
    """Lets frames in as they arrive, up to the window."""

    precedence = 2
    kind = READ
    on_enter: Callable[[Entered], None] | None = None
    """Told of each frame before it enters."""

    def __init__(
        self,
        source: Source,
        arrivals: Arrivals,
        window: int,
        credit: Input,
        outputs: Sequence[Ring],
        *,
        shares_clock: bool = False,
        events: EventRing | None = None,
    ) -> None:
        """Take an opened source; the frames of ``credit`` count what has left the pipeline.

        ``shares_clock``: the sink is on this board, so its times are comparable. ``events``: told
        when each frame was under way.
        """
        super().__init__((), outputs)
        self._events = events or EventRing()
        self.latencies = Histogram()
        self.reads = StepTimes(1, window)
        """Times of reading and preprocessing a frame, and of waits for one while there was room."""
        self._done_s = time.monotonic()
        self._source = source
        self._arrivals = arrivals
        self._window = window
        self._credit = credit
        self._shares_clock = shares_clock
        self._entered_s = [0.0] * window
        self._has_open_sizes = any(ring.tensor.is_open for ring in outputs)

    @property
    def is_timed(self) -> bool:
        """Whether frames come at times of their own."""
        return isinstance(self._arrivals, Timed) or not self._source.can_replay

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Take what wakes the stage's thread; it is called when a frame comes by itself."""
        if isinstance(self._arrivals, Live):
            self._arrivals.on_arrival = wake

    def figures(self) -> dict[str, Any]:
        """Return what the stage measured."""
        return {
            "frames": self.frame,
            "window": self._window,
            "latency_ms": self.latencies.with_mean_ms(50, 90, 99),
            "latency_counts": self.latencies.counts_ms(),
            "preprocess_ms": self.reads.histogram.with_mean_ms(50, 99),
            "dropped": self._arrivals.dropped,
            "fps": self._arrivals.fps,
            "more_dropped": self._arrivals.more_dropped,
            "timed_by_file": isinstance(self._arrivals, Timed) and self._arrivals.fps is None,
        }

    def end_stream(self) -> None:
        """Let in what has arrived, and nothing else; called by another thread."""
        self._arrivals.end()
        self._source.end()

    def is_ready(self) -> bool:
        """A frame waits and the window has room, or the source is exhausted.

        Raises:
            JobError: a frame arrived and found no room.
        """
        if self._is_over():
            return True
        self._arrivals.judge(self.frame, self._came_out)
        return self._arrivals.is_waiting() and not self.lacks_room()

    def lacks_room(self) -> bool:
        """Whether the window or an output is full, or the next frame comes after results."""
        is_full = self._inside >= self._window or super().lacks_room()
        return is_full or self._arrivals.awaits_results

    @property
    def _inside(self) -> int:
        """How many frames are inside the pipeline."""
        return self.frame - self._came_out

    @property
    def _came_out(self) -> int:
        return self._credit.ring.read[self._credit.reader]

    def _is_over(self) -> bool:
        return self._arrivals.is_exhausted()

    def _work(self, inputs: list[NDArray[Any]], outputs: list[Slot]) -> None:
        index, arrived_s = self._arrivals.take()
        begin, waited_s = time.perf_counter(), self._source.waited_s
        failure: FrameError | None = None
        try:
            self._source.read(index, outputs)
            if self._has_open_sizes and (found := disagreement(outputs)):
                raise FrameError(found)
        except FrameError as error:
            failure = error
        except BoundError as error:
            if not self._source.can_replay:  # the next frame may not be read from its beginning
                raise
            failure = FrameError(str(error))
        except EndOfStreamError as ended:
            self._arrivals.end_at(index if ended.frames is None else ended.frames)
            raise
        waited_s = self._source.waited_s - waited_s
        self._entered_s[self.frame % self._window] = arrived_s + waited_s
        if self.on_enter is not None:
            unix_s = time.time() - time.monotonic() + arrived_s + waited_s
            self.on_enter(Entered(self.frame, index, unix_s, self._source.label(index)))
        if failure is not None:
            raise failure
        worked_s = max(0.0, time.perf_counter() - begin - waited_s)
        if not isinstance(self._arrivals, Pulled):  # else the last wait was for room
            waited_s += max(0.0, arrived_s - self._done_s)
        self.reads.add(self.frame, worked_s, waited_s)
        self._done_s = time.monotonic()

    def pause_s(self) -> float | None:
        """Return the seconds until the next arrival, if frames come by the clock."""
        return self._arrivals.pause_s()

    def describe(self) -> str:
        """Name the stage."""
        return "source"

    def take_credits(self) -> bool:
        """Record the latency of frames that have left; called by whoever takes the credits in."""
        took = False
        while self._credit.has_frame():
            frame, came_out_ns = self._credit.values().tolist()
            out_s = 1e-9 * came_out_ns if self._shares_clock else time.monotonic()
            entered_s = self._entered_s[frame % self._window]
            number, way = self._counted()
            if came_out_ns:  # it has results
                self.latencies.add(out_s - entered_s)
                self._events.add(FRAME, entered_s, out_s, frame, number, route=way)
            self._credit.done()
            took = True
        return took

    def _counted(self) -> tuple[int, int]:
        """Return how many frames had come out before this one on its route, and the route."""
        return 0, 0


class SinkStage(_Stage):
    """Takes the model outputs of each frame out of the pipeline."""

    precedence = 0
    kind = WRITE

    def __init__(
        self,
        sinks: Sequence[Sink],
        inputs: Sequence[Input],
        credit: Ring,
        window: int = 0,
    ) -> None:
        """Take opened sinks, which all get each frame, and the ring of completion credits.

        ``window``: how many frames may be inside the pipeline.
        """
        super().__init__(inputs, [credit])
        self.writes = StepTimes(1, window)
        """Times of taking a frame's results, and of waits for whoever takes them from a sink."""
        self._sinks = sinks
        self.failed = 0
        """Frames that have failed."""
        self.failures: list[tuple[int, Failure]] = []
        """The first :data:`MOST_FAILURES` of them, each with its number."""

    def _work(self, inputs: list[NDArray[Any]], outputs: list[Slot]) -> None:
        begin, before_s = time.perf_counter(), self._waited_s
        for sink in self._sinks:
            sink.write(self.frame, inputs)
        waited_s = self._waited_s - before_s
        worked_s = max(0.0, time.perf_counter() - begin - waited_s)
        self.writes.add(self.frame, worked_s, waited_s)
        values_in(outputs[0])[:] = self.frame, time.monotonic_ns()

    @property
    def _waited_s(self) -> float:
        return sum(sink.waited_s for sink in self._sinks)

    def _fail(self, failure: Failure, written: Sequence[Ring]) -> None:
        """Tell the sinks that the frame has failed; a credit without a time says so, too."""
        for sink in self._sinks:
            sink.fail(self.frame, failure)
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            self.failures.append((self.frame, failure))
        values_in(_free_slots(written)[0])[:] = self.frame, 0

    def figures(self, ranks: Sequence[Rank]) -> dict[str, Any]:
        """Return what the stage measured, and which frames failed on which of the job's ranks."""
        return {
            "postprocess_ms": self.writes.histogram.with_mean_ms(50, 99),
            "failed": self.failed,
            "failures": [failure.told(frame, ranks) for frame, failure in self.failures],
        }

    def _end(self) -> None:
        for sink in self._sinks:
            sink.finish()
        super()._end()

    def describe(self) -> str:
        """Name the stage."""
        return "sink"
