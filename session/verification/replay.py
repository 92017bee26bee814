"""``rankslice replay``: one rank of a recorded run, alone, on what it read then."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.backend.runtime.engines import (
    Engine,
    EngineSettings,
    engine_settings,
    engine_version,
    open_engine,
)
from rankslice.backend.runtime.job import Rank
from rankslice.backend.runtime.recording import NAME
from rankslice.backend.runtime.sizes import OpenSlot, make_slot, values_in
from rankslice.framework.engines import ENGINES, computes, engines_for
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.plan import Plan, PlannedSegment
from rankslice.framework.wording import joined, quoted
from rankslice.measurement.recorded_tensors import RankTensors, read_rank_tensors
from rankslice.measurement.verify import Difference
from rankslice.session.build_folder import read_plan
from rankslice.session.prepare import as_user_errors
from rankslice.session.recording_folder import (
    RecordingFolder,
    read_recording,
    submodel_names,
)

_PERCENTILES = {"p50": 50, "p99": 99, "max": 100}


@dataclass(frozen=True, slots=True)
class ReplayedTensor:
    """What a segment made, beside what was recorded of it."""

    segment: int
    name: str
    dtype: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class ReplayedSegment:
    segment: int
    frames: int
    compute_ms: dict[str, float]
    """``mean``, ``p50``, ``p99`` and ``max``, without the first frame if there are others."""
    first_ms: float
    """Of its first frame, which warms the engine up."""


@dataclass(frozen=True, slots=True)
class Replayed:
    rank: int
    key: str
    engine: str
    version: str
    """Its package, and the version."""
    recorded_engine: str
    frames: tuple[int, ...]
    segments: tuple[ReplayedSegment, ...]
    tensors: tuple[ReplayedTensor, ...]
    """All outputs of its segments, in the order in which they are made."""
    notes: tuple[str, ...] = ()
    """Why results may differ, whatever the engine does."""

    @property
    def bit_equal(self) -> bool:
        """Whether all outputs of all frames are the recorded ones."""
        return all(tensor.difference.bit_equal for tensor in self.tensors)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values; a difference beyond all numbers is ``None``."""
        record = {**asdict(self), "bit_equal": self.bit_equal}
        for entry, tensor in zip(record["tensors"], self.tensors, strict=True):
            entry["difference"] = tensor.difference.to_json()
        return record


def replay(
    folder: Path,
    rank: int,
    *,
    engine: str | None = None,
    frames: Sequence[int] | None = None,
    build: Path | None = None,
    on_frame: Callable[[int], None] = lambda count: None,
) -> Replayed:
    """Run one rank's segments on what they read in a recorded run; compare what they make.

    Each segment gets its recorded inputs, so a difference in one does not show in the next.

    Args:
        engine: instead of the rank's own, on CPU cores.
        build: a build folder whose sub-models run instead of the recorded ones.

    Raises:
        RankSliceError: the folder is no recording, or has changed; there is no such rank or frame;
            the engine does not run these sub-models, or fails.
    """
    with as_user_errors(), ExitStack() as stack:
        recorded = read_recording(folder)
        ranks = recorded.job.routes[recorded.info.route].ranks
        if rank not in range(len(ranks)):
            expected = f"expected 0 to {len(ranks) - 1}" if ranks[1:] else "expected 0"
            raise RankSliceError(Mistake("--rank", f"there is no rank {rank}", expected))
        spec, route = ranks[rank], recorded.plan.routes[recorded.info.route]
        segments = [segment for segment in route.segments if segment.rank == rank]
        if not segments:
            found = "has no layers on the recorded route, so there is nothing to replay"
            raise RankSliceError(Mistake(f"rank {rank}", found))
        engines = dict.fromkeys(segment.engine or spec.engine for segment in segments)
        settings = _settings(recorded, spec, engine, segments)
        place = _submodels(recorded, segments, build)
        recorded.check(f"{NAME}{rank}")
        tensors = read_rank_tensors(
            folder, recorded.job, rank, recorded.info.wanted, recorded.info.completed
        )
        numbers = _frames_of(tensors, segments[0], frames)
        runs = []
        for segment in segments:
            own_options = {} if segment.engine else settings.options
            own = replace(settings, facts=segment.facts, options=own_options)
            opened = open_engine(engine or segment.engine or spec.engine, own)
            stack.callback(opened.close)
            runs.append(_SegmentRun(recorded, segment, opened, place[segment.index]))
        for count, frame in enumerate(numbers, 1):
            for run in runs:
                run.pass_frame(frame, tensors)
            on_frame(count)
        return Replayed(
            rank=rank,
            key=spec.key,
            engine=engine or joined([*engines]),
            version=joined([engine_version(name) for name in ([engine] if engine else engines)]),
            recorded_engine=joined([*engines]),
            frames=tuple(numbers),
            segments=tuple(run.times() for run in runs),
            tensors=tuple(tensor for run in runs for tensor in run.tensors()),
            notes=tuple(_notes(runs, spec if engine is None else None)),
        )


def _settings(
    recorded: RecordingFolder,
    spec: Rank,
    engine: str | None,
    segments: Sequence[PlannedSegment],
) -> EngineSettings:
    """Return the rank's own settings; for another engine, those for as many CPU cores."""
    exact = recorded.info.exact
    if engine is None:
        if not computes(spec.engine):
            found = f"its engine {quoted(spec.engine)} computed nothing"
            raise RankSliceError(Mistake(f"rank {spec.rank}", found, "choose one with --engine"))
        return engine_settings(spec, exact=exact)
    suffixes = dict.fromkeys(segment.file.rpartition(".")[2] for segment in segments)
    fitting = [
        name
        for name in ENGINES
        if computes(name) and all(name in engines_for(suffix) for suffix in suffixes)
    ]
    if engine not in fitting:
        which = joined([f".{suffix}" for suffix in suffixes])
        known = f"does not run {which} sub-models" if engine in ENGINES else "is unknown"
        expected = nearest(engine, fitting) or f"expected {joined(fitting, 'or')}"
        raise RankSliceError(Mistake("--engine", f"{quoted(engine)} {known}", expected))
    return EngineSettings(threads=max(1, len(spec.cores)), exact=exact)


def _submodels(
    recorded: RecordingFolder, segments: Sequence[PlannedSegment], build: Path | None
) -> dict[int, Path]:
    if build is None:
        for segment in segments:
            for name in submodel_names(recorded.path, segment):
                recorded.check(name)
        return {segment.index: recorded.path / segment.file for segment in segments}
    plan, rank = read_plan(build), segments[0].rank
    route = plan.routes[recorded.info.route :][:1]  # a build folder may have one route alone
    others = [segment for of in route for segment in of.segments if segment.rank == rank]
    if _exchanged(plan, others) != _exchanged(recorded.plan, segments):
        what = f"its rank {rank} reads or makes different tensors than the recorded one"
        raise RankSliceError(Mistake(str(build), what, "expected the same model and cuts"))
    pairs = zip(segments, others, strict=True)
    return {segment.index: build / other.file for segment, other in pairs}


def _exchanged(plan: Plan, segments: Sequence[PlannedSegment]) -> list[Any]:
    tensors = plan.job.tensors
    exchanged = [
        [[tensors[name] for name in names] for names in (segment.inputs, segment.outputs)]
        for segment in segments
    ]
    return [plan.model.format, *exchanged]


def _frames_of(
    tensors: RankTensors, segment: PlannedSegment, wanted: Sequence[int] | None
) -> Sequence[int]:
    name = segment.outputs[0]
    made = tensors.kept[name].made  # the sink's rank also has what others make in their turns
    there = [frame for frame in tensors.frames_of(name) if made is None or made.has(frame)]
    if not there:
        found = f"rank {tensors.rank} handled none of the recorded frames"
        raise RankSliceError(Mistake(str(tensors.path), found))
    if wanted is None:
        return there
    if not wanted:
        raise RankSliceError(Mistake("--frames", "names no frame"))
    if missing := sorted({*wanted} - {*there}):
        found = f"frame {missing[0]} of rank {tensors.rank} was not recorded"
        some = ", ".join(map(str, there[:10])) + (", ..." if there[10:] else "")
        raise RankSliceError(Mistake("--frames", found, f"expected some of {some}"))
    return sorted({*wanted})


class _SegmentRun:
    """A segment in its engine, with memory for one frame, and what came of it."""

    def __init__(
        self,
        recorded: RecordingFolder,
        segment: PlannedSegment,
        engine: Engine,
        file: Path,
    ) -> None:
        tensors = recorded.job.tensors
        self.segment = segment
        self._engine = engine
        inputs, outputs = (
            [tensors[name] for name in names] for names in (segment.inputs, segment.outputs)
        )
        engine.load(file, *map(segment.facts.in_file, (inputs, outputs)))
        self._inputs = [make_slot(spec) for spec in inputs]
        self._outputs = [make_slot(spec) for spec in outputs]
        self._differences = {spec.name: (spec.dtype, Difference()) for spec in outputs}
        self._seconds: list[float] = []

    def pass_frame(self, frame: int, tensors: RankTensors) -> None:
        for name, slot in zip(self.segment.inputs, self._inputs, strict=True):
            values = tensors.values(frame, name)
            np.copyto(slot.shaped(values.shape) if isinstance(slot, OpenSlot) else slot, values)
        inputs = [values_in(slot) for slot in self._inputs]
        begin = time.perf_counter()
        try:
            self._engine.run(inputs, self._outputs)
        except Exception as error:  # engines' exceptions have no common base class
            where = f"rank {tensors.rank}: segment {self.segment.index}, frame {frame}"
            raise RankSliceError(Mistake(where, " ".join(str(error).split()))) from None
        self._seconds.append(time.perf_counter() - begin)
        for name, slot in zip(self.segment.outputs, self._outputs, strict=True):
            _, difference = self._differences[name]
            difference.add(frame, tensors.values(frame, name), values_in(slot))

    def tensors(self) -> Iterator[ReplayedTensor]:
        for name, (dtype, difference) in self._differences.items():
            yield ReplayedTensor(self.segment.index, name, dtype, difference)

    def times(self) -> ReplayedSegment:
        """Return statistics of its times; the first frame counts only if there is no other."""
        times = 1e3 * np.array(self._seconds[1:] or self._seconds)
        percentiles = {name: np.percentile(times, share) for name, share in _PERCENTILES.items()}
        compute_ms = {name: float(ms) for name, ms in {"mean": times.mean(), **percentiles}.items()}
        return ReplayedSegment(
            self.segment.index, len(self._seconds), compute_ms, 1e3 * self._seconds[0]
        )


def _notes(runs: Sequence[_SegmentRun], own: Rank | None) -> Iterator[str]:
    for run in runs:
        is_equal = all(tensor.difference.bit_equal for tensor in run.tensors())
        if (kept := run.segment.facts.keeps) and not is_equal:
            yield f"segment {run.segment.index}: {kept}, so a frame may depend on others"
    if own is not None and own.environment:
        names = joined(sorted(dict(own.environment)))
        yield f"the rank ran with the environment variables {names}, which are not set here"
