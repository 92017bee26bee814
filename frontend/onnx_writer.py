"""Sub-models of an ONNX file, put together from byte ranges of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnx import GraphProto, StringStringEntryProto, TensorProto, ValueInfoProto, helper

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import ByteRange, Layer, Tensor, Weight
from rankslice.frontend.onnx_reader import OnnxModel
from rankslice.frontend.onnx_types import element_type
from rankslice.frontend.onnx_wire import BYTES, SMALL, varint
from rankslice.frontend.pieces import Piece, coalesce, pieces_length

__all__ = ["SINGLE_FILE_LIMIT", "SubModelFiles", "segment_pieces"]

SINGLE_FILE_LIMIT = 1_000_000_000
"""Bytes; a sub-model that would be longer keeps its weights in a second file."""

_PROTOBUF_LIMIT = (1 << 31) - 1
_PAGE = 4096  # external data starts at a page, so that engines can map it
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_LISTS_WEIGHTS_AS_INPUTS = 3  # the last ir_version that does


@dataclass(frozen=True, slots=True)
class SubModelFiles:
    """What to write for one sub-model."""

    model: tuple[Piece, ...]
    """Content of the ``.onnx`` file."""
    data: tuple[Piece, ...] | None
    """Content of the ``.onnx.data`` file beside it; ``None`` if there is none."""


def segment_pieces(
    model: OnnxModel,
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    name: str,
    limit: int = SINGLE_FILE_LIMIT,
) -> SubModelFiles:
    """Return the content of an ONNX file with some of a model's layers.

    Nodes and weights are copied as they stand in the model file. Weights lie in a second file
    (external data) where they do so in the model, or if the sub-model is longer than ``limit``.
    With an ``ir_version`` of 3 the weights are listed as inputs too, as that version demands;
    later versions would take such weights for defaults that a caller may override, so there
    they are not listed.

    Args:
        model: as read by :func:`read_onnx`.
        layers: in a topological order.
        inputs: what the layers read and do not make themselves.
        outputs: what others read of what they make; weights that the model gives out.
        name: name of the file to be written; the second file is ``<name>.data``.
        limit: bytes that a single file may have.

    Raises:
        RankSliceError: the type of an input or output is unknown, or the sub-model does not fit
            into an ONNX file.
    """
    weights = _weights(model, layers, outputs)
    nodes = [layer.record for layer in layers]
    large = pieces_length([*nodes, *(weight.record for weight in weights)]) > limit
    outside = [weight for weight in weights if _goes_outside(model, weight, large)]
    data, offsets = _data_file(outside)
    graph = [
        _graph_head(model, weights, inputs, outputs),
        *model.graph_notes,
        *nodes,
        *(
            piece
            for weight in weights
            for piece in _initializer(model, weight, f"{name}.data", offsets)
        ),
    ]
    pieces = (
        *model.header,
        *_functions(model, layers),
        varint(_GRAPH << 3 | BYTES),
        varint(pieces_length(graph)),
        *graph,
    )
    if pieces_length(pieces) > _PROTOBUF_LIMIT:
        raise RankSliceError(
            Mistake(name, f"has {pieces_length(pieces)} bytes", "spread its layers over more ranks")
        )
    return SubModelFiles(tuple(coalesce(pieces)), data if outside else None)


def _weights(model: OnnxModel, layers: Iterable[Layer], outputs: Iterable[Tensor]) -> list[Weight]:
    """Return the weights that layers read or that are given out, in the file's order."""
    given = {tensor.name for tensor in outputs}
    read = [weight for layer in layers for weight in layer.weights]
    passed_on = [weight for weight in model.graph.weights if weight.name in given]
    unique = {weight.name: weight for weight in (*read, *passed_on)}
    return sorted(unique.values(), key=lambda weight: weight.record.offset)


def _functions(model: OnnxModel, layers: Iterable[Layer]) -> list[ByteRange]:
    """Return the local functions that the layers need, once each, in the file's order."""
    needed = {record for layer in layers for record in model.functions.get(layer.name, ())}
    return sorted(needed, key=lambda record: record.offset)


def _goes_outside(model: OnnxModel, weight: Weight, large: bool) -> bool:
    """Small weights stay inside: engines want to know them when they work out shapes."""
    if weight.data is None or weight.data.length <= SMALL:
        return False
    return large or weight.data.path != model.path


def _data_file(weights: Iterable[Weight]) -> tuple[tuple[Piece, ...], dict[str, int]]:
    """Return the content of a data file with the weights, and each one's offset by name."""
    pieces: list[Piece] = []
    offsets: dict[str, int] = {}
    end = 0
    for weight in weights:
        if weight.data is None:
            continue
        padding = -end % _PAGE
        pieces += [bytes(padding), weight.data]
        offsets[weight.name] = end + padding
        end += padding + weight.data.length
    return tuple(coalesce(pieces)), offsets


def _graph_head(
    model: OnnxModel, weights: Iterable[Weight], inputs: Iterable[Tensor], outputs: Iterable[Tensor]
) -> bytes:
    """Return the fields of the graph that are no copies: its name, inputs and outputs."""
    raise_mistakes(
        Mistake(f"{model.path}: tensor {tensor.name!r}", "its element type is unknown")
        for tensor in (*inputs, *outputs)
        if not tensor.dtype
    )
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
    return helper.make_tensor_value_info(tensor.name, element_type(tensor.dtype), tensor.shape)


def _initializer(
    model: OnnxModel, weight: Weight, data_name: str, offsets: dict[str, int]
) -> Iterator[Piece]:
    """Yield the record of a weight: a copy, unless its values move in or out."""
    if weight.data is None or (weight.name not in offsets and weight.data.path == model.path):
        yield weight.record
    elif weight.name in offsets:
        yield _external_initializer(weight, weight.data, data_name, offsets[weight.name])
    else:
        head = _description(weight).SerializeToString()
        head += varint(_RAW_DATA << 3 | BYTES) + varint(weight.data.length)
        yield varint(_INITIALIZER << 3 | BYTES) + varint(len(head) + weight.data.length) + head
        yield weight.data


def _external_initializer(weight: Weight, data: ByteRange, file: str, offset: int) -> bytes:
    tensor = _description(weight)
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": file, "offset": str(offset), "length": str(data.length)}
    tensor.external_data.extend(
        StringStringEntryProto(key=key, value=value) for key, value in entries.items()
    )
    record: bytes = GraphProto(initializer=[tensor]).SerializeToString()
    return record


def _description(weight: Weight) -> TensorProto:
    return TensorProto(name=weight.name, data_type=element_type(weight.dtype), dims=weight.shape)
