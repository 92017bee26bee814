"""Names and settings of a TensorFlow Lite model's operators, and names of its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rankslice.framework.graph import AttributeValue
from rankslice.frontend.formats.tflite.schema import OPERATORS, SCALARS, TABLES
from rankslice.frontend.formats.tflite.wire import Table

_CUSTOM = "CUSTOM"
_LONGEST_ATTRIBUTE = 256  # bytes


def operator_name(code: Table) -> str:
    number = operator_number(code)
    if number >= len(OPERATORS) or number < 0:
        return f"BUILTIN_{number}"
    name = OPERATORS[number]
    return code.text("custom_code") or name if name == _CUSTOM else name


def operator_number(code: Table) -> int:
    # Files made before there were 127 operators have it in the old field alone.
    return max(code.number("deprecated_builtin_code"), code.number("builtin_code"))


def unique_names(names: Sequence[str]) -> list[str]:
    """Return names that are all different: a tensor's own, if it is the only one of it.

    Others get their place in the file as a number, ``<name>_<index>`` or ``tensor_<index>``, and
    ``_`` behind while that is taken.
    """
    count = Counter(names)
    taken = set(count)
    found: list[str] = []
    for index, name in enumerate(names):
        unique = name
        if not name or count[name] > 1:
            unique = f"{name or 'tensor'}_{index}"
            while unique in taken:
                unique += "_"
            taken.add(unique)
        found.append(unique)
    return found


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
            elif len(value) <= _LONGEST_ATTRIBUTE:
                yield item.name, options.numbers(item.name)
