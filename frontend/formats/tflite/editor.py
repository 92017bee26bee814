"""Additions to the tables of a ``.tflite`` file: tensors, operators and their codes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rankslice.frontend.formats.tflite.operators import operator_number
from rankslice.frontend.formats.tflite.schema import CODES, OPERATORS, UNIONS
from rankslice.frontend.formats.tflite.wire import Table, Value, packed

_OPTIONS = {
    "ADD": "AddOptions",
    "CAST": "CastOptions",
    "CONCATENATION": "ConcatenationOptions",
    "DEQUANTIZE": "DequantizeOptions",
    "QUANTIZE": "QuantizeOptions",
    "RESHAPE": "ReshapeOptions",
    "SLICE": "SliceOptions",
    "TRANSPOSE": "TransposeOptions",
}
_OLD_CODES = 127
"""Larger numbers of operators do not fit into the old field."""


@dataclass(slots=True)
class Editor:
    """The tables of a main subgraph, as they are changed."""

    tensors: list[Table]
    operators: list[Table]
    codes: list[Table]

    def tensor(self, table: Table) -> int:
        """Append a tensor; return its number."""
        self.tensors.append(table)
        return len(self.tensors) - 1

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        output: int,
        settings: Mapping[str, Sequence[int]],
        version: int = 1,
    ) -> None:
        """Append an operator that reads tensors and makes one."""
        kind = _OPTIONS[name]
        values: dict[str, Value] = {
            "opcode_index": packed("uint", self._code(OPERATORS.index(name), version)),
            "inputs": packed("tensor", *inputs),
            "outputs": packed("tensor", output),
            "builtin_options_type": packed("ubyte", UNIONS["BuiltinOptions"].index(kind) + 1),
            "builtin_options": Table(kind, packed_settings(kind, settings)),
        }
        self.operators.append(Table("Operator", values))

    def _code(self, operator: int, version: int) -> int:
        for index, code in enumerate(self.codes):
            if operator_number(code) == operator and code.number("version", 1) >= version:
                return index
        values: dict[str, Value] = {
            "deprecated_builtin_code": packed("byte", min(operator, _OLD_CODES)),
            "version": packed("int", version),
            "builtin_code": packed("int", operator),
        }
        self.codes.append(Table("OperatorCode", values))
        return len(self.codes) - 1


def packed_settings(kind: str, settings: Mapping[str, Sequence[float]]) -> dict[str, bytes]:
    """Return settings as the fields of a table have them."""
    return {
        name: struct.pack(f"<{len(numbers)}{CODES[kind][name]}", *numbers)
        for name, numbers in settings.items()
    }
