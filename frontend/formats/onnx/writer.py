"""Sub-models of an ONNX file, put together from byte ranges of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from onnx import (
    GraphProto,
    ModelProto,
    StringStringEntryProto,
    TensorProto,
    ValueInfoProto,
    helper,
)

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import UNNAMED, ByteRange, Layer, Tensor, Weight
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.onnx.nodes import Operator, inner_tensors, onnx_facts
from rankslice.frontend.formats.onnx.reader import OnnxModel, inner_data_of
from rankslice.frontend.formats.onnx.types import element_type
from rankslice.frontend.formats.onnx.weights import is_external
from rankslice.frontend.formats.onnx.wire import BYTES, GRAPH, INITIALIZER, RAW_DATA, SMALL, varint
from rankslice.frontend.formats.pieces import (
    Piece,
    SubModelFiles,
    check_types,
    coalesce,
    piece_bytes,
    pieces_length,
    stored_pieces,
)
from rankslice.frontend.partition.partition import PartitionSegment

SINGLE_FILE_LIMIT = 1_000_000_000
"""Bytes; a sub-model that would be longer keeps its weights in a second file."""

_PROTOBUF_LIMIT = (1 << 31) - 1
_PAGE = 4096  # external data starts at a page, so that engines can map it
_LISTS_WEIGHTS_AS_INPUTS = 3  # the last ir_version that does


def onnx_submodel(
    model: OnnxModel,
    part: PartitionSegment,
    name: str,
    conversion: Conversion = FLOAT32,
    *,
    limit: int = SINGLE_FILE_LIMIT,
) -> SubModelFiles:
    """Return the content of an ONNX file with some of a model's layers.

    Nodes and weights are copied as they stand in the model file. Weights lie in a second file
    (external data) where they do so in the model, or if the sub-model is longer than ``limit``.
    With an ``ir_version`` of 3 the weights are listed as inputs too, as that version demands;
    later versions would take such weights for defaults that a caller may override, so there
    they are not listed.
    """
    layers, inputs, outputs = part.layers, part.inputs, part.outputs
    check_types(model.path, (*inputs, *outputs))
    weights = _weights(model, layers, outputs)
    nodes = [layer.record for layer in layers]
    functions = _functions(model, layers)
    large = pieces_length(nodes) + sum(map(_stored_length, weights)) > limit
    outside = _outside(model, weights, (*nodes, *functions), large)
    data = _data_file(f"{name}.data", outside)
    graph = [
        _graph_head(model, weights, [*_declarable(model, layers, inputs)], outputs),
        *model.graph_notes,
        *(_record(model, record, data, GraphProto) for record in nodes),
        *(piece for weight in weights for piece in _initializer(model, weight, data)),
    ]
    pieces = (
        *model.header,
        *(_record(model, record, data, ModelProto) for record in functions),
        varint(GRAPH << 3 | BYTES),
        varint(pieces_length(graph)),
        *graph,
    )
    if pieces_length(pieces) > _PROTOBUF_LIMIT:
        raise RankSliceError(
            Mistake(name, f"has {pieces_length(pieces)} bytes", "spread its layers over more ranks")
        )
    operators = frozenset[Operator]().union(*(model.operators[layer.name] for layer in layers))
    return SubModelFiles(
        tuple(coalesce(pieces)),
        data.pieces if outside else None,
        onnx_facts(operators, inputs),
    )


def _weights(model: OnnxModel, layers: Iterable[Layer], outputs: Iterable[Tensor]) -> list[Weight]:
    output_names = {tensor.name for tensor in outputs}
    read = [weight for layer in layers for weight in layer.weights]
    passed_on = [weight for weight in model.graph.weights if weight.name in output_names]
    unique = {weight.name: weight for weight in (*read, *passed_on)}
    return sorted(unique.values(), key=lambda weight: (weight.record.offset, weight.name))


def _stored_length(weight: Weight) -> int:
    return weight.record.length if weight.is_stored else weight.nbytes


def _functions(model: OnnxModel, layers: Iterable[Layer]) -> list[ByteRange]:
    needed = {record for layer in layers for record in model.functions.get(layer.name, ())}
    return sorted(needed, key=lambda record: record.offset)


_Values: TypeAlias = tuple[Piece, ...]
"""Where the values of a constant lie."""


@dataclass(frozen=True, slots=True)
class _DataFile:
    """A file of values beside the sub-model."""

    name: str
    pieces: tuple[Piece, ...]
    offsets: Mapping[_Values, int]
    """Where the values lie in it."""


def _outside(
    model: OnnxModel, weights: Iterable[Weight], records: Iterable[Piece], large: bool
) -> Iterable[_Values]:
    """Return the values that go into a file of their own, once each.

    Small weights stay inside: engines want to know them when they work out shapes.
    """
    values: list[_Values] = [
        (*stored_pieces(weight),)
        for weight in weights
        if weight.data is not None and weight.content is None and weight.nbytes > SMALL
        if large or weight.data.path != model.path
    ]
    values += [(data,) for record in records for data in inner_data_of(model, record)]
    return dict.fromkeys(values)


def _data_file(name: str, values: Iterable[_Values]) -> _DataFile:
    pieces: list[Piece] = []
    offsets: dict[_Values, int] = {}
    end = 0
    for stored in values:
        padding = -end % _PAGE
        pieces += [bytes(padding), *stored]
        offsets[stored] = end + padding
        end += padding + pieces_length(stored)
    return _DataFile(name, tuple(coalesce(pieces)), offsets)


def _record(
    model: OnnxModel, record: Piece, file: _DataFile, kind: type[GraphProto | ModelProto]
) -> Piece:
    """Return a record: a copy, unless values of constants in it move."""
    if not inner_data_of(model, record):
        return record
    holder = kind.FromString(piece_bytes(record))
    nodes = holder.node if isinstance(holder, GraphProto) else holder.functions[0].node
    outside = filter(is_external, inner_tensors(nodes))
    for tensor, data in zip(outside, inner_data_of(model, record), strict=True):
        _point(tensor, (data,), file)
    moved: bytes = holder.SerializeToString()
    return moved


def _declarable(
    model: OnnxModel, layers: Iterable[Layer], inputs: Iterable[Tensor]
) -> Iterator[Tensor]:
    """Yield the inputs of some layers with the sizes that a sub-model may declare.

    Engines compare the sizes in all branches, and refuse one that is never taken for these.
    So no sizes are declared there but those that the file has.
    """
    are_loose = any(layer.name in model.branches_of_other_sizes for layer in layers)
    for tensor in inputs:
        if are_loose and tensor.name not in model.fixed_inputs:
            symbols = tensor.symbols or ("",) * len(tensor.shape or ())
            tensor = replace(tensor, symbols=tuple(symbol or UNNAMED for symbol in symbols))
        yield tensor


def _graph_head(
    model: OnnxModel, weights: Iterable[Weight], inputs: Iterable[Tensor], outputs: Iterable[Tensor]
) -> bytes:
    """Return the fields of the graph that are not copies: its name, inputs and outputs."""
    listed: list[Tensor | Weight] = [*inputs]
    if model.ir_version <= _LISTS_WEIGHTS_AS_INPUTS:
        listed += weights
    head: bytes = GraphProto(
        name=model.graph_name or "graph",
        input=[_value_info(tensor) for tensor in listed],
        output=[_value_info(tensor) for tensor in outputs],
    ).SerializeToString()
    return head


def _value_info(tensor: Tensor | Weight) -> ValueInfoProto:
    element, shape = element_type(tensor.dtype), tensor.shape
    if isinstance(tensor, Tensor) and tensor.is_open:
        sizes = zip(tensor.shape or (), tensor.symbols, strict=True)
        named = [symbol or size for size, symbol in sizes]
        return helper.make_tensor_value_info(
            tensor.name, element, [None if size == "?" else size for size in named]
        )
    return helper.make_tensor_value_info(tensor.name, element, shape)


def _initializer(model: OnnxModel, weight: Weight, file: _DataFile) -> Iterator[Piece]:
    """Yield the record of a weight: a copy, unless its values move in or out."""
    stored = (*stored_pieces(weight),)
    if stored in file.offsets:
        tensor = _description(weight)
        _point(tensor, stored, file)
        yield GraphProto(initializer=[tensor]).SerializeToString()
    elif weight.is_stored and (weight.data is None or weight.data.path == model.path):
        yield weight.record
    else:
        head = _description(weight).SerializeToString()
        head += varint(RAW_DATA << 3 | BYTES) + varint(weight.nbytes)
        yield varint(INITIALIZER << 3 | BYTES) + varint(len(head) + weight.nbytes) + head
        yield from stored


def _point(tensor: TensorProto, values: _Values, file: _DataFile) -> None:
    tensor.data_location = TensorProto.EXTERNAL
    offset, length = file.offsets[values], pieces_length(values)
    entries = {"location": file.name, "offset": offset, "length": length}
    del tensor.external_data[:]
    tensor.external_data.extend(
        StringStringEntryProto(key=key, value=str(value)) for key, value in entries.items()
    )


def _description(weight: Weight) -> TensorProto:
    return TensorProto(name=weight.name, data_type=element_type(weight.dtype), dims=weight.shape)
