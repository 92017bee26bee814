"""Additions to the tables of a ``.tflite`` file: tensors, operators and their codes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from rankslice.frontend.formats.tflite.operators import operator_name, operator_number
from rankslice.frontend.formats.tflite.references import MAIN
from rankslice.frontend.formats.tflite.schema import CODES, OPERATORS, UNIONS
from rankslice.frontend.formats.tflite.wire import Table, Value, packed

_OLD_CODES = 127
"""Larger numbers of operators do not fit into the old field."""


class Editor:
    """The tables of a main subgraph, as they are changed."""

    def __init__(self, root: Table) -> None:
        self._root = root
        main = root.tables("subgraphs")[MAIN]
        self.tensors, self.operators = [*main.tables("tensors")], [*main.tables("operators")]
        self._codes = [*root.tables("operator_codes")]

    def model(self, main: Mapping[str, Value], root: Mapping[str, Value | None]) -> Table:
        """Return the table ``Model`` with these tables, and with other values of it and of them.

        Args:
            main: values of the main subgraph.
        """
        tables = {"tensors": tuple(self.tensors), "operators": tuple(self.operators)}
        subgraphs = [*self._root.tables("subgraphs")]
        subgraphs[MAIN] = subgraphs[MAIN].changed({**tables, **main})
        codes = tuple(self._codes)
        return self._root.changed({"subgraphs": (*subgraphs,), "operator_codes": codes, **root})

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
        """Append an operator, with a name of one word, that reads tensors and makes one."""
        kind = f"{name.title()}Options"
        values: dict[str, Value] = {
            "opcode_index": packed("uint", self._code(OPERATORS.index(name), version)),
            "inputs": packed("tensor", *inputs),
            "outputs": packed("tensor", output),
            "builtin_options_type": packed("ubyte", UNIONS["BuiltinOptions"].index(kind) + 1),
            "builtin_options": Table(kind, packed_settings(kind, settings)),
        }
        self.operators.append(Table("Operator", values))

    def kind(self, operator: Table) -> str:
        return operator_name(self._codes[operator.number("opcode_index")])

    def _code(self, operator: int, version: int) -> int:
        for index, code in enumerate(self._codes):
            if operator_number(code) == operator and code.number("version", 1) >= version:
                return index
        values: dict[str, Value] = {
            "deprecated_builtin_code": packed("byte", min(operator, _OLD_CODES)),
            "version": packed("int", version),
            "builtin_code": packed("int", operator),
        }
        self._codes.append(Table("OperatorCode", values))
        return len(self._codes) - 1


def packed_settings(kind: str, settings: Mapping[str, Sequence[float]]) -> dict[str, bytes]:
    """Return settings as the fields of a table have them."""
    return {
        name: struct.pack(f"<{len(numbers)}{CODES[kind][name]}", *numbers)
        for name, numbers in settings.items()
    }
