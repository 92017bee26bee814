"""Settings of a TensorFlow Lite operator as the schema means them: with names, and all of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from rankslice.frontend.formats.tflite.schema import CODES, DTYPES, TABLES, Field
from rankslice.frontend.formats.tflite.wire import Table

Setting: TypeAlias = bool | int | float | str | list[int] | list[float]
"""A value of a setting, as JSON has it."""

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
}
"""What a field means that is left out, by table and field, where that is not 0."""

_ACTIVATIONS = ("NONE", "RELU", "RELU_N1_TO_1", "RELU6", "TANH", "SIGN_BIT")

NAMES: dict[str, tuple[str, ...]] = {
    "fused_activation_function": _ACTIVATIONS,
    "padding": ("SAME", "VALID"),
    "weights_format": ("DEFAULT", "SHUFFLED4x16INT8"),
    "kernel_type": ("FULL", "BASIC"),
    "combiner": ("SUM", "MEAN", "SQRTN"),
    "mode": ("REFLECT", "SYMMETRIC"),
    "type": ("UNKNOWN", "SPARSE", "DENSE"),
    "reduce_function": ("UNSUPPORTED", "ADD", "MUL", "MINIMUM", "MAXIMUM", "ALL", "ANY"),
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
"""What the numbers of a setting stand for, by its field."""


def settings(options: Table) -> dict[str, Setting]:
    """Return the settings in a table such as ``Conv2DOptions``, by the schema's names.

    Those that the file leaves out have the value that the schema gives them. Payloads and tables
    inside are left out.
    """
    return dict(_settings(options))


def _settings(options: Table) -> Iterator[tuple[str, Setting]]:
    for field in TABLES[options.kind]:
        if field.type == "string":
            yield field.name, options.text(field.name)
        elif field.name not in CODES[options.kind]:
            continue
        elif field.is_vector:
            yield field.name, list(options.numbers(field.name))
        else:
            yield field.name, _scalar(options, field)


def _scalar(options: Table, field: Field) -> Setting:
    number = _number(options, field)
    if field.type == "B":  # in settings, single bytes without a sign are truth values
        return bool(number)
    if field.type in ("b", "i") and field.name in NAMES:
        names = NAMES[field.name]
        return names[int(number)] if 0 <= number < len(names) else int(number)
    return number


def _number(options: Table, field: Field) -> int | float:
    raw = options.values.get(field.name)
    if not isinstance(raw, bytes):
        return DEFAULTS.get((options.kind, field.name), 0.0 if field.type == "f" else 0)
    number: int | float = struct.unpack(f"<{CODES[options.kind][field.name]}", raw)[0]
    return number
