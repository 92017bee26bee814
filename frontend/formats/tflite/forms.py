"""TensorFlow Lite operators in terms of :mod:`rankslice.frontend.rewriting.regions`.

Images are [batch, rows, columns, channels].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rankslice.framework.graph import Box, Layer, Weight
from rankslice.frontend.formats.pieces import piece_bytes, stored_pieces
from rankslice.frontend.rewriting.boxes import whole
from rankslice.frontend.rewriting.regions import (
    Concatenated,
    Divided,
    Elementwise,
    Filters,
    Form,
    LayerPart,
    Padded,
    Product,
    Reshaped,
    Scaled,
    Sliced,
    Window,
    Windowed,
    reduced,
    result_shape,
    shape_of,
    transposed,
)

_ELEMENTWISE = """
    ABS ADD ADD_N ATAN2 BITWISE_XOR CAST CEIL COS DEQUANTIZE DIV ELU EQUAL EXP FAKE_QUANT FLOOR
    FLOOR_DIV FLOOR_MOD GELU GREATER GREATER_EQUAL HARD_SWISH LEAKY_RELU LESS LESS_EQUAL LOG
    LOGICAL_AND LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE
    RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RIGHT_SHIFT ROUND RSQRT SELECT_V2 SIGN SIN SQRT SQUARE
    SQUARED_DIFFERENCE SUB TANH ZEROS_LIKE
"""
_ALONG_LAST = "L2_NORMALIZATION LOCAL_RESPONSE_NORMALIZATION LOG_SOFTMAX SOFTMAX"
_REDUCTIONS = "MEAN REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD SUM"
_MAX_SETTING = 1 << 10  # bytes


def tflite_form(layer: Layer) -> Form | None:
    make = _FORMS.get(layer.op)
    is_plain = all(weight.data is not None for weight in layer.weights)
    return make(layer) if make and is_plain else None


def _constant(layer: Layer, operand: int) -> tuple[int, ...] | None:
    """Return the numbers of a small constant; ``None`` if there is none."""
    weight = layer.operands[operand] if operand < len(layer.operands) else None
    if not isinstance(weight, Weight) or weight.nbytes > _MAX_SETTING:
        return None
    content = b"".join(piece_bytes(piece) for piece in stored_pieces(weight))
    return tuple(np.frombuffer(content, weight.dtype).tolist())


def _is_hybrid(layer: Layer) -> bool:
    """Return whether it quantises its input, by the largest value of all of it."""
    data, weights = layer.operands[:2]
    return bool(data and weights) and data.dtype == "float32" and "int" in weights.dtype  # type: ignore[union-attr]


@dataclass(frozen=True, slots=True)
class _OfWholeInput(Form):
    """A form of which only parts count that need all of operand 0."""

    form: Form

    def part(self, layer: Layer, box: Box) -> LayerPart | None:
        plan = self.form.part(layer, box)
        everything = whole(shape_of(layer, 0))
        is_whole = plan and plan.operands.get(0, everything) == everything
        return plan if is_whole else None

    def contracted(self, layer: Layer) -> tuple[int, int] | None:
        return self.form.contracted(layer)

    def groups(self, layer: Layer) -> int:
        return self.form.groups(layer)

    def first_axis(self, layer: Layer, by: str) -> int | None:
        return self.form.first_axis(layer, by)


def _windows(layer: Layer, kernel: Sequence[int]) -> tuple[Window, ...]:
    windows = []
    for axis, letter, length in zip((1, 2), "hw", kernel, strict=True):
        size = (length - 1) * layer.number(f"dilation_{letter}_factor", 1) + 1
        stride = layer.number(f"stride_{letter}", 1)
        sides = shape_of(layer, 0)[axis], result_shape(layer)[axis]
        windows.append(Window.over(size, stride, *sides, before=None))  # none at all if VALID
    return tuple(windows)


def _convolution(layer: Layer) -> Form:
    shape, channels = shape_of(layer, 1), shape_of(layer, 0)[3]
    if layer.op == "CONV_2D":
        filters = Filters(1, 0, 3, channels // shape[3], {2: 0}, (2,))
    else:
        filters = Filters(1, 3, 0, channels, {2: 0}, (2,))
    form = Windowed((1, 2), _windows(layer, shape[1:3]), 3, filters, sets_pads=False)
    return _OfWholeInput(form) if _is_hybrid(layer) else form


def _pool(layer: Layer) -> Form:
    kernel = (layer.number("filter_height"), layer.number("filter_width"))
    return Windowed((1, 2), _windows(layer, kernel), 3, sets_pads=False)


def _fully_connected(layer: Layer) -> Form | None:
    if layer.number("weights_format") or len(shape_of(layer, 1)) != 2:
        return None
    form = Product(turns_right=True, biases=(2,), flattens_left=True)
    return _OfWholeInput(form) if _is_hybrid(layer) else form


def _batch_matmul(layer: Layer) -> Form:
    turns = bool(layer.number("adj_x")), bool(layer.number("adj_y"))
    form = Product(0, 1, *turns)
    return _OfWholeInput(form) if _is_hybrid(layer) else form


def _along_last(layer: Layer) -> Form:
    return Elementwise(mixes=(len(result_shape(layer)) - 1,))


def _along_constant(layer: Layer) -> Form | None:
    axes, rank = _constant(layer, 1), len(result_shape(layer))
    if not axes:
        return None
    return Elementwise(mixes=tuple(axis % rank for axis in axes), parameters=(1,))


def _reduction(layer: Layer) -> Form | None:
    axes, rank = _constant(layer, 1), len(shape_of(layer, 0))
    if not axes or not rank:
        return None
    return reduced(layer, [a % rank for a in axes], bool(layer.number("keep_dims")))


def _reshape(layer: Layer) -> Form | None:
    is_constant = len(layer.operands) < 2 or isinstance(layer.operands[1], Weight)
    return Reshaped() if is_constant else None


def _transpose(layer: Layer) -> Form | None:
    permutation = _constant(layer, 1)
    return transposed(permutation) if permutation else None


def _concatenation(layer: Layer) -> Form:
    return Concatenated(layer.number("axis") % len(result_shape(layer)))


def _padded(layer: Layer) -> Form | None:
    pads = _constant(layer, 1)
    return Padded(tuple(zip(pads[::2], pads[1::2], strict=True))) if pads else None


def _select(layer: Layer) -> Form | None:
    # A condition of one dimension chooses along the first axis.
    same = shape_of(layer, 0) == result_shape(layer)
    return Elementwise() if same else None


def _slice(layer: Layer) -> Form | None:
    begins = _constant(layer, 1)
    return Sliced(tuple((begin, 1) for begin in begins)) if begins else None


def _strided_slice(layer: Layer) -> Form | None:
    begins, strides = _constant(layer, 1), _constant(layer, 3)
    if not begins or not strides or min(strides) < 1:
        return None
    masks = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    if any(layer.number(mask) for mask in masks):
        return None
    shape, mask = shape_of(layer, 0), layer.number("begin_mask")
    firsts = [
        0 if mask >> axis & 1 else begin if begin >= 0 else max(begin + shape[axis], 0)
        for axis, begin in enumerate(begins)
    ]
    rest = ((0, 1),) * (len(shape) - len(begins))
    return Sliced((*zip(firsts, strides, strict=True), *rest))


def _divided(layer: Layer) -> Form | None:
    data, axis = (1, 0) if layer.op == "SPLIT" else (0, 2)
    axes = _constant(layer, axis)
    return Divided(data, axes[0] % len(result_shape(layer))) if axes else None


def _resized(layer: Layer) -> Form | None:
    if layer.number("align_corners"):
        return None
    sized = zip(shape_of(layer, 0), result_shape(layer), strict=True)
    times = [made // size if made % size == 0 else 0 for size, made in sized]
    # Only growth by powers of two is exact: see Scaled.
    return Scaled(tuple((0, 0) if n & (n - 1) else (n, min(n, 1)) for n in times), reach=1)


_Make = Callable[[Layer], Form | None]

_FORMS: dict[str, _Make] = {
    **dict.fromkeys(_ELEMENTWISE.split(), lambda layer: Elementwise()),
    **dict.fromkeys(_ALONG_LAST.split(), _along_last),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    **dict.fromkeys(("RESHAPE", "SQUEEZE"), _reshape),
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), _pool),
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _convolution),
    **dict.fromkeys(("PAD", "PADV2"), _padded),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resized),
    **dict.fromkeys(("CUMSUM", "REVERSE_V2"), _along_constant),
    "BATCH_MATMUL": _batch_matmul,
    "CONCATENATION": _concatenation,
    **dict.fromkeys(("SPLIT", "SPLIT_V"), _divided),
    "EXPAND_DIMS": _reshape,
    "FULLY_CONNECTED": _fully_connected,
    "SELECT": _select,
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}
