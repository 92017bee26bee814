"""The three kinds of stages: a source of frames, a segment of the model, the sink of results."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from numpy.typing import NDArray

from ..engines import Engine
from ..errors import BoundError, FrameError, JobError
from ..figures.events import COMPUTE, FRAME, READ, WRITE, EventRing
from ..figures.histogram import SORTED_AT_ONCE, Histogram
from ..figures.rank_figures import SinkFigures, SourceFigures
from ..figures.rank_usage import NOT_COMPUTED, StepTimes
from ..frame_records import SOURCE, Failure
from ..job import ALL, EACH, Rank, Turns
from ..keeper import Entered
from ..recording import TakeFrame
from ..sinks import Sink
from ..sizes import disagreement, values_in
from ..sources import EndOfStreamError, Source
from ..sources.arrivals import Arrivals, Live, Pulled, Timed
from ..sources.switching import ROUTE_NAMES
from .slots import LentRing, Ring
from .wiring import Reader

MAX_FAILURES = 100
"""Failed frames that a report names."""
ROOM, CREDITS = "room", "credits"
"""What a stage may lack: a slot for what it writes; older frames to come out."""
_MAX_PLACES, _MAX_LENT_PLACES = 64, 256
"""Kept per stage, and where a source lends its frames."""


class Input:
    """A ring as one of its readers sees it."""

    __slots__ = ("done", "reader", "ring")

    def __init__(self, ring: Ring, reader: int) -> None:
        self.ring = ring
        self.reader = reader
        self.done: Callable[[], None] = partial(ring.free, reader)
        """Gives the slot of the next frame back."""

    def has_frame(self) -> bool:
        return self.ring.has_frame(self.reader)

    def has_ended(self) -> bool:
        return self.ring.has_ended(self.reader)

    def is_settled(self) -> bool:
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
        ring = self.ring
        record = ring.records[ring.read[self.reader] % ring.depth]
        return Failure.from_bytes(record) if record[0] else None


class MergedInput(Input):
    """A tensor that several ranks make in turn: the ring of the next frame is the input."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Input]) -> None:
        self._parts = parts
        self.done = lambda: self._next().done()

    def _next(self) -> Input:
        return min(self._parts, key=lambda part: part.ring.turns.frame(part.ring.read[part.reader]))

    @property
    def ring(self) -> Ring:  # type: ignore[override]
        return self._next().ring

    @property
    def reader(self) -> int:  # type: ignore[override]
        return self._next().reader


def make_inputs(readers: Sequence[Sequence[Reader]], rings: Sequence[Ring]) -> list[Input]:
    parts = [[Input(rings[reader.ring], reader.index) for reader in makers] for makers in readers]
    return [MergedInput(makers) if len(makers) > 1 else makers[0] for makers in parts]


class Place(NamedTuple):
    inputs: list[NDArray[Any]]
    outputs: list[Any]
    came: list[memoryview]
    """The failure records of the inputs."""
    made: list[memoryview]
    run: Callable[..., None]
    """Computes the outputs; the source's gets the number of the frame to read."""


class Stage(ABC):
    """What all stages share: the frame they work on, and how one ends and the next begins.

    Frames have the numbers of the stream, whoever handles them. Where there are two routes, a
    segment counts those of its route, as the source decides which way a frame takes.

    If all rings have each frame of the stream, and sizes are fixed, the slots of a frame come again
    some frames later: then what is known of them is prepared at their first use.
    """

    route = ""
    """That whose frames it counts, if there are several; empty: it counts all."""
    way = 0
    """Number of the route of the frame that the stage has done last."""
    precedence = 1
    """Of ready stages that with the lowest one runs first. What a sink takes (0) is older than what
    a segment computes, whatever both count; what a source reads (2) is younger."""
    kind = COMPUTE
    """Of the events that its steps are."""
    index = 0
    """Of a segment, among those of its rank and route."""
    is_clocked = False
    """Whether :meth:`is_ready` can change by itself."""
    rank: int | None = None
    """Its rank, if frames that fail are handed on as failed ones; ``None``: they end the job."""

    def __init__(
        self,
        inputs: Sequence[Input],
        outputs: Sequence[Ring],
        turns: Turns = ALL,
    ) -> None:
        self._steps = turns.steps_in(ALL)
        self._jumps, self._turn = self._steps.jumps, len(self._steps.jumps)
        self.frame = self._steps.first
        self.finished = False
        self.lacks = ""
        """What alone :meth:`is_ready` has just missed: :data:`ROOM`, :data:`CREDITS` or neither."""
        self.took_s = 0.0
        """How long its last step took, in seconds."""
        self._inputs = inputs
        self._outputs = outputs
        self._reads = inputs
        self._writes = outputs
        self._places: dict[int, Place] = {}
        rings = [*outputs, *(part.ring for part in inputs)]
        self._period = math.lcm(*(ring.depth or 1 for ring in rings))
        is_lent = any(isinstance(ring, LentRing) for ring in rings)
        self._max_places = _MAX_LENT_PLACES if is_lent else _MAX_PLACES
        self._keeps_places = not any(
            ring.tensor.is_open or ring.turns != ALL for ring in rings
        ) and all(type(part) is Input and part.ring.steps[part.reader] == EACH for part in inputs)

    @abstractmethod
    def describe(self) -> str:
        """Name the stage: ``segment 1``."""

    def is_ready(self) -> bool:
        self.lacks = ""
        for part in self._inputs:
            ring = part.ring
            if ring.read[part.reader] >= ring.written:
                return ring.end is not None and self._is_over()
        for ring in self._outputs:
            full = ring.written - ring.depth
            for read in ring.read:
                if read <= full:
                    self.lacks = ROOM
                    return False
        return True

    def step(self) -> None:
        for part in self._inputs:
            if part.ring.end is not None and self._is_over():
                self._end()
                return
        try:
            number, places = self.frame % self._period, self._places
            place = places[number] if number in places else self._place()
            for record in place.came:
                if record[0]:
                    raise FrameError(Failure.from_bytes(record).reason)
            self._work(place)
        except EndOfStreamError:
            self._end()
            return
        except FrameError as error:
            self._fail(self._failure(error))
        for ring in self._writes:
            ring.written += 1
            for notify in ring.on_written:
                notify()
        for part in self._reads:
            part.done()
        self.frame += self._jumps[self.frame % self._turn]

    @abstractmethod
    def _work(self, place: Place) -> None:
        """Do frame ``frame``, from slots to slots."""

    def record_by(self, take: TakeFrame) -> None:
        """Have ``take`` get what each frame reads and writes."""
        work = self._work

        def recorded(place: Place) -> None:
            work(place)
            take(self.frame, place.inputs, place.outputs)

        self._work = recorded  # type: ignore[method-assign]

    def _place(self) -> Place:
        """Look up the slots of the next frame; keep what will come again.

        Raises:
            FrameError: an input has failed.
        """
        places = [
            (part.ring, part.ring.read[part.reader] % part.ring.depth) for part in self._reads
        ]
        made = [(ring, ring.written % ring.depth) for ring in self._writes]
        inputs = [part.values() for part in self._reads]
        outputs: list[Any] = [ring.slots[slot] for ring, slot in made]
        place = Place(
            inputs,
            outputs,
            [ring.records[slot] for ring, slot in places],
            [ring.records[slot] for ring, slot in made],
            self._prepare(inputs, outputs),
        )
        if self._keeps_places and len(self._places) < self._max_places:
            self._places[self.frame % self._period] = place
        return place

    def _prepare(self, inputs: list[NDArray[Any]], outputs: list[Any]) -> Callable[..., None]:
        return _nothing

    def _failure(self, error: FrameError) -> Failure:
        """Say why frame ``frame`` fails, of several reasons always the same, or end the job."""
        if self.rank is None:
            raise error
        step = self.index if self._reads else SOURCE
        failures = [failure for part in self._reads if (failure := part.failure()) is not None]
        return min(failures, default=Failure(self.rank, step, str(error)))

    def _fail(self, failure: Failure) -> None:
        """Write, in the place of frame ``frame``, why it has failed."""
        for ring in self._writes:
            ring.fail(failure)

    def _is_over(self) -> bool:
        """Whether all inputs have ended: each has when its next frame is there, or none will be."""
        ended = [part.has_ended() for part in self._inputs]
        if any(ended) and not all(ended) and all(part.is_settled() for part in self._inputs):
            raise JobError("some inputs have ended before others")
        return all(ended)

    def _end(self) -> None:
        for ring in self._outputs:
            ring.finish()
        self.finished = True

    def pause_s(self) -> float | None:
        return None


def _nothing(*_: int) -> None:
    """Compute nothing; read nothing."""


class SegmentStage(Stage):
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

    def describe(self) -> str:
        return f"segment {self.index}"

    def _prepare(self, inputs: list[NDArray[Any]], outputs: list[Any]) -> Callable[..., None]:
        return self._engine.bind(inputs, outputs)

    def _work(self, place: Place) -> None:
        for record in place.made:
            record[0] = 0
        begin = time.perf_counter()
        try:
            place.run()
        except BoundError as error:
            raise FrameError(str(error)) from None
        except RuntimeError as error:
            raise self._engine.failure(error) from None
        self._on_computed(self.frame, time.perf_counter() - begin)

    def _fail(self, failure: Failure) -> None:
        super()._fail(failure)
        self._on_computed(self.frame, NOT_COMPUTED)


@dataclass(frozen=True, slots=True)
class Entry:
    """Where the frames of a route enter."""

    outputs: Sequence[Ring]
    window: int


class SourceStage(Stage):
    precedence = 2
    kind = READ
    _counts_routes = False
    on_enter: Callable[[Entered], None] | None = None

    def __init__(
        self,
        source: Source,
        arrivals: Arrivals,
        entries: Sequence[Entry],
        credit: Input,
        *,
        shares_clock: bool = False,
        events: EventRing | None = None,
    ) -> None:
        """Take an opened source; the frames of ``credit`` count what has left the pipeline.

        ``entries``: by route. ``shares_clock``: the sink is on this board, so its times are
        comparable. ``events`` gets the time that each frame was under way.
        """
        outputs = [ring for entry in entries for ring in entry.outputs]
        window = max(entry.window for entry in entries)
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
        self._room = window
        """How many frames may be inside now."""
        self._entered_s = [0.0] * window
        self._counts = [0]
        """How many frames have come out, by route; if there is one, they are not counted."""
        self._has_open_sizes = any(ring.tensor.is_open for ring in outputs)
        self.is_clocked = not isinstance(arrivals, Pulled)
        self._may_lack_frames = type(arrivals) is not Pulled
        """Whether a frame may be missing though there is room."""

    def wake_by(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called when a frame comes by itself."""
        if isinstance(self._arrivals, Live):
            self._arrivals.on_arrival = wake

    def figures(self) -> SourceFigures:
        return SourceFigures(
            frames=self.frame,
            window=self._window,
            latency_ms=self.latencies.summary_ms(),
            latency_counts=self.latencies.counts_ms(),
            preprocess_ms=self.reads.histogram.summary_ms(),
            dropped=tuple(self._arrivals.dropped),
            fps=self._arrivals.fps,
            more_dropped=self._arrivals.more_dropped,
            timed_by_file=isinstance(self._arrivals, Timed) and self._arrivals.fps is None,
        )

    def end_stream(self) -> None:
        """Let in what has arrived, and nothing else; called by another thread."""
        self._arrivals.end()
        self._source.end()

    def is_ready(self) -> bool:
        """A frame waits, and window and outputs have room, or the source is exhausted.

        Raises:
            JobError: a frame arrived and found no room.
        """
        credit, arrivals = self._credit, self._arrivals
        came_out = credit.ring.read[credit.reader]
        self.lacks = CREDITS if self.frame - came_out >= self._room else ""
        for ring in self._writes:
            for read in ring.read:
                if read <= ring.written - ring.depth:
                    self.lacks = self.lacks or ROOM
        if not self._may_lack_frames:
            return not self.lacks or arrivals.is_over
        is_waiting = arrivals.poll(self.frame, came_out)
        if is_waiting is None:
            return True
        has_room = not self.lacks
        if arrivals.awaits_results:
            self.lacks = self.lacks or CREDITS
        return is_waiting and has_room

    def _prepare(self, inputs: list[NDArray[Any]], outputs: list[Any]) -> Callable[..., None]:
        is_lent = isinstance(self._writes[0], LentRing)
        return _nothing if is_lent else lambda index: self._source.read(index, outputs)

    @property
    def _came_out(self) -> int:
        return self._credit.ring.read[self._credit.reader]

    def _work(self, place: Place) -> None:
        index, arrived_s = self._arrivals.take()
        frame, source = self.frame, self._source
        for record in place.made:
            record[0] = 0
        begin, waited_s = time.perf_counter(), source.waited_s
        failure: FrameError | None = None
        try:
            place.run(index)
            if self._has_open_sizes and (differing := disagreement(place.outputs)):
                raise FrameError(differing)
        except FrameError as error:
            failure = error
        except BoundError as error:
            if not source.can_replay:  # the next frame may not be read from its beginning
                raise
            failure = FrameError(str(error))
        except EndOfStreamError as ended:
            self._arrivals.end_at(index if ended.frames is None else ended.frames)
            raise
        now_s = time.perf_counter()
        waited_s = source.waited_s - waited_s
        self._entered_s[frame % self._window] = arrived_s + waited_s
        if self.on_enter is not None:
            unix_s = time.time() - time.monotonic() + arrived_s + waited_s
            self.on_enter(Entered(frame, index, unix_s, source.label(index)))
        if failure is not None:
            raise failure
        worked_s = now_s - begin - waited_s
        if self.is_clocked and arrived_s > self._done_s:
            waited_s += arrived_s - self._done_s
        self.reads.add(frame, worked_s if worked_s > 0 else 0.0, waited_s)
        self._done_s = now_s

    def pause_s(self) -> float | None:
        return self._arrivals.pause_s()

    def describe(self) -> str:
        return "source"

    def take_credits(self) -> bool:
        """Record the latency of frames that have left; called by whoever takes the credits in."""
        ring, reader, counts, way = self._credit.ring, self._credit.reader, self._counts, self.way
        first = ring.read[reader]
        while ring.read[reader] < ring.written:
            credit: Any = ring.slots[ring.read[reader] % ring.depth]
            frame, came_out_ns = credit.tolist()
            out_s = 1e-9 * came_out_ns if self._shares_clock else time.monotonic()
            entered_s = self._entered_s[frame % self._window]
            if came_out_ns:  # it has results
                self.latencies.add(out_s - entered_s)
                if not frame % SORTED_AT_ONCE:
                    self.latencies.sort()
                self._events.add(FRAME, entered_s, out_s, frame, counts[way], 0, way)
            counts[way] += self._counts_routes
            self._credit.done()
        return ring.read[reader] > first


class SinkStage(Stage):
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
        self.failures: list[tuple[int, Failure]] = []

    def _work(self, place: Place) -> None:
        frame = self.frame
        begin, waited_s = time.perf_counter(), 0.0
        for sink in self._sinks:
            waited_s -= sink.waited_s
            sink.write(frame, place.inputs)
            waited_s += sink.waited_s
        worked_s = time.perf_counter() - begin - waited_s
        self.writes.add(frame, worked_s if worked_s > 0 else 0.0, waited_s)
        (credit,) = place.outputs
        credit[:] = frame, time.monotonic_ns()

    def _fail(self, failure: Failure) -> None:
        """Tell the sinks that the frame has failed; a credit without a time says so, too."""
        for sink in self._sinks:
            sink.fail(self.frame, failure)
        self.failed += 1
        if len(self.failures) < MAX_FAILURES:
            self.failures.append((self.frame, failure))
        (ring,) = self._writes
        values_in(ring.slots[ring.written % ring.depth])[:] = self.frame, 0

    def figures(self, ranks: Sequence[Rank]) -> SinkFigures:
        return SinkFigures(
            postprocess_ms=self.writes.histogram.summary_ms(),
            failed=self.failed,
            failures=tuple(failure.describe(frame, ranks) for frame, failure in self.failures),
        )

    def _end(self) -> None:
        for sink in self._sinks:
            sink.finish()
        super()._end()

    def describe(self) -> str:
        return "sink"
