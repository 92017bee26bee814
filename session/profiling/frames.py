"""Sizes that tensors have in frames, seen while the unsliced model runs on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rankslice.backend.boards.accelerator import InputOfFrame
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sources import Source, accepted, open_source
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Graph, Tensor, dtype_bits
from rankslice.framework.profile import SeenTensor
from rankslice.framework.wording import on_one_line
from rankslice.frontend.formats import Model
from rankslice.frontend.partition.partition import PartitionSegment, SpanSegments
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.verification.unsliced_parts import values_of

_MAX_FRAMES = 100
"""Of which a profile keeps the sizes; they are spread over all that are given."""
_MEASURED = 5
"""Frames on which a span is measured in turn, from small to large ones."""
_SMALL_BYTES = 4096
"""Whole numbers that take no more go to a span as they are: they may be sizes, or indices."""
_INPUT = "--input"


@dataclass(frozen=True)
class SeenFrames:
    """What was seen of a model's tensors in some frames; nothing, if no size is open."""

    tensors: tuple[SeenTensor, ...] = ()
    """Those with open sizes."""
    values: tuple[Mapping[str, bytes], ...] = ()
    """By frame: small tensors of whole numbers, little-endian."""

    def inputs_of(self, segment: PartitionSegment) -> tuple[tuple[InputOfFrame, ...], ...]:
        """Return the inputs with which a span is measured, by frame; none: any will do."""
        if not any(tensor.is_open for tensor in (*segment.inputs, *segment.outputs)):
            return ()
        shapes = {tensor.name: tensor.shapes for tensor in self.tensors}

        def input_of(tensor: Tensor, frame: int) -> InputOfFrame:
            seen = shapes.get(tensor.name)
            shape = tensor.shape or () if seen is None else seen[frame]
            return InputOfFrame(shape, self.values[frame].get(tensor.name))

        return tuple(
            tuple(input_of(tensor, frame) for tensor in segment.inputs) for frame in self._measured
        )

    @cached_property
    def _measured(self) -> list[int]:
        """The frames on which spans are measured: evenly spread over all, by size."""
        if not self.tensors:
            return []
        order = np.argsort(
            np.sum([tensor.nbytes for tensor in self.tensors], axis=0), kind="stable"
        )
        count = min(_MEASURED, len(order))
        return [int(order[(2 * turn + 1) * len(order) // (2 * count)]) for turn in range(count)]


def frames_of(model: Model, segments: SpanSegments, options: ProfileOptions) -> SeenFrames:
    """Return what frames show of a model's open tensors.

    Without frames of the user the inputs are random, and as large as they may be.

    Raises:
        RankSliceError: frames cannot be read, one is beyond a bound, or no size is open.
    """
    watched = tuple(_watched(model.graph, segments))
    if not any(tensor.is_open for tensor in watched):
        if options.input:
            found = f"no size of {model.graph.name} changes from frame to frame"
            raise RankSliceError(Mistake(_INPUT, found, "leave it out, or give --at-most"))
        return SeenFrames()
    if options.input:
        try:
            with closing(_source(model.graph, options)) as source:
                return _seen(model, watched, source, _numbers(source))
        except JobError as error:
            raise RankSliceError(Mistake(_INPUT, on_one_line(str(error)))) from None
    largest = [replace(tensor.in_job(), symbols=()) for tensor in model.graph.inputs]
    try:
        return _seen(model, watched, open_source(RunOptions(), largest), range(1))
    except JobError:  # data may decide on more than the bounds if it is random
        return SeenFrames()


def _watched(graph: Graph, segments: SpanSegments) -> Iterator[Tensor]:
    """Yield the tensors that spans may be given and of which frames tell more than the model."""
    made = (tensor for layer in segments.layers for tensor in layer.outputs)
    for tensor in (*graph.inputs, *made):
        # Engines do not know the shape of values that are packed two to a byte.
        is_readable = tensor.nbytes is not None and dtype_bits(tensor.dtype) >= 8
        if is_readable and (tensor.is_open or _is_small(tensor)):
            yield tensor


def _is_small(tensor: Tensor) -> bool:
    is_whole = tensor.dtype.startswith(("int", "uint", "bool"))
    return is_whole and (tensor.nbytes or 0) <= _SMALL_BYTES


def _source(graph: Graph, options: ProfileOptions) -> Source:
    wanted = RunOptions(tuple(options.input), preprocessing=options.preprocessing)
    try:
        source = open_source(wanted, [tensor.in_job() for tensor in graph.inputs])
    except JobError as error:
        raise RankSliceError(Mistake(_INPUT, str(error).removeprefix(f"{_INPUT}: "))) from None
    if not source.can_replay:
        found = "its frames cannot be read again by the next profile"
        raise RankSliceError(Mistake(_INPUT, found, f"expected {accepted()}"))
    return source


def _numbers(source: Source) -> Sequence[int]:
    count = _MAX_FRAMES if source.frames is None else source.frames
    spread: list[int] = (
        np.linspace(0, count - 1, min(count, _MAX_FRAMES)).round().astype(int).tolist()
    )
    return spread


def _seen(
    model: Model, watched: Sequence[Tensor], source: Source, numbers: Sequence[int]
) -> SeenFrames:
    """Run the unsliced model on some frames of a source, and return what they show.

    Raises:
        JobError: they cannot be read or computed, or one is beyond a bound.
    """
    is_open = [tensor for tensor in watched if tensor.is_open]
    small = [tensor.name for tensor in watched if _is_small(tensor)]
    shapes, values = [], []
    looked_at = {tensor.name: tensor for tensor in (*watched, *model.graph.outputs)}
    for arrays in values_of(model, [*looked_at.values()], source, numbers):
        made = dict(zip(looked_at, arrays, strict=True))
        shapes.append([made[tensor.name].shape for tensor in is_open])
        values.append({name: made[name].tobytes() for name in small})
    if not shapes:
        raise JobError("there are no frames")
    pairs = zip(is_open, zip(*shapes, strict=True), strict=True)
    tensors = (SeenTensor(tensor.name, tensor.dtype, seen) for tensor, seen in pairs)
    return SeenFrames(tuple(tensors), tuple(values))
