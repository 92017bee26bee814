"""What evaluates mappings besides the cost model: the simulator, and runs, which are kept."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.runtime.job.strict import plain
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.summary.rates import frames_to_fill
from rankslice.backend.temporary import temporary_folder
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.candidates import Candidate, too_few, with_measured
from rankslice.exploration.times.segment_times import KnownTimes
from rankslice.framework.engines import default_engine
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.mapping import Mapping as LayerMapping
from rankslice.framework.platform import WIRE_SHARE, Platform
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.reading.records import read_record
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.frontend.formats import Model, formats_of
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.measurement.summary import RunSummary
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.building.build_options import Quantisation
from rankslice.session.building.planning import plan_mapping
from rankslice.session.deployment import deploy, plan_deployment
from rankslice.session.exploring.simulate import simulate_job
from rankslice.session.run import prepare, run
from rankslice.session.shared_options import Launching

_SIMULATED_FRAMES = 100
_RUN_S = 3.0
_MIN_FRAMES, _MAX_FRAMES = 30, 3000
"""Of a run that may choose itself."""


def mapping_text(candidate: Candidate) -> str:
    return json.dumps(candidate.mapping, indent=1, ensure_ascii=False) + "\n"


@dataclass(frozen=True, slots=True)
class MappingSimulator:
    """Simulates mappings."""

    model: Model
    boards: Platform
    known: KnownTimes
    source: str
    """Name of the profile's file, for people."""
    problem: Problem
    frames: int | None = None

    def __call__(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the figures of a simulation; memory and energy as predicted.

        Raises:
            RankSliceError: there can be no such job, or its frames are too few to tell a rate.
        """
        mapping = LayerMapping("mapping", candidate.entries)
        engine = default_engine(formats_of(self.model.graph)[0])
        placements = place_ranks(mapping, self.boards, default_engine=engine)
        result = simulate_job(
            plan_mapping(self.model, mapping, placements, self.boards).plan,
            self.boards,
            self.known,
            self.source,
            RunOptions(frames=self.frames or _SIMULATED_FRAMES),
            overheads=self.problem.overheads,
        ).simulation
        if not result.throughput_fps:
            raise RankSliceError(too_few(result.completed))
        figures = replace(
            candidate.figures[0],
            basis="simulated",
            throughput_fps=result.throughput_fps,
            latency_s=result.latency_ms["p50"] / 1e3,
        )
        return replace(candidate, figures=(*candidate.figures, figures))


@dataclass(frozen=True, slots=True)
class MappingRunner:
    """Builds and runs mappings, to measure them; those that ran before are not run again."""

    model: Path
    platform: PlatformSource
    problem: Problem
    cache: RunCache
    frames: int | None = None
    """Of each run; ``None``: those of three seconds, as predicted."""
    sizes: GivenSizes = NO_SIZES
    ssh_config: Path | None = None

    def __call__(self, candidate: Candidate) -> Candidate:
        """Return a candidate with the figures of a run.

        Raises:
            RankSliceError: it could not be built, deployed or run.
        """
        known = self.cache.find(candidate, self.frames)
        summary = known or self._run(candidate)
        measured = with_measured(self.problem, candidate, summary)
        if known is None:
            self.cache.add(candidate, summary)
        return measured

    def _run(self, candidate: Candidate) -> RunSummary:
        with temporary_folder() as temporary:
            folder = temporary.path
            (folder / candidate.file).write_text(mapping_text(candidate), encoding="utf-8")
            built = build(
                self.model,
                folder / candidate.file,
                self.platform,
                folder / "out",
                BuildOptions(sizes=self.sizes, quantisation=self._scales(folder)),
            )
            if not all(is_this_machine(rank.host) for rank in built.plan.ranks):
                deploy(plan_deployment(built.folder, ssh_config=self.ssh_config))
            least = 2 * frames_to_fill(built.plan.job.window) + 1
            options = RunOptions(frames=self.frames or max(least, _frames_of(candidate)))
            launching = Launching(ssh_config=self.ssh_config)
            return run(prepare(built.folder, options, launching)).summary

    def _scales(self, folder: Path) -> Quantisation:
        """Return frames for the scales of integers between boards; they change no figure."""
        graph = self.problem.graph
        if self.problem.shares[0] > WIRE_SHARE["int8"] or graph is None:
            return Quantisation()
        random = np.random.default_rng(0)
        frames: dict[str, Any] = {
            tensor.name: random.random((1, *(tensor.shape or ()))).astype(tensor.dtype)
            for tensor in graph.inputs
        }
        np.savez(folder / "frames.npz", **frames)
        return Quantisation(representative=folder / "frames.npz")


def _frames_of(candidate: Candidate) -> int:
    frames = round(_RUN_S * candidate.figures[0].throughput_fps)
    return min(max(_MIN_FRAMES, frames), _MAX_FRAMES)


@dataclass(frozen=True, slots=True)
class _Entry:
    """What tells the entry of a rank from others."""

    key: str
    layers: tuple[str, ...]
    """As in the mapping file; parts of layers as texts."""


@dataclass(frozen=True, slots=True)
class _Line:
    model: str
    platform: str
    mapping: tuple[_Entry, ...]
    run: RunSummary


class RunCache:
    """The results of runs of a model's mappings on a platform."""

    def __init__(self, file: Path, model: str, platform: str) -> None:
        """Read what is there; lines that were not written to their end are left out.

        Args:
            file: a line for each run, in JSON; it need not exist.
            model: what tells this model from others: its hash.
            platform: what tells these boards from others.

        Raises:
            RankSliceError: the file is there and cannot be read.
        """
        self._file, self._model, self._platform = file, model, platform
        text = read_text(file, "a record of runs") if file.exists() else ""
        self._at_line_start = text == "" or text.endswith("\n")
        lines = [line for row in text.splitlines() if (line := _read(row, file.name))]
        self._runs = {
            line.mapping: line.run
            for line in lines
            if (line.model, line.platform) == (model, platform)
        }

    def find(self, candidate: Candidate, frames: int | None) -> RunSummary | None:
        """Return what a run of a mapping showed, if there was one.

        ``frames``: how many it must have had; ``None``: any number.
        """
        run = self._runs.get(_entries(candidate))
        return run if run is not None and frames in (None, run.frames) else None

    def add(self, candidate: Candidate, run: RunSummary) -> None:
        """Keep what a run of a mapping showed.

        Raises:
            OSError: it cannot be written.
        """
        entries = _entries(candidate)
        self._runs[entries] = run
        line = json.dumps(plain(_Line, _Line(self._model, self._platform, entries, run)))
        with self._file.open("a", encoding="ascii") as file:
            file.write(line + "\n" if self._at_line_start else f"\n{line}\n")
        self._at_line_start = True


def _entries(candidate: Candidate) -> tuple[_Entry, ...]:
    return tuple(_Entry(load.entry, tuple(map(str, load.layers))) for load in candidate.ranks)


def _read(text: str, place: str) -> _Line | None:
    try:
        line = read_record(_Line, read_json(text, place, "expected a run"), place)
    except RankSliceError:
        return None
    is_whole = line.run.throughput_fps and 0 < len(line.run.ranks) == len(line.mapping)
    return line if is_whole else None
