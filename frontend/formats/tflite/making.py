"""TensorFlow Lite operators of layers that no file has, and of parts of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import (
    Box,
    ByteRange,
    Convert,
    Crop,
    Graph,
    Join,
    Layer,
    PartOf,
    Renamed,
    Scales,
    Sum,
    Tensor,
    Weight,
    values_bytes,
)
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.pieces import Piece, Pieces, coalesce, stored_pieces
from rankslice.frontend.formats.tflite.editor import Editor, packed_settings
from rankslice.frontend.formats.tflite.operators import attributes
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.formats.tflite.schema import DTYPES
from rankslice.frontend.formats.tflite.wire import Table, Value, packed
from rankslice.frontend.rewriting.boxes import whole

_VERSIONS = {
    "CONCATENATION": {"int8": 2, "int16": 3},
    "DEQUANTIZE": {"int8": 2},
    "SLICE": {"int8": 2, "string": 3, "int16": 4},
}
"""Version of an operator that first knows a type; of others it is 1."""
_LARGEST_RANK, _OF_LARGER_RANK = 4, {"SLICE": 5}

_RESHAPE, _SLICE, _JOIN, _ADD = "RESHAPE", "SLICE", "CONCATENATION", "ADD"


def wire_fault(model: TfliteModel, dtype: str) -> str:
    return "LiteRT has no bfloat16 for programs in Python" if dtype == "bfloat16" else ""


def with_made_layers(model: TfliteModel, graph: Graph) -> TfliteModel:
    """Return a model with another graph, whose made layers have got their operators.

    Raises:
        RankSliceError: a result with a scale per channel is made in parts of these channels.
    """
    maker = _Maker(model)
    layers = tuple(map(maker.layer, graph.layers))
    return replace(
        model,
        graph=replace(graph, layers=layers),
        root=maker.model({}, {}),
        buffers=tuple(maker.buffers),
        tensor_names=tuple(maker.number_of),
        operators_of=maker.operators_of,
        operators=maker.kinds,
        bodies=tuple(maker.bodies),
        shapes={**model.shapes, **maker.shapes},
        symbols={**model.symbols, **maker.symbols},
    )


class _Maker(Editor):
    def __init__(self, model: TfliteModel) -> None:
        super().__init__(model.root)
        self._model, self._tables = model, tuple(self.operators)
        self.operators = []
        self._known = {layer.name: layer for layer in model.graph.layers}
        self.buffers: list[ByteRange | Pieces | None] = list(model.buffers)
        self.operators_of: dict[str, tuple[int, ...]] = {}
        self.kinds: dict[str, tuple[str, ...]] = {}
        self.bodies: list[tuple[int, ...]] = []
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.symbols: dict[int, tuple[str, ...]] = {}
        self.number_of = {name: number for number, name in enumerate(model.tensor_names)}
        self._constants: dict[tuple[Sequence[int], ...], int] = {}

    def layer(self, layer: Layer) -> Layer:
        """Append the operators of a layer; return it with its operator's name and settings."""
        start, making, known = len(self.operators), layer.making, self._known.get(layer.name)
        is_copy = making is None or isinstance(making, Renamed)
        if is_copy or (known is not None and known.making is not None):
            self._again(layer, layer.name if known else layer.origin)
        else:
            numbers = [self._operand(operand) for operand in layer.operands]
            if isinstance(making, PartOf):
                self._part(layer, numbers, making)
            elif isinstance(making, Sum):
                self._sum(layer.outputs[0], layer.name, numbers, making)
            elif isinstance(making, Convert):
                self._converted(layer, numbers[0], making.scales)
            else:
                assert isinstance(making, Crop | Join)
                self._moved(layer.outputs[0], numbers, making)
            self.bodies += [()] * (len(self.operators) - start)
            last = self.operators[-1]
            kind = self.kind(last)
            self.kinds[layer.name] = (kind,)
            layer = replace(layer, op=kind, attributes=tuple(attributes(last)))
        self.operators_of[layer.name] = tuple(range(start, len(self.operators)))
        return layer

    def _again(self, layer: Layer, name: str) -> None:
        """Append the operators that a layer of the model has, for tensors of other names, too."""
        known, positions = self._known[name], self._model.operators_of[name]
        pairs = zip((*known.inputs, *known.outputs), (*layer.inputs, *layer.outputs), strict=True)
        numbers = {
            (number := self.number_of[old.name]): self._tensor(new, number) for old, new in pairs
        }
        for position in positions:
            table = self._tables[position]
            sides = {
                side: packed("tensor", *(numbers.get(n, n) for n in table.numbers(side)))
                for side in ("inputs", "outputs")
            }
            self.operators.append(table.changed(sides))
            self.bodies.append(self._model.bodies[position])
        self.kinds[layer.name] = self._model.operators[name]

    def _converted(self, layer: Layer, number: int, scales: Scales | None) -> None:
        source, result = layer.inputs[0], layer.outputs[0]
        name, quantisation = "DEQUANTIZE", None
        settings: dict[str, list[int]] = {}
        source_type, result_type = (DTYPES.index(tensor.dtype) for tensor in (source, result))
        if scales is None:
            name = "CAST"
            settings = {"in_data_type": [source_type], "out_data_type": [result_type]}
        elif source.dtype == "float32":
            name = "QUANTIZE"
            kind = "QuantizationParameters"
            numbers = {"scale": scales.scales, "zero_point": scales.zero_points}
            quantisation = Table(kind, packed_settings(kind, numbers))
        made = self._tensor(result, number)
        self._change(made, {"type": packed("byte", result_type), "quantization": quantisation})
        self.operator(name, [number], made, settings, _version(name, source))

    def _moved(self, tensor: Tensor, numbers: Sequence[int], making: Crop | Join) -> None:
        """Append the operator of a layer that computes nothing."""
        result = self._tensor(tensor, numbers[0], making.box if isinstance(making, Crop) else None)
        name, settings = _SLICE, {}
        if isinstance(making, Crop):
            begins = [begin for begin, _ in making.box]
            numbers = [*numbers, self._numbers(begins), self._numbers(tensor.shape or ())]
        else:
            name, settings = _JOIN, {"axis": [making.axis]}
        self.operator(name, numbers, result, settings, _version(name, tensor))

    def _sum(self, tensor: Tensor, layer: str, numbers: Sequence[int], making: Sum) -> None:
        result = self._tensor(tensor, numbers[0])
        total, *others = numbers
        for place, other in enumerate(others, 1):
            made, settings = result, {"fused_activation_function": [int(making.activation or 0)]}
            if place < len(others):
                partial = replace(tensor, name=f"{tensor.name} so far {place} of {layer}")
                made, settings = self._tensor(partial, result), {}
            self.operator(_ADD, [total, other], made, settings)
            total = made

    def _part(self, layer: Layer, numbers: Sequence[int], making: PartOf) -> None:
        """Append an operator like that of the layer, with other operands and settings."""
        (position,) = self._model.operators_of[layer.origin]
        original, changes = self._tables[position], dict(making.changes)
        tensor = layer.outputs[0]
        result = self._tensor(tensor, original.numbers("outputs")[0], making.box)
        if "shape" in changes:
            sizes = tensor.shape or ()
            both = [numbers[0], self._numbers(sizes)]
            self.operator(_RESHAPE, both, result, {"new_shape": sizes})
            return
        values: dict[str, Value | None] = {
            "inputs": packed("tensor", *self._operands(layer, numbers, changes)),
            "outputs": packed("tensor", result),
        }
        if options := original.table("builtin_options"):
            settings = _settings(layer, options, changes)
            values["builtin_options"] = options.changed(settings)
        self.operators.append(original.changed(values))

    def _operands(
        self, layer: Layer, numbers: Sequence[int], changes: Mapping[str, Any]
    ) -> list[int]:
        """Return the operands of a part: with its own sizes where the operator is told some."""
        changed = list(numbers)
        shape, dtype = layer.outputs[0].shape or (), layer.outputs[0].dtype
        if layer.op == _JOIN:
            changed = [number for number in numbers if number >= 0]
        elif "without" in changes:
            # A convolution of LiteRT has to have a bias.
            zeros = bytes(values_bytes(dtype, shape[-1:]))
            changed[2] = self._stored("no bias", dtype, shape[-1:], zeros)
        elif "pads" in changes:
            pads = [pad for both in changes["pads"] for pad in both]
            changed[1] = self._numbers(pads, (len(pads) // 2, 2))
        elif layer.op.startswith("RESIZE_"):
            changed[1] = self._numbers(shape[1:3])
        elif layer.op == _SLICE:
            changed[1:3] = [self._numbers([0] * len(shape)), self._numbers(shape)]
        elif layer.op == "STRIDED_SLICE":
            begins = layer.operands[1]
            count = (begins.shape or (0,))[0] if begins else 0
            ends = (layer.inputs[0].shape or ())[:count]
            changed[1:3] = [self._numbers([0] * count), self._numbers(ends)]
        while changed[-1] < 0:
            changed.pop()
        return changed

    def _operand(self, operand: Tensor | Weight | None) -> int:
        if operand is None:
            return -1
        if operand.name not in self.number_of:
            assert isinstance(operand, Weight)
            assert operand.part
            tensor = Tensor(operand.name, operand.dtype, operand.shape)
            number = self._tensor(tensor, self.number_of[operand.part.name], operand.part.box)
            self._change(number, {"buffer": self._buffer(*coalesce(stored_pieces(operand)))})
        return self.number_of[operand.name]

    def _numbers(self, numbers: Sequence[int], shape: tuple[int, ...] = ()) -> int:
        """Return the number of a constant of int32."""
        key = (*numbers,), shape
        if key not in self._constants:
            name, content = f"sizes {len(self._constants)}", packed("int", *numbers)
            number = self._stored(name, "int32", shape or (len(numbers),), content)
            self._constants[key] = number
        return self._constants[key]

    def _stored(self, name: str, dtype: str, shape: Sequence[int], content: bytes) -> int:
        """Append a constant; return its number."""
        values = {
            "shape": packed("int", *shape),
            "type": packed("byte", DTYPES.index(dtype)),
            "buffer": self._buffer(content),
        }
        return self._named(name, values)

    def _buffer(self, *content: Piece) -> bytes:
        self.buffers.append(Pieces(content))
        return packed("buffer", len(self.buffers) - 1)

    def _tensor(self, tensor: Tensor, like: int, box: Box | None = None) -> int:
        """Return the number of a tensor; one that is not there yet is made like another one."""
        if tensor.name not in self.number_of:
            original, shape = self.tensors[like], tensor.shape or ()
            values = {
                **original.values,
                "shape": packed("int", *shape),
                "quantization": _quantisation(tensor.name, original, box),
            }
            dropped = ("buffer", "is_variable", "shape_signature", "sparsity")
            kept = {n: v for n, v in values.items() if v is not None and n not in dropped}
            number = self._named(tensor.name, kept)
            self.shapes[number] = shape
            self.symbols[number] = tensor.symbols
        return self.number_of[tensor.name]

    def _named(self, name: str, values: Mapping[str, Value]) -> int:
        while name in self.number_of:
            name += "'"
        number = self.tensor(Table("Tensor", {**values, "name": name.encode()}))
        self.number_of[name] = number
        return number

    def _change(self, number: int, values: Mapping[str, Value | None]) -> None:
        self.tensors[number] = self.tensors[number].changed(values)


def _settings(layer: Layer, options: Table, changes: Mapping[str, Any]) -> dict[str, Value | None]:
    """Return the settings of a part that differ from those of the whole layer."""
    settings: dict[str, Value | None] = {}
    if "partial" in changes:
        settings["fused_activation_function"] = None
    if layer.op == "DEPTHWISE_CONV_2D":
        channels = [
            (shape or (1,))[-1] for shape in (layer.inputs[0].shape, layer.outputs[0].shape)
        ]
        multiplier = {"depth_multiplier": [channels[1] // channels[0]]}
        settings |= packed_settings(options.kind, multiplier)
    if layer.op == "STRIDED_SLICE":
        settings |= dict.fromkeys(("begin_mask", "end_mask", "offset"))
    return settings


def _version(name: str, tensor: Tensor) -> int:
    if len(tensor.shape or ()) > _LARGEST_RANK and name in _OF_LARGER_RANK:
        return _OF_LARGER_RANK[name]
    return _VERSIONS.get(name, {}).get(tensor.dtype, 1)


def _quantisation(name: str, original: Table, box: Box | None) -> Table | None:
    """Return the quantisation of a box of a tensor: scales per channel are cut as the values."""
    table = original.table("quantization")
    if table is None or len(table.numbers("scale")) <= 1:
        return table
    axis = table.number("quantized_dimension")
    if not box:
        found = "it has a scale per channel, and would be put together of parts"
        raise RankSliceError(Mistake(f"tensor {quoted(name)}", found, "keep its layer whole"))
    begin, end = box[axis]
    if (begin, end) == whole(original.numbers("shape"))[axis]:
        return table
    cut: dict[str, Value | None] = {"min": None, "max": None}
    for field, code in (("scale", "float"), ("zero_point", "long")):
        numbers = table.numbers(field)
        if len(numbers) > 1:
            cut[field] = packed(code, *numbers[begin:end])
    return table.changed(cut)
