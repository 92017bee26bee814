"""Makes the stages of a rank: loads its engines, opens its source and its sinks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..direct.memory import Memory
from ..engines import Engine, EngineSettings, engine_settings, open_engine
from ..engines.acceleration import total
from ..engines.own_process import OwnProcessEngine
from ..figures.rank_figures import ComputeTimes, GpuMemory
from ..job import Job, RankSpec, SegmentSpec
from ..options import RunOptions
from ..sinks import open_sinks
from ..sources import Source, open_source
from ..sources.arrivals import PATIENCE_S, Arrivals, Pulled, Timed
from ..transport.transport import Transport
from .slots import Ring
from .stages import SegmentStage, SinkStage, SourceStage, make_input, make_inputs
from .warm_up import WarmUp
from .wiring import StageSpec, Wiring

_JUDGED_AFTER_S = 10.0
"""A step's deadline is over by then, and its watch has reported so."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a rank is made from."""

    job: Job
    folder: Path
    """Where ``plan.json`` and the sub-models lie."""
    options: RunOptions
    transport: Transport
    resources: ExitStack
    """Closes what was opened."""
    on_step: Callable[[str], None] | None = None
    """Called before each run of a segment with its name: ``segment 0, frame 17``."""

    @property
    def spec(self) -> RankSpec:
        """The rank's part of the plan."""
        return self.job.ranks[self.transport.rank]

    @property
    def engine_settings(self) -> EngineSettings:
        """How the rank's sub-models are to be run."""
        return engine_settings(self.spec, exact=self.options.exact)

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores to which the rank is bound; none: it is not."""
        return self.spec.cores if self.options.bind else ()

    @property
    def window(self) -> int:
        """How many frames may be inside the pipeline."""
        return self.options.window or self.job.window


class LoadedSegments:
    """The sub-models of a rank, loaded and warmed up, and what they measure."""

    def __init__(
        self, setup: Setup, wiring: Wiring, rings: Sequence[Ring], memories: Sequence[Memory]
    ) -> None:
        """Load all segments.

        Args:
            setup: of the rank.
            wiring: of the rank.
            rings: of the rank.
            memories: where rings are that other processes can map.

        Raises:
            JobError: one cannot be loaded.
        """
        self._setup = setup
        self._memories = memories
        self.times = ComputeTimes(len(wiring.segments), setup.window, setup.spec.turns)
        self._gpu_memory = GpuMemory(setup.spec.accelerator)
        self._engines: list[Engine] = []
        self._warm_up = WarmUp()
        self.stages = [self._load(segment, spec, rings) for segment, spec in wiring.segments]

    def _load(self, segment: SegmentSpec, spec: StageSpec, rings: Sequence[Ring]) -> SegmentStage:
        engine = self._engine(segment)
        outputs = [rings[ring] for ring in spec.outputs]
        given = [rings[parts[0].ring] for parts in spec.inputs]
        self._warm_up.run(segment.index, engine, given, outputs)
        inputs, turns = make_inputs(spec.inputs, rings), self._setup.spec.turns
        return SegmentStage(segment.index, engine, inputs, outputs, self.times.add, turns)

    def _engine(self, segment: SegmentSpec) -> Engine:
        setup, tensors = self._setup, self._setup.job.tensors
        engine = open_engine(setup.spec.engine, setup.engine_settings)
        self._engines.append(engine)
        setup.resources.callback(engine.close)
        if isinstance(engine, OwnProcessEngine):
            engine.share(self._memories)
        engine.load(
            setup.folder / segment.file,
            [tensors[name] for name in segment.inputs],
            [tensors[name] for name in segment.outputs],
        )
        return engine

    def figures(self) -> dict[str, Any]:
        """Return the segments' part of the rank's measurements."""
        gpu_bytes = self._gpu_memory.bytes()
        return {
            "frames": self.times.histogram.count,
            "accelerated": total(engine.acceleration() for engine in self._engines),
            "compute_ms": self.times.histogram.with_mean_ms(50, 99),
            "warm_up_ms": 1e3 * self._warm_up.seconds,
            "not_warmed_up": self._warm_up.left_out,
            "steady": self.times.steady(),
            "gpu_memory_mb": None if gpu_bytes is None else 1e-6 * gpu_bytes,
        }


def source_stage(setup: Setup, wiring: Wiring, rings: Sequence[Ring]) -> SourceStage | None:
    """Return the stage that lets frames in; ``None``: frames enter on another rank.

    Raises:
        JobError: the source cannot be opened.
    """
    if wiring.source is None:
        return None
    source = open_source(setup.options, setup.job.inputs)
    setup.resources.callback(source.close)
    ((credit,),) = wiring.source.inputs
    outputs = [rings[ring] for ring in wiring.source.outputs]
    return SourceStage(
        source,
        _arrivals(setup, source),
        setup.window,
        make_input(rings[credit.ring], credit.index),
        outputs,
        shares_clock=not wiring.receives_credits,
    )


def _arrivals(setup: Setup, source: Source) -> Arrivals:
    options = setup.options
    if options.fps is None:
        return Pulled(source.frames)
    queue = options.queue or max(setup.window, math.ceil(options.fps))
    patience_s = max(PATIENCE_S, (options.frame_timeout_s or 0.0) + _JUDGED_AFTER_S)
    return Timed(source.frames, options.fps, queue, options.overflow, patience_s=patience_s)


def sink_stage(setup: Setup, wiring: Wiring, rings: Sequence[Ring]) -> SinkStage | None:
    """Return the stage that takes results out; ``None``: they leave on another rank.

    Raises:
        JobError: a sink cannot be opened.
    """
    if wiring.sink is None:
        return None
    sinks = open_sinks(setup.job, setup.options, setup.resources)
    return SinkStage(sinks, make_inputs(wiring.sink.inputs, rings), rings[wiring.sink.outputs[0]])
