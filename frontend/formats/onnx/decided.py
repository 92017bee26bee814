"""How large results of operators can be whose sizes their data decide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper

from rankslice.frontend.formats.onnx.nodes import bodies_of
from rankslice.frontend.formats.onnx.types import fixed_shape, sizes_of

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

    def shape(self, position: int) -> tuple[int, ...] | None:
        name = self._name(position)
        return fixed_shape(self.types.get(name, TypeProto())) if name else None

    def element(self, position: int) -> int:
        kind = self.types.get(self._name(position), TypeProto())
        number: int = kind.tensor_type.elem_type
        return number

    def number(self, position: int) -> int | None:
        name = self._name(position)
        if name not in self.values:
            return None
        values = numpy_helper.to_array(self.values[name]).reshape(-1)
        return int(values[0]) if values.size == 1 else None

    def setting(self, name: str, default: int | None) -> int | None:
        return next((item.i for item in self.node.attribute if item.name == name), default)

    def is_given(self, position: int) -> bool:
        return bool(self._name(position))

    def _name(self, position: int) -> str:
        names = self.node.input
        return str(names[position]) if position < len(names) else ""


def ranges(operands: Operands, output: int) -> Result | None:
    rule = _RULES.get(operands.node.op_type)
    if rule is None or operands.node.domain not in ("", "ai.onnx"):
        return None
    try:
        return rule(operands, output)
    except (ArithmeticError, LookupError, ValueError):  # the node does not fit what it reads
        return None


def _open(most: int) -> Range:
    return 0, most


def _non_zero(operands: Operands, output: int) -> Result | None:
    shape = operands.shape(0)
    if shape is None:
        return None
    rank = max(1, len(shape))
    return Result(TensorProto.INT64, ((rank, rank), _open(math.prod(shape))))


def _non_max_suppression(operands: Operands, output: int) -> Result | None:
    boxes, scores = operands.shape(0), operands.shape(1)
    if boxes is None or scores is None or len(boxes) != len(scores) or len(boxes) != _BOXES_RANK:
        return None
    most = boxes[1]
    if not operands.is_given(_MAX_BOXES_PER_CLASS):
        most = 0
    elif (given := operands.number(_MAX_BOXES_PER_CLASS)) is not None:
        most = min(most, max(0, given))
    batch, classes, _ = scores
    return Result(TensorProto.INT64, (_open(batch * classes * most), (3, 3)))


def _unique(operands: Operands, output: int) -> Result | None:
    shape, axis = operands.shape(0), operands.setting("axis", None)
    if shape is None:
        return None
    if output or axis is None:
        along = math.prod(shape) if axis is None else shape[axis]
        return Result(operands.element(0) if not output else TensorProto.INT64, (_open(along),))
    return Result(operands.element(0), _along(shape, axis, shape[axis]))


def _compress(operands: Operands, output: int) -> Result | None:
    shape, condition = operands.shape(0), operands.shape(1)
    axis = operands.setting("axis", None)
    if shape is None:
        return None
    along = math.prod(shape) if axis is None else shape[axis]
    if condition is not None:
        along = min(along, math.prod(condition))
    sizes = (_open(along),) if axis is None else _along(shape, axis, along)
    return Result(operands.element(0), sizes)


def _top_k(operands: Operands, output: int) -> Result | None:
    shape, axis = operands.shape(0), operands.setting("axis", -1)
    if not shape or axis is None:
        return None
    element = operands.element(0) if not output else TensorProto.INT64
    return Result(element, _along(shape, axis, shape[axis]))


def _slice(operands: Operands, output: int) -> Result | None:
    shape = operands.shape(0)
    if shape is None:
        return None
    return Result(operands.element(0), tuple(_open(size) for size in shape))


def _reshape(operands: Operands, output: int) -> Result | None:
    """Return one size that is not known as the number of elements; others stay as they are."""
    shape, known = operands.shape(0), operands.types.get(operands.node.output[output], TypeProto())
    sizes = sizes_of(known)
    if shape is None or sizes is None or sizes.count(None) != 1:
        return None
    others = math.prod(size for size in sizes if size)
    most = math.prod(shape) // max(1, others)
    result_sizes = tuple(_open(most) if size is None else (size, size) for size in sizes)
    return Result(operands.element(0), result_sizes)


def _if(operands: Operands, output: int) -> Result | None:
    bodies = {item.name: item.g for item in operands.node.attribute if item.name in (_THEN, _ELSE)}
    taken = operands.number(0)
    names = [_THEN, _ELSE] if taken is None else [_THEN if taken else _ELSE]
    shapes: list[tuple[int, ...]] = []
    element = 0
    for name in names:
        made = operands.body_types(bodies[name]) if name in bodies else ()
        if output >= len(made):
            return None
        shape = fixed_shape(made[output])
        if shape is None:
            return None
        element = made[output].tensor_type.elem_type
        shapes.append(shape)
    if len({len(shape) for shape in shapes}) != 1:
        return None
    return Result(element, tuple((min(s), max(s)) for s in zip(*shapes, strict=True)))


def _loop(operands: Operands, output: int) -> Result | None:
    """Return what the passes make, one after the other, if there are at most so many."""
    body = next(bodies_of(operands.node), GraphProto())
    carried = len(operands.node.input) - 2
    passes = operands.number(0)
    if output < carried or passes is None:
        return None
    made = operands.body_types(body)
    kind = made[output + 1] if output + 1 < len(made) else TypeProto()
    shape = fixed_shape(kind)
    if shape is None:
        return None
    sizes = tuple((size, size) for size in shape)
    return Result(kind.tensor_type.elem_type, (_open(passes), *sizes))


def _along(shape: Sequence[int], axis: int, most: int) -> tuple[Range, ...]:
    return tuple(
        _open(most) if number == axis % len(shape) else (size, size)
        for number, size in enumerate(shape)
    )


_RULES: Mapping[str, Callable[[Operands, int], Result | None]] = {
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
