"""ONNX nodes of layers that no file has, and of parts of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper

from rankslice.framework.graph import (
    ByteRange,
    Convert,
    Crop,
    Graph,
    Join,
    Layer,
    PartOf,
    Scales,
    Sum,
    Tensor,
    Transpose,
    Weight,
)
from rankslice.frontend.formats.onnx.nodes import attributes_of, operators_of, opset_of
from rankslice.frontend.formats.onnx.reader import OnnxModel, inner_data_of
from rankslice.frontend.formats.onnx.types import element_type
from rankslice.frontend.formats.onnx.weights import constant_values
from rankslice.frontend.formats.pieces import piece_bytes

_RESHAPE_HAS_OPERAND, _SLICE_HAS_OPERANDS, _PAD_HAS_OPERANDS, _GEMM_NEEDS_NO_BIAS = 5, 10, 11, 11
"""From these versions of ONNX's operators on."""

_ADDED_AT_ONCE = 2

_HAS_TYPE = {"float16": 6, "bfloat16": 13, "int8": 10}
"""The first version of ONNX's operators that converts to a type."""
_HAS_AXIS = 13
"""The first one that quantises each channel by itself."""

_NOWHERE = ByteRange(Path(), 0, 0)


def with_made_layers(model: OnnxModel, graph: Graph) -> OnnxModel:
    """Return a model with another graph, whose made layers have got their nodes.

    Layers that the model has already are left as they are.
    """
    maker = _Maker(model)
    known = {layer.name: layer for layer in model.graph.layers}
    layers = tuple(
        maker.layer(layer) if layer.making and known.get(layer.name) is not layer else layer
        for layer in graph.layers
    )
    weights = {weight.name: weight for layer in layers for weight in layer.weights}
    weights = {**{weight.name: weight for weight in graph.weights}, **weights}
    return replace(
        model,
        graph=replace(graph, layers=layers, weights=tuple(weights.values())),
        operators=maker.operators,
        inner_data=maker.inner_data,
    )


def wire_fault(model: OnnxModel, dtype: str) -> str:
    version, needed = opset_of(model.opsets), _HAS_TYPE[dtype]
    return "" if version >= needed else f"it has operators of version {version}, not {needed}"


def channel_axis(model: OnnxModel, tensor: Tensor) -> int | None:
    """Return the axis of an image's channels, or of a token's features, if its size is fixed."""
    axis = {3: 2, 4: 1, 5: 1}.get(len(tensor.shape or ()))
    if (
        axis is None
        or opset_of(model.opsets) < _HAS_AXIS
        or (tensor.symbols and tensor.symbols[axis])
    ):
        return None
    return axis


class _Maker:
    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._opset = opset_of(model.opsets)
        self._read: dict[Weight, Weight] = {}
        self.operators = dict(model.operators)
        self.inner_data = dict(model.inner_data)

    def layer(self, layer: Layer) -> Layer:
        operands: list[Tensor | Weight | None] = [
            self._plain(o) if isinstance(o, Weight) else o for o in layer.operands
        ]
        node = NodeProto()
        if layer.record:  # a layer of the model, or one that was made and has other names now
            node.CopyFrom(GraphProto.FromString(piece_bytes(layer.record)).node[0])
            if isinstance(layer.making, PartOf):
                operands = self._changed(layer, node, operands, dict(layer.making.changes))
            if layer.op == "Gemm" and operands[2:] == [None] and self._opset < _GEMM_NEEDS_NO_BIAS:
                operands[2] = _zero(layer)
        elif isinstance(layer.making, Crop):
            operands += self._sliced(layer, node, layer.making)
        elif isinstance(layer.making, Convert):
            operands += _converted(layer, node, layer.making.scales)
        elif isinstance(layer.making, Join):
            node.op_type = "Concat"
            node.attribute.append(helper.make_attribute("axis", layer.making.axis))
        elif isinstance(layer.making, Sum) and len(operands) > _ADDED_AT_ONCE:
            return self._added(layer)
        elif isinstance(layer.making, Sum):
            node.op_type = "Add"
        elif isinstance(layer.making, Transpose):
            node.op_type = "Transpose"
            node.attribute.append(helper.make_attribute("perm", layer.making.permutation))
        node.name = layer.name
        while operands and operands[-1] is None:
            operands.pop()
        node.ClearField("input")
        node.input.extend(operand.name if operand else "" for operand in operands)
        results = iter(tensor.name for tensor in layer.outputs)
        names = [next(results, "") if name else "" for name in node.output or layer.outputs]
        node.ClearField("output")
        node.output.extend(names)  # a part has none that nobody reads
        self.operators.setdefault(layer.name, operators_of([node], {}))
        weights = dict.fromkeys(one for one in operands if isinstance(one, Weight))
        record = GraphProto(node=[node]).SerializeToString()
        if inner := inner_data_of(self._model, layer.record):
            self.inner_data[record] = inner
        return replace(
            layer,
            record=record,
            operands=tuple(operands),
            weights=tuple(weights),
            attributes=attributes_of(node),
        )

    def _added(self, layer: Layer) -> Layer:
        """Return a layer of several nodes: the operator Sum takes no integers."""
        result = layer.outputs[0].name
        total, *others = (tensor.name for tensor in layer.inputs)
        nodes = []
        for number, name in enumerate(others, start=2):
            made = result if number > len(others) else f"{result} of {number} parts"
            nodes.append(helper.make_node("Add", [total, name], [made], f"{layer.name} {number}"))
            total = made
        self.operators[layer.name] = operators_of(nodes, {})
        return replace(layer, record=GraphProto(node=nodes).SerializeToString())

    def _changed(
        self,
        layer: Layer,
        node: NodeProto,
        operands: list[Tensor | Weight | None],
        changes: Mapping[str, Any],
    ) -> list[Tensor | Weight | None]:
        op = node.op_type

        def tell(number: int, name: str, values: Sequence[int], since: int = 1) -> None:
            if self._opset < since:
                _set(node, name, values)
            else:
                operands[number : number + 1] = [_integers(layer, name, values)]

        if "pads" in changes:
            begins, ends = zip(*changes["pads"], strict=True)
            if op == "Pad":
                tell(1, "pads", [*begins, *ends], _PAD_HAS_OPERANDS)
                del operands[3:]  # its axes: now all
            else:
                _set(node, "pads", [*begins, *ends])
                _set(node, "auto_pad", None)
                _set(node, "ceil_mode", None)
        if "group" in changes:
            _set(node, "group", changes["group"])
        if "shape" in changes and op == "Resize":
            _set(node, "axes", None)
            operands[1:] = [None, None, _integers(layer, "sizes", changes["shape"])]
        elif "shape" in changes:
            tell(1, "shape", changes["shape"], _RESHAPE_HAS_OPERAND)
        if "slice" in changes:
            ends, steps = zip(*changes["slice"], strict=True)
            axes = range(len(ends))
            values = {"starts": [0] * len(ends), "ends": ends, "axes": axes, "steps": steps}
            if self._opset < _SLICE_HAS_OPERANDS:
                del values["steps"]  # they are all 1
            for number, (name, numbers) in enumerate(values.items(), start=1):
                tell(number, name, [*numbers], _SLICE_HAS_OPERANDS)
        if op in ("Concat", "QLinearConcat"):
            operands = [operand for operand in operands if operand is not None]
        return operands

    def _sliced(self, layer: Layer, node: NodeProto, crop: Crop) -> Iterator[Weight]:
        node.op_type = "Slice"
        shape = layer.inputs[0].shape or ()
        axes = [axis for axis, ends in enumerate(crop.box) if ends != (0, shape[axis])]
        starts, ends = ([crop.box[axis][side] for axis in axes] for side in (0, 1))
        if self._opset < _SLICE_HAS_OPERANDS:
            for name, values in (("starts", starts), ("ends", ends), ("axes", axes)):
                node.attribute.append(helper.make_attribute(name, values))
            return
        yield _integers(layer, "starts", starts)
        yield _integers(layer, "ends", ends)
        yield _integers(layer, "axes", axes)

    def _plain(self, weight: Weight) -> Weight:
        """Return a weight; a part of one whose values are not stored as plain bytes has its own."""
        if weight.part is None or weight.data is not None:
            return weight
        if weight not in self._read:
            stored = constant_values(replace(weight, part=None))
            values = stored[tuple(slice(*ends) for ends in weight.part.box)]
            content = np.ascontiguousarray(values).tobytes()
            self._read[weight] = replace(weight, content=content, part=None)
        return self._read[weight]


def _set(node: NodeProto, name: str, value: int | Sequence[int] | None) -> None:
    """Set an attribute; ``None`` takes it away."""
    others = [attribute for attribute in node.attribute if attribute.name != name]
    node.ClearField("attribute")
    node.attribute.extend(others)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def _converted(layer: Layer, node: NodeProto, scales: Scales | None) -> Iterator[Weight]:
    if scales is None:
        node.op_type = "Cast"
        node.attribute.append(helper.make_attribute("to", element_type(layer.outputs[0].dtype)))
        return
    is_back = layer.outputs[0].dtype == "float32"
    node.op_type = "DequantizeLinear" if is_back else "QuantizeLinear"
    shape = () if scales.axis is None else (len(scales.scales),)
    if scales.axis is not None:
        node.attribute.append(helper.make_attribute("axis", scales.axis))
    yield _constant(layer, "scale", np.asarray(scales.scales, "<f4").reshape(shape))
    yield _constant(layer, "zero point", np.asarray(scales.zero_points, np.int8).reshape(shape))


def _zero(layer: Layer) -> Weight:
    return _constant(layer, "no bias", np.zeros(1, layer.outputs[0].dtype))


def _integers(layer: Layer, what: str, values: Sequence[int]) -> Weight:
    return _constant(layer, what, np.asarray(values, "<i8"))


def _constant(layer: Layer, what: str, values: NDArray[Any]) -> Weight:
    """Return a made operand."""
    name, content = f"{what} of {layer.name}", values.tobytes()
    dtype = values.dtype.name
    return Weight(name, dtype, values.shape, len(content), _NOWHERE, None, content=content)
