"""ONNX operators in terms of :mod:`rankslice.frontend.rewriting.regions`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from onnx import GraphProto, TensorProto, helper, numpy_helper

from rankslice.framework.graph import ByteRange, Layer, Tensor, Weight
from rankslice.frontend.formats.onnx.nodes import opset_of
from rankslice.frontend.formats.onnx.reader import OnnxModel
from rankslice.frontend.formats.onnx.weights import constant_values
from rankslice.frontend.formats.pieces import piece_bytes
from rankslice.frontend.rewriting.regions import (
    Concatenated,
    Divided,
    Elementwise,
    Filters,
    Following,
    Form,
    FormOf,
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
    Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
    Cast Ceil Celu Clip Cos Cosh Div Dropout Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod
    Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus
    Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor
    com.microsoft.BiasGelu com.microsoft.FastGelu com.microsoft.Gelu com.microsoft.QuickGelu
"""
_REDUCTIONS = """
    ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare
"""
_GLOBAL_POOLS = """
    GlobalAveragePool GlobalLpPool GlobalMaxPool com.microsoft.QLinearGlobalAveragePool
"""
_NUMPY_BROADCASTS, _RESIZE_HAS_SIZES, _SOFTMAX_HAS_ONE_AXIS = 7, 11, 13
"""From these versions of ONNX's operators on."""
_MAX_SETTINGS = 1024
"""Bytes of an operand whose values are settings."""


def onnx_forms(model: OnnxModel) -> FormOf:
    """Return what is known of a model's layers: of their operators in its version of these."""
    return partial(_form, _Known(model))


def _form(known: _Known, layer: Layer) -> Form | None:
    if known.opset < _NUMPY_BROADCASTS and len(layer.operands) > 1 and _is_elementwise(layer):
        return None
    if make := _FORMS.get(layer.op):
        return make(layer)
    told = _TOLD.get(layer.op)
    return told(layer, known) if told else None


class _Known:
    """What is known of a model beside its layers: its version, and values of small constants."""

    def __init__(self, model: OnnxModel) -> None:
        self.opset = opset_of(model.opsets)
        self._makers = {t.name: layer for layer in model.graph.layers for t in layer.outputs}

    def values(self, layer: Layer, operand: int) -> list[float] | None:
        """Return the values of an operand; ``None`` if it is no small constant, or omitted."""
        held = layer.operands[operand] if operand < len(layer.operands) else None
        if isinstance(held, Weight) and held.nbytes <= _MAX_SETTINGS:
            return constant_values(held).reshape(-1).tolist()
        maker = self._makers.get(held.name) if isinstance(held, Tensor) else None
        if maker is None or maker.op != "Constant" or (held.nbytes or 0) > _MAX_SETTINGS:  # type: ignore[union-attr]
            return None
        assert isinstance(maker.record, ByteRange)
        attribute = GraphProto.FromString(piece_bytes(maker.record)).node[0].attribute[0]
        if attribute.name == "value" and attribute.t.data_location != TensorProto.EXTERNAL:
            return numpy_helper.to_array(attribute.t).reshape(-1).tolist()
        value = helper.get_attribute_value(attribute)
        return [value] if attribute.name in ("value_int", "value_float") else [*value]

    def integers(
        self, layer: Layer, operand: int, name: str, default: Sequence[int] | None = None
    ) -> tuple[int, ...] | None:
        """Return a setting that is an operand or, in some versions, an attribute, if it is known.

        ``default``: what it is if the layer has neither.
        """
        values: object = self.values(layer, operand)
        if _is_omitted(layer, operand):
            values = layer.settings.get(name, default)
        return tuple(map(int, values)) if isinstance(values, list | tuple | range) else None


def _is_omitted(layer: Layer, operand: int) -> bool:
    return operand >= len(layer.operands) or layer.operands[operand] is None


def _is_elementwise(layer: Layer) -> bool:
    return layer.op in _ELEMENTWISE.split()


def _has_one_value(layer: Layer, *operands: int) -> bool:
    return all(math.prod(shape_of(layer, operand)) == 1 for operand in operands)


def _settings(layer: Layer, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = layer.settings.get(name, default)
    return tuple(int(one) for one in value) if isinstance(value, tuple) else default


def _axis(layer: Layer, default: int) -> int:
    return layer.number("axis", default) % len(result_shape(layer))


def _windows(layer: Layer, kernel: tuple[int, ...]) -> tuple[Window, ...] | None:
    """Return the window by axis; ``None`` if its padding is not a plain one."""
    count = len(kernel)
    strides = _settings(layer, "strides", (1,) * count)
    dilations = _settings(layer, "dilations", (1,) * count)
    pads = _settings(layer, "pads", (0,) * 2 * count)
    if layer.number("ceil_mode") and layer.number("count_include_pad"):
        return None
    automatic = str(layer.settings.get("auto_pad", "NOTSET"))
    windows = []
    sides = zip(shape_of(layer, 0)[2:], result_shape(layer)[2:], strict=True)
    for axis, (shape, result) in enumerate(sides):
        size = (kernel[axis] - 1) * dilations[axis] + 1
        before = {"NOTSET": pads[axis], "VALID": 0}.get(automatic)
        window = Window.over(size, strides[axis], shape, result, before)
        if automatic == "SAME_LOWER":
            window = replace(window, before=window.after, after=window.before)
        windows.append(window)
    return tuple(windows)


def _convolution(
    weights: int = 1, per_output: tuple[int, ...] = (), biases: tuple[int, ...] = ()
) -> _Make:
    """Return the form of a convolution: its filters are [outputs, inputs, *window]."""

    def make(layer: Layer) -> Form | None:
        shape = shape_of(layer, weights)
        windows = _windows(layer, shape[2:])
        if windows is None:
            return None
        of_outputs = dict.fromkeys((*per_output, *biases), 0)
        filters = Filters(weights, 0, 1, layer.number("group", 1), of_outputs, biases)
        return Windowed(tuple(range(2, len(shape))), windows, 1, filters)

    return make


def _pool(layer: Layer) -> Form | None:
    kernel = _settings(layer, "kernel_shape", ())
    windows = _windows(layer, kernel)
    axes = tuple(range(2, 2 + len(kernel)))
    return Windowed(axes, windows, 1) if windows else None


def _gemm(layer: Layer) -> Form:
    return Product(
        turns_left=bool(layer.number("transA")),
        turns_right=bool(layer.number("transB")),
        biases=(2,) if len(layer.operands) > 2 else (),
    )


def _quantiser(layer: Layer) -> Form | None:
    if layer.number("block_size"):
        return None
    axis = _axis(layer, 1) if len(result_shape(layer)) > 1 else 0
    return Elementwise(along={1: axis, 2: axis})


def _normalised_from(layer: Layer) -> Form:
    rank = len(result_shape(layer))
    return Elementwise(mixes=tuple(range(_axis(layer, -1), rank)))


def _batch_normalised(layer: Layer) -> Form | None:
    if layer.number("training_mode") or not layer.number("spatial", 1):
        return None
    return Elementwise(along=dict.fromkeys(range(1, 5), 1))


def _instance_normalised(layer: Layer) -> Form:
    rank = len(result_shape(layer))
    return Elementwise(mixes=tuple(range(2, rank)), along={1: 1, 2: 1})


def _softmax(layer: Layer, known: _Known) -> Form:
    if known.opset >= _SOFTMAX_HAS_ONE_AXIS:
        return Elementwise(mixes=(_axis(layer, -1),))
    # All from the axis on is one vector.
    return Elementwise(mixes=tuple(range(_axis(layer, 1), len(result_shape(layer)))))


def _reduction(layer: Layer, known: _Known) -> Form | None:
    rank = len(shape_of(layer, 0))
    axes = known.integers(layer, 1, "axes", ())
    if axes is None or (not axes and layer.number("noop_with_empty_axes")):
        return None
    keeps = bool(layer.number("keepdims", 1))
    return reduced(layer, [axis % rank for axis in axes or range(rank)], keeps)


def _largest(layer: Layer) -> Form:
    axis = layer.number("axis") % len(shape_of(layer, 0))
    return reduced(layer, [axis], bool(layer.number("keepdims", 1)))


def _global_pool(layer: Layer) -> Form | None:
    if layer.number("channels_last"):
        return None
    return reduced(layer, range(2, len(shape_of(layer, 0))))


def _reshape(layer: Layer) -> Form:
    return Reshaped(is_told=layer.op == "Reshape")


def _squeeze(layer: Layer) -> Form | None:
    # Without axes it drops all of size 1, and those of a part may be others.
    has_axes = "axes" in layer.settings or not _is_omitted(layer, 1)
    return Reshaped(is_told=False) if has_axes else None


def _gather(layer: Layer) -> Form:
    data, index = shape_of(layer, 0), shape_of(layer, 1)
    axis = layer.number("axis") % len(data)
    places = range(axis, axis + len(index))
    behind = range(places.stop, places.stop + len(data) - axis - 1)
    return Following({0: (*range(axis), None, *behind), 1: tuple(places)})


def _repeated(layer: Layer) -> Form:
    shape, result = shape_of(layer, 0), result_shape(layer)
    ahead = len(result) - len(shape)
    pairs = zip(shape, result[ahead:], strict=True)
    axes = tuple(ahead + n if one == two else None for n, (one, two) in enumerate(pairs))
    return Following({0: axes}, is_told=layer.op == "Expand")


def _blocks(layer: Layer) -> Form:
    """Return the form of what moves blocks of an image to its channels, or back."""
    size = layer.number("blocksize", 1)
    factor = (size, 1) if layer.op == "DepthToSpace" else (1, size)
    return Scaled(((1, 1), (0, 0), factor, factor))


def _resize(layer: Layer, known: _Known) -> Form | None:
    shape, result = shape_of(layer, 0), result_shape(layer)
    settings = layer.settings
    mode = settings.get("mode", "nearest")
    is_new = layer.op == "Resize" and known.opset >= _RESIZE_HAS_SIZES
    usual = "half_pixel" if is_new else "asymmetric"
    place = settings.get("coordinate_transformation_mode", usual)
    rounds = settings.get("nearest_mode", "round_prefer_floor" if is_new else "floor")
    plain = [("asymmetric", "floor"), ("half_pixel", "round_prefer_floor")]
    if settings.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return None
    is_linear = mode == "linear" and layer.outputs[0].dtype.startswith("float")
    if not (mode == "nearest" and (place, rounds) in plain) and not (
        is_linear and place in ("asymmetric", "half_pixel")
    ):
        return None
    has_sizes = is_new and not _is_omitted(layer, 3)
    factors = [after // before for before, after in zip(shape, result, strict=True)]
    if any(n * f != made for n, f, made in zip(shape, factors, result, strict=True)):
        return None
    if not has_sizes:
        scales = known.values(layer, 2 if is_new else 1) or settings.get("scales")
        axes = _settings(layer, "axes", tuple(range(len(shape))))
        if not isinstance(scales, list | tuple) or [*scales] != [factors[axis] for axis in axes]:
            return None
    reach = int(is_linear)
    return Scaled(tuple((factor, 1) for factor in factors), reach, has_sizes)


def _slice(layer: Layer, known: _Known) -> Form | None:
    starts, ends = (known.integers(layer, n, k) for n, k in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        return None
    shape = shape_of(layer, 0)
    axes = known.integers(layer, 3, "axes", range(len(starts)))
    steps = known.integers(layer, 4, "steps", [1] * len(starts))
    if axes is None or steps is None or min(steps, default=1) < 1:
        return None
    by_axis = dict.fromkeys(range(len(shape)), (0, 1))
    for axis, start, step in zip(axes, starts, steps, strict=True):
        size = shape[axis % len(shape)]
        first = start + size if start < 0 else start
        by_axis[axis % len(shape)] = (min(max(first, 0), size), step)
    return Sliced(tuple(by_axis.values()))


def _pad(layer: Layer, known: _Known) -> Form | None:
    rank = len(result_shape(layer))
    pads, axes = known.integers(layer, 1, "pads"), known.integers(layer, 3, "", range(rank))
    if pads is None or axes is None or min(pads, default=0) < 0:
        return None
    if layer.settings.get("mode", "constant") != "constant":
        return None
    by_axis = dict.fromkeys(range(rank), (0, 0))
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        by_axis[axis % rank] = before, after
    return Padded(tuple(by_axis.values()))


def _spread(layer: Layer) -> Form | None:
    """Return the form of a transposed convolution: only channels are split."""
    if layer.number("group", 1) != 1:
        return None
    axes = tuple(range(2, len(result_shape(layer))))
    filters = Filters(1, 1, 0, per_output={2: 0}, biases=(2,))
    return Windowed(axes, (None,) * len(axes), 1, filters)


def _integer_product(layer: Layer) -> Form | None:
    is_plain = _is_omitted(layer, 2) or _has_one_value(layer, 2)
    return Product(per_output=(3,)) if is_plain and len(shape_of(layer, 3)) < 2 else None


def _quantised_product(layer: Layer) -> Form | None:
    is_plain = _has_one_value(layer, 1, 2, 6, 7) and len(shape_of(layer, 4)) < 2
    return Product(0, 3, per_output=(4, 5)) if is_plain else None


def _transpose(layer: Layer) -> Form:
    rank = len(result_shape(layer))
    return transposed(_settings(layer, "perm", tuple(reversed(range(rank)))))


_Make = Callable[[Layer], Form | None]
_Told = Callable[[Layer, _Known], Form | None]

_FORMS: dict[str, _Make] = {
    **dict.fromkeys(_ELEMENTWISE.split(), lambda layer: Elementwise()),
    **dict.fromkeys(("ArgMax", "ArgMin"), _largest),
    "BatchNormalization": _batch_normalised,
    "InstanceNormalization": _instance_normalised,
    "LRN": lambda layer: Elementwise(mixes=(1,)),
    **dict.fromkeys(
        ("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"),
        _normalised_from,
    ),
    "com.microsoft.SkipLayerNormalization": lambda layer: Elementwise(
        mixes=(len(result_shape(layer)) - 1,)
    ),
    "QuantizeLinear": _quantiser,
    "DequantizeLinear": _quantiser,
    "Conv": _convolution(biases=(2,)),
    "ConvInteger": _convolution(per_output=(3,)),
    "ConvTranspose": _spread,
    "QLinearConv": _convolution(3, per_output=(4, 5), biases=(8,)),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pool),
    **dict.fromkeys(_GLOBAL_POOLS.split(), _global_pool),
    "Gemm": _gemm,
    "MatMul": lambda layer: Product(),
    "MatMulInteger": _integer_product,
    "QLinearMatMul": _quantised_product,
    "Concat": lambda layer: Concatenated(_axis(layer, 1)),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _blocks),
    **dict.fromkeys(("Expand", "Tile"), _repeated),
    **dict.fromkeys(("Flatten", "Reshape", "Unsqueeze"), _reshape),
    "Gather": _gather,
    "Split": lambda layer: Divided(0, _axis(layer, 0)),
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    **dict.fromkeys(
        ("com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"),
        lambda layer: Elementwise(parameters=(1, 2, 4, 5, 6, 7)),
    ),
    **dict.fromkeys(
        ("com.microsoft.QLinearLeakyRelu", "com.microsoft.QLinearSigmoid"),
        lambda layer: Elementwise(parameters=(1, 2, 3, 4)),
    ),
    "com.microsoft.QLinearConcat": lambda layer: Concatenated(_axis(layer, 1), 2, 3),
}

_TOLD: dict[str, _Told] = {
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _softmax),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "Pad": _pad,
    "Slice": _slice,
}
"""Of operators whose settings are operands, or depend on the version."""
