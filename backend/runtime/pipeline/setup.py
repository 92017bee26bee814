"""Makes the stages of a rank: loads its engines and warms them up, opens its source and sinks."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compression import CompressedMessages
from ..direct.memory import Memory
from ..engines import Engine, EngineSettings, engine_settings, open_engine
from ..errors import JobError
from ..figures.acceleration import total
from ..figures.events import EventRing
from ..figures.operator_profile import RankOperators, write_operators
from ..figures.rank_figures import RouteFigures
from ..figures.rank_usage import GpuMemory, StepTimes
from ..job import Job, PlacedSegment, Rank
from ..job.strict import vars_of
from ..options import RunOptions
from ..process_setup import bind_to_cores
from ..recording import Recorder
from ..sinks import open_sinks
from ..sizes import OpenSlot, is_aligned
from ..sources import Source, open_source
from ..sources.arrivals import (
    PATIENCE_S,
    Arrivals,
    Live,
    Pulled,
    Queries,
    Queue,
    Timed,
    max_in_a_second,
    read_arrival_times,
)
from ..sources.switching import (
    ROUTE_NAMES,
    SURGE,
    USUAL,
    Automatic,
    Fixed,
    surge_queue,
)
from ..transport import Transport
from .executor import OnStep
from .routes import RoutedSink, RoutedSource, Switching
from .slots import LentRing, Ring, View
from .stages import Entry, Input, SegmentStage, SinkStage, SourceStage, make_inputs
from .wiring import StageSpec, Wiring, threadless_stages

_LIVE_FPS = 30
MAX_LENT = 64
"""Frames of a source that are used where they lie."""
_JUDGED_AFTER_S = 10.0
"""A step's deadline is over by then, and its watch has reported so."""


@dataclass(frozen=True, slots=True)
class Setup:
    job: Job
    folder: Path
    options: RunOptions
    transport: Transport
    resources: ExitStack
    on_step: OnStep | None = None
    events: EventRing = field(default_factory=EventRing)
    recorder: Recorder | None = None
    messages: CompressedMessages | None = None
    """Instead of those of the transport, if some are compressed."""

    @property
    def spec(self) -> Rank:
        return self.job.ranks[self.transport.rank]

    @property
    def engine_settings(self) -> EngineSettings:
        return engine_settings(self.spec, exact=self.options.exact)

    @property
    def cores(self) -> tuple[int, ...]:
        return self.spec.cores if self.options.bind else ()

    @property
    def windows(self) -> tuple[int, ...]:
        return tuple(self.options.window or route.window for route in self.job.routes)

    def joined(self, *, is_timed: bool) -> frozenset[str]:
        """List the stages beside the segments without a thread; ``is_timed``: frames come."""
        ranks = [route.ranks[self.spec.rank] for route in self.job.routes]
        joined = [threadless_stages(rank, is_timed=is_timed) for rank in ranks]
        # A sink that sends results may wait for whoever reads them.
        apart = frozenset({"sink"} if self.options.stream else ())
        return frozenset.intersection(*joined) - apart


class WarmUp:
    """The runs before frame 0 of a rank's sub-models, on zeros."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.left_out: list[str] = []
        """Segments without such a run, each with the reason."""

    def run(
        self,
        segment: int,
        engine: Engine,
        inputs: Sequence[Ring],
        outputs: Sequence[Ring],
        keeps: str = "",
    ) -> None:
        """Run a loaded engine on zeros, and into its first output slots, which are zero afterwards.

        It is not run if that would change frame 0, which ``keeps`` says. A failure is not an error:
        real inputs may never be zeros.
        """
        hindrance = keeps or engine.warm_up_hindrance()
        if not hindrance:
            begin = time.perf_counter()
            try:
                engine.run([_zeros(ring) for ring in inputs], [ring.slots[0] for ring in outputs])
            except Exception as error:  # engines' exceptions have no common base class
                hindrance = f"it fails on zeros: {' '.join(str(error).split())}"
            self.seconds += time.perf_counter() - begin
            for ring in outputs:
                ring.raw[0].fill(0)
        if hindrance:
            self.left_out.append(f"segment {segment}: {hindrance}")


def _zeros(ring: Ring) -> NDArray[Any]:
    """Make a slot of zeros, as large as it may be.

    The slots of another rank may have what its own first run leaves, and those that a source lends
    have frames. Zeros that are never written take no memory.
    """
    slot = ring.slots[0]
    if isinstance(ring, View | LentRing) or isinstance(slot, OpenSlot):
        dtype, shape = ring.tensor.storage
        return np.zeros(shape, dtype)  # not zeros_like(), which writes them
    return slot


class LoadedSegments:
    def __init__(
        self, setup: Setup, wiring: Wiring, rings: Sequence[Ring], memories: Sequence[Memory]
    ) -> None:
        self._setup = setup
        self._memories = memories
        rank, by_route = setup.spec.rank, zip(setup.job.routes, setup.windows, strict=True)
        self.times = [
            StepTimes(len(route.segments_of(rank)), window, route.ranks[rank].turns)
            for route, window in by_route
        ]
        self._gpu_memory = GpuMemory(setup.spec.accelerator)
        segments = [segment for segment, _ in wiring.segments]
        # Engines take more memory while they load than afterwards, so the largest loads first.
        order = sorted(range(len(segments)), key=lambda number: -self._nbytes(segments[number]))
        engines = {number: self._engine(segments[number]) for number in order}
        self._engines = [engines[number] for number in range(len(segments))]
        self._warm_up = WarmUp()
        self.stages = [
            self._stage(segment, engine, spec, rings)
            for (segment, spec), engine in zip(wiring.segments, self._engines, strict=True)
        ]

    def _nbytes(self, segment: PlacedSegment) -> int:
        path = self._setup.folder / segment.file
        return path.stat().st_size if path.exists() else 0

    def _stage(
        self, segment: PlacedSegment, engine: Engine, spec: StageSpec, rings: Sequence[Ring]
    ) -> SegmentStage:
        outputs = [rings[ring] for ring in spec.outputs]
        inputs = [rings[parts[0].ring] for parts in spec.inputs]
        self._warm_up.run(segment.index, engine, inputs, outputs, segment.facts.keeps)
        routes = self._setup.job.routes
        number = next(n for n, route in enumerate(routes) if segment in route.segments)
        stage = SegmentStage(
            segment.index,
            engine,
            make_inputs(spec.inputs, rings),
            outputs,
            self.times[number].add,
            routes[number].ranks[segment.rank].turns,
            ROUTE_NAMES[number] if routes[1:] else "",
        )
        recorder = self._setup.recorder
        if recorder is not None and recorder.route == number:
            stage.record_by(recorder.of_stage(segment.inputs, segment.outputs))
        return stage

    def _engine(self, segment: PlacedSegment) -> Engine:
        setup, tensors = self._setup, self._setup.job.tensors
        name = segment.engine or setup.spec.engine
        engine = open_engine(name, self._engine_settings(segment))
        setup.resources.callback(engine.close)
        engine.share(self._memories)
        engine.load(
            setup.folder / segment.file,
            segment.facts.in_file(tensors[name] for name in segment.inputs),
            segment.facts.in_file(tensors[name] for name in segment.outputs),
        )
        return engine

    def _engine_settings(self, segment: PlacedSegment) -> EngineSettings:
        options = self._setup.options
        settings = replace(self._setup.engine_settings, facts=segment.facts)
        if segment.engine:
            settings = replace(settings, options={})
        if options.events is None or not options.operators:
            return settings
        profile = options.events / f"profile-{segment.rank}-{segment.index}"
        return replace(settings, profile=str(profile.resolve()))

    def write_operators(self) -> None:
        options = self._setup.options
        if options.events is None or not options.operators:
            return
        segments = tuple(
            replace(spans, index=stage.index)
            for stage, engine in zip(self.stages, self._engines, strict=True)
            if (spans := engine.operators()) is not None
        )
        rank = RankOperators(self._setup.spec.rank, self._setup.job.sha256, segments)
        try:
            write_operators(options.events, rank)
        except OSError as error:
            problem = f"the file of operators cannot be written: {error.strerror}"
            raise JobError(f"{self._setup.spec.name}: {problem}") from None

    def figures(self, shares: Mapping[str, float]) -> dict[str, Any]:
        """Summarise the segments' part of :class:`RankFigures`.

        ``shares`` are those of source and sink in the steady state.
        """
        gpu_bytes = self._gpu_memory.bytes()
        return {
            "accelerated": total(engine.acceleration() for engine in self._engines),
            "warm_up_ms": 1e3 * self._warm_up.seconds,
            "not_warmed_up": tuple(self._warm_up.left_out),
            "gpu_memory_mb": None if gpu_bytes is None else 1e-6 * gpu_bytes,
            **vars_of(self._on_route(USUAL, shares)),
            "surge": self._on_route(SURGE, shares) if self.times[SURGE:] else None,
        }

    def _on_route(self, route: int, shares: Mapping[str, float]) -> RouteFigures:
        times, rank = self.times[route], self._setup.spec.rank
        steady = times.steady()
        return RouteFigures(
            frames=times.count,
            compute_ms=times.histogram.summary_ms(),
            compute_counts=times.histogram.counts_ms(),
            turns=self._setup.job.routes[route].ranks[rank].turns,
            steady=steady and {**steady, **shares},
        )

    @property
    def frames(self) -> int:
        return sum(times.count for times in self.times)


class OpenedSource(NamedTuple):
    source: Source
    arrivals: Arrivals

    @property
    def is_timed(self) -> bool:
        return isinstance(self.arrivals, Timed) or not self.source.can_replay


def open_frames(setup: Setup) -> OpenedSource | None:
    """Bind to the cores and open the source; ``None``: frames enter on another rank."""
    if setup.cores:
        bind_to_cores(setup.cores)
    if setup.spec.rank != setup.job.source:
        return None
    source = open_source(setup.options, setup.job.inputs)
    setup.resources.callback(source.close)
    opened = OpenedSource(source, _arrivals(setup, source))
    source.start(opened.arrivals)
    return opened


def lent_rings(
    setup: Setup, opened: OpenedSource | None, wiring: Wiring
) -> dict[int, Sequence[NDArray[Any]]]:
    """Find the rings of model inputs whose slots are the source's frames: all of them, or none.

    Only segments of this rank may read them, in its own process, and the frames must be few, as an
    engine is bound to each of them.
    """
    drops = setup.options.overflow == "drop"
    if opened is None or wiring.source is None or setup.windows[1:] or drops:
        return {}
    rings, sent = wiring.source.outputs, {send.reader.ring for send in wiring.sends}
    if sent & {*rings} or any(wiring.rings[ring].is_shared for ring in rings):
        return {}
    frames = opened.source.lent(MAX_LENT)
    is_whole = all(is_aligned(array) for arrays in frames for array in arrays)
    return dict(zip(rings, frames, strict=True)) if frames and is_whole else {}


def source_stage(
    setup: Setup, opened: OpenedSource | None, wiring: Wiring, rings: Sequence[Ring]
) -> SourceStage | None:
    if wiring.source is None or opened is None:
        return None
    source, arrivals = opened
    ((credit,),) = wiring.source.inputs
    taken = Input(rings[credit.ring], credit.index)
    entries = [
        Entry([rings[ring] for ring in outputs], window)
        for outputs, window in zip(wiring.entries, setup.windows, strict=True)
    ]
    more: dict[str, Any] = {"shares_clock": not wiring.receives_credits, "events": setup.events}
    if len(entries) == 1:
        return SourceStage(source, arrivals, entries, taken, **more)
    is_timed = not isinstance(arrivals, Pulled)
    switching = make_switching(setup.options, setup.windows, is_timed=is_timed)
    return RoutedSource(source, arrivals, entries, taken, switching, **more)


def make_switching(options: RunOptions, windows: Sequence[int], *, is_timed: bool) -> Switching:
    if options.switch != "auto":
        return Fixed(ROUTE_NAMES.index(options.switch))
    if not is_timed:
        return Fixed(SURGE, "frames come as fast as they are taken")
    return Automatic(options, windows[USUAL])


def _arrivals(setup: Setup, source: Source) -> Arrivals:
    options = setup.options
    patience_s = max(PATIENCE_S, (options.frame_timeout_s or 0.0) + _JUDGED_AFTER_S)
    if source.is_live:
        capacity = queue_of(options, setup.windows, _LIVE_FPS)
        return Live(source.frames, Queue(capacity, options.overflow, patience_s=patience_s))
    own_fps = None if options.pull else source.fps
    rhythm = (
        options.fps or own_fps if options.arrivals is None else read_arrival_times(options.arrivals)
    )
    if rhythm is None:
        samples = options.samples_per_query
        return Pulled(source.frames) if samples is None else Queries(source.frames, samples)
    in_a_second = rhythm if isinstance(rhythm, float | int) else max_in_a_second(rhythm)
    capacity = queue_of(options, setup.windows, math.ceil(in_a_second))
    queue = Queue(capacity, options.overflow, patience_s=patience_s)
    return Timed(source.frames, rhythm, queue)


def queue_of(options: RunOptions, windows: Sequence[int], in_a_second: int) -> int:
    if options.queue is not None:
        return options.queue
    # So many may have to wait until a change of the route has helped.
    to_switch = 2 * surge_queue(options, windows[USUAL]) if windows[SURGE:] else 0
    return max(*windows, in_a_second, to_switch)


def sink_stage(setup: Setup, wiring: Wiring, rings: Sequence[Ring]) -> SinkStage | None:
    if wiring.sink is None:
        return None
    sinks = open_sinks(setup.job, setup.options, setup.resources)
    exits = [make_inputs(parts, rings) for parts in wiring.exits]
    credit = rings[wiring.sink.outputs[0]]
    if len(exits) == 1:
        return SinkStage(sinks, exits[0], credit, max(setup.windows))
    return RoutedSink(sinks, exits, credit, max(setup.windows))
