"""The model object of a TensorFlow Lite file: its tables with the names that the schema gives.

Unlike :func:`rankslice.frontend.formats.tflite.reader.read_tflite`, this needs nothing that slicing
needs: models that are compiled for an accelerator can be read, too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankslice.framework.errors import raise_mistakes
from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.tflite.checks import reference_mistakes
from rankslice.frontend.formats.tflite.operators import operator_name
from rankslice.frontend.formats.tflite.schema import (
    CODES,
    DTYPES,
    OPERATORS,
    TABLES,
    UNIONS,
    Field,
)
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, buffer_contents, read_tables

DEFAULTS: dict[tuple[str, str], int] = {
    **{
        (table, f"dilation_{axis}_factor"): 1
        for table, axes in (
            ("Conv2DOptions", "wh"),
            ("DepthwiseConv2DOptions", "wh"),
            ("Conv3DOptions", "dwh"),
        )
        for axis in axes
    },
    ("AddOptions", "pot_scale_int16"): 1,
    ("SubOptions", "pot_scale_int16"): 1,
    ("BidirectionalSequenceLSTMOptions", "time_major"): 1,
    ("UniqueOptions", "idx_out_type"): DTYPES.index("int32"),
    ("OperatorCode", "version"): 1,
}
"""Value of a field that the file leaves out, by table and field, where it is not 0."""

NAMES: dict[str, tuple[str, ...]] = {
    "fused_activation_function": ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT"),
    "padding": ("SAME", "VALID"),
    "weights_format": ("DEFAULT", "SHUFFLED4x16INT8"),
    "kernel_type": ("FULL", "BASIC"),
    "combiner": ("SUM", "MEAN", "SQRTN"),
    "mode": ("REFLECT", "SYMMETRIC"),
    "type": ("UNKNOWN", "SPARSE", "DENSE"),
    "reduce_function": ("UNSUPPORTED", "ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY"),
    **dict.fromkeys(("deprecated_builtin_code", "builtin_code"), OPERATORS),
    **dict.fromkeys(
        (
            "in_data_type",
            "out_data_type",
            "out_type",
            "output_type",
            "idx_out_type",
            "key_dtype",
            "value_dtype",
            "quantized_bias_type",
        ),
        DTYPES,
    ),
}
"""Names of the values of a field, in all tables but :data:`_TYPED`."""

_TYPED = ("Tensor", "VariantSubType")
"""Tables whose field ``type`` is an element type."""

_MAX_HEX = 1 << 16  # bytes of a payload


def read_object(path: Path) -> dict[str, Any]:
    """Return the table ``Model`` of a file, and all that it refers to, as JSON has it.

    A table has its fields by name; numbers and texts that the file leaves out have the schema's
    default. Operators and their codes also have the name of the code, ``operator``. Of bytes there
    are ``offset`` in the file and ``bytes``; ``hex`` is their beginning, except for buffers.

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
    if field.name not in CODES[table.kind]:
        return None
    if field.is_vector:
        return list(table.numbers(field.name))
    return _scalar(table, field)


def _payload(file: FlatFile, data: ByteRange, *, with_hex: bool) -> dict[str, Any] | None:
    if not data.length:
        return None
    place: dict[str, Any] = {"offset": data.offset, "bytes": data.length}
    if with_hex:
        place["hex"] = file.read(data.offset, min(data.length, _MAX_HEX)).hex()
    return place


def _scalar(table: Table, field: Field) -> bool | float | str:
    raw = table.values.get(field.name)
    number: float = DEFAULTS.get((table.kind, field.name), 0.0 if field.type == "f" else 0)
    if isinstance(raw, bytes):
        number = struct.unpack(f"<{CODES[table.kind][field.name]}", raw)[0]
    if field.type == "B":  # a truth value, or the kind of a union's table
        unions = [f.type[1:] for f in TABLES[table.kind] if f"{f.name}_type" == field.name]
        return _name(("", *UNIONS[unions[0]]), number) if unions else bool(number)
    if field.name == "type" and table.kind in _TYPED:
        return _name(DTYPES, number)
    return _name(NAMES[field.name], number) if field.name in NAMES else number


def _name(names: Sequence[str], number: float) -> str | float:
    return names[int(number)] if 0 <= number < len(names) else number
