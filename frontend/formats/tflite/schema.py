"""The schema of TensorFlow Lite files: which tables there are, and what their fields are.

It is read from ``schema.fbs``. A field's number is its position. A test compares all of it with
what LiteRT's package says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DECLARATION = re.compile(r"^(enum|union|table) (\w+)(?: : (\w+))? \{([^}]*)\}", re.MULTILINE)
_FIELD = re.compile(r'(\w+):(\[?)(\w+)\]?(?: = (\w+))?(?: \((\w+)(?:: "(\w+)")?\))?;')

_DECLARED = {
    (kind, name): (scalar, body)
    for kind, name, scalar, body in _DECLARATION.findall(
        Path(__file__).with_name("schema.fbs").read_text(encoding="ascii")
    )
}


def _listed(kind: str) -> dict[str, tuple[str, ...]]:
    """Return the names in each enumeration or union."""
    bodies = {name: body for (known, name), (_, body) in _DECLARED.items() if known == kind}
    return {name: tuple(re.findall(r"\w+", body)) for name, body in bodies.items()}


UNIONS = _listed("union")
"""Tables that a union can hold, by its name; the first is type 1, since 0 means none."""

_ENUMS = _listed("enum")

OPERATORS = _ENUMS["BuiltinOperator"]
"""Names of the builtin operators, by their number."""

DTYPES = tuple(name.lower().replace("_", "") for name in _ENUMS["TensorType"])
"""numpy's names of the element types, by their number; in lower case where numpy has none."""

_WORDS = "byte ubyte bool short ushort int uint long ulong float"

SCALARS = {
    **dict(zip(_WORDS.split(), "bBBhHiIqQf", strict=True)),
    "tensor": "i",
    "subgraph": "i",
    "buffer": "I",
    "opcode": "I",
}
"""Scalar types, as the ``struct`` module calls them. The last ones are numbers of other records: of
a tensor of the same subgraph, of a subgraph, of a buffer, of an operator code."""
SCALARS |= {name: SCALARS[_DECLARED["enum", name][0]] for name in _ENUMS}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    name: str
    type: str
    """A key of :data:`SCALARS`, ``string``, ``payload`` (bytes that are only ever copied), the name
    of a table, or that of a union whose type is the field before."""
    is_vector: bool
    names: tuple[str, ...] = ()
    """Of its values, if they have some."""
    default: float = 0
    """What a scalar is where it is left out."""

    @property
    def is_scalar(self) -> bool:
        return self.type in SCALARS and not self.is_vector


def _fields(body: str) -> Iterator[Field]:
    for name, bracket, kind, default, attribute, argument in _FIELD.findall(body):
        if attribute == "payload":
            yield Field(name, attribute, is_vector=False)
            continue
        if kind in UNIONS:
            yield Field(f"{name}_type", "ubyte", is_vector=False, names=("", *UNIONS[kind]))
        own = argument or kind
        names = DTYPES if own == "TensorType" else _ENUMS.get(own, ())
        number = _number(default, _ENUMS.get(own, ())) if default else 0
        yield Field(
            name,
            attribute if attribute in SCALARS else kind,
            bool(bracket),
            names,
            float(number) if kind == "float" else number,
        )


def _number(text: str, names: tuple[str, ...]) -> int:
    if text.isdigit():
        return int(text)
    return names.index(text) if names else text == "true"


TABLES = {
    name: tuple(_fields(body)) for (kind, name), (_, body) in _DECLARED.items() if kind == "table"
}
"""Fields of each table, by its name."""

CODES: dict[str, dict[str, str]] = {
    table: {field.name: SCALARS[field.type] for field in fields if field.type in SCALARS}
    for table, fields in TABLES.items()
}
"""How the ``struct`` module calls the numbers in each field, by table and field."""
