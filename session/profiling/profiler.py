"""Measures a model's layers and slices on the accelerators of a platform."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from rankslice.backend.boards.accelerator import Greeting, Reading, Timings
from rankslice.exploration.problem.devices import default_keys, kinds_and_devices
from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.problem.runtime_costs import FrameBytes, default_overheads
from rankslice.exploration.search.planned import fastest_slices
from rankslice.exploration.times.span_times import (
    MeasuredTimes,
    Refinement,
    Slice,
    Span,
    first_spans,
    is_long,
    kind_times,
    refine,
)
from rankslice.framework.engines import default_engine
from rankslice.framework.errors import CollectedMistakes, Mistake, RankSliceError
from rankslice.framework.files.output_file import PROFILE, check_output, write_output
from rankslice.framework.platform import Platform
from rankslice.framework.profile import (
    Profile,
    ProfiledKind,
    ProfiledModel,
    Span as ProfiledSpan,
    profile_to_json,
)
from rankslice.framework.specs.read_platform import PlatformSource, read_platform
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats import Model, format_of, formats_of, model_sha256, read_model
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.partition.partition import SpanSegments
from rankslice.measurement.trace.traced_operators import PlacedRow
from rankslice.session.build_folder import check_ssh_config, converted_name
from rankslice.session.building.planning import read_profile
from rankslice.session.profiling.frames import frames_of
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.profiling.span_bench import Bench, Listener
from rankslice.session.profiling.targets import (
    Target,
    alike_targets,
    changes,
    described,
    find_targets,
)
from rankslice.session.profiling.time_limit import (
    MOMENTS,
    Expectation,
    LeftOut,
    Pace,
    TimeLimit,
    ends_of,
    left_out_of,
)

_RUNS, _RUNS_AGAIN = Timings(), Timings(min_runs=3)
_NO_LIMIT = TimeLimit()
_USUAL = ProfileOptions()


class Profiler:
    """A model, ready to be measured on each kind of accelerator of a platform: a context manager.

    Measurements are added to :attr:`profile`. An existing file is continued, and written again at
    the end, also after an error.
    """

    def __init__(
        self,
        model: Path,
        platform: PlatformSource,
        out: Path | None,
        options: ProfileOptions = _USUAL,
        listener: Listener | None = None,
    ) -> None:
        """Read the model and the platform.

        Args:
            out: the profile; ``None``: none is read or written.

        Raises:
            RankSliceError: with all mistakes that were found.
        """
        self._listener = listener or Listener()
        self._options, self._out = options, out
        if out is not None:
            check_output(out, "--out", PROFILE, may_be_stream=False)
        self._listener.step("reading")
        self._model, self._platform, old = _read_files(model, platform, out, options)
        self._formats = formats_of(self._model.graph)
        self._keys = options.accelerators or default_keys(self._platform, per_core=options.per_core)
        self._targets = tuple(
            find_targets(self._keys, self._platform, self._formats, alone=options.alone)
        )
        self._segments = SpanSegments(self._model.graph)
        profiled = ProfiledModel(
            name=self._model.graph.name,
            sha256=model_sha256(self._model.path),
            inputs=self._model.graph.inputs,
            layers=tuple(layer.name for layer in self._segments.layers),
        )
        if old is not None and old.model == profiled and old.seen and not options.input:
            found = f"{out} was measured on frames"
            expected = "give them again, or measure everything anew with --fresh"
            raise RankSliceError(Mistake("--input", found, expected))
        frames = frames_of(self._model, self._segments, options)
        self._bench = Bench(self._model, self._segments, frames, self._listener)
        self.profile = Profile(profiled, (), frames.tensors if options.input else ())
        self._old = self._usable(old)
        self.expected: Expectation | None = None
        """How long it was thought to take, once that is known."""
        self._earlier: list[Mapping[Span, int]] = []
        """At how many moments spans were measured that shall be measured again, by kind."""

    def _usable(self, old: Profile | None) -> tuple[ProfiledKind, ...]:
        """Return the kinds of an old profile, if it is of this model and these sizes.

        Raises:
            RankSliceError: it is of another model, whose times would be lost.
        """
        model, seen = self.profile.model, self.profile.seen
        if old is None or (old.model == model and old.seen == seen):
            return old.kinds if old is not None else ()
        if old.model.name != model.name:
            found = f"is a profile of {quoted(old.model.name)}, not of {quoted(model.name)}"
            expected = "choose another --out, or replace it with --fresh"
            raise RankSliceError(Mistake(str(self._out), found, expected))
        changed = "the sizes of frames have" if old.model == model else "the model has"
        self._listener.note(
            f"{self._out}: {changed} changed since it was measured; measuring again"
        )
        return ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Mapping key of each kind of accelerator that is measured."""
        return tuple(target.rank.key for target in self._targets)

    @property
    def layers(self) -> int:
        """Number of layers that spans count."""
        return len(self._segments.layers)

    def __enter__(self) -> Profiler:
        """Bring the boards what they need, and see what of an old profile still holds."""
        try:
            greetings = self._bench.open(self._targets, self._platform, self._options)
        except BaseException:
            self._bench.close()
            raise
        groups = alike_targets(self._targets, greetings)
        self._targets = tuple(target for target, _ in groups)
        kinds = [self._known(target, greeting) for target, greeting in groups]
        self._earlier = [moments_of(kind) if self._options.again else {} for kind in kinds]
        claimed = {key for kind in kinds for key in kind.keys}
        others = [kind for kind in self._old if claimed.isdisjoint(kind.keys)]
        self.profile = replace(self.profile, kinds=(*kinds, *others))
        return self

    def _known(self, target: Target, greeting: Greeting) -> ProfiledKind:
        kind = described(target, greeting)
        old = next((kind for kind in self._old if target.rank.key in kind.keys), None)
        if old is None:
            return kind
        if differences := [*changes(old, kind)]:
            note = f"{target.rank.key}: {joined(differences)}; measuring again"
            self._listener.note(f"{self._out}: {note}")
            return kind
        claimed = {key for other in self._targets if other is not target for key in other.keys}
        keys = dict.fromkeys((*kind.keys, *(key for key in old.keys if key not in claimed)))
        return replace(old, keys=tuple(keys))

    def __exit__(self, *ended: object) -> None:
        try:
            self.save()
        finally:
            self._bench.close()

    def save(self) -> None:
        """Write the profile, if there is a file for it and something was measured."""
        if self._out is None or not any(kind.spans for kind in self.profile.kinds):
            return
        write_output(self._out, profile_to_json(self.profile), "--out")

    def problem(self, times: MeasuredTimes) -> Problem:
        """Return the problem of putting the model on the accelerators, if they take these times."""
        return make_problem(
            self._model.graph,
            self._platform,
            times.times_s,
            accelerators=kinds_and_devices(
                self._keys,
                self._platform,
                default_engine=default_engine(self._formats[0]),
                alike=[target.keys for target in self._targets],
            ),
            spans_s=times.spans_s,
            overheads=default_overheads(target.rank.engine for target in self._targets),
            times_source=str(self._out),
            frame_bytes=FrameBytes(self.profile.seen),
        )

    def times(self) -> MeasuredTimes:
        """Return the times of all spans, measured or estimated, by kind."""
        kinds = self.profile.kinds[: len(self._targets)]
        return MeasuredTimes([kind_times(kind, self.layers) for kind in kinds])

    def measure_first(self, limit: TimeLimit = _NO_LIMIT) -> None:
        """Measure, on each kind, what ``first_spans`` names.

        Long spans are measured at several moments. How long all of it will take is told once
        the shortest and the longest span of each kind were measured.

        Args:
            limit: when to end; what is most telling is measured first. Of each kind at least
                the shortest and the longest span are measured.

        Raises:
            RankSliceError: a board cannot be reached any more, or runs nothing of the model.
        """
        kinds = range(len(self._targets))
        self._tell_expectation([self._pace(number) for number in kinds])
        for number in kinds:
            own = limit.share(1 / (len(kinds) - number))
            for moment in range(MOMENTS):
                spans = self._missing(number, moment)
                if spans and not own.is_over:
                    self._listener.begin(self._targets[number].rank.key, len(spans))
                    self._measure(number, spans, _RUNS_AGAIN if moment else _RUNS, own)
                    self.save()
            kind = self.profile.kinds[number]
            if not any(span.samples_ns for span in kind.spans):
                problems = (span.problem for span in kind.spans if span.problem)
                problem = next(problems, "nothing was measured")
                raise RankSliceError(Mistake(kind.key, f"runs no layer of the model: {problem}"))

    def _can_run(self, span: Span) -> bool:
        return not self._segments.fault(*span)

    def _missing(self, number: int, moment: int) -> list[Span]:
        """Return the spans that were not measured at so many moments yet."""
        known, earlier = moments_of(self.profile.kinds[number]), self._earlier[number]
        return [
            span
            for span in self._first
            if not moment or is_long(span, self.layers)
            if span not in known or 0 < known[span] <= earlier.get(span, 0) + moment
        ]

    @cached_property
    def _first(self) -> tuple[Span, ...]:
        """Spans that are measured first and can run alone, the most telling first."""
        return tuple(filter(self._can_run, first_spans(self.layers)))

    def _pace(self, number: int) -> Pace:
        """Measure the shortest and the longest span that is missing; return what that takes."""
        target, taken = self._targets[number], []
        for span in ends_of(self._missing(number, 0)):
            self._bench.let_neighbours_compute(target)
            self._listener.begin(target.rank.key, 1)
            begin = time.monotonic()
            self._measure(number, [span])
            taken.append((span, time.monotonic() - begin))
        return Pace.through(taken)

    def _tell_expectation(self, paces: Sequence[Pace]) -> None:
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

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the spans there was no time for, by kind; nothing: all were measured."""
        kinds = self.profile.kinds[: len(self._targets)]
        by_kind = (left_out_of(kind, self.profile.model, self._can_run) for kind in kinds)
        return tuple(filter(None, by_kind))

    def operators(self) -> tuple[PlacedRow, ...]:
        """Measure the operators of the whole model on each kind of accelerator.

        Raises:
            RankSliceError: none of them runs it and reports its operators.
        """
        rows: list[PlacedRow] = []
        problems: list[Mistake | str] = []
        for target in self._targets:
            rank = target.rank
            self._listener.step(f"operators on {rank.key}")
            try:
                rows += (
                    PlacedRow(rank.board, rank.key, rank.engine, row)
                    for row in self._bench.operators(target)
                )
            except RankSliceError as error:
                problems += error.mistakes
                self._listener.note(f"no operators: {error}")
        if not rows:
            raise RankSliceError(*problems)
        return tuple(rows)

    def measure_slices(self, slices: Sequence[Slice]) -> tuple[float, ...]:
        """Measure slices once more, whether or not they are known; return their times now.

        Returns:
            Seconds; inf for a slice that cannot run.
        """
        seconds: dict[Slice, float] = {}
        for number in dict.fromkeys(part.kind for part in slices):
            own = [part for part in dict.fromkeys(slices) if part.kind == number]
            # What is of several model files is as many segments.
            pieces = {part: self._segments.pieces(*part.span) for part in own}
            spans = dict.fromkeys(span for of in pieces.values() for span in of)
            possible = [span for span in spans if not self._segments.fault(*span)]
            self._listener.begin(self._targets[number].rank.key, len(possible))
            readings = self._measure(number, possible)
            taken = {
                span: statistics.median(reading.samples_ns) / 1e9
                for span, reading in zip(possible, readings, strict=True)
                if reading.samples_ns
            }
            seconds |= {
                part: sum(taken.get(span, float("inf")) for span in of)
                for part, of in pieces.items()
            }
        return tuple(seconds[part] for part in slices)

    def _measure(
        self,
        number: int,
        spans: Sequence[Span],
        runs: Timings = _RUNS,
        limit: TimeLimit = _NO_LIMIT,
    ) -> list[Reading]:
        target, kind = self._targets[number], self.profile.kinds[number]
        readings: dict[Span, Reading] = {}
        try:
            self._bench.measure(
                target, spans, runs, lambda: not limit.is_over, readings.__setitem__
            )
            if kind.board.sensor is not None:
                readings |= self._with_energy(number, readings)
        finally:
            kinds = [*self.profile.kinds]
            kinds[number] = with_readings(kind, readings.items())
            self.profile = replace(self.profile, kinds=tuple(kinds))
        return [*readings.values()]

    def _with_energy(self, number: int, readings: Mapping[Span, Reading]) -> dict[Span, Reading]:
        """Return the readings of long spans with their energy, of those that have none yet."""
        known = {(s.first, s.last) for s in self.profile.kinds[number].spans if s.energy_uj}
        return {
            span: replace(reading, energy_uj=self._bench.energy_uj(self._targets[number], span))
            for span, reading in readings.items()
            if is_long(span, self.layers) and reading.samples_ns and span not in known
        }


def _read(model: Path, sizes: GivenSizes) -> Model:
    loaded = read_model(model, sizes)
    kind = format_of(loaded.graph)
    if kind.is_converted:
        name = converted_name(kind.submodels)
        expected = f"build it, and profile the {name} of the build folder"
        raise RankSliceError(Mistake(str(model), "is converted slice by slice", expected))
    return loaded


def _read_files(
    model: Path, platform: PlatformSource, out: Path | None, options: ProfileOptions
) -> tuple[Model, Platform, Profile | None]:
    """Return model, platform and profile; the profile need not exist."""
    mistakes = CollectedMistakes()
    loaded = mistakes.catch(lambda: _read(model, options.sizes.given))
    boards = mistakes.catch(lambda: read_platform(platform))
    old = None
    if out is not None and out.exists() and not options.fresh:
        old = mistakes.catch(lambda: read_profile(out))
    mistakes.catch(lambda: check_ssh_config(options.ssh_config))
    mistakes.raise_all()
    assert loaded is not None
    assert boards is not None
    return loaded, boards, old


def with_readings(kind: ProfiledKind, readings: Iterable[tuple[Span, Reading]]) -> ProfiledKind:
    spans = {(span.first, span.last): span for span in kind.spans}
    for span, reading in readings:
        spans[span] = _joined(spans.get(span), span, reading)
    return replace(kind, spans=tuple(spans[span] for span in sorted(spans)))


def moments_of(kind: ProfiledKind) -> dict[Span, int]:
    """Return at how many moments spans were measured; none: it could not be measured."""
    return {(span.first, span.last): len(span.moments) for span in kind.spans}


def _joined(old: ProfiledSpan | None, span: Span, reading: Reading) -> ProfiledSpan:
    old = old or ProfiledSpan(*span, (), (), None, None, None, refused=False)
    amounts = ("memory_bytes", "energy_uj", "gpu_bytes")
    news = {name: getattr(reading, name) for name in amounts}
    return replace(
        old,
        samples_ns=(*old.samples_ns, *reading.samples_ns),
        moments=(*old.moments, *([len(reading.samples_ns)] * bool(reading.samples_ns))),
        problem=None if old.samples_ns else reading.problem,
        refused=reading.refused and not old.samples_ns,
        **{name: amount for name, amount in news.items() if amount is not None},
    )


_FIRST_SHARE = 0.8
"""Of a time limit: what is left after it is for the slices of plans."""


def profile_model(
    profiler: Profiler,
    *,
    refined: bool = True,
    seconds: float | None = None,
) -> Refinement | None:
    """Measure a model's first spans, and those of the fastest pipeline until its times are true.

    Args:
        refined: plan, too; without, only the first spans are measured, and ``None`` is returned.
        seconds: after which nothing more is begun; ``None``: all is measured.
    """
    limit = TimeLimit(seconds)
    profiler.measure_first(limit.share(_FIRST_SHARE) if refined else limit)
    if not refined:
        return None
    return refine(
        profiler.times(),
        lambda times: fastest_slices(profiler.problem(times)),
        profiler.measure_slices,
        may_go_on=lambda: not limit.is_over,
    )
