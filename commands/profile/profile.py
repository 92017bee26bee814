"""``rankslice profile``: how long layers and slices take on the accelerators of a platform."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import TracebackType

from rankslice.backend.boards.deploy import Package
from rankslice.backend.boards.profiler import (
    Accelerator,
    Greeting,
    Reading,
    SubModel,
    Timings,
    deploy_profiler,
    profiler_package,
)
from rankslice.backend.boards.ssh import BoardShell, write_ssh_config
from rankslice.backend.temporary import temporary_folder
from rankslice.backend.wheels import wheels_for
from rankslice.commands.build_folder import (
    SSH_CONFIG,
    check_ssh_config,
    converted_name,
)
from rankslice.commands.profile.time_limit import (
    MOMENTS,
    Expectation,
    LeftOut,
    Pace,
    TimeLimit,
    ends_of,
    left_out_of,
)
from rankslice.commands.profile_file import read_profile
from rankslice.exploration.problem.devices import default_keys, kinds_and_devices
from rankslice.exploration.problem.problem import Problem, make_problem, usual_overheads
from rankslice.exploration.search.fastest_slices import fastest_slices
from rankslice.exploration.times.spans import (
    MeasuredTimes,
    Refinement,
    Round,
    Slice,
    Span,
    first_spans,
    is_long,
    kind_times,
    refine,
)
from rankslice.framework.engines import default_engine, engines_for
from rankslice.framework.errors import CollectedMistakes, Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.files.names import safe_file_name
from rankslice.framework.files.output_file import PROFILE, check_output, write_output
from rankslice.framework.graph import ByteRange
from rankslice.framework.mapping import Mapping as LayerMapping
from rankslice.framework.mapping import MappingEntry, Placement
from rankslice.framework.platform import Board, Platform
from rankslice.framework.profile import (
    Profile,
    ProfiledKind,
    ProfiledModel,
    profile_to_json,
)
from rankslice.framework.profile import Span as ProfiledSpan
from rankslice.framework.reach import Reach
from rankslice.framework.specs.placement import place_ranks
from rankslice.framework.specs.read_platform import read_platform
from rankslice.framework.wording import joined, listed, quoted
from rankslice.frontend.formats import Model, format_of, read_model, submodel_files
from rankslice.frontend.partition.spans import SpanSegments

__all__ = ["Listener", "Measuring", "measure_model"]

_IDLE_S = 1.0
_ENERGY_S = 0.25
"""For how long a long span runs while its energy is read; short ones are over too soon."""

_RUNS_AGAIN = Timings(least=3)
_FIRST_SHARE = 0.8
"""Of a time limit: what is left after it is for the slices of plans."""
_NO_LIMIT = TimeLimit()


class Listener:
    """What is told while something is measured; nothing is done with it here."""

    def step(self, text: str) -> None:
        """Take note of what is being done."""

    def note(self, text: str) -> None:
        """Take note of something that the user should know."""

    def expect(self, what: Expectation) -> None:
        """Take note of how long it will take."""

    def begin(self, key: str, spans: int) -> None:
        """Take note that spans will be measured on an accelerator."""

    def measured(self, key: str) -> None:
        """Take note that one of them has been."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A kind of accelerator that is to be measured."""

    rank: Placement
    keys: tuple[str, ...]
    """Of all accelerators of the kind."""
    neighbours: tuple[Placement, ...]
    """What computes meanwhile on the same board."""


class Measuring:
    """A model, ready to be measured on each kind of accelerator of a platform: a context manager.

    What is measured is added to :attr:`profile`. A file that was there is gone on with, and is
    written anew at the end, however that comes.
    """

    def __init__(
        self,
        model: Path,
        platform: str | Path,
        out: Path | None,
        *,
        keys: Sequence[str] = (),
        per_core: bool = False,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        alone: bool = False,
        fresh: bool = False,
        again: bool = False,
        venv: bool = False,
        wheels: str = "",
        ssh_config: Path | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Read the model and the platform.

        Args:
            model: an ``.onnx`` or ``.tflite`` file.
            platform: a YAML or AutoDiCE ``.txt`` file, or ``local`` for this machine.
            out: the profile; ``None``: none is read or written.
            keys: mapping keys of the accelerators; by default those of
                :func:`rankslice.exploration.problem.devices.default_keys`.
            per_core: by default, each core of a CPU instead of all of them together.
            shapes: sizes of model inputs that the model leaves open.
            alone: leave the board's other accelerators idle meanwhile.
            fresh: measure everything anew.
            again: measure everything once more, and keep what is known.
            venv: make the boards' Python environments.
            wheels: a folder of wheels, or ``download``: what the environments are made of.
            ssh_config: handed to ssh as ``-F``.
            listener: is told what happens.

        Raises:
            RankSliceError: with all mistakes that were found.
        """
        self._listener = listener or Listener()
        if out is not None:
            check_output(out, "--out", PROFILE, may_be_stream=False)
        self._listener.step("reading")
        files = _read_files(model, shapes, platform, None if fresh else out, ssh_config)
        self._model, self._platform, old = files
        self._format = format_of(self._model.graph).submodels
        chosen = tuple(keys) or default_keys(self._platform, per_core=per_core)
        self._chosen = chosen
        self._wanted = tuple(_wanted(chosen, self._platform, self._format, alone=alone))
        self._segments = SpanSegments(self._model.graph)
        self._out = out
        self._venv, self._wheels, self._ssh_config = venv, wheels, ssh_config
        self._runs = Timings()
        described = _describe(self._model, self._segments)
        self._old = self._usable(old, described)
        self.profile = Profile(described, ())
        """What was measured."""
        self.expected: Expectation | None = None
        """How long it was thought to take, once that is known."""
        self._accelerators: dict[str, Accelerator] = {}
        self._is_again = again
        self._earlier: list[Mapping[Span, int]] = []
        """At how many moments spans were measured that shall be measured again, by kind."""
        self._computing = ""
        self._resources = ExitStack()

    def _usable(self, old: Profile | None, model: ProfiledModel) -> tuple[ProfiledKind, ...]:
        """Return the kinds of an old profile, if it is of this model as it is now.

        Raises:
            RankSliceError: it is of another model, whose times would be lost.
        """
        if old is None or old.model == model:
            return old.kinds if old is not None else ()
        if old.model.name != model.name:
            found = f"is a profile of {quoted(old.model.name)}, not of {quoted(model.name)}"
            expected = "choose another --out, or replace it with --fresh"
            raise RankSliceError(Mistake(str(self._out), found, expected))
        self._listener.note(
            f"{self._out}: the model has changed since it was measured; measuring anew"
        )
        return ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Mapping key of each kind of accelerator that is measured."""
        return tuple(wanted.rank.key for wanted in self._wanted)

    @property
    def layers(self) -> int:
        """Number of layers that spans count."""
        return len(self._segments.layers)

    def __enter__(self) -> Measuring:
        """Bring the boards what they need, and see what of an old profile still holds.

        Raises:
            RankSliceError: a board cannot be reached, or lacks something. All at once.
        """
        try:
            self._enter()
        except BaseException:
            self._resources.close()
            raise
        return self

    def _enter(self) -> None:
        folder = self._resources.enter_context(temporary_folder()).path
        boards = {board.name: board for board in self._platform.boards}
        add_wheels = wheels_for(self._platform.boards, self._wheels)
        whole = self._sub_model(0, self.layers - 1)
        pieces = (piece for content in whole.files.values() for piece in content)
        sources = [*dict.fromkeys(p.path for p in pieces if isinstance(p, ByteRange))]
        ranks = [rank for wanted in self._wanted for rank in (wanted.rank, *wanted.neighbours)]
        work: dict[str, tuple[BoardShell, Package]] = {}
        for name in dict.fromkeys(rank.board for rank in ranks):
            own = [rank for rank in ranks if rank.board == name]
            shell = _shell(boards[name], folder, self._ssh_config)
            where = folder / f"at-{len(work)}"
            wheels = None if shell.is_here else add_wheels
            work[name] = shell, profiler_package(where, name, own, sources, wheels)
        if not all(shell.is_here for shell, _ in work.values()):
            self._listener.step("deploying")
        deploy_profiler(work.values(), environment=self._venv)
        for rank in ranks:
            if rank.key not in self._accelerators:
                opened = Accelerator(*work[rank.board], rank, sources)
                self._accelerators[rank.key] = self._resources.enter_context(opened)
        self._greet()

    def _greet(self) -> None:
        """Start the programs on the boards, and begin the profile with what is known already."""
        mistakes = CollectedMistakes()
        greetings = []
        for wanted in self._wanted:
            self._listener.step(f"starting {wanted.rank.key}")
            greet = partial(self._accelerators[wanted.rank.key].greet, idle_s=_IDLE_S)
            if greeting := mistakes.catch(greet):
                greetings.append(greeting)
        mistakes.raise_all()
        groups = _of_one_kind(self._wanted, greetings)
        self._wanted = tuple(wanted for wanted, _ in groups)
        kinds = [self._known(wanted, greeting) for wanted, greeting in groups]
        self._earlier = [_moments_of(kind) if self._is_again else {} for kind in kinds]
        claimed = {key for kind in kinds for key in kind.keys}
        others = [kind for kind in self._old if claimed.isdisjoint(kind.keys)]
        self.profile = replace(self.profile, kinds=(*kinds, *others))

    def _known(self, wanted: _Wanted, greeting: Greeting) -> ProfiledKind:
        """Return the kind with the spans of the old profile, if they still hold."""
        kind = _kind(wanted, greeting)
        old = next((each for each in self._old if wanted.rank.key in each.keys), None)
        if old is None:
            return kind
        changes = [*_changes(old, kind)]
        if changes:
            told = f"{wanted.rank.key}: {joined(changes)}; measuring anew"
            self._listener.note(f"{self._out}: {told}")
            return kind
        claimed = {key for other in self._wanted if other is not wanted for key in other.keys}
        keys = dict.fromkeys((*kind.keys, *(key for key in old.keys if key not in claimed)))
        return replace(old, keys=tuple(keys))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the programs on the boards, and write the profile."""
        try:
            self.save()
        finally:
            self._resources.close()

    def save(self) -> None:
        """Write the profile, if there is a file for it and something was measured.

        Raises:
            RankSliceError: it cannot be written.
        """
        if self._out is None or not any(kind.spans for kind in self.profile.kinds):
            return
        write_output(self._out, profile_to_json(self.profile), "--out")

    def problem(self, times: MeasuredTimes) -> Problem:
        """Return the problem of putting the model on the accelerators, if they take these times."""
        return make_problem(
            self._model.graph,
            self._platform,
            times.times_s,
            keys=self._chosen,
            spans=times,
            default_engine=default_engine(self._format),
            alike=[wanted.keys for wanted in self._wanted],
            overheads=usual_overheads(wanted.rank.engine for wanted in self._wanted),
            times_source=str(self._out),
        )

    def times(self) -> MeasuredTimes:
        """Return the times of all spans, measured or estimated, by kind."""
        kinds = self.profile.kinds[: len(self._wanted)]
        return MeasuredTimes([kind_times(kind, self.layers) for kind in kinds])

    def measure_first(self, limit: TimeLimit = _NO_LIMIT) -> None:
        """Measure, on each kind, what :func:`rankslice.exploration.times.spans.first_spans` names.

        Long spans are measured at several moments. How long all of it will take is told once
        the shortest and the longest span of each kind were measured.

        Args:
            limit: when to end; what is most telling is measured first. Of each kind at least
                the shortest and the longest span are measured.

        Raises:
            RankSliceError: a board cannot be reached any more, or runs nothing of the model.
        """
        kinds = range(len(self._wanted))
        self._tell_expectation([self._pace(number) for number in kinds])
        for number in kinds:
            own = limit.share(1 / (len(kinds) - number))
            for moment in range(MOMENTS):
                self._measure_missing(number, moment, own)
            self._refuse_idle(number)

    def _can_run(self, span: Span) -> bool:
        return not self._segments.fault(*span)

    def _missing(self, number: int, moment: int) -> list[Span]:
        """Return the spans that were not measured at so many moments yet."""
        known = _moments_of(self.profile.kinds[number])
        earlier = self._earlier[number]

        def is_missing(span: Span) -> bool:
            if span not in known:
                return True
            return 0 < known[span] <= earlier.get(span, 0) + moment

        spans = (s for s in self._first if not moment or is_long(s, self.layers))
        return [span for span in spans if is_missing(span)]

    @cached_property
    def _first(self) -> tuple[Span, ...]:
        """Spans that are measured first and can run alone, the most telling first."""
        return tuple(filter(self._can_run, first_spans(self.layers)))

    def _pace(self, number: int) -> Pace:
        """Measure the shortest and the longest span that is missing; return what that takes."""
        wanted, taken = self._wanted[number], []
        for span in ends_of(self._missing(number, 0)):
            self._let_neighbours_compute(wanted)
            self._listener.begin(wanted.rank.key, 1)
            begin = time.monotonic()
            self._measure(number, [span])
            taken.append((span, time.monotonic() - begin))
        return Pace.through(taken)

    def _tell_expectation(self, paces: Sequence[Pace]) -> None:
        """Tell how long what is missing will take, if it is anything."""
        missing = [
            [span for moment in range(MOMENTS) for span in self._missing(number, moment)]
            for number in range(len(paces))
        ]
        if not any(missing):
            return
        self.expected = Expectation(
            sum(map(len, missing)),
            sum(pace.seconds(spans) for pace, spans in zip(paces, missing, strict=True)),
            sum(pace.seconds([(0, self.layers - 1)]) for pace in paces),
        )
        self._listener.expect(self.expected)

    def _measure_missing(self, number: int, moment: int, limit: TimeLimit) -> None:
        spans = self._missing(number, moment)
        if spans and not limit.is_over:
            self._listener.begin(self._wanted[number].rank.key, len(spans))
            self._measure(number, spans, self._runs if not moment else _RUNS_AGAIN, limit)
            self.save()

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return what there was no time for, by kind; nothing: all was measured."""
        kinds = self.profile.kinds[: len(self._wanted)]
        found = (left_out_of(kind, self.profile.model, self._can_run) for kind in kinds)
        return tuple(each for each in found if each is not None)

    def _refuse_idle(self, number: int) -> None:
        """Raise if a kind runs nothing of the model."""
        kind = self.profile.kinds[number]
        if any(span.samples_ns for span in kind.spans):
            return
        problem = next(
            (span.problem for span in kind.spans if span.problem), "nothing was measured"
        )
        raise RankSliceError(Mistake(kind.key, f"runs no layer of the model: {problem}"))

    def measure_slices(self, slices: Sequence[Slice]) -> tuple[float, ...]:
        """Measure slices once more, whether or not they are known; return their times now.

        Returns:
            Seconds; inf for a slice that cannot run.
        """
        found: dict[Slice, float] = {}
        for number in dict.fromkeys(each.kind for each in slices):
            own = [each for each in dict.fromkeys(slices) if each.kind == number]
            possible = [each for each in own if not self._segments.fault(*each.span)]
            self._listener.begin(self._wanted[number].rank.key, len(possible))
            readings = self._measure(number, [each.span for each in possible])
            found |= dict.fromkeys(own, float("inf"))
            found |= {
                each: _median_s(reading)
                for each, reading in zip(possible, readings, strict=True)
                if reading.samples_ns
            }
        return tuple(found[each] for each in slices)

    def refine(
        self,
        plan: Callable[[MeasuredTimes], Sequence[Slice]],
        *,
        within: float = 0.05,
        most_rounds: int = 12,
        on_round: Callable[[Round], None] = lambda done: None,
        limit: TimeLimit = _NO_LIMIT,
    ) -> Refinement:
        """Have a planner's slices measured until what it expects of them is true.

        See :func:`rankslice.exploration.times.spans.refine`; kinds are counted as in :attr:`keys`.
        """
        return refine(
            self.times(),
            plan,
            self.measure_slices,
            within=within,
            most_rounds=most_rounds,
            on_round=on_round,
            may_go_on=lambda: not limit.is_over,
        )

    def _measure(
        self,
        number: int,
        spans: Sequence[Span],
        runs: Timings | None = None,
        limit: TimeLimit = _NO_LIMIT,
    ) -> list[Reading]:
        """Measure spans on a kind until time is up, and add them to the profile."""
        wanted = self._wanted[number]
        has_sensor = self.profile.kinds[number].board.sensor is not None
        self._let_neighbours_compute(wanted)
        accelerator = self._accelerators[wanted.rank.key]
        readings: list[Reading] = []
        try:
            for span in spans:
                if limit.is_over:
                    break
                readings.append(accelerator.measure(self._sub_model(*span), runs or self._runs))
                self._listener.measured(wanted.rank.key)
            if has_sensor:
                readings = self._with_energy(number, spans, readings)
        finally:
            self._add(number, zip(spans, readings, strict=False))
        return readings

    def _with_energy(
        self, number: int, spans: Sequence[Span], readings: Sequence[Reading]
    ) -> list[Reading]:
        """Return readings with the energy of long spans, measured while nothing else computes."""
        known = {(s.first, s.last) for s in self.profile.kinds[number].spans if s.energy_uj}
        accelerator = self._accelerators[self._wanted[number].rank.key]
        runs = Timings(least=1, least_s=0, energy_s=_ENERGY_S)
        found = []
        for span, reading in zip(spans, readings, strict=False):
            if is_long(span, self.layers) and reading.samples_ns and span not in known:
                self._let_rest()
                energy = accelerator.measure(self._sub_model(*span), runs).energy_uj
                reading = replace(reading, energy_uj=energy)
            found.append(reading)
        return found

    def _let_neighbours_compute(self, wanted: _Wanted) -> None:
        """Have the neighbours of an accelerator run the whole model, again and again."""
        if self._computing == wanted.rank.key:
            return
        self._let_rest()
        whole = self._sub_model(0, self.layers - 1)
        for rank in wanted.neighbours:
            if problem := self._accelerators[rank.key].compute(whole):
                self._listener.note(f"{rank.key} stays idle meanwhile: {problem}")
        self._computing = wanted.rank.key

    def _let_rest(self) -> None:
        """End what neighbours compute."""
        for wanted in self._wanted:
            if wanted.rank.key == self._computing:
                for rank in wanted.neighbours:
                    self._accelerators[rank.key].rest()
        self._computing = ""

    def _sub_model(self, first: int, last: int) -> SubModel:
        segment = self._segments.segment(first, last)
        name = f"layers-{first}-{last}.{format_of(self._model.graph).submodels}"
        written = submodel_files(
            self._model, segment.layers, segment.inputs, segment.outputs, name=name
        )
        beside = {f"{name}.data": written.data} if written.data is not None else {}
        return SubModel({name: written.model, **beside}, segment.inputs, segment.outputs)

    def _add(self, number: int, readings: Iterable[tuple[Span, Reading]]) -> None:
        """Add readings to a kind's spans, with the samples that there were before."""
        kind = self.profile.kinds[number]
        spans = {(span.first, span.last): span for span in kind.spans}
        for span, reading in readings:
            spans[span] = _joined(spans.get(span), span, reading)
        changed = replace(kind, spans=tuple(spans[span] for span in sorted(spans)))
        kinds = (*self.profile.kinds[:number], changed, *self.profile.kinds[number + 1 :])
        self.profile = replace(self.profile, kinds=kinds)


def _moments_of(kind: ProfiledKind) -> dict[Span, int]:
    """Return at how many moments spans were measured; none: it was tried in vain."""
    return {(span.first, span.last): len(span.moments) for span in kind.spans}


def _median_s(reading: Reading) -> float:
    """Return the median of a reading's samples in seconds."""
    seconds = _joined(None, (0, 0), reading).seconds
    assert seconds is not None
    return seconds


def _joined(old: ProfiledSpan | None, span: Span, reading: Reading) -> ProfiledSpan:
    """Return a span with what is known of it and what was measured now."""
    before = old.samples_ns if old is not None else ()
    energy = reading.energy_uj
    memory, gpu = reading.memory_bytes, reading.gpu_bytes
    return ProfiledSpan(
        first=span[0],
        last=span[1],
        samples_ns=(*before, *reading.samples_ns),
        moments=(
            *(old.moments if old else ()),
            *([len(reading.samples_ns)] * bool(reading.samples_ns)),
        ),
        memory_bytes=memory if memory is not None else old.memory_bytes if old else None,
        energy_uj=energy if energy is not None else old.energy_uj if old else None,
        problem=None if before else reading.problem,
        refused=reading.refused and not before,
        gpu_bytes=gpu if gpu is not None else old.gpu_bytes if old else None,
    )


def _read(model: Path, shapes: Mapping[str, tuple[int, ...]] | None) -> Model:
    found = read_model(model, shapes)
    kind = format_of(found.graph)
    if kind.is_converted:
        name = converted_name(kind.submodels)
        expected = f"build it, and profile the {name} of the build folder"
        raise RankSliceError(Mistake(str(model), "is converted slice by slice", expected))
    return found


def _read_files(
    model: Path,
    shapes: Mapping[str, tuple[int, ...]] | None,
    platform: str | Path,
    profile: Path | None,
    ssh_config: Path | None,
) -> tuple[Model, Platform, Profile | None]:
    """Return what files hold; the profile need not exist.

    Raises:
        RankSliceError: with the mistakes in all of them.
    """
    mistakes = CollectedMistakes()
    found = mistakes.catch(lambda: _read(model, shapes))
    boards = mistakes.catch(lambda: read_platform(platform))
    old = None
    if profile is not None and profile.exists():
        old = mistakes.catch(lambda: read_profile(profile))
    mistakes.catch(lambda: check_ssh_config(ssh_config))
    mistakes.raise_all()
    assert found is not None
    assert boards is not None
    return found, boards, old


def _describe(model: Model, segments: SpanSegments) -> ProfiledModel:
    return ProfiledModel(
        name=model.graph.name,
        sha256=file_sha256(model.path),
        inputs=model.graph.inputs,
        layers=tuple(layer.name for layer in segments.layers),
    )


def _wanted(
    keys: Sequence[str], platform: Platform, submodels: str, *, alone: bool
) -> Iterator[_Wanted]:
    """Yield the kinds of accelerators that mapping keys name, each where it is measured."""
    if repeated := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise RankSliceError(Mistake("--accelerators", f"names {listed(repeated)} twice"))
    engine = default_engine(submodels)
    mapping = LayerMapping("--accelerators", tuple(MappingEntry(key, ()) for key in keys))
    ranks = place_ranks(mapping, platform, share_cores=True, default_engine=engine).ranks
    raise_mistakes(
        Mistake(
            f"--accelerators: {rank.key}", f"its engine {quoted(rank.engine)} runs no such model"
        )
        for rank in ranks
        if rank.engine not in engines_for(submodels)
    )
    kinds, devices = kinds_and_devices(keys, platform, default_engine=engine)
    for number, kind in enumerate(kinds):
        rank = next(rank for rank in ranks if rank.key == kind.key)
        yield _Wanted(
            rank,
            tuple(each.key for each in devices if each.kind == number),
            () if alone else tuple(other for other in ranks if _computes_beside(rank, other)),
        )


def _of_one_kind(
    found: Iterable[_Wanted], greetings: Iterable[Greeting]
) -> list[tuple[_Wanted, Greeting]]:
    """Return the kinds, with cores of a board that it describes alike as one kind.

    They run the same engine with the same settings, as many at once, and the board tells the same
    of their model, capacity and clocks.
    """
    kinds: dict[object, tuple[_Wanted, Greeting]] = {}
    for wanted, greeting in zip(found, greetings, strict=True):
        rank = wanted.rank
        likeness: object = rank.key
        if rank.accelerator == "cpu":
            kinds_of_cores = dict(enumerate(greeting.core_kinds))
            cores = sorted(kinds_of_cores.get(core, str(core)) for core in rank.cores)
            settings = (rank.engine, rank.options, rank.environment, rank.allow_fallback)
            likeness = (rank.board, *settings, *cores, len(wanted.neighbours))
        first, told = kinds.get(likeness, (replace(wanted, keys=()), greeting))
        kinds[likeness] = replace(first, keys=(*first.keys, *wanted.keys)), told
    return [*kinds.values()]


def _computes_beside(rank: Placement, other: Placement) -> bool:
    """Tell whether two ranks could compute at once on a board, each on its own accelerator."""
    if rank.key == other.key or rank.board != other.board:
        return False
    if "cpu" == rank.accelerator == other.accelerator:
        return set(rank.cores).isdisjoint(other.cores)
    return rank.accelerator != other.accelerator


def _kind(wanted: _Wanted, greeting: Greeting) -> ProfiledKind:
    rank = wanted.rank
    return ProfiledKind(
        key=rank.key,
        keys=wanted.keys,
        accelerator=rank.accelerator,
        threads=max(1, len(rank.cores)),
        engine=rank.engine,
        engine_version=greeting.engine_version,
        options=rank.options,
        environment=rank.environment,
        allow_fallback=rank.allow_fallback,
        neighbours=tuple(other.key for other in wanted.neighbours),
        rank_bytes=greeting.rank_bytes,
        board=greeting.board(rank.board),
        spans=(),
    )


def _changes(old: ProfiledKind, new: ProfiledKind) -> Iterator[str]:
    """Yield what is no longer as it was when a kind was measured, as clauses."""
    if old.engine_version != new.engine_version:
        yield f"it has {new.engine_version}, and had {old.engine_version}"
    settings = ("threads", "engine", "options", "environment", "allow_fallback")
    changed = [name for name in settings if getattr(old, name) != getattr(new, name)]
    if changed:
        yield f"{joined([each.replace('_', ' ') for each in changed])} changed"
    if old.neighbours != new.neighbours:
        yield "other accelerators compute meanwhile"
    hardware = ("host", "machine", "processor", "memory_bytes")
    if any(getattr(old.board, name) != getattr(new.board, name) for name in hardware):
        yield f"the board is {new.board.host}, and was {old.board.host}"
    elif old.board.cores != new.board.cores:
        yield "the settings of its clocks changed"


def _shell(board: Board, folder: Path, config: Path | None) -> BoardShell:
    reach = Reach(board.name, board.host, board.user)
    file = folder / f"{SSH_CONFIG}-{safe_file_name(board.name)}"
    return BoardShell(reach, write_ssh_config(file, [reach], config))


def measure_model(
    measuring: Measuring,
    *,
    refined: bool = True,
    seconds: float | None = None,
    on_round: Callable[[Round], None] = lambda done: None,
) -> Refinement | None:
    """Measure a model's first spans, and those of the fastest pipeline until its times are true.

    Args:
        measuring: ready.
        refined: plan, too; without, only the first spans are measured, and ``None`` is returned.
        seconds: after which nothing more is begun; ``None``: all is measured.
        on_round: told each plan that was tried.
    """
    limit = TimeLimit(seconds)
    measuring.measure_first(limit.share(_FIRST_SHARE) if refined else limit)
    if not refined:
        return None
    return measuring.refine(
        lambda times: fastest_slices(measuring.problem(times)), on_round=on_round, limit=limit
    )
