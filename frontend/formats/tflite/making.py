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
    Transpose,
    Weight,
    values_bytes,
)
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.pieces import Pieces, coalesce, stored_pieces
from rankslice.frontend.formats.tflite.editor import Editor, packed_settings
from rankslice.frontend.formats.tflite.operators import attributes, operator_name
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.formats.tflite.references import MAIN
from rankslice.frontend.formats.tflite.schema import DTYPES
from rankslice.frontend.formats.tflite.wire import Table, Value, packed
from rankslice.frontend.rewriting.boxes import whole

_VERSIONS = {
    "CONCATENATION": {"int8": 2, "int16": 3},
    "DEQUANTIZE": {"int8": 2},
    "SLICE": {"int8": 2, "string": 3, "int16": 4},
    "TRANSPOSE": {"int8": 2, "int16": 4},
}
"""Version of an operator that first knows a type; of others it is 1."""
_LARGEST_RANK, _OF_LARGER_RANK = 4, {"SLICE": 5, "TRANSPOSE": 5}

_RESHAPE, _SLICE, _JOIN, _ADD, _TRANSPOSE = "RESHAPE", "SLICE", "CONCATENATION", "ADD", "TRANSPOSE"


def wire_fault(model: TfliteModel, dtype: str) -> str:
    return "LiteRT has no bfloat16 for programs in Python" if dtype == "bfloat16" else ""


def with_made_layers(model: TfliteModel, graph: Graph) -> TfliteModel:
    """Return a model with another graph, whose made layers have got their operators.

    Raises:
        RankSliceError: a result with a scale per channel is made in parts of these channels.
    """
    maker = _Maker(model)
    layers = tuple(map(maker.layer, graph.layers))
    editor = maker.editor
    main = model.main.changed(
        {"tensors": tuple(editor.tensors), "operators": tuple(editor.operators)}
    )
    root = model.root.changed(
        {
            "subgraphs": (main, *model.subgraphs[MAIN + 1 :]),
            "operator_codes": tuple(editor.codes),
            "buffers": (
                *model.root.tables("buffers"),
                *[Table("Buffer", {})] * (len(maker.buffers) - len(model.buffers)),
            ),
        }
    )
    return replace(
        model,
        graph=replace(graph, layers=layers),
        root=root,
        buffers=tuple(maker.buffers),
        tensor_names=tuple(maker.names),
        operators_of=maker.operators_of,
        operators={layer.name: maker.kinds[layer.name] for layer in layers},
        bodies=tuple(maker.bodies),
        shapes={**model.shapes, **maker.shapes},
        symbols={**model.symbols, **maker.symbols},
    )


class _Maker:
    def __init__(self, model: TfliteModel) -> None:
        self._model = model
        self._tables = model.main.tables("operators")
        self._known = {layer.name: layer for layer in model.graph.layers}
        tensors, codes = model.main.tables("tensors"), model.root.tables("operator_codes")
        self.editor = Editor(list(tensors), [], list(codes))
        self.buffers: list[ByteRange | Pieces | None] = list(model.buffers)
        self.names = list(model.tensor_names)
        self.operators_of: dict[str, tuple[int, ...]] = {}
        self.kinds = dict(model.operators)
        self.bodies: list[tuple[int, ...]] = []
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.symbols: dict[int, tuple[str, ...]] = {}
        self._number_of = {name: number for number, name in enumerate(self.names)}
        self._constants: dict[tuple[int, ...], int] = {}

    def layer(self, layer: Layer) -> Layer:
        """Append the operators of a layer; return it with its operator's name and settings."""
        start = len(self.editor.operators)
        making = layer.making
        known = self._known.get(layer.name)
        if making is None or (known is not None and known.making is not None):
            return self._again(layer, layer.name)
        if isinstance(making, Renamed):
            return self._again(layer, layer.name if known else layer.origin)
        if isinstance(making, PartOf):
            self._part(layer, making)
        elif isinstance(making, Sum):
            self._sum(layer, making)
        elif isinstance(making, Convert):
            self._converted(layer, making.scales)
        else:
            self._moved(layer, making)
        end = len(self.editor.operators)
        self.operators_of[layer.name] = tuple(range(start, end))
        self.bodies += [()] * (end - start)
        last = self.editor.operators[-1]
        kind = operator_name(self.editor.codes[last.number("opcode_index")])
        self.kinds[layer.name] = (kind,)
        return replace(layer, op=kind, attributes=tuple(attributes(last)))

    def _again(self, layer: Layer, name: str) -> Layer:
        """Append the operators that a layer of the model has, for tensors of other names, too."""
        known, positions = self._known[name], self._model.operators_of[name]
        pairs = zip((*known.inputs, *known.outputs), (*layer.inputs, *layer.outputs), strict=True)
        numbers = {
            (number := self._number_of[old.name]): self._tensor(new, number) for old, new in pairs
        }
        start = len(self.editor.operators)
        for position in positions:
            table = self._tables[position]
            sides = {
                side: packed("tensor", *(numbers.get(n, n) for n in table.numbers(side)))
                for side in ("inputs", "outputs")
            }
            self.editor.operators.append(table.changed(sides))
            self.bodies.append(self._model.bodies[position])
        self.operators_of[layer.name] = tuple(range(start, len(self.editor.operators)))
        self.kinds[layer.name] = self._model.operators[name]
        return layer

    def _converted(self, layer: Layer, scales: Scales | None) -> None:
        source, result = layer.inputs[0], layer.outputs[0]
        number = self._operand(source)
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
        changes = {"type": packed("byte", result_type), "quantization": quantisation}
        self.editor.tensors[made] = self.editor.tensors[made].changed(changes)
        self.editor.operator(name, [number], made, settings, _version(name, source))

    def _moved(self, layer: Layer, making: Crop | Join | Transpose) -> None:
        """Append the operator of a layer that computes nothing."""
        numbers = [self._operand(operand) for operand in layer.operands]
        tensor = layer.outputs[0]
        box = making.box if isinstance(making, Crop) else None
        result = self._tensor(tensor, numbers[0], box)
        name, settings = _TRANSPOSE, {}
        if isinstance(making, Crop):
            name = _SLICE
            begins = [begin for begin, _ in making.box]
            numbers += [self._numbers(begins), self._numbers(tensor.shape or ())]
        elif isinstance(making, Join):
            name, settings = _JOIN, {"axis": [making.axis]}
        else:
            numbers.append(self._numbers(making.permutation))
        self.editor.operator(name, numbers, result, settings, _version(name, tensor))

    def _sum(self, layer: Layer, making: Sum) -> None:
        numbers = [self._operand(operand) for operand in layer.operands]
        result = self._tensor(layer.outputs[0], numbers[0])
        so_far, *others = numbers
        for place, other in enumerate(others, 1):
            is_last = place == len(others)
            both = [so_far, other]
            if is_last:
                so_far, settings = (
                    result,
                    {"fused_activation_function": [int(making.activation or 0)]},
                )
            else:
                name = f"{layer.outputs[0].name} so far {place} of {layer.name}"
                so_far, settings = self._tensor(replace(layer.outputs[0], name=name), result), {}
            self.editor.operator(_ADD, both, so_far, settings)

    def _part(self, layer: Layer, making: PartOf) -> None:
        """Append an operator like that of the layer, with other operands and settings."""
        (position,) = self._model.operators_of[layer.origin]
        original, changes = self._tables[position], dict(making.changes)
        tensor = layer.outputs[0]
        numbers = [self._operand(operand) for operand in layer.operands]
        result = self._tensor(tensor, original.numbers("outputs")[0], making.box)
        if "shape" in changes:
            sizes = tensor.shape or ()
            both = [numbers[0], self._numbers(sizes)]
            self.editor.operator(_RESHAPE, both, result, {"new_shape": sizes})
            return
        source = layer.inputs[0].shape or () if layer.inputs else ()
        numbers = self._operands(layer, numbers, source, changes)
        values: dict[str, Value | None] = {
            "inputs": packed("tensor", *numbers),
            "outputs": packed("tensor", result),
        }
        if options := original.table("builtin_options"):
            settings = _settings(layer, options, changes)
            values["builtin_options"] = options.changed(settings)
        self.editor.operators.append(original.changed(values))

    def _operands(
        self,
        layer: Layer,
        numbers: Sequence[int],
        source: tuple[int, ...],
        changes: Mapping[str, Any],
    ) -> list[int]:
        """Return the operands of a part: with its own sizes where the operator is told some."""
        changed = list(numbers)
        shape = layer.outputs[0].shape or ()
        if layer.op == _JOIN:
            changed = [number for number in numbers if number >= 0]
        elif "without" in changes:
            # A convolution of LiteRT has to have a bias.
            changed[2] = self._zeros(layer.outputs[0].dtype, shape[-1])
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
            changed[1:3] = [self._numbers([0] * count), self._numbers(source[:count])]
        while changed[-1] < 0:
            changed.pop()
        return changed

    def _operand(self, operand: Tensor | Weight | None) -> int:
        if operand is None:
            return -1
        if operand.name not in self._number_of:
            assert isinstance(operand, Weight)
            assert operand.part
            pieces = Pieces(tuple(coalesce(stored_pieces(operand))))
            self._constant(operand, self._number_of[operand.part.name], operand.part.box, pieces)
        return self._number_of[operand.name]

    def _constant(self, weight: Weight, like: int, box: Box, content: Pieces) -> None:
        number = self._tensor(Tensor(weight.name, weight.dtype, weight.shape), like, box)
        self.buffers.append(content)
        buffer = packed("buffer", len(self.buffers) - 1)
        self.editor.tensors[number] = self.editor.tensors[number].changed({"buffer": buffer})

    def _numbers(self, numbers: Sequence[int], shape: tuple[int, ...] = ()) -> int:
        """Return the number of a constant of int32."""
        key = (*numbers, -1, *shape)
        if key not in self._constants:
            values = {
                "shape": packed("int", *(shape or (len(numbers),))),
                "type": packed("byte", DTYPES.index("int32")),
                "buffer": packed("buffer", len(self.buffers)),
            }
            self.buffers.append(Pieces((packed("int", *numbers),)))
            self._constants[key] = self._named(f"sizes {len(self._constants)}", values)
        return self._constants[key]

    def _zeros(self, dtype: str, count: int) -> int:
        content = bytes(values_bytes(dtype, (count,)))
        values = {
            "shape": packed("int", count),
            "type": packed("byte", DTYPES.index(dtype)),
            "buffer": packed("buffer", len(self.buffers)),
        }
        self.buffers.append(Pieces((content,)))
        return self._named("no bias", values)

    def _tensor(self, tensor: Tensor, like: int, box: Box | None = None) -> int:
        """Return the number of a tensor; one that is not there yet is made like another one."""
        if tensor.name not in self._number_of:
            original = self.editor.tensors[like]
            shape = tensor.shape or ()
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
        return self._number_of[tensor.name]

    def _named(self, name: str, values: Mapping[str, Value]) -> int:
        while name in self._number_of:
            name += "'"
        self.names.append(name)
        number = self.editor.tensor(Table("Tensor", {**values, "name": name.encode()}))
        self._number_of[name] = number
        return number


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
