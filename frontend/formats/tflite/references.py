"""What tables refer to by number, and the subgraphs that operators run: branches, loops, calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.formats.tflite.schema import TABLES, UNIONS, Field
from rankslice.frontend.formats.tflite.wire import Table, Value, packed

_KINDS = ("tensor", "subgraph", "buffer", "opcode")
_IMPLIED = {("Operator", "opcode_index"), ("BlockwiseQuantization", "scales")}
"""Fields that mean record 0 where they are left out."""
_NONE_IF_ZERO = {("BlockwiseQuantization", "zero_points"), ("MultiAxisQuantization", "zero_points")}


def _referring() -> dict[str, tuple[Field, ...]]:
    """Return the fields of each table that are references, or lead to tables with some."""
    referring: dict[str, tuple[Field, ...]] = {}
    before = None
    while referring != before:
        before = referring
        referring = {
            table: tuple(item for item in fields if _may_refer(item, referring))
            for table, fields in TABLES.items()
        }
    return referring


def _may_refer(item: Field, referring: Mapping[str, tuple[Field, ...]]) -> bool:
    members = UNIONS.get(item.type, (item.type,))
    return item.type in _KINDS or any(referring.get(member) for member in members)


_REFERRING = _referring()
"""All other fields need not be looked at."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A number in a table that stands for another record."""

    table: str
    field: str
    kind: str
    """``tensor``, ``subgraph``, ``buffer`` or ``opcode``."""
    number: int
    """Below zero: nothing, where something is optional."""


def references(table: Table) -> Iterator[Reference]:
    for item in _REFERRING[table.kind]:
        value = table.values.get(item.name)
        if item.type in _KINDS:
            for number in _numbers(table, item):
                yield Reference(table.kind, item.name, item.type, number)
        elif isinstance(value, Table):
            yield from references(value)
        elif isinstance(value, tuple):
            for inner in value:
                yield from references(inner)


def _numbers(table: Table, item: Field) -> tuple[int, ...]:
    key = (table.kind, item.name)
    if item.name not in table.values:
        return (0,) if key in _IMPLIED else ()
    numbers = table.numbers(item.name)
    return () if key in _NONE_IF_ZERO and numbers == (0,) else numbers


def referred(tables: Iterable[Table], kind: str) -> set[int]:
    """Return the numbers of one kind that tables refer to."""
    return {
        reference.number
        for table in tables
        for reference in references(table)
        if reference.kind == kind and reference.number >= 0
    }


def renumbered(table: Table, numbers: Mapping[str, Mapping[int, int]]) -> Table:
    """Return a table whose references have the new numbers of their kind; those below zero stay."""
    values: dict[str, Value | None] = {}
    for item in _REFERRING[table.kind]:
        value = table.values.get(item.name)
        if item.type in _KINDS:
            old = _numbers(table, item)
            if item.type in numbers and old:
                new = [numbers[item.type][number] if number >= 0 else number for number in old]
                values[item.name] = packed(item.type, *new)
        elif isinstance(value, Table):
            values[item.name] = renumbered(value, numbers)
        elif isinstance(value, tuple):
            values[item.name] = tuple(renumbered(inner, numbers) for inner in value)
    return table.changed(values)


_MAX_VISITS = 3_000_000
"""Records of subgraphs looked at, all operators together: models need some ten thousand."""


MAIN = 0
"""Number of the subgraph that is sliced. The others are bodies of control flow: where a setting has
this number, no subgraph is meant."""


class Bodies:
    """Finds the subgraphs that an operator runs, directly or not."""

    def __init__(self, where: str, subgraphs: Sequence[Table]) -> None:
        self._where = where
        self._calls = [
            referred(subgraph.tables("operators"), "subgraph") - {MAIN} for subgraph in subgraphs
        ]
        self._sizes = [
            len(subgraph.tables("operators")) + len(subgraph.tables("tensors"))
            for subgraph in subgraphs
        ]
        self._visits_left = _MAX_VISITS

    def of(self, operator: Table) -> tuple[int, ...]:
        """Return the numbers of the subgraphs that an operator runs, ascending."""
        bodies: set[int] = set()
        pending = referred([operator], "subgraph") - {MAIN}
        while pending:
            number = pending.pop()
            bodies.add(number)
            pending |= self._calls[number] - bodies
            self._visits_left -= self._sizes[number] + len(self._calls[number])
            if self._visits_left < 0:
                text = "its operators run each other's subgraphs too often to be followed"
                raise RankSliceError(Mistake(self._where, text, "expected a .tflite model file"))
        return tuple(sorted(bodies))
