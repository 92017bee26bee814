"""Bounds of tensors, as the unsliced model shows them on frames."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import Preprocessing, RunOptions
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source, open_source
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import AnyTensor, Graph, Tensor, dtype_bits
from rankslice.framework.wording import on_one_line, quoted, size_option
from rankslice.frontend.formats import Model, submodel_files
from rankslice.frontend.formats.given_sizes import GivenSizes
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.spans import SpanSegment

_MOST_FRAMES = 1000
_OPTION = "--representative"

_Shape: TypeAlias = tuple[int, ...]


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
        model: an ONNX model.
        frames: a source of frames with an end.
        preprocessing: of images.

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
        raise RankSliceError(Mistake(_OPTION, on_one_line(str(error)))) from None
    if not shapes:
        raise RankSliceError(Mistake(_OPTION, f"{frames} has no frames"))
    found = {
        name: seen for name, seen in shapes.items() if len({len(shape) for shape in seen}) == 1
    }
    return SeenBounds(
        {name: _with_margin(seen) for name, seen in found.items()},
        {name: tuple(map(max, zip(*seen, strict=True))) for name, seen in found.items()},
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
    part = SpanSegment(model.graph.layers, inputs, tuple(tensors))
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
        last = _MOST_FRAMES if source.frames is None else min(source.frames, _MOST_FRAMES)
        for index in range(last):
            try:
                source.read(index, list(slots.values()))
                given = {name: values_in(slot) for name, slot in slots.items()}
                for name, values in zip(names, session.run(names, given), strict=True):
                    shapes[name].append(values.shape)
            except EndOfStreamError:
                break
            except JobError:
                raise
            except Exception as error:  # onnxruntime's exceptions have no common base class
                raise JobError(f"{source.label(index)}: {error}") from None
    return shapes
