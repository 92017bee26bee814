"""Names and settings of a TensorFlow Lite model's operators."""

from __future__ import annotations

from collections.abc import Iterator

from rankslice.framework.graph import AttributeValue
from rankslice.frontend.formats.tflite.schema import OPERATORS, SCALARS, TABLES
from rankslice.frontend.formats.tflite.wire import Table

_CUSTOM = "CUSTOM"
_MAX_ATTRIBUTE = 256  # bytes


def operator_name(code: Table) -> str:
    number = operator_number(code)
    if number >= len(OPERATORS) or number < 0:
        return f"BUILTIN_{number}"
    name = OPERATORS[number]
    return code.text("custom_code") or name if name == _CUSTOM else name


def operator_number(code: Table) -> int:
    # Files made before there were 127 operators have it in the old field alone.
    return max(code.number("deprecated_builtin_code"), code.number("builtin_code"))


def attributes(operator: Table) -> Iterator[tuple[str, AttributeValue]]:
    for side in ("builtin_options", "builtin_options2"):
        options = operator.table(side)
        for item in TABLES[options.kind] if options else ():
            value = options.values.get(item.name) if options else None
            if options is None or not isinstance(value, bytes):
                continue
            if item.type == "string":
                yield item.name, options.text(item.name)
            elif item.type not in SCALARS or item.type in ("tensor", "subgraph"):
                continue
            elif not item.is_vector:
                yield item.name, options.number(item.name)
            elif len(value) <= _MAX_ATTRIBUTE:
                yield item.name, options.numbers(item.name)
