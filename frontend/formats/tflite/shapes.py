"""Types and shapes of a TensorFlow Lite model's tensors, as far as they are known before a run.

The file has a shape for each tensor. Where the signature of the shape says -1, the size depends on
the inputs' sizes (:mod:`rankslice.frontend.formats.tflite.follow`) or on what is in the tensors;
the latter kind is found here.

Nothing tells how a size depends on those of the inputs. So shapes are computed for the largest
inputs, and for some smaller ones. A size that the file leaves open counts as fixed only if it is
the same in all trials.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rankslice.framework.graph import UNNAMED
from rankslice.frontend.formats.tflite.schema import DTYPES, OPERATORS
from rankslice.frontend.formats.tflite.wire import Table

Shape: TypeAlias = tuple[int, ...]
Symbols: TypeAlias = tuple[str, ...]

_DECIDING = {
    (0,): "CONV_3D_TRANSPOSE FILL RANDOM_STANDARD_NORMAL RANDOM_UNIFORM TRANSPOSE_CONV",
    (0, 1, 2): "RANGE",
    (1,): """
        BROADCAST_TO EXPAND_DIMS MEAN MIRROR_PAD MULTINOMIAL ONE_HOT PAD PADV2 REDUCE_ALL REDUCE_ANY
        REDUCE_MAX REDUCE_MIN REDUCE_PROD RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RFFT2D
        SPARSE_TO_DENSE SPLIT_V SUM TILE TOPK_V2
    """,
    (1, 2): "BATCH_TO_SPACE_ND SLICE SPACE_TO_BATCH_ND",
    (1, 2, 3): "STRIDED_SLICE",
    (2,): """
        NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND UNSORTED_SEGMENT_MAX
        UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM
    """,
}
BY_VALUE = {name: operands for operands, names in _DECIDING.items() for name in names.split()}
"""Operators whose results have shapes that values of these operands decide."""

_BOUNDED = frozenset({"UNIQUE", "WHERE"})
"""Operators whose results have shapes that values decide, up to a size that follows from that of
the operands."""

_BY_VALUES = frozenset({"HASHTABLE_LOOKUP", "SEGMENT_SUM"}) | _BOUNDED
"""Operators whose results have shapes that values decide, in whatever way."""

_UNCLEAR = frozenset({"CALL", "HASHTABLE_FIND", "IF", "READ_VARIABLE", "WHILE"})
"""Operators of which nobody knows, like custom ones. If the model's inputs are open, then that is
what leaves sizes of theirs open; else it must be something else."""

_OF_SHAPES = ("SHAPE", "RANK")
"""Operators whose results depend on shapes alone."""


def dtype_of(tensor: Table) -> str:
    """Return numpy's name of a tensor's element type; empty for one that is not known."""
    number = tensor.number("type")
    return DTYPES[number] if 0 <= number < len(DTYPES) else ""


def open_tensors(subgraph: Table) -> frozenset[int]:
    return frozenset(
        number
        for number, tensor in enumerate(subgraph.tables("tensors"))
        if -1 in tensor.numbers("shape_signature")
    )


def known_shapes(
    subgraph: Table, operators: Sequence[str], constants: frozenset[int]
) -> list[tuple[int, ...] | None]:
    """Return the shape of each tensor of a subgraph; ``None`` where the frame decides it."""
    tensors = subgraph.tables("tensors")
    open_shapes = open_tensors(subgraph)
    fixed_values = set(constants)
    is_closed = open_shapes.isdisjoint(subgraph.numbers("inputs"))
    unknown = {n for n, tensor in enumerate(tensors) if -1 in tensor.numbers("shape")}
    if any(tensor.number("has_rank") for tensor in tensors):
        # Converters that tell whether the rank is known write no shape where it is not.
        ranked = {n for n, t in enumerate(tensors) if t.number("has_rank") or t.numbers("shape")}
        unknown |= set(range(len(tensors))) - ranked - constants
    for name, operator in zip(operators, subgraph.tables("operators"), strict=True):
        inputs = operator.numbers("inputs")
        outputs = {number for number in operator.numbers("outputs") if number >= 0}
        is_unclear = name in _UNCLEAR or name not in OPERATORS
        if (is_unclear and is_closed) or _is_open(name, inputs, fixed_values, unknown):
            unknown |= outputs & open_shapes
        elif name in _OF_SHAPES or all(n in fixed_values for n in inputs if n >= 0):
            fixed_values |= outputs
    return [
        None if number in unknown else tensor.numbers("shape")
        for number, tensor in enumerate(tensors)
    ]


def unbounded_results(subgraph: Table, operators: Sequence[str]) -> frozenset[int]:
    """Return the numbers of the tensors of which no operator's rule says how large they get."""
    return frozenset(
        number
        for name, operator in zip(operators, subgraph.tables("operators"), strict=True)
        if name in (_UNCLEAR | _BY_VALUES) - _BOUNDED or name not in OPERATORS
        for number in operator.numbers("outputs")
    )


def _is_open(name: str, inputs: Sequence[int], fixed_values: set[int], unknown: set[int]) -> bool:
    if name in _BY_VALUES or not unknown.isdisjoint(inputs):
        return True
    deciding = [inputs[operand] for operand in BY_VALUE.get(name, ()) if operand < len(inputs)]
    return any(number >= 0 and number not in fixed_values for number in deciding)


_PARTS = ((1, 2), (1, 3), (1, 8))
_MIN_TRIALS = 2
"""Trials with smaller sizes that have to agree before a size counts as fixed."""


@dataclass(frozen=True, slots=True)
class Trial:
    """How large open sizes are in a trial. Sizes with equal bounds are equal."""

    part: tuple[int, int] = (1, 1)
    """Of the bound, as a fraction; rounded up."""
    less: int = 0
    axis: int | None = None
    """The only dimension that is smaller; ``None``: all are."""

    def size(self, bound: int, axis: int) -> int:
        if self.axis not in (None, axis):
            return bound
        part, of = self.part
        return max(0, -(-bound * part // of) - self.less)

    def shape(self, bounds: Shape, symbols: Symbols) -> Shape:
        sizes = zip(bounds, symbols or ("",) * len(bounds), strict=True)
        return tuple(self.size(b, axis) if s else b for axis, (b, s) in enumerate(sizes))


def trials(axes: Collection[int]) -> tuple[Trial, ...]:
    """Return the trials, that of the bounds first, that without any elements last."""
    alone = [Trial((1, 2), axis=axis) for axis in sorted(axes)] if len(axes) > 1 else []
    return (
        Trial(),
        Trial(less=1),
        *map(Trial, _PARTS),
        *alone,
        Trial((0, 1)),
    )


def bound_of(
    tensor: Table, shapes: Sequence[Shape | None], *, decided_by_data: bool
) -> tuple[Shape, Symbols] | None:
    """Return a tensor's largest shape, and its open sizes; ``None`` if it is not known.

    Args:
        shapes: by trial, as far as known.
        decided_by_data: whether sizes depend on values; these may be zero.
    """
    largest, *others = shapes
    if largest is None:
        return None
    known = [shape for shape in others if shape is not None and len(shape) == len(largest)]
    is_sure = len(known) >= _MIN_TRIALS and not (decided_by_data and shapes[-1] is None)
    signature = tensor.numbers("shape_signature") or largest
    sizes = list(zip(largest, *known, strict=True))
    symbols = tuple(
        UNNAMED if len(set(seen)) > 1 or (declared == -1 and not is_sure) else ""
        for declared, seen in zip(signature, sizes, strict=True)
    )
    return tuple(map(max, sizes)), symbols if any(symbols) else ()
