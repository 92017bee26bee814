"""The weights of an ONNX file as references: what they are and where their bytes lie."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from rankslice.framework.errors import CollectedMistakes, Mistake, RankSliceError, raise_mistakes
from rankslice.framework.graph import ByteRange, Weight, dtype_bits, values_bytes
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.onnx.nodes import inner_tensors
from rankslice.frontend.formats.onnx.types import dtype_of
from rankslice.frontend.formats.onnx.wire import BYTES, RAW_DATA, Field, Scan, WireFile
from rankslice.frontend.formats.pieces import PositionedFile, piece_bytes

_PAYLOADS = frozenset({4, 5, 6, 7, RAW_DATA, 10, 11})
_PACKED_LITTLE_ENDIAN = {"float32": 4, "complex64": 4, "float64": 10, "complex128": 10}
"""Element type -> the field that packs its values without any encoding of their own."""
_MAX_RANK = 64


def read_weights(file: WireFile, scan: Scan, graph: GraphProto) -> tuple[Weight, ...]:
    """Return the initialisers of a graph in the file's order, sparse ones last.

    Values in a file of their own (external data) are references into that file, which must lie
    in the model's folder.
    """
    collected = CollectedMistakes()
    dense = [
        collected.catch(partial(_read_weight, file, field, tensor))
        for field, tensor in zip(scan.initializers, graph.initializer, strict=True)
    ]
    sparse = [
        collected.catch(partial(_read_sparse, file, field, tensor))
        for field, tensor in zip(scan.sparse_initializers, graph.sparse_initializer, strict=True)
    ]
    collected.raise_all()
    return tuple(filter(None, (*dense, *sparse)))


def constant_values(weight: Weight) -> NDArray[Any]:
    """Read all values of a stored weight."""
    if weight.data is not None:
        values = np.frombuffer(piece_bytes(weight.data), weight.dtype)
        return values.reshape(weight.shape)
    tensor = GraphProto.FromString(piece_bytes(weight.record)).initializer[0]
    return numpy_helper.to_array(tensor)


def is_external(tensor: TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def _read_weight(file: WireFile, field: Field, tensor: TensorProto) -> Weight:
    where = f"{file.path}: weight {quoted(tensor.name)}"
    dtype, shape, nbytes = _type_shape_and_size(where, tensor.data_type, tensor.dims)
    if is_external(tensor):
        data: ByteRange | None = _external_data(where, file.path, tensor, nbytes)
    else:
        data = _stored_data(where, file, field, dtype, nbytes)
    size = nbytes if dtype_bits(dtype) else field.end - field.body
    return Weight(tensor.name, dtype, shape, size, field.record(file.path), data)


def inner_data(where: str, model: Path, nodes: Iterable[NodeProto]) -> tuple[ByteRange, ...]:
    """Locate the values that nodes have in other files, in the order of the tensors."""
    collected = CollectedMistakes()

    def place(tensor: TensorProto) -> ByteRange:
        here = f"{where}: constant {quoted(tensor.name)}" if tensor.name else f"{where}: constant"
        nbytes = _type_shape_and_size(here, tensor.data_type, tensor.dims)[2]
        return _external_data(here, model, tensor, nbytes)

    values = [collected.catch(partial(place, t)) for t in inner_tensors(nodes) if is_external(t)]
    collected.raise_all()
    return tuple(filter(None, values))


def _read_sparse(file: WireFile, field: Field, sparse: SparseTensorProto) -> Weight:
    where = f"{file.path}: weight {quoted(sparse.values.name)}"
    dtype, shape, _ = _type_shape_and_size(where, sparse.values.data_type, sparse.dims)
    if is_external(sparse.values) or is_external(sparse.indices):
        raise RankSliceError(
            Mistake(where, "is sparse and stored in another file", "store it in the model file")
        )
    size = field.end - field.body
    return Weight(sparse.values.name, dtype, shape, size, field.record(file.path), None)


def _type_shape_and_size(
    where: str, element_type: int, dims: Iterable[int]
) -> tuple[str, tuple[int, ...], int]:
    dtype, shape = dtype_of(element_type), tuple(dims)
    if not dtype:
        raise RankSliceError(Mistake(where, f"has the unknown element type {element_type}"))
    if len(shape) > _MAX_RANK:
        raise RankSliceError(Mistake(where, f"has {len(shape)} dimensions"))
    if any(size < 0 for size in shape):
        raise RankSliceError(Mistake(where, f"has the negative shape {shape}"))
    return dtype, shape, values_bytes(dtype, shape)


def _stored_data(
    where: str, file: WireFile, field: Field, dtype: str, nbytes: int
) -> ByteRange | None:
    """Locate values in the model file, if they are stored there as plain bytes."""
    payloads = [
        part
        for part in file.fields(field.body, field.end)
        if part.number in _PAYLOADS and part.end > part.body
    ]
    if nbytes and not payloads:
        raise RankSliceError(Mistake(where, "has no values"))
    packed = _PACKED_LITTLE_ENDIAN.get(dtype)
    plain = [part for part in payloads if part.number == RAW_DATA][-1:]
    if not plain and [part.number for part in payloads] == [packed]:
        plain = payloads
    if not plain or plain[0].wire != BYTES:
        return None
    data = ByteRange(file.path, plain[0].body, plain[0].end - plain[0].body)
    if data.length != nbytes:
        raise RankSliceError(
            Mistake(where, f"holds {data.length} bytes", f"its type and shape need {nbytes}")
        )
    return data


def _external_data(where: str, model: Path, tensor: TensorProto, nbytes: int) -> ByteRange:
    """Locate values in a file beside the model file.

    The entries are those of https://github.com/onnx/onnx/blob/main/docs/ExternalData.md.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    raise_mistakes(Mistake(where, problem) for problem in _numbers_wrong(entries, nbytes))
    path = _inside(where, model, location)
    offset = int(entries.get("offset", "0"))
    with PositionedFile(path, "expected the model's weights") as file:
        size = file.size
    if offset + nbytes > size:
        raise RankSliceError(
            Mistake(
                where,
                f"{quoted(location)} has {size} bytes",
                f"expected {offset + nbytes} or more",
            )
        )
    return ByteRange(path, offset, nbytes)


def _numbers_wrong(entries: dict[str, str], nbytes: int) -> Iterator[str]:
    for key in ("offset", "length"):
        text = entries.get(key, "0")
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            yield f"its external {key} {quoted(text)} is not a number"
        elif key == "length" and key in entries and int(text) != nbytes:
            yield f"its external length is {text}, but type and shape need {nbytes} bytes"


def _inside(where: str, model: Path, location: str) -> Path:
    """Return the path of an external data file: an ordinary file in the model's folder.

    If the model file is a link, as in caches of downloads, the folder of its target counts, too.
    """
    inside = exists = False
    with suppress(OSError, ValueError, RuntimeError):
        name = Path(os.path.normpath(location))
        path = model.parent / name
        folders = (model.parent.resolve(), model.resolve().parent)
        inside = (
            bool(location)
            and name.parts[:1] != ("..",)
            and any(path.resolve().is_relative_to(folder) for folder in folders)
        )
        exists = inside and path.is_file()
    if not inside:
        raise RankSliceError(
            Mistake(
                where,
                f"its external location is {quoted(location)}",
                "expected a file inside the model's folder",
            )
        )
    if not exists:
        found = f"no file {quoted(location)} beside the model"
        raise RankSliceError(Mistake(where, found, "expected its values there"))
    return path
