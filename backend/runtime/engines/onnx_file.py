"""The little that is read from an ONNX file without onnxruntime: which operators it has."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Operator(NamedTuple):
    """An operator as a node calls it."""

    domain: str
    """Empty for ONNX's own."""
    name: str
    inputs: int = 0
    """How many the node lists."""


_GRAPH, _FUNCTIONS = 7, 25
_GRAPH_NODES = 1
_FUNCTION_NAME, _FUNCTION_NODES, _FUNCTION_DOMAIN = 1, 7, 10
_NODE_INPUTS, _NODE_OPERATOR, _NODE_ATTRIBUTES, _NODE_DOMAIN = 1, 4, 5, 7
_ATTRIBUTE_GRAPHS = (6, 11)
"""Numbers of the fields in ONNX's messages."""

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""Protobuf's kinds of fields."""


def find_operators(path: Path) -> frozenset[Operator]:
    """Return the operators of a model, of its branches, loops and functions, too.

    Weights are passed over, so the time does not grow with them. Operators that are functions of
    the file are not among them.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no ONNX file.
    """
    found: set[Operator] = set()
    functions: set[tuple[str, str]] = set()
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for number, begin, end in _fields(data, 0, len(data)):
                if number == _GRAPH:
                    _add_nodes(data, begin, end, _GRAPH_NODES, found)
                elif number == _FUNCTIONS:
                    _add_nodes(data, begin, end, _FUNCTION_NODES, found)
                    functions.add(_names(data, begin, end, _FUNCTION_DOMAIN, _FUNCTION_NAME))
    except (IndexError, ValueError, RecursionError):
        raise ValueError("this is not an ONNX file") from None
    return frozenset(each for each in found if each[:2] not in functions)


def _add_nodes(data: mmap.mmap, begin: int, end: int, nodes: int, found: set[Operator]) -> None:
    """Add the operators of a graph or function, whose field ``nodes`` they are."""
    for number, node, node_end in _fields(data, begin, end):
        if number != nodes:
            continue
        parts = list(_fields(data, node, node_end))
        inputs = sum(field == _NODE_INPUTS for field, _, _ in parts)
        names = _names(data, node, node_end, _NODE_DOMAIN, _NODE_OPERATOR)
        found.add(Operator(*names, inputs))
        for graph, graph_end in _graphs_of(data, parts):
            _add_nodes(data, graph, graph_end, _GRAPH_NODES, found)


def _graphs_of(data: mmap.mmap, parts: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the graphs among a node's attributes."""
    for field, begin, end in parts:
        if field == _NODE_ATTRIBUTES:
            for inner, graph, graph_end in _fields(data, begin, end):
                if inner in _ATTRIBUTE_GRAPHS:
                    yield graph, graph_end


def _names(data: mmap.mmap, begin: int, end: int, domain: int, name: int) -> tuple[str, str]:
    """Return the texts of two fields of a message: a domain, and a name in it."""
    texts = {
        number: data[start:stop].decode()
        for number, start, stop in _fields(data, begin, end)
        if number in (domain, name)
    }
    return "" if texts.get(domain) == "ai.onnx" else texts.get(domain, ""), texts.get(name, "")


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the fields of a message that hold bytes: number, begin and end."""
    while begin < end:
        tag, begin = _varint(data, begin)
        kind = tag & 7
        if kind == _VARINT:
            _, begin = _varint(data, begin)
        elif kind in (_FIXED_64, _FIXED_32):
            begin += 8 if kind == _FIXED_64 else 4
        elif kind == _BYTES:
            size, begin = _varint(data, begin)
            if begin + size > end:
                raise IndexError
            yield tag >> 3, begin, begin + size
            begin += size
        else:
            raise IndexError


def _varint(data: mmap.mmap, place: int) -> tuple[int, int]:
    """Return a number and where the next one begins."""
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
