"""What TensorFlow Lite operators make of their operands: sizes, and values that sizes depend on.

There are rules for the operators that change sizes. Of all others the result has the sizes of an
operand; see :mod:`rankslice.frontend.formats.tflite.follow`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.frontend.formats.operand_shapes import UnknownSizeError
from rankslice.frontend.formats.tflite.shapes import Shape
from rankslice.frontend.formats.tflite.wire import Table

Array: TypeAlias = NDArray[Any]

_SAME = 0
"""Number of the padding that keeps the sizes; the other one pads nothing."""


@dataclass(frozen=True, slots=True)
class Call:
    """An operator and what is known of its operands; what is not raises ``UnknownSizeError``."""

    tensors: Sequence[Table]
    """Of its subgraph, as the file describes them."""
    shapes: Mapping[int, Shape]
    """By the tensor's number, as far as known; so are the values."""
    values: Mapping[int, NDArray[Any]]
    """Small ones only."""
    operands: tuple[int, ...]
    results: int
    settings: Table | None

    @property
    def count(self) -> int:
        return len(self.operands)

    def shape(self, operand: int) -> Shape:
        try:
            return self.shapes[self.operands[operand]]
        except KeyError:
            raise UnknownSizeError from None

    def value(self, operand: int) -> NDArray[Any]:
        try:
            return self.values[self.operands[operand]]
        except KeyError:
            raise UnknownSizeError from None

    def option(self, name: str, default: int = 0) -> int:
        return self.settings.number(name, default) if self.settings else default

    def options(self, name: str) -> tuple[int, ...]:
        return self.settings.numbers(name) if self.settings else ()


def _like(operand: int) -> Callable[[Call], Shape]:
    return lambda call: call.shape(operand)


def _sizes(call: Call, operand: int) -> Shape:
    return tuple(int(size) for size in call.value(operand).ravel())


def _number(call: Call, operand: int) -> int:
    return int(call.value(operand).ravel()[0])


def _window(size: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    covered = 0 if padding == _SAME else (kernel - 1) * dilation
    return math.ceil((size - covered) / stride)


def _windows(call: Call, kernel: Sequence[int], axes: str) -> Shape:
    """Return the inner sizes that a window of this size leaves; ``axes``: letters of options."""
    padding = call.option("padding")
    return tuple(
        _window(
            size,
            length,
            call.option(f"stride_{axis}", 1),
            call.option(f"dilation_{axis}_factor", 1),
            padding,
        )
        for size, length, axis in zip(call.shape(0)[1:-1], kernel, axes, strict=True)
    )


def _convolved(window: slice, channels: int, axes: str = "hw") -> Callable[[Call], Shape]:
    """Return a rule for a kernel of which these dimensions are the window and the channels."""

    def rule(call: Call) -> Shape:
        kernel = call.shape(1)
        return (call.shape(0)[0], *_windows(call, kernel[window], axes), kernel[channels])

    return rule


def _pool(call: Call) -> Shape:
    kernel = (call.option("filter_height"), call.option("filter_width"))
    return (call.shape(0)[0], *_windows(call, kernel, "hw"), call.shape(0)[-1])


def _fully_connected(call: Call) -> Shape:
    shape, (units, features) = call.shape(0), call.shape(1)
    if call.option("keep_num_dims"):
        return (*shape[:-1], units)
    return (math.prod(shape) // features, units)


def _batch_matmul(call: Call) -> Shape:
    first, second = call.shape(0), call.shape(1)
    rows = first[-1] if call.option("adj_x") else first[-2]
    columns = second[-2] if call.option("adj_y") else second[-1]
    return (*np.broadcast_shapes(first[:-2], second[:-2]), rows, columns)


def _reshape(call: Call) -> Shape:
    wanted = _sizes(call, 1) if call.count > 1 else call.options("new_shape")
    if -1 not in wanted:
        return wanted
    others = math.prod(size for size in wanted if size != -1)
    rest = math.prod(call.shape(0)) // others
    return tuple(rest if size == -1 else size for size in wanted)


def _kept_axes(rank: int, axes: Sequence[int]) -> list[int]:
    """Return the axes of a tensor other than those given, of which some may count from the end."""
    gone = {axis % rank for axis in axes}
    return [axis for axis in range(rank) if axis not in gone]


def _reduced(call: Call) -> Shape:
    shape = call.shape(0)
    kept = _kept_axes(len(shape), _sizes(call, 1)) if shape else []
    if call.option("keep_dims"):
        return tuple(size if axis in kept else 1 for axis, size in enumerate(shape))
    return tuple(shape[axis] for axis in kept)


def _added(call: Call, size: int) -> Shape:
    shape = call.shape(0)
    return _inserted(shape, call.option("axis") % (len(shape) + 1), size)


def _inserted(shape: Shape, axis: int, *sizes: int, instead: int = 0) -> Shape:
    return (*shape[:axis], *sizes, *shape[axis + instead :])


def _concatenation(call: Call) -> Shape:
    shapes = [call.shape(operand) for operand in range(call.count)]
    axis = call.option("axis") % len(shapes[0])
    return _inserted(shapes[0], axis, sum(shape[axis] for shape in shapes), instead=1)


def _gather(call: Call) -> Shape:
    shape, indices = call.shape(0), call.shape(1)
    axis, batch = call.option("axis") % len(shape), call.option("batch_dims")
    batch += len(indices) if batch < 0 else 0
    return _inserted(shape, axis, *indices[batch:], instead=1)


def _slices(call: Call) -> tuple[Any, ...]:
    """Return numpy's index for the part that STRIDED_SLICE takes."""
    begins, ends, strides = (_sizes(call, operand) for operand in (1, 2, 3))

    def is_set(mask: str, axis: int) -> bool:
        return bool(call.option(mask) >> axis & 1)

    def taken(axis: int) -> Any:
        begin, end, stride = begins[axis], ends[axis], strides[axis]
        if is_set("ellipsis_mask", axis):
            return Ellipsis
        if is_set("new_axis_mask", axis):
            return None
        if is_set("shrink_axis_mask", axis):
            return begin
        last = begin + end if call.option("offset") else end
        return slice(
            None if is_set("begin_mask", axis) else begin,
            None if is_set("end_mask", axis) else last,
            stride,
        )

    return tuple(taken(axis) for axis in range(len(begins)))


def _part(call: Call, whole: Array) -> Array:
    begins, sizes = _sizes(call, 1), _sizes(call, 2)
    ends = [None if size < 0 else begin + size for begin, size in zip(begins, sizes, strict=True)]
    return whole[tuple(map(slice, begins, ends))]


def _split_v(call: Call, whole: Array) -> list[Array]:
    sizes, axis = _sizes(call, 1), _number(call, 2)
    rest = whole.shape[axis] - sum(size for size in sizes if size >= 0)
    ends = np.cumsum([rest if size < 0 else size for size in sizes])
    return np.split(whole, ends[:-1], axis)


VIEWS: Mapping[str, tuple[int, Callable[[Call, Array], Array | list[Array]]]] = {
    "EXPAND_DIMS": (0, lambda call, whole: np.expand_dims(whole, _number(call, 1))),
    "SLICE": (0, _part),
    "SPLIT": (1, lambda call, whole: np.split(whole, call.results, _number(call, 0))),
    "SPLIT_V": (0, _split_v),
    "SQUEEZE": (0, lambda call, whole: np.squeeze(whole, call.options("squeeze_dims") or None)),
    "STRIDED_SLICE": (0, lambda call, whole: whole[_slices(call)]),
    "TRANSPOSE": (0, lambda call, whole: np.transpose(whole, _sizes(call, 1))),
    "UNPACK": (0, lambda call, w: list(np.moveaxis(w, call.option("axis"), 0)[: call.results])),
}
"""Operators whose results are views of an operand: its position, and what makes them."""


def _viewed(name: str) -> Callable[[Call], list[Shape]]:
    operand, view = VIEWS[name]

    def rule(call: Call) -> list[Shape]:
        # One element in memory, whatever the shape.
        made = view(call, np.broadcast_to(np.False_, call.shape(operand)))
        return [one.shape for one in (made if isinstance(made, list) else [made])]

    return rule


def _padded(call: Call) -> Shape:
    around = call.value(1).tolist()
    return tuple(
        s + before + after for s, (before, after) in zip(call.shape(0), around, strict=True)
    )


def _range(call: Call) -> Shape:
    start, limit, step = (call.value(operand).ravel()[0].item() for operand in range(3))
    return (max(0, math.ceil((limit - start) / step)),)


def _blocks(call: Call, times: int, over: int) -> Shape:
    """Return height and width times one number and over another; channels the other way round."""
    batch, height, width, channels = call.shape(0)
    return (batch, height * times // over, width * times // over, channels * over**2 // times**2)


def _space_to_batch(call: Call) -> Shape:
    batch, *sizes = call.shape(0)
    block, around = _sizes(call, 1), call.value(2).tolist()
    inner = [
        (size + sum(added)) // length
        for size, length, added in zip(sizes, block, around, strict=False)
    ]
    return (batch * math.prod(block), *inner, *sizes[len(block) :])


def _batch_to_space(call: Call) -> Shape:
    batch, *sizes = call.shape(0)
    block, around = _sizes(call, 1), call.value(2).tolist()
    inner = [
        size * length - sum(cropped)
        for size, length, cropped in zip(sizes, block, around, strict=False)
    ]
    return (batch // math.prod(block), *inner, *sizes[len(block) :])


def _suppressed(call: Call) -> list[Shape]:
    """Return the shapes of what is kept, which is padded, and of its number."""
    count = _number(call, 2)
    return [*[(count,)] * (call.results - 1), ()]


_BROADCAST = """
    ADD ADD_N ATAN2 BITWISE_XOR DIV EQUAL FLOOR_DIV FLOOR_MOD GREATER GREATER_EQUAL LESS LESS_EQUAL
    LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM MUL NOT_EQUAL POW RIGHT_SHIFT SELECT_V2
    SQUARED_DIFFERENCE SUB
"""
_UNCHANGED = """
    ABS CAST CEIL COS CUMSUM DEQUANTIZE DYNAMIC_UPDATE_SLICE ELU EXP FAKE_QUANT FLOOR GELU
    HARD_SWISH L2_NORMALIZATION LEAKY_RELU LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_NOT LOGISTIC
    LOG_SOFTMAX NEG PRELU QUANTIZE RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 REVERSE_SEQUENCE REVERSE_V2
    ROUND RSQRT SIGN SIN SOFTMAX SQRT SQUARE TANH ZEROS_LIKE
"""
_REDUCING = "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM"

RULES: dict[str, Callable[[Call], Shape | list[Shape]]] = {
    **dict.fromkeys(
        _BROADCAST.split(), lambda call: np.broadcast_shapes(*map(call.shape, range(call.count)))
    ),
    **dict.fromkeys(_UNCHANGED.split(), _like(0)),
    **dict.fromkeys(_REDUCING.split(), _reduced),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _reduced),  # which have no "keep_dims"
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("MIRROR_PAD", "PAD", "PADV2"), _padded),
    **dict.fromkeys(("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5"), _suppressed),
    **{name: _viewed(name) for name in VIEWS},
    **dict.fromkeys(
        ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"),
        lambda call: (call.shape(0)[0], *_sizes(call, 1), call.shape(0)[-1]),
    ),
    "BATCH_MATMUL": _batch_matmul,
    "BATCH_TO_SPACE_ND": _batch_to_space,
    "BROADCAST_ARGS": lambda call: (max(*call.shape(0), *call.shape(1)),),
    "BROADCAST_TO": partial(_sizes, operand=1),
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolved(slice(1, -1), 0),
    "CONV_3D": _convolved(slice(0, -2), -1, "dhw"),
    "DEPTHWISE_CONV_2D": _convolved(slice(1, -1), -1),
    "DEPTH_TO_SPACE": lambda call: _blocks(call, call.option("block_size"), 1),
    "EMBEDDING_LOOKUP": lambda call: (*call.shape(0), *call.shape(1)[1:]),
    "FILL": partial(_sizes, operand=0),
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GATHER_ND": lambda call: (*call.shape(1)[:-1], *call.shape(0)[call.shape(1)[-1] :]),
    "HASHTABLE_FIND": _like(1),
    "ONE_HOT": lambda call: _added(call, _number(call, 1)),
    "PACK": lambda call: _added(call, call.count),
    "RANGE": _range,
    "RESHAPE": _reshape,
    "SCATTER_ND": partial(_sizes, operand=2),
    "SELECT": _like(1),
    "SPACE_TO_BATCH_ND": _space_to_batch,
    "SPACE_TO_DEPTH": lambda call: _blocks(call, 1, call.option("block_size")),
    "TILE": lambda call: tuple(s * n for s, n in zip(call.shape(0), _sizes(call, 1), strict=True)),
    "TOPK_V2": lambda call: [(*call.shape(0)[:-1], _number(call, 1))] * call.results,
    "TRANSPOSE_CONV": partial(_sizes, operand=0),
}
"""Shape of the result of an operator, or of each of its results, by its name.

A rule may also raise what Python and numpy raise for operands that do not fit the operator.
"""

BOUNDS: dict[str, Callable[[Call], Shape | list[Shape]]] = {
    "UNIQUE": lambda call: [call.shape(0)] * call.results,
    "WHERE": lambda call: (math.prod(call.shape(0)), len(call.shape(0))),
}
"""Largest shapes of the results of operators that make as many rows as the data decide."""
