"""What representative frames are for: converting a model to integers, and bounds of its tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Tensor as JobTensor
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source, accepted, open_source
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import AnyTensor, Graph, Tensor, dtype_bits
from rankslice.framework.wording import joined, on_one_line, quoted, size_option
from rankslice.frontend.formats import Model, format_of, submodel_files
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.model_format import KINDS, Conversion
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment
from rankslice.session.building.build_options import Quantisation

_MAX_FRAMES = 1000
_QUANTIZE, REPRESENTATIVE = "--quantize", "--representative"

_Shape: TypeAlias = tuple[int, ...]


def conversion_of(model: Model, wanted: Quantisation, *, has_wires: bool = False) -> Conversion:
    """Check how a model is to be converted, and open its representative frames.

    Args:
        has_wires: whether these frames also serve conversions of what crosses between boards.

    Raises:
        RankSliceError: the options do not fit the model, or each other; or frames cannot be read.
    """
    if not format_of(model.graph).is_converted and has_wires:
        wanted = replace(wanted, representative=None)
    raise_mistakes(_mistakes(model, wanted))
    if wanted.representative is None or not format_of(model.graph).is_converted:
        return Conversion(wanted.kind)
    specs = [
        JobTensor(tensor.name, tensor.dtype, tensor.shape or ()) for tensor in model.graph.inputs
    ]
    source = representative_source(wanted, specs)
    return Conversion(wanted.kind, lambda: _frames(source, specs))


def representative_source(wanted: Quantisation, inputs: Sequence[JobTensor]) -> Source:
    """Open the representative frames, which are read again and again.

    Raises:
        RankSliceError: they cannot be read, or not twice.
    """
    options = RunOptions((str(wanted.representative),), preprocessing=wanted.preprocessing)
    try:
        source = open_source(options, inputs)
    except JobError as error:
        raise RankSliceError(Mistake(REPRESENTATIVE, str(error))) from None
    if not source.can_replay:
        found = f"frames of {wanted.representative} cannot be read twice"
        raise RankSliceError(Mistake(REPRESENTATIVE, found, f"expected {accepted()}"))
    return source


def _mistakes(model: Model, wanted: Quantisation) -> Iterator[Mistake]:
    if wanted.kind not in KINDS:
        found = f"{quoted(wanted.kind)} is not a number format"
        yield Mistake(_QUANTIZE, found, f"expected {joined(KINDS, 'or')}")
    is_int8 = wanted.kind == "int8"
    possible = format_of(model.graph).conversions
    if format_of(model.graph).shows_bounds and wanted.kind == "float32":
        return
    if not possible and (wanted.kind != "float32" or wanted.representative):
        option = REPRESENTATIVE if wanted.representative else _QUANTIZE
        found = f"{model.graph.name} is not converted: its slices are copies of its parts"
        yield Mistake(option, found, "quantise the model before it is sliced")
    elif possible and wanted.kind in KINDS and wanted.kind not in possible:
        found = f"slices of {model.graph.name} cannot be {wanted.kind}"
        yield Mistake(_QUANTIZE, found, f"expected {joined(possible, 'or')}")
    elif is_int8 and wanted.representative is None:
        expected = f"give {REPRESENTATIVE} with representative frames"
        yield Mistake(_QUANTIZE, "int8 needs the range of each activation", expected)
    elif not is_int8 and wanted.representative is not None:
        found = f"has no effect for {wanted.kind}"
        yield Mistake(REPRESENTATIVE, found, f"give {_QUANTIZE} int8, too")


def _frames(source: Source, specs: Sequence[JobTensor]) -> Iterator[list[NDArray[Any]]]:
    for index in frame_numbers(source):
        slots = [np.empty(spec.shape, spec.dtype) for spec in specs]
        try:
            source.read(index, slots)
        except EndOfStreamError:
            return
        yield slots


def frame_numbers(source: Source) -> range:
    return range(_MAX_FRAMES if source.frames is None else min(source.frames, _MAX_FRAMES))


@dataclass(frozen=True, slots=True)
class SeenBounds:
    """Bounds with a margin, and what was seen."""

    bounds: Mapping[str, _Shape] = field(default_factory=dict)
    """By the name of the tensor."""
    largest: Mapping[str, _Shape] = field(default_factory=dict)
    """The largest sizes of any frame, by the name of the tensor."""

    def added_to(self, sizes: GivenSizes) -> GivenSizes:
        return replace(sizes, at_most={**self.bounds, **sizes.at_most})

    def warnings(self, tensors: Iterable[AnyTensor]) -> Iterator[str]:
        for tensor in tensors:
            if tensor.name in self.bounds:
                bound = self.bounds[tensor.name]
                option = size_option("--at-most", tensor.name, bound)
                yield (
                    f"tensor {quoted(tensor.name)}: the representative frames had at most"
                    f" {list(self.largest[tensor.name])}, so its bound is {list(bound)}; a frame"
                    f" beyond it ends the job ({option} sets the bound)"
                )


def seen_bounds(model: Model, frames: Path, preprocessing: Preprocessing) -> SeenBounds:
    """Return bounds of the tensors for which none are known, from a run of the unsliced model.

    Sizes that differ from frame to frame get a margin; so do all sizes of a tensor of which none
    differs.

    Args:
        frames: a source of frames with an end.

    Raises:
        RankSliceError: frames cannot be read or computed, or there are none.
    """
    unknown = tuple(_without_bounds(model.graph))
    options = RunOptions((str(frames),), preprocessing=preprocessing)
    try:
        with closing(
            open_source(options, [tensor.in_job() for tensor in model.graph.inputs])
        ) as source:
            if not unknown:
                return SeenBounds()
            shapes = _shapes(model, unknown, source)
    except JobError as error:
        raise RankSliceError(Mistake(REPRESENTATIVE, on_one_line(str(error)))) from None
    if not shapes:
        raise RankSliceError(Mistake(REPRESENTATIVE, f"{frames} has no frames"))
    of_one_rank = {
        name: seen for name, seen in shapes.items() if len({len(shape) for shape in seen}) == 1
    }
    return SeenBounds(
        {name: _with_margin(seen) for name, seen in of_one_rank.items()},
        {name: tuple(map(max, zip(*seen, strict=True))) for name, seen in of_one_rank.items()},
    )


def _without_bounds(graph: Graph) -> Iterator[Tensor]:
    for layer in graph.layers:
        for tensor in layer.outputs:
            if tensor.shape is None and dtype_bits(tensor.dtype):
                yield tensor


def _with_margin(seen: Sequence[_Shape]) -> _Shape:
    changes = [len(set(sizes)) > 1 for sizes in zip(*seen, strict=True)]
    return tuple(
        max(max(sizes) + 1, max(sizes) * 3 // 2) if is_open or not any(changes) else sizes[0]
        for is_open, sizes in zip(changes, zip(*seen, strict=True), strict=True)
    )


def _shapes(model: Model, tensors: Sequence[Tensor], source: Source) -> dict[str, list[_Shape]]:
    """Return the shapes of tensors in each frame, by name.

    Raises:
        JobError: a frame cannot be read or computed.
    """
    inputs = model.graph.inputs
    slots = {tensor.name: make_slot(tensor.in_job()) for tensor in inputs}
    names = [tensor.name for tensor in tensors]
    part = PartitionSegment(model.graph.layers, inputs, tuple(tensors))
    shapes: dict[str, list[_Shape]] = defaultdict(list)
    with temporary_folder() as folder:
        path = folder.path / f"model.{model.graph.format}"
        write_submodel(submodel_files(model, part, name=path.name), path)
        onnxruntime = load_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions have no common base class
            reason = str(error).replace(f"{folder.path}/", "")
            raise JobError(f"onnxruntime cannot run the unsliced model: {reason}") from None
        for index in frame_numbers(source):
            try:
                source.read(index, list(slots.values()))
                feeds = {name: values_in(slot) for name, slot in slots.items()}
                for name, values in zip(names, session.run(names, feeds), strict=True):
                    shapes[name].append(values.shape)
            except EndOfStreamError:
                break
            except JobError:
                raise
            except Exception as error:  # onnxruntime's exceptions have no common base class
                raise JobError(f"{source.label(index)}: {error}") from None
    return shapes
