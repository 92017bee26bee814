"""The model object of a TensorFlow Lite file: its tables with the names that the schema gives.

Unlike :func:`rankslice.frontend.formats.tflite.reader.read_tflite`, this needs nothing that slicing
needs: models that are compiled for an accelerator can be read, too.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from rankslice.framework.errors import raise_mistakes
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.tflite.checks import reference_mistakes
from rankslice.frontend.formats.tflite.flexbuffer import flexbuffer_value
from rankslice.frontend.formats.tflite.operators import operator_name
from rankslice.frontend.formats.tflite.schema import SCALARS, TABLES, Field
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, buffer_contents, read_tables

_MAX_HEX = 1 << 16  # bytes of a payload


def read_object(path: Path) -> dict[str, Any]:
    """Return the table ``Model`` of a file, and all that it refers to, as JSON has it.

    A table has its fields by name; numbers and texts that the file leaves out have the schema's
    default. Operators and their codes also have the name of the code, ``operator``. Of bytes there
    are ``offset`` in the file and ``bytes``; ``hex`` is their beginning, except for buffers, and
    ``flexbuffer`` what they say, if they are a FlexBuffer.

    Raises:
        RankSliceError: the file is not a TensorFlow Lite model, or its tables name things that it
            does not have.
    """
    with FlatFile(path) as file:
        root = read_tables(file)
        raise_mistakes(reference_mistakes(str(path), root))
        buffer_contents(file, root)
        model = _record(file, root)
    codes = [operator_name(code) for code in root.tables("operator_codes")]
    model["operator_codes"] = [
        {"operator": name, **code}
        for name, code in zip(codes, model["operator_codes"], strict=True)
    ]
    for subgraph in model["subgraphs"]:
        subgraph["operators"] = [
            {"operator": codes[item["opcode_index"]], **item} for item in subgraph["operators"]
        ]
    return model


def _record(file: FlatFile, table: Table) -> dict[str, Any]:
    values = ((field.name, _value(file, table, field)) for field in TABLES[table.kind])
    return {name: value for name, value in values if value is not None}


def _value(file: FlatFile, table: Table, field: Field) -> Any:
    """Return the value of a field; ``None`` for a table or bytes that are not there."""
    value = table.values.get(field.name)
    if isinstance(value, Table):
        return _record(file, value)
    if isinstance(value, ByteRange):
        return _payload(file, value, with_hex=table.kind != "Buffer")
    if field.is_vector and field.type in TABLES:
        return [_record(file, item) for item in table.tables(field.name)]
    if field.type == "string":
        return table.text(field.name)
    if field.type not in SCALARS:
        return None
    if field.is_vector:
        return list(table.numbers(field.name))
    return _scalar(table, field)


def _payload(file: FlatFile, data: ByteRange, *, with_hex: bool) -> dict[str, Any] | None:
    if not data.length:
        return None
    place: dict[str, Any] = {"offset": data.offset, "bytes": data.length}
    if with_hex:
        content = file.read(data.offset, min(data.length, _MAX_HEX))
        flexbuffer = flexbuffer_value(content) if data.length <= _MAX_HEX else None
        place |= {"hex": content.hex()} | ({} if flexbuffer is None else {"flexbuffer": flexbuffer})
    return place


def _scalar(table: Table, field: Field) -> bool | float | str:
    raw = table.values.get(field.name)
    number = field.default
    if isinstance(raw, bytes):
        (number,) = struct.unpack(f"<{SCALARS[field.type]}", raw)
    if field.names:
        return field.names[int(number)] if 0 <= number < len(field.names) else number
    return bool(number) if field.type == "bool" else number
