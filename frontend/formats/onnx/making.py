"""ONNX nodes of layers that no file has, and of parts of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Making,
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
    read = [weight for layer in layers for weight in layer.weights]
    weights = {weight.name: weight for weight in (*graph.weights, *read)}
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
    is_open = axis is not None and tensor.symbols and tensor.symbols[axis]
    return None if is_open or opset_of(model.opsets) < _HAS_AXIS else axis


class _Maker:
    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._opset = opset_of(model.opsets)
        self._read: dict[Weight, Weight] = {}
        self.operators = dict(model.operators)
        self.inner_data = dict(model.inner_data)

    def layer(self, layer: Layer) -> Layer:
        if isinstance(layer.making, Sum) and len(layer.operands) > _ADDED_AT_ONCE:
            return self._added(layer)
        operands = [self._plain(o) if isinstance(o, Weight) else o for o in layer.operands]
        node = _Node(layer, operands, self._opset)
        record = GraphProto(node=[node.made()]).SerializeToString()
        self.operators.setdefault(layer.name, operators_of([node.proto], {}))
        if inner := inner_data_of(self._model, layer.record):
            self.inner_data[record] = inner
        return replace(
            layer,
            record=record,
            operands=tuple(node.operands),
            weights=tuple(dict.fromkeys(o for o in node.operands if isinstance(o, Weight))),
            attributes=attributes_of(node.proto),
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


class _Node:
    """The node of a layer that is made, and its operands."""

    def __init__(self, layer: Layer, operands: list[Tensor | Weight | None], opset: int) -> None:
        self.operands, self._layer, self._opset = operands, layer, opset
        self.proto = NodeProto()

    def made(self) -> NodeProto:
        layer, node = self._layer, self.proto
        if layer.record:  # a layer of the model, or one that was made and has other names now
            node.CopyFrom(GraphProto.FromString(piece_bytes(layer.record)).node[0])
            if isinstance(layer.making, PartOf):
                self._change(dict(layer.making.changes))
            lacks_bias = layer.op == "Gemm" and self.operands[2:] == [None]
            if lacks_bias and self._opset < _GEMM_NEEDS_NO_BIAS:
                zero = np.zeros(1, layer.outputs[0].dtype)
                self.operands[2] = self._constant("no bias", zero)
        else:
            self._make(layer.making)
        node.name = layer.name
        while self.operands and self.operands[-1] is None:
            self.operands.pop()
        node.ClearField("input")
        node.input.extend(operand.name if operand else "" for operand in self.operands)
        results = iter(tensor.name for tensor in layer.outputs)
        names = [next(results, "") if name else "" for name in node.output or layer.outputs]
        node.ClearField("output")
        node.output.extend(names)  # a part has none that nobody reads
        return node

    def _make(self, making: Making | None) -> None:
        node = self.proto
        if isinstance(making, Crop):
            node.op_type = "Slice"
            sized = enumerate(zip(making.box, self._layer.inputs[0].shape or (), strict=True))
            self._slice({axis: ends for axis, (ends, size) in sized if ends != (0, size)})
        elif isinstance(making, Convert):
            self._convert(making.scales)
        elif isinstance(making, Join):
            node.op_type = "Concat"
            self._set("axis", making.axis)
        elif isinstance(making, Sum):
            node.op_type = "Add"
        elif isinstance(making, Transpose):
            node.op_type = "Transpose"
            self._set("perm", making.permutation)

    def _convert(self, scales: Scales | None) -> None:
        result = self._layer.outputs[0].dtype
        if scales is None:
            self.proto.op_type = "Cast"
            self._set("to", element_type(result))
            return
        self.proto.op_type = "DequantizeLinear" if result == "float32" else "QuantizeLinear"
        shape = () if scales.axis is None else (len(scales.scales),)
        self._set("axis", scales.axis)
        for name, numbers, kind in (
            ("scale", scales.scales, np.float32),
            ("zero point", scales.zero_points, np.int8),
        ):
            self.operands.append(self._constant(name, np.asarray(numbers, kind).reshape(shape)))

    def _change(self, changes: Mapping[str, Any]) -> None:
        op = self.proto.op_type
        if "pads" in changes:
            begins, ends = zip(*changes["pads"], strict=True)
            if op == "Pad":
                self._tell(1, "pads", [*begins, *ends], _PAD_HAS_OPERANDS)
                del self.operands[3:]  # its axes: now all
            else:
                self._set("pads", [*begins, *ends])
                self._set("auto_pad", None)
                self._set("ceil_mode", None)
        if "group" in changes:
            self._set("group", changes["group"])
        if "shape" in changes and op == "Resize":
            self._set("axes", None)
            self.operands[1:] = [None, None, self._integers("sizes", changes["shape"])]
        elif "shape" in changes:
            self._tell(1, "shape", changes["shape"], _RESHAPE_HAS_OPERAND)
        if "slice" in changes:
            ends, steps = zip(*changes["slice"], strict=True)
            self._slice({axis: (0, end) for axis, end in enumerate(ends)}, steps)
        if op in ("Concat", "QLinearConcat"):
            self.operands = [operand for operand in self.operands if operand is not None]

    def _slice(self, ends_of: Mapping[int, tuple[int, int]], steps: Sequence[int] = ()) -> None:
        """Set where a slice begins and ends, by axis; and its steps, unless they are 1."""
        starts, ends = ([places[side] for places in ends_of.values()] for side in (0, 1))
        values = {"starts": starts, "ends": ends, "axes": [*ends_of]}
        if steps and self._opset >= _SLICE_HAS_OPERANDS:
            values["steps"] = [*steps]
        for number, (name, numbers) in enumerate(values.items(), start=1):
            self._tell(number, name, numbers, _SLICE_HAS_OPERANDS)

    def _tell(self, number: int, name: str, values: Sequence[int], since: int) -> None:
        """Give a setting that is an operand since a version, and an attribute before."""
        if self._opset < since:
            self._set(name, values)
        else:
            self.operands[number : number + 1] = [self._integers(name, values)]

    def _set(self, name: str, value: int | Sequence[int] | None) -> None:
        """Set an attribute; ``None`` takes it away."""
        others = [attribute for attribute in self.proto.attribute if attribute.name != name]
        self.proto.ClearField("attribute")
        self.proto.attribute.extend(others)
        if value is not None:
            self.proto.attribute.append(helper.make_attribute(name, value))

    def _integers(self, what: str, values: Sequence[int]) -> Weight:
        return self._constant(what, np.asarray(values, "<i8"))

    def _constant(self, what: str, values: NDArray[Any]) -> Weight:
        """Return a made operand."""
        name, content = f"{what} of {self._layer.name}", values.tobytes()
        dtype, size = values.dtype.name, len(content)
        return Weight(name, dtype, values.shape, size, _NOWHERE, None, content=content)
