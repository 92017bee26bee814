"""The little that is read from a ``.tflite`` file without LiteRT: its operators and variables."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from ..errors import JobError

_T = TypeVar("_T")

_CODES, _SUBGRAPHS = 1, 2
_OLD_CODE, _CODE = 0, 3
_TENSORS, _OPERATORS = 0, 3
_IS_VARIABLE = 5
"""Numbers of the fields in the tables Model, OperatorCode, SubGraph and Tensor of LiteRT's schema,
version 3."""

_VARIABLES = frozenset({142, 143, 144})
"""LiteRT's numbers of the operators that name, read and write variables."""

_KEEPS = {
    **dict.fromkeys((129, 136, 137, 138, 139, 142, 143, 144), "it keeps variables or hash tables"),
    **dict.fromkeys((146, 148, 149, 204), "it draws random numbers"),
    **dict.fromkeys((32, 173), "it has custom operators, which may keep something"),
}
"""By LiteRT's number of an operator: what a run of it leaves for the next one."""


def count_operators(path: Path) -> int:
    """Return the number of operators in the file's first subgraph.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no ``.tflite`` file.
    """

    def count(data: mmap.mmap, model: int) -> int:
        first = next(_tables(data, model, _SUBGRAPHS))
        operators = _field(data, first, _OPERATORS)
        return _number(data, _follow(data, operators)) if operators else 0

    return _read(path, count)


def kept_by_a_run(path: Path) -> str:
    """Say what a run of the model may leave for the next one; empty: nothing."""

    def find(data: mmap.mmap, model: int) -> str:
        if _has_variable_tensors(data, model):
            return "it keeps variables"
        return next((_KEEPS[n] for n in _codes(data, model) if n in _KEEPS), "")

    try:
        return _read(path, find)
    except (OSError, ValueError):
        return "its operators cannot be read"


def has_variables(path: Path) -> bool:
    """Tell whether the model keeps variables from run to run.

    Raises:
        JobError: it cannot be read.
    """
    try:
        return _read(
            path,
            lambda data, model: (
                _has_variable_tensors(data, model) or not _VARIABLES.isdisjoint(_codes(data, model))
            ),
        )
    except (OSError, ValueError):
        raise JobError(f"{path.name}: its operators cannot be read") from None


def _has_variable_tensors(data: mmap.mmap, model: int) -> bool:
    return any(
        _byte(data, tensor, _IS_VARIABLE)
        for subgraph in _tables(data, model, _SUBGRAPHS)
        for tensor in _tables(data, subgraph, _TENSORS)
    )


def _codes(data: mmap.mmap, model: int) -> Iterator[int]:
    """Yield LiteRT's numbers of the operators that the model has."""
    for code in _tables(data, model, _CODES):
        place = _field(data, code, _CODE)
        yield max(_number(data, place) if place else 0, _byte(data, code, _OLD_CODE))


def _read(path: Path, find: Callable[[mmap.mmap, int], _T]) -> _T:
    """Return what ``find`` tells of the file's bytes and the place of its table Model."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[4:8] != b"TFL3":
                raise ValueError
            return find(data, _follow(data, 0))
    except (struct.error, ValueError, IndexError, StopIteration):
        raise ValueError("this is not a .tflite file") from None


def _tables(data: mmap.mmap, table: int, number: int) -> Iterator[int]:
    """Yield where the tables of a list lie, which a field of a table holds."""
    place = _field(data, table, number)
    if place:
        first = _follow(data, place)
        for entry in range(_number(data, first)):
            yield _follow(data, first + 4 + 4 * entry)


def _byte(data: mmap.mmap, table: int, number: int) -> int:
    place = _field(data, table, number)
    return data[place] if place else 0


def _number(data: mmap.mmap, place: int) -> int:
    value: int = struct.unpack_from("<I", data, place)[0]
    return value


def _follow(data: mmap.mmap, place: int) -> int:
    """Return where the offset at ``place`` leads."""
    return place + _number(data, place)


def _field(data: mmap.mmap, table: int, number: int) -> int:
    """Return where a field of a table lies; 0 if the table lacks it."""
    layout = table - struct.unpack_from("<i", data, table)[0]
    place = 4 + 2 * number
    if place >= struct.unpack_from("<H", data, layout)[0]:
        return 0
    offset = struct.unpack_from("<H", data, layout + place)[0]
    return table + offset if offset else 0
