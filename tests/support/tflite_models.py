"""The small ``.tflite`` models, and what tests do with them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.frontend.formats.pieces import write_pieces, write_submodel
from rankslice.frontend.formats.tflite.builder import flatbuffer
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.formats.tflite.schema import CODES, DTYPES, OPERATORS, UNIONS
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, packed, read_tables
from rankslice.frontend.formats.tflite.writer import FLATBUFFER_LIMIT, tflite_submodel
from rankslice.frontend.partition.partition import PartitionSegment

FOLDER = Path(__file__).parents[1] / "models" / "tflite"

NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.tflite")))


def model_file(name: str) -> Path:
    return FOLDER / f"{name}.tflite"


def written(
    model: TfliteModel, segment: PartitionSegment, path: Path, *, limit: int = FLATBUFFER_LIMIT
) -> Path:
    """Write a segment's sub-model and return its path."""
    write_submodel(tflite_submodel(model, segment, path.name, limit=limit), path)
    return path


def edited(
    name: str,
    folder: Path,
    main: Callable[[Table], Table] = lambda table: table,
    *,
    whole: Callable[[Table], Table] = lambda table: table,
) -> Path:
    """Write a model with other tables and return its path.

    Args:
        name: the model.
        folder: where to write.
        main: what to make of the main subgraph.
        whole: what to make of the table Model, after that.
    """
    with FlatFile(model_file(name)) as file:
        root = read_tables(file)
    first, *others = root.tables("subgraphs")
    changed = whole(root.changed({"subgraphs": (main(first), *others)}))
    path = folder / "edited.tflite"
    write_pieces(flatbuffer(changed), path)
    return path


@dataclass(frozen=True)
class Made:
    """A tensor of a model that is made here; -1 in the shape: an open size."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    values: NDArray[Any] | None = None
    """Of a constant."""


def constant(values: Any, dtype: str = "float32") -> Made:
    array = np.array(values, dtype)
    return Made(array.shape, dtype, array)


def drawn(*shape: int) -> Made:
    """Return a constant of values that are drawn from a seed."""
    return constant(np.random.default_rng(shape).normal(size=shape))


def operator(
    name: str, inputs: str, outputs: str, options: str = "", *, custom: bytes = b"", **settings: int
) -> dict[str, Any]:
    """Return an operator.

    Args:
        name: the builtin operator's, or a custom one's if ``custom`` is given.
        inputs: names of tensors, with spaces between them; so in ``outputs``.
        outputs: what it makes.
        options: the table of its settings.
        custom: settings of a custom operator.
        settings: fields of the table ``options``.
    """
    return {
        "name": name,
        "inputs": inputs.split(),
        "outputs": outputs.split(),
        "options": options,
        "custom": custom,
        "settings": settings,
    }


def made(
    path: Path,
    tensors: Mapping[str, Made],
    operators: Sequence[Mapping[str, Any]],
    inputs: str,
    outputs: str,
) -> Path:
    """Write a model of such tensors and operators; return its path."""
    numbers = {name: number for number, name in enumerate(tensors)}
    constants = [tensor.values for tensor in tensors.values() if tensor.values is not None]
    buffer_of = iter(range(1, len(constants) + 1))

    def numbered(names: Sequence[str]) -> bytes:
        return packed("tensor", *(numbers[name] for name in names))

    main = Table(
        "SubGraph",
        {
            "tensors": tuple(
                _tensor(name, tensor, 0 if tensor.values is None else next(buffer_of))
                for name, tensor in tensors.items()
            ),
            "inputs": numbered(inputs.split()),
            "outputs": numbered(outputs.split()),
            "operators": tuple(
                _operator(number, item, numbered) for number, item in enumerate(operators)
            ),
        },
    )
    root = Table(
        "Model",
        {
            "version": packed("uint", 3),
            "operator_codes": tuple(map(_code, operators)),
            "subgraphs": (main,),
            "buffers": (
                Table("Buffer", {}),
                *(Table("Buffer", {"data": values.tobytes()}) for values in constants),
            ),
        },
    )
    write_pieces(flatbuffer(root), path)
    return path


def _tensor(name: str, tensor: Made, buffer: int) -> Table:
    values = {
        "shape": packed("int", *(max(1, size) for size in tensor.shape)),
        "type": packed("byte", DTYPES.index(tensor.dtype)),
        "buffer": packed("buffer", buffer),
        "name": name.encode(),
    }
    if -1 in tensor.shape:
        values["shape_signature"] = packed("int", *tensor.shape)
    return Table("Tensor", values)


def _code(item: Mapping[str, Any]) -> Table:
    if item["custom"]:
        number, values = OPERATORS.index("CUSTOM"), {"custom_code": item["name"].encode()}
    else:
        number, values = OPERATORS.index(item["name"]), {}
    old = packed("byte", min(number, 127))
    return Table(
        "OperatorCode",
        {**values, "deprecated_builtin_code": old, "builtin_code": packed("int", number)},
    )


def _operator(
    number: int, item: Mapping[str, Any], numbered: Callable[[Sequence[str]], bytes]
) -> Table:
    values: dict[str, Any] = {
        "opcode_index": packed("uint", number),
        "inputs": numbered(item["inputs"]),
        "outputs": numbered(item["outputs"]),
    }
    if item["custom"]:
        values["custom_options"] = item["custom"]
    if kind := item["options"]:
        settings = {
            name: struct.pack(f"<{CODES[kind][name]}", value)
            for name, value in item["settings"].items()
        }
        values["builtin_options_type"] = packed("ubyte", UNIONS["BuiltinOptions"].index(kind) + 1)
        values["builtin_options"] = Table(kind, settings)
    return Table("Operator", values)
