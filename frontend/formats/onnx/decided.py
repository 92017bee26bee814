"""How large results of operators can be whose sizes their data decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper

from rankslice.frontend.formats.onnx.nodes import bodies_of
from rankslice.frontend.formats.onnx.types import fixed_shape, sizes_of
from rankslice.frontend.formats.operand_shapes import UnknownSizeError

Range: TypeAlias = tuple[int, int]
"""The smallest and the largest value of a size; equal if it is fixed."""

Body: TypeAlias = Callable[[GraphProto], Sequence[TypeProto]]
"""Gives the types of what a body makes, as far as they can be found."""

_BOXES_RANK = 3
_MAX_BOXES_PER_CLASS = 2
_THEN, _ELSE = "then_branch", "else_branch"


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a result: its element type, and the range of each of its sizes."""

    element: int
    sizes: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """A node, and what is known of what it reads."""

    node: NodeProto
    types: Mapping[str, TypeProto]
    values: Mapping[str, TensorProto]
    body_types: Body

    def shape(self, position: int) -> tuple[int, ...]:
        shape = fixed_shape(self._type(position))
        if shape is None:
            raise UnknownSizeError
        return shape

    def element(self, position: int) -> int:
        number: int = self._type(position).tensor_type.elem_type
        return number

    def number(self, position: int) -> int | None:
        name = self._name(position)
        if name not in self.values:
            return None
        values = numpy_helper.to_array(self.values[name]).reshape(-1)
        return int(values[0]) if values.size == 1 else None

    def setting(self, name: str) -> int | None:
        return next((item.i for item in self.node.attribute if item.name == name), None)

    def is_given(self, position: int) -> bool:
        return bool(self._name(position))

    def _type(self, position: int) -> TypeProto:
        return self.types.get(self._name(position), TypeProto())

    def _name(self, position: int) -> str:
        names = self.node.input
        return str(names[position]) if position < len(names) else ""


def ranges(operands: Operands, output: int) -> Result | None:
    rule = _RULES.get(operands.node.op_type)
    if rule is None or operands.node.domain not in ("", "ai.onnx"):
        return None
    try:
        return rule(operands, output)
    except (UnknownSizeError, ArithmeticError, LookupError, ValueError):
        return None  # the node does not fit what it reads, or not enough is known of that


def _open(most: int) -> Range:
    return 0, most


def _along(shape: Sequence[int], axis: int | None, most: int) -> tuple[Range, ...]:
    """Return sizes of which that of an axis is open; without an axis all are one."""
    if axis is None:
        return (_open(most),)
    return tuple(
        _open(most) if number == axis % len(shape) else (size, size)
        for number, size in enumerate(shape)
    )


def _non_zero(operands: Operands, output: int) -> Result:
    shape = operands.shape(0)
    rank = max(1, len(shape))
    return Result(TensorProto.INT64, ((rank, rank), _open(math.prod(shape))))


def _non_max_suppression(operands: Operands, output: int) -> Result:
    boxes, scores = operands.shape(0), operands.shape(1)
    if len(boxes) != len(scores) or len(boxes) != _BOXES_RANK:
        raise UnknownSizeError
    most = boxes[1]
    if not operands.is_given(_MAX_BOXES_PER_CLASS):
        most = 0
    elif (number := operands.number(_MAX_BOXES_PER_CLASS)) is not None:
        most = min(most, max(0, number))
    batch, classes, _ = scores
    return Result(TensorProto.INT64, (_open(batch * classes * most), (3, 3)))


def _unique(operands: Operands, output: int) -> Result:
    shape, axis = operands.shape(0), operands.setting("axis")
    along = math.prod(shape) if axis is None else shape[axis]
    if output:
        return Result(TensorProto.INT64, (_open(along),))
    return Result(operands.element(0), _along(shape, axis, along))


def _compress(operands: Operands, output: int) -> Result:
    shape, axis = operands.shape(0), operands.setting("axis")
    along = math.prod(shape) if axis is None else shape[axis]
    with suppress(UnknownSizeError):
        along = min(along, math.prod(operands.shape(1)))
    return Result(operands.element(0), _along(shape, axis, along))


def _top_k(operands: Operands, output: int) -> Result:
    shape, axis = operands.shape(0), operands.setting("axis")
    axis = -1 if axis is None else axis
    element = TensorProto.INT64 if output else operands.element(0)
    return Result(element, _along(shape, axis, shape[axis]))


def _slice(operands: Operands, output: int) -> Result:
    return Result(operands.element(0), tuple(map(_open, operands.shape(0))))


def _reshape(operands: Operands, output: int) -> Result:
    """Bound one size that is not known by the number of elements; others stay as they are."""
    shape, known = operands.shape(0), operands.types.get(operands.node.output[output], TypeProto())
    sizes = sizes_of(known)
    if sizes is None or sizes.count(None) != 1:
        raise UnknownSizeError
    most = math.prod(shape) // max(1, math.prod(size for size in sizes if size))
    result_sizes = tuple(_open(most) if size is None else (size, size) for size in sizes)
    return Result(operands.element(0), result_sizes)


def _if(operands: Operands, output: int) -> Result:
    bodies = {item.name: item.g for item in operands.node.attribute if item.name in (_THEN, _ELSE)}
    taken = operands.number(0)
    names = [_THEN, _ELSE] if taken is None else [_THEN if taken else _ELSE]
    made = [operands.body_types(bodies[name])[output] for name in names]
    shapes = [fixed_shape(kind) for kind in made]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(names) or len({len(shape) for shape in known}) != 1:
        raise UnknownSizeError
    sizes = tuple((min(s), max(s)) for s in zip(*known, strict=True))
    return Result(made[-1].tensor_type.elem_type, sizes)


def _loop(operands: Operands, output: int) -> Result:
    """Bound the stacked outputs of all passes by the largest number of passes."""
    body = next(bodies_of(operands.node), GraphProto())
    carried = len(operands.node.input) - 2
    passes = operands.number(0)
    if output < carried or passes is None:
        raise UnknownSizeError
    kind = operands.body_types(body)[output + 1]
    shape = fixed_shape(kind)
    if shape is None:
        raise UnknownSizeError
    return Result(kind.tensor_type.elem_type, (_open(passes), *((size, size) for size in shape)))


_RULES: Mapping[str, Callable[[Operands, int], Result]] = {
    "Compress": _compress,
    "If": _if,
    "Loop": _loop,
    "NonMaxSuppression": _non_max_suppression,
    "NonZero": _non_zero,
    "Reshape": _reshape,
    "Slice": _slice,
    "TopK": _top_k,
    "Unique": _unique,
}
