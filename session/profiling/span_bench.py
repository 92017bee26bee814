"""The accelerators of a profile, started on their boards and ready to measure spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from rankslice.backend.boards.accelerator import (
    Accelerator,
    Greeting,
    Reading,
    SubModel,
    Timings,
)
from rankslice.backend.boards.board_packages import Package, deploy_packages, read_package
from rankslice.backend.boards.login import Login
from rankslice.backend.boards.ssh import BoardShell, write_ssh_config
from rankslice.backend.package import write_profiler_package
from rankslice.backend.runtime.figures.operator_rows import OperatorRow
from rankslice.backend.runtime.job import Rank
from rankslice.backend.temporary import temporary_folder
from rankslice.backend.wheels import wheels_for
from rankslice.exploration.times.span_times import Span
from rankslice.framework.engines import engine_for, other_engine
from rankslice.framework.errors import CollectedMistakes
from rankslice.framework.files.file_names import safe_file_name
from rankslice.framework.graph import ByteRange
from rankslice.framework.platform import Platform
from rankslice.frontend.formats import Model, format_of, formats_of, submodel_files
from rankslice.frontend.partition.partition import SpanSegments
from rankslice.session.build_folder import SSH_CONFIG
from rankslice.session.profiling.frames import SeenFrames
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.targets import Target
from rankslice.session.profiling.time_limit import Expectation


class Listener:
    """Receives the progress of measuring; this one ignores it."""

    def step(self, text: str) -> None:
        """Receive the current step."""

    def note(self, text: str) -> None:
        """Receive something that the user should know."""

    def expect(self, what: Expectation) -> None:
        """Receive the expected duration."""

    def begin(self, key: str, spans: int) -> None:
        """Receive how many spans will be measured on an accelerator."""

    def measured(self, key: str) -> None:
        """Receive that one more of them has been measured."""


_IDLE_S = 1.0
_OPERATOR_RUNS = Timings(min_runs=20, min_s=1.0, max_runs=200)
_ENERGY_S = 0.25
"""For how long a long span runs while its energy is read; short ones are over too soon."""


class Bench:
    """Accelerators that measure spans of a model."""

    def __init__(
        self, model: Model, segments: SpanSegments, frames: SeenFrames, listener: Listener
    ) -> None:
        self._model, self._segments, self._listener = model, segments, listener
        self._frames = frames
        self._accelerators: dict[str, Accelerator] = {}
        self._computing: Target | None = None
        """The target whose neighbours compute."""
        self._resources = ExitStack()

    def open(
        self, targets: Sequence[Target], platform: Platform, options: ProfileOptions
    ) -> list[Greeting]:
        """Bring the boards what they need, start the accelerators, and return their greetings.

        Raises:
            RankSliceError: a board cannot be reached, or lacks something. All at once.
        """
        folder = self._resources.enter_context(temporary_folder()).path
        ranks = [rank for target in targets for rank in (target.rank, *target.neighbours)]
        work = self._packages(ranks, folder, platform, options)
        elsewhere = [(shell, package) for shell, package in work.values() if not shell.is_here]
        if elsewhere:
            self._listener.step("deploying")
            deploy_packages(elsewhere, environment=options.venv or bool(options.wheels))
        for rank in ranks:
            if rank.key not in self._accelerators:
                opened = Accelerator(*work[rank.board], rank, self._model_files)
                self._accelerators[rank.key] = self._resources.enter_context(opened)
        mistakes = CollectedMistakes()
        greetings = []
        for target in targets:
            self._listener.step(f"starting {target.rank.key}")
            greet = partial(self._accelerators[target.rank.key].greet, idle_s=_IDLE_S)
            if greeting := mistakes.catch(greet):
                greetings.append(greeting)
        mistakes.raise_all()
        return greetings

    def _packages(
        self, ranks: Sequence[Rank], folder: Path, platform: Platform, options: ProfileOptions
    ) -> dict[str, tuple[BoardShell, Package]]:
        boards = {board.name: board for board in platform.boards}
        add_wheels = wheels_for(platform.boards, options.wheels)
        work: dict[str, tuple[BoardShell, Package]] = {}
        for name in dict.fromkeys(rank.board for rank in ranks):
            own = [rank for rank in ranks if rank.board == name]
            own += [of for rank in own for of in self._with_other_engines(rank)]
            login = Login(name, boards[name].host, boards[name].user)
            file = folder / f"{SSH_CONFIG}-{safe_file_name(name)}"
            shell = BoardShell(login, write_ssh_config(file, [login], options.ssh_config))
            where = folder / f"at-{len(work)}"
            wheels = None if shell.is_here else add_wheels
            write_profiler_package(where, name, own, self._model_files, wheels)
            work[name] = shell, read_package(where, name)
        return work

    def _with_other_engines(self, rank: Rank) -> Iterator[Rank]:
        """Yield a CPU rank with each other engine that it needs for sub-models."""
        for submodels in formats_of(self._model.graph):
            if rank.accelerator == "cpu" and (engine := other_engine(rank.engine, submodels)):
                yield replace(rank, engine=engine, options=())

    @cached_property
    def _model_files(self) -> list[Path]:
        contents = (content for whole in self._wholes for content in whole.files.values())
        pieces = (piece for content in contents for piece in content)
        return [*dict.fromkeys(piece.path for piece in pieces if isinstance(piece, ByteRange))]

    @cached_property
    def _wholes(self) -> list[SubModel]:
        """The whole model, or each of its parts."""
        spans = self._segments.pieces(0, len(self._segments.layers) - 1)
        return [self._sub_model(span) for span in spans]

    def _whole_for(self, rank: Rank) -> SubModel:
        """Return the whole model, or the first part of it that is for the rank's engine."""
        fitting = (m for m in self._wholes if engine_for(rank.engine, m.format) == rank.engine)
        return next(fitting, self._wholes[0])

    def close(self) -> None:
        self._resources.close()

    def measure(
        self,
        target: Target,
        spans: Sequence[Span],
        timings: Timings,
        may_go_on: Callable[[], bool],
        add: Callable[[Span, Reading], None],
    ) -> None:
        """Measure spans while the target's neighbours compute, as long as ``may_go_on`` says so."""
        self.let_neighbours_compute(target)
        accelerator = self._accelerators[target.rank.key]
        for span in spans:
            if not may_go_on():
                break
            add(span, accelerator.measure(self._sub_model(span), timings))
            self._listener.measured(target.rank.key)

    def operators(self, target: Target) -> tuple[OperatorRow, ...]:
        """Return how long the operators of the whole model take, while nothing else computes.

        Raises:
            RankSliceError: the accelerator cannot run it, or does not report its operators.
        """
        self._let_rest()
        accelerator = self._accelerators[target.rank.key]
        rows = (accelerator.operators(whole, _OPERATOR_RUNS) for whole in self._wholes)
        return tuple(row for of in rows for row in of)

    def energy_uj(self, target: Target, span: Span) -> int | None:
        """Return the energy of a run of a span, measured while nothing else computes."""
        self._let_rest()
        runs = Timings(min_runs=1, min_s=0, energy_s=_ENERGY_S)
        return self._accelerators[target.rank.key].measure(self._sub_model(span), runs).energy_uj

    def let_neighbours_compute(self, target: Target) -> None:
        if self._computing is target:
            return
        self._let_rest()
        for rank in target.neighbours:
            if problem := self._accelerators[rank.key].compute(self._whole_for(rank)):
                self._listener.note(f"{rank.key} stays idle: {problem}")
        self._computing = target

    def _let_rest(self) -> None:
        for rank in self._computing.neighbours if self._computing else ():
            self._accelerators[rank.key].rest()
        self._computing = None

    def _sub_model(self, span: Span) -> SubModel:
        segment = self._segments.segment(*span)
        part = segment.layers[0].part
        kind = part.format if part else format_of(self._model.graph).submodels
        name = f"layers-{span[0]}-{span[1]}.{kind}"
        written = submodel_files(self._model, segment, name=name)
        beside = {f"{name}.data": written.data} if written.data is not None else {}
        files = {name: written.model, **beside}
        inputs = self._frames.inputs_of(segment)
        return SubModel(files, segment.inputs, segment.outputs, inputs, written.facts, kind)
