"""ONNX operators in terms of :mod:`rankslice.frontend.rewriting.regions`."""

from __future__ import annotations

from collections.abc import Callable

from rankslice.framework.graph import Layer, Weight
from rankslice.frontend.rewriting.regions import (
    Concatenated,
    Elementwise,
    Filters,
    Form,
    Product,
    Reduced,
    Reshaped,
    Transposed,
    Window,
    Windowed,
    result_shape,
    shape_of,
)

_ELEMENTWISE = """
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift Cast Ceil Clip Cos Cosh Div Dropout
    Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity LeakyRelu
    Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
    Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Tan Tanh ThresholdedRelu Where Xor
    com.microsoft.Gelu com.microsoft.QuickGelu
"""
_REDUCTIONS = "ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum"


def onnx_form(layer: Layer) -> Form | None:
    make = _FORMS.get(layer.op)
    tensors = (*layer.inputs, *layer.outputs[:1])
    if make is None or any(tensor.shape is None for tensor in tensors):
        return None
    return make(layer)


def _setting(layer: Layer, name: str, default: int) -> int:
    value = layer.settings.get(name, default)
    return value if isinstance(value, int) else default


def _settings(layer: Layer, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = layer.settings.get(name, default)
    return tuple(int(one) for one in value) if isinstance(value, tuple) else default


def _axis(layer: Layer, default: int) -> int:
    return _setting(layer, "axis", default) % len(result_shape(layer))


def _windows(layer: Layer, kernel: tuple[int, ...], data: int) -> tuple[Window, ...] | None:
    """Return the window by axis; ``None`` if its padding is not a plain one."""
    count = len(kernel)
    strides = _settings(layer, "strides", (1,) * count)
    dilations = _settings(layer, "dilations", (1,) * count)
    pads = _settings(layer, "pads", (0,) * 2 * count)
    shape, result = shape_of(layer, data)[2:], result_shape(layer)[2:]
    if _setting(layer, "ceil_mode", 0) and _setting(layer, "count_include_pad", 0):
        return None
    automatic = str(layer.settings.get("auto_pad", "NOTSET"))
    windows = []
    for axis in range(count):
        size = (kernel[axis] - 1) * dilations[axis] + 1
        before, after = pads[axis], pads[count + axis]
        # What ceil_mode and SAME add shows in the size of the result.
        span = (result[axis] - 1) * strides[axis] + size
        if automatic.startswith("SAME"):
            total = max(span - shape[axis], 0)
            before = total // 2 if automatic == "SAME_UPPER" else total - total // 2
        elif automatic == "VALID":
            before = 0
        after = max(span - shape[axis] - before, 0)
        windows.append(Window(size, strides[axis], before, after))
    return tuple(windows)


def _convolution(data: int = 0, weights: int = 1, **others: tuple[int, ...]) -> _Make:
    """Return the form of a convolution: its filters are [outputs, inputs, *window]."""
    per_output = others.get("per_output", ())
    biases = others.get("biases", ())

    def make(layer: Layer) -> Form | None:
        shape = shape_of(layer, weights)
        windows = _windows(layer, shape[2:], data)
        if windows is None:
            return None
        return Windowed(
            tuple(range(2, len(shape))),
            windows,
            1,
            Filters(
                weights,
                0,
                1,
                _setting(layer, "group", 1),
                dict.fromkeys((*per_output, *biases), 0),
                biases,
            ),
        )

    return make


def _pool(layer: Layer) -> Form | None:
    kernel = _settings(layer, "kernel_shape", ())
    windows = _windows(layer, kernel, 0)
    axes = tuple(range(2, 2 + len(kernel)))
    return Windowed(axes, windows, 1) if windows else None


def _gemm(layer: Layer) -> Form:
    return Product(
        turns_left=bool(_setting(layer, "transA", 0)),
        turns_right=bool(_setting(layer, "transB", 0)),
        biases=(2,) if len(layer.operands) > 2 else (),
    )


def _quantiser(layer: Layer) -> Form | None:
    if _setting(layer, "block_size", 0):
        return None
    axis = _axis(layer, 1) if len(result_shape(layer)) > 1 else 0
    return Elementwise(along={1: axis, 2: axis})


def _normalised_from(layer: Layer) -> Form:
    rank = len(result_shape(layer))
    return Elementwise(mixes=tuple(range(_axis(layer, -1), rank)))


def _softmax(layer: Layer) -> Form:
    return Elementwise(mixes=(_axis(layer, -1),))


def _reduction(layer: Layer) -> Form | None:
    rank = len(shape_of(layer, 0))
    axes = _settings(layer, "axes", ())
    if len(layer.operands) > 1 or not axes:
        return None
    keeps = bool(_setting(layer, "keepdims", 1))
    return Reduced(tuple(axis % rank for axis in axes), keeps)


def _global_pool(layer: Layer) -> Form:
    return Reduced(tuple(range(2, len(shape_of(layer, 0)))))


def _reshape(layer: Layer) -> Form | None:
    is_told = layer.op == "Reshape"
    if is_told and not (len(layer.operands) > 1 and isinstance(layer.operands[1], Weight)):
        return None
    return Reshaped(is_told)


def _transpose(layer: Layer) -> Form:
    rank = len(result_shape(layer))
    return Transposed(_settings(layer, "perm", tuple(reversed(range(rank)))))


_Make = Callable[[Layer], Form | None]

_FORMS: dict[str, _Make] = {
    **dict.fromkeys(_ELEMENTWISE.split(), lambda layer: Elementwise()),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    "BatchNormalization": lambda layer: Elementwise(along=dict.fromkeys(range(1, 5), 1)),
    "LRN": lambda layer: Elementwise(mixes=(1,)),
    "LayerNormalization": _normalised_from,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "QuantizeLinear": _quantiser,
    "DequantizeLinear": _quantiser,
    "Conv": _convolution(biases=(2,)),
    "ConvInteger": _convolution(),
    "QLinearConv": _convolution(0, 3, per_output=(4, 5), biases=(8,)),
    "AveragePool": _pool,
    "MaxPool": _pool,
    "GlobalAveragePool": _global_pool,
    "GlobalMaxPool": _global_pool,
    "Gemm": _gemm,
    "MatMul": lambda layer: Product(),
    "MatMulInteger": lambda layer: Product(per_output=(3,)),
    "QLinearMatMul": lambda layer: Product(0, 3, per_output=(4, 5)),
    "Concat": lambda layer: Concatenated(_axis(layer, 0)),
    "Flatten": _reshape,
    "Reshape": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
    "Transpose": _transpose,
}
