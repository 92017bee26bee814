"""Which tensor at a cut is the first to differ from the unsliced model's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job, PlacedSegment
from rankslice.backend.runtime.recording import RecordedFrames, recorded_frames
from rankslice.backend.runtime.sinks.results import Results
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import joined, listed, on_one_line, quoted
from rankslice.frontend.formats.keras.file import MISSING
from rankslice.frontend.formats.keras.writer import kind_of
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.measurement.recorded_tensors import RankTensors, read_tensors
from rankslice.measurement.verify import HALF_TOLERANCE, Difference
from rankslice.session.build_folder import REFERENCE, built_model, converted_name
from rankslice.session.prepare import PreparedRun
from rankslice.session.start import own_folder, run_in
from rankslice.session.verification.unsliced_outputs import unsliced_outputs
from rankslice.session.verification.unsliced_parts import unsliced_parts

Arrivals: TypeAlias = Mapping[int, int] | Sequence[int]
"""Number of frame -> which arrival it was; those that failed are missing."""

_ARE_PARTS = ("is a part of a tensor", "are parts of tensors")
_NOT_LOOKED_FOR = "which tensor differs first is not known: "
_NOT_COMPARED = "the tensors at the cuts were not compared: "


def first_difference(
    prepared: PreparedRun,
    results: Results,
    frame: int,
    arrivals: Arrivals,
    tolerance: float | None,
) -> str:
    """Name the first tensor at a cut that differs in a frame, or say why it is not known.

    The frame is run again and its tensors are recorded, unless the run has recorded them. The
    unsliced model computes it with all tensors at cuts as further outputs; a Keras model is
    converted once more for that. The sentence is empty if the model is not cut.
    """

    def tell(search: _Search) -> tuple[bool, str]:
        return False, search.difference() or search.nothing(results)

    return _searched(prepared, frame, arrivals, tolerance, tell, _NOT_LOOKED_FOR)[1]


def agreement_at_cuts(
    prepared: PreparedRun, frame: int, arrivals: Arrivals, tolerance: float | None
) -> tuple[bool, str]:
    """Check if the tensors at the cuts of a frame prove that slicing changed nothing.

    That is for outputs that prove nothing, as they are constant. Tensors prove something if each
    segment that sends some has one whose values are not all equal.

    The arguments are those of :func:`first_difference`, as is the sentence beside the answer.
    """
    return _searched(prepared, frame, arrivals, tolerance, _Search.agreement, _NOT_COMPARED)


def _searched(
    prepared: PreparedRun,
    frame: int,
    arrivals: Arrivals,
    tolerance: float | None,
    tell: Callable[[_Search], tuple[bool, str]],
    otherwise: str,
) -> tuple[bool, str]:
    """Search in a frame; return the answer of ``tell``, or ``otherwise`` and a reason.

    The text is empty if the model is not cut. The files of the search are gone afterwards.
    """
    job = prepared.plan.job
    if all(len(route.segments) < 2 for route in job.routes):
        return False, ""
    if reason := _why_not(prepared):
        return False, otherwise + reason
    try:
        with own_folder(prepared) as folder:
            recorded = _recorded(prepared, job, folder, frame, arrivals)
            expected = _unsliced(prepared, recorded.job, folder, arrivals[frame])
            return tell(_Search(prepared, recorded, expected, frame, tolerance))
    except (RankSliceError, JobError) as error:
        return False, otherwise + on_one_line(str(error))
    except OSError as error:
        return False, f"{otherwise}a file cannot be written: {error.strerror}"


def _why_not(prepared: PreparedRun) -> str:
    """Return a reason against any search; empty: there is none."""
    plan = prepared.plan
    kind = _conversion_kind(prepared)
    if kind and find_spec("tensorflow") is None:
        return f"converting {plan.model.name} once more needs TensorFlow: {MISSING}"
    if kind == "int8":
        return "int8 models cannot be converted once more without the representative frames"
    if not prepared.launch:
        return "a run with --survive is not repeated"
    try:
        recorded_frames(prepared.plan.job, prepared.options)
    except JobError as error:
        return str(error)
    return ""


def _conversion_kind(prepared: PreparedRun) -> str:
    """Return how slices were converted one by one; empty: they are parts of one file."""
    converted = prepared.folder / converted_name(prepared.plan.model.format)
    is_sliced = (prepared.folder / REFERENCE).resolve() == converted.resolve()
    return kind_of(converted) if converted.is_file() and not is_sliced else ""


@dataclass(frozen=True, slots=True)
class _Recorded:
    job: Job
    frame: int
    """The frame's number in the recorded run."""
    ranks: tuple[RankTensors, ...]

    def maker(self, name: str) -> int:
        for tensors in self.ranks:
            kept = tensors.kept.get(name)
            if kept is not None and kept.made is not None and kept.made.has(self.frame):
                return tensors.rank
        raise KeyError(name)

    def made(self, name: str) -> NDArray[Any]:
        return self.at(self.maker(name), name)

    def at(self, rank: int, name: str) -> NDArray[Any]:
        return self.ranks[rank].values(self.frame, name)

    @property
    def segments(self) -> Iterator[PlacedSegment]:
        ranks = self.job.ranks
        return (
            segment for segment in self.job.segments if ranks[segment.rank].turns.has(self.frame)
        )

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(name for segment in self.segments for name in segment.outputs)


def _recorded(
    prepared: PreparedRun, job: Job, folder: Path, frame: int, arrivals: Arrivals
) -> _Recorded:
    options = prepared.options
    wanted = recorded_frames(job, options)
    route = job.routes[wanted.route]
    if options.record is not None and frame in wanted:
        ranks = read_tensors(options.record, job, wanted, len(arrivals))
        return _Recorded(route, frame, ranks)
    arrival = arrivals[frame]
    again = prepared.again(
        replace(
            options,
            frames=arrival + 1,
            unlimited=False,
            fps=None,
            pull=True,
            arrivals=None,
            overflow="fail",
            queue=None,
            stream=False,
            record=folder,
            record_first=arrival,
            record_frames=1,
        )
    )
    with closing(again.source):
        run_in(again, folder)
    alone = RecordedFrames(arrival, 1, wanted.route)
    return _Recorded(route, arrival, read_tensors(folder, job, alone, arrival + 1))


def _unsliced(
    prepared: PreparedRun, job: Job, folder: Path, arrival: int
) -> dict[str, NDArray[Any]]:
    """Return the frame's inputs, and what the unsliced model makes of them at all cuts.

    Parts of tensors, which cross where layers are split, are left out: it makes none.
    """
    plan, source = prepared.plan, prepared.source
    model = built_model(prepared.folder, plan, "compare tensors", converts=True)
    inputs = [spec.name for spec in job.inputs]
    names = dict.fromkeys(name for segment in job.segments for name in segment.outputs)
    wanted = [name for name in names if name not in inputs]
    kind = _conversion_kind(prepared)
    conversion = Conversion(kind) if kind else FLOAT32
    made = {tensor.name for layer in model.graph.layers for tensor in layer.outputs}
    if plan.splits_layers:
        wanted = [name for name in wanted if name in made]
    for name in wanted:
        if name not in made:
            raise RankSliceError(f"no layer of the unsliced model makes {quoted(name)}")
    parts = [*unsliced_parts(model, wanted, folder, plan.model.format, conversion)]
    specs = tuple(job.tensors[name] for name in wanted)
    lasts = any(layer.lasting or not layer.deterministic for layer in model.graph.layers)
    frames = range(arrival + 1) if lasts else (arrival,)
    whole = replace(job, outputs=specs)
    tensors: dict[str, NDArray[Any]] = {}
    for values in unsliced_outputs(prepared, model.path, frames, whole, parts):
        tensors = dict(zip(wanted, values, strict=True))
    tensors = {name: values.copy() for name, values in tensors.items()}
    slots = [make_slot(spec) for spec in job.inputs]
    source.read(arrival, slots)
    return tensors | dict(zip(inputs, map(values_in, slots), strict=True))


class _Search:
    def __init__(
        self,
        prepared: PreparedRun,
        recorded: _Recorded,
        expected: dict[str, NDArray[Any]],
        frame: int,
        tolerance: float | None,
    ) -> None:
        self._recorded, self._expected, self._frame = recorded, expected, frame
        self._exact, self._tolerance = prepared.options.exact, tolerance
        kind = _conversion_kind(prepared)
        self._converted = bool(kind)
        if kind:
            # The converter merges, and rounds, otherwise if it must give out more tensors.
            self._exact = False
            if kind == "float16" and tolerance is None:
                self._tolerance = HALF_TOLERANCE
        self._worst = 0.0
        """Largest difference of tensors that agree, relative to their range."""

    def difference(self) -> str:
        recorded, job = self._recorded, self._recorded.job
        for spec in job.inputs:
            if difference := self._differs(spec.name):
                what = f"the input {quoted(spec.name)} (frame {self._frame})"
                return f"first difference: {what} {difference} from what the source gives here"
        for segment in recorded.segments:
            arrived = (self._arrival(name, segment.rank) for name in segment.inputs)
            if difference := next(filter(None, arrived), ""):
                return difference
            for name in segment.outputs:
                if difference := self._differs(name):
                    place, inputs = self._place(name), self._inputs(segment)
                    return f"first difference: {place} {difference}; {inputs}"
        arrived = (self._arrival(spec.name, job.sink) for spec in job.outputs)
        return next(filter(None, arrived), "")

    def agreement(self) -> tuple[bool, str]:
        """Check if all tensors agree and prove something; return also a sentence on them."""
        if difference := self.difference():
            return False, difference
        outputs = {spec.name for spec in self._recorded.job.outputs}
        for segment in self._recorded.segments:
            sent = [name for name in segment.outputs if name not in outputs]
            if parts := [name for name in sent if name not in self._expected]:
                return False, f"tensor {quoted(parts[0])} is a part, which nothing is compared with"
            values = (self._expected[name] for name in sent)
            if sent and not any(np.isfinite(v).all() and (v != v.flat[:1]).any() for v in values):
                what = f"tensor {quoted(sent[0])} at a cut is constant, too"
                return False, f"{what} (frame {self._frame})"
        return True, f"the tensors at the cuts agree, and vary (frame {self._frame})"

    def _differs(self, name: str) -> str:
        """Say how a tensor differs as it was made; empty: it agrees, or is only a part of one."""
        if name not in self._expected:
            return ""
        expected, made = self._expected[name], self._recorded.made(name)
        result = Difference()
        result.add(self._frame, expected, made)
        if result.agree(exact=self._exact, tolerance=self._tolerance):
            self._worst = max(self._worst, result.relative)
            return ""
        if result.other_shapes:
            return f"has shape {list(made.shape)}, not {list(expected.shape)}"
        if not np.isfinite(result.absolute):
            return "differs in NaN values"
        by = f"differs by {result.absolute:.3g}"
        return f"{by}, {result.relative:.3g} of its range" if np.isfinite(result.relative) else by

    def _arrival(self, name: str, rank: int) -> str:
        """Say that a tensor came to a rank other than it was made; empty: it did not."""
        recorded = self._recorded
        maker = recorded.maker(name)
        if rank == maker:
            return ""
        made, got = recorded.made(name), recorded.at(rank, name)
        if made.shape == got.shape and made.tobytes() == got.tobytes():
            return ""
        where = f"rank {rank} has another tensor {quoted(name)} than rank {maker} made"
        return f"first difference: {where} (frame {self._frame})"

    def _place(self, name: str) -> str:
        recorded, job = self._recorded, self._recorded.job
        maker = recorded.maker(name)
        ranks = sorted(
            channel.destination
            for channel in job.channels
            if (channel.tensor, channel.source) == (name, maker)
            and recorded.ranks[channel.destination].has(recorded.frame, name)
        )
        goes = f"sends to rank{'s' * (len(ranks) > 1)} {joined([*map(str, ranks)])}"
        what = f"that rank {maker} {goes if ranks else 'makes'}"
        return f"tensor {quoted(name)} {what} (frame {self._frame})"

    def _inputs(self, segment: PlacedSegment) -> str:
        if not segment.inputs:
            return "its segment has no inputs"
        if parts := [name for name in segment.inputs if name not in self._expected]:
            return f"of its inputs, {listed(parts)} {_ARE_PARTS[len(parts) > 1]}, not compared"
        if self._worst:
            return f"what is before it agrees within {self._worst:.2g} of the range"
        return "its inputs agree"

    def nothing(self, results: Results) -> str:
        """Say why no tensor differs, though results do."""
        for number, spec in enumerate(results.outputs):
            place = results.numbers.index(self._frame)
            once, now = results.frames(number)[place], self._recorded.made(spec.name)
            if once.shape != now.shape or once.tobytes() != now.tobytes():
                return (
                    f"frame {self._frame} agrees when it is run again: results vary from run to run"
                )
        differs = "no tensor at a cut differs"
        if self._converted and self._worst:
            differs += f" by more than {self._worst:.2g} of its range"
        found = f"{differs} from an unsliced model that also outputs these tensors"
        if self._converted:
            return f"{found}: the converter or the engine fuses layers across the cuts"
        if self._exact:
            return f"{found}: outputting them changes its results"
        return f"{found}: the engine fuses layers across the cuts"
