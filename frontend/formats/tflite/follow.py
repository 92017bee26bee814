"""Sizes that a TensorFlow Lite file leaves open, found operator by operator.

Where the signature of a shape says -1, the shape itself has a 1 that stands for nothing. So the
sizes are followed from the model's inputs on. Those that the model computes, as for a reshape,
depend on small whole numbers, which are computed as well. Weights are never read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.graph import ByteRange
from rankslice.frontend.formats.input_shapes import admits
from rankslice.frontend.formats.operand_shapes import UnknownSizeError
from rankslice.frontend.formats.tflite.rules import BOUNDS, RULES, VIEWS, Call
from rankslice.frontend.formats.tflite.shapes import BY_VALUE, Shape, dtype_of, open_tensors
from rankslice.frontend.formats.tflite.wire import FlatFile, Table

_MAX_FOLLOWED = 1 << 10
"""Elements of a value that is computed."""
_MAX_OPERATORS = 200_000
"""Operators that are followed in all: bodies of loops are followed once for each operator."""
_MAX_NESTED = 8
_MAX_ELEMENTS = 1 << 40
"""Elements of a tensor: no machine has memory for more."""

_FOLLOWED_TYPES = frozenset({"bool", "int16", "int32", "uint32", "int64", "uint64", "float32"})

_MISFITS = (UnknownSizeError, ArithmeticError, IndexError, TypeError, ValueError)
"""What a rule raises where operands are unknown, or do not fit their operator."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What is known of the main subgraph before any operator."""

    inputs: Sequence[Shape]
    tensors: Mapping[int, Shape] = field(default_factory=dict)
    """Shapes of other tensors, by number: no operator changes them."""
    rows: Callable[[int], int] = lambda most: most
    """How many rows there are where the data decide, by the largest possible number."""
    unbounded: frozenset[int] = frozenset()
    """Numbers of the tensors of which no operator's rule is believed."""


def followed_shapes(
    path: Path,
    subgraphs: Sequence[Table],
    codes: Sequence[str],
    buffers: Sequence[ByteRange | None],
    beginnings: Sequence[Beginning],
) -> list[dict[int, Shape]]:
    """Return the shapes of the main subgraph's tensors that have open sizes, by number.

    What cannot be followed is left out.

    Args:
        subgraphs: all of the model, the main one first; each in the order of execution.
        beginnings: there is an answer for each.
    """
    wanted = open_tensors(subgraphs[0])
    answers = []
    with FlatFile(path) as file, np.errstate(all="ignore"):
        for beginning in beginnings:
            follower = _Follower(file, subgraphs, codes, buffers, beginning)
            known = follower.facts(0, beginning.inputs).shapes
            answers.append({number: known[number] for number in wanted if number in known})
    return answers


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is known of a subgraph's tensors, by number."""

    tensors: Sequence[Table]
    shapes: dict[int, Shape] = field(default_factory=dict)
    values: dict[int, NDArray[Any]] = field(default_factory=dict)
    """Small ones only."""


@dataclass(slots=True)
class _Follower:
    """Follows the operators of one file."""

    _file: FlatFile
    _subgraphs: Sequence[Table]
    _codes: Sequence[str]
    _buffers: Sequence[ByteRange | None]
    _beginning: Beginning
    _left: int = _MAX_OPERATORS

    def facts(self, number: int, given: Sequence[Shape], depth: int = 0) -> _Facts:
        subgraph = self._subgraphs[number]
        facts = _Facts(subgraph.tables("tensors"))
        inputs = subgraph.numbers("inputs")
        facts.shapes.update(zip(inputs, given, strict=False))
        if not depth:
            facts.shapes.update(self._beginning.tensors)
        made = {n for operator in subgraph.tables("operators") for n in operator.numbers("outputs")}
        for number, tensor in enumerate(facts.tensors):
            if -1 not in (*tensor.numbers("shape_signature"), *tensor.numbers("shape")):
                facts.shapes.setdefault(number, tensor.numbers("shape"))
            if number not in made and number not in inputs:
                self._read(facts, number)
        for operator in subgraph.tables("operators"):
            self._left -= 1
            if self._left < 0:
                break
            self._follow(facts, operator, depth)
        return facts

    def _read(self, facts: _Facts, number: int) -> None:
        tensor = facts.tensors[number]
        data = self._buffers[tensor.number("buffer")]
        shape, kind = facts.shapes.get(number), dtype_of(tensor)
        if data is None or shape is None or kind not in _FOLLOWED_TYPES or tensor.table("sparsity"):
            return
        dtype = np.dtype(kind).newbyteorder("<")
        if math.prod(shape) <= _MAX_FOLLOWED and data.length == math.prod(shape) * dtype.itemsize:
            content = self._file.bytes_at(data.offset, data.length)
            facts.values[number] = np.frombuffer(content, dtype).reshape(shape)

    def _follow(self, facts: _Facts, operator: Table, depth: int) -> None:
        """Learn the shapes of an operator's results, and their values if they can be computed."""
        name = self._codes[operator.number("opcode_index")]
        results = operator.numbers("outputs")
        call = Call(
            facts.tensors,
            facts.shapes,
            facts.values,
            operator.numbers("inputs"),
            len(results),
            operator.table("builtin_options"),
        )
        if any(number >= 0 and number not in facts.shapes for number in results):
            for number, shape in zip(
                results, self._shapes(name, call, results, depth), strict=False
            ):
                is_believed = depth or number not in self._beginning.unbounded
                if number >= 0 and is_believed and _fits(facts.tensors[number], shape):
                    facts.shapes.setdefault(number, shape)
        for number, value in zip(results, _values(name, call, results), strict=False):
            if facts.shapes.get(number) == value.shape:
                facts.values[number] = value

    def _shapes(self, name: str, call: Call, results: Sequence[int], depth: int) -> Sequence[Shape]:
        try:
            if name in _WITH_BODIES:
                return self._of_body(name, call, depth)
            if name in BOUNDS:
                rows = self._beginning.rows
                return [(rows(most[0]), *most[1:]) for most in _listed(BOUNDS[name](call))]
            return _listed(RULES[name](call)) if name in RULES else _carried(name, call, results)
        except _MISFITS:
            return ()

    def _of_body(self, name: str, call: Call, depth: int) -> Sequence[Shape]:
        """Return the shapes that the subgraphs of control flow give, if all give the same."""
        if depth == _MAX_NESTED:
            raise UnknownSizeError
        settings, first = _WITH_BODIES[name]
        operands = [call.shape(operand) for operand in range(first, call.count)]
        answers = [operands] if name == "WHILE" else []
        for setting in settings:
            body = call.option(setting)
            shapes = self.facts(body, operands, depth + 1).shapes
            answers.append([shapes.get(n, (-1,)) for n in self._subgraphs[body].numbers("outputs")])
        if any(answer != answers[0] for answer in answers):
            raise UnknownSizeError
        return answers[0]


_WITH_BODIES: Mapping[str, tuple[Sequence[str], int]] = {
    "CALL": (("subgraph",), 0),
    "IF": (("then_subgraph_index", "else_subgraph_index"), 1),
    "WHILE": (("body_subgraph_index",), 0),
}
"""Settings that name the subgraphs which give an operator's results, and the first operand that
they take. What a loop gives has the sizes of what it takes, or they change as it runs."""


def _fits(tensor: Table, shape: Shape) -> bool:
    is_possible = min(shape, default=0) >= 0 and math.prod(shape) <= _MAX_ELEMENTS
    return is_possible and admits(tensor.numbers("shape_signature"), shape)


def _carried(name: str, call: Call, results: Sequence[int]) -> Sequence[Shape]:
    """Return the shapes in the file for results of operators that only pass sizes on.

    An open size is written as 1. If every operand has the sizes that are written, then so have the
    results. An operator whose sizes values decide passes nothing on.
    """
    tensors = call.tensors
    operands = [number for number in call.operands if number >= 0]
    if name in BY_VALUE or any(
        call.shapes.get(number) != tensors[number].numbers("shape") for number in operands
    ):
        raise UnknownSizeError
    return [tensors[number].numbers("shape") if number >= 0 else () for number in results]


def _values(name: str, call: Call, results: Sequence[int]) -> Sequence[NDArray[Any]]:
    compute = _COMPUTED.get(name)
    if compute is None or min(results, default=-1) < 0 or call.option("fused_activation_function"):
        return ()
    kind = dtype_of(call.tensors[results[0]])
    shapes = [call.shapes.get(number) for number in results]
    few = all(shape is not None and math.prod(shape) <= _MAX_FOLLOWED for shape in shapes)
    if kind not in _FOLLOWED_TYPES or not few:
        return ()
    try:
        # What the file says of a shape may be wrong, and the computation may be long then.
        if name in RULES and _listed(RULES[name](call)) != shapes:
            return ()
        return [np.asarray(value).astype(kind) for value in _listed(compute(call))]
    except _MISFITS:
        return ()


def _listed(results: Any) -> list[Any]:
    return results if isinstance(results, list) else [results]


def _all(call: Call) -> list[NDArray[Any]]:
    return [call.value(operand) for operand in range(call.count)]


def _by_numpy(function: Callable[..., Any]) -> Callable[[Call], Any]:
    return lambda call: function(*_all(call))


def _viewing(name: str) -> Callable[[Call], Any]:
    operand, view = VIEWS[name]
    return lambda call: view(call, call.value(operand))


def _quotient(call: Call) -> Any:
    one, other = _all(call)
    if one.dtype.kind == "f":
        return np.true_divide(one, other)
    return np.trunc(np.true_divide(one, other))


def _reducing(function: Callable[..., Any]) -> Callable[[Call], Any]:
    def compute(call: Call) -> Any:
        given = call.value(0)
        axes = {axis % given.ndim for axis in call.value(1).ravel().tolist()} if given.ndim else ()
        return function(given, axis=tuple(axes), keepdims=bool(call.option("keep_dims")))

    return compute


def _gathered(call: Call) -> NDArray[Any]:
    if call.option("batch_dims"):
        raise UnknownSizeError
    return np.take(call.value(0), call.value(1), axis=call.option("axis"))


_AS_IN_NUMPY = """
    ABS ADD CEIL EQUAL FLOOR GREATER GREATER_EQUAL LESS LESS_EQUAL LOGICAL_AND LOGICAL_NOT
    LOGICAL_OR MAXIMUM MINIMUM NOT_EQUAL
"""

_COMPUTED: dict[str, Callable[[Call], Any]] = {
    **{name: _by_numpy(getattr(np, name.lower())) for name in _AS_IN_NUMPY.split()},
    **{name: _viewing(name) for name in VIEWS},
    "BROADCAST_ARGS": lambda call: np.broadcast_shapes(*(tuple(v.tolist()) for v in _all(call))),
    "CAST": lambda call: call.value(0),
    "CONCATENATION": lambda call: np.concatenate(_all(call), axis=call.option("axis")),
    "DIV": _quotient,
    "FILL": lambda call: np.full(call.value(0).ravel().tolist(), call.value(1)),
    "FLOOR_DIV": _by_numpy(np.floor_divide),
    "FLOOR_MOD": _by_numpy(np.mod),
    "GATHER": _gathered,
    "MUL": _by_numpy(np.multiply),
    "NEG": _by_numpy(np.negative),
    "PACK": lambda call: np.stack(_all(call), axis=call.option("axis")),
    "RANGE": lambda call: np.arange(*(value.ravel()[0] for value in _all(call))),
    "RANK": lambda call: np.array(len(call.shape(0))),
    "REDUCE_MAX": _reducing(np.max),
    "REDUCE_MIN": _reducing(np.min),
    "REDUCE_PROD": _reducing(np.prod),
    "SELECT": _by_numpy(np.where),
    "SELECT_V2": _by_numpy(np.where),
    "RESHAPE": lambda call: call.value(0).reshape(RULES["RESHAPE"](call)),
    "SHAPE": lambda call: np.array(call.shape(0)),
    "SUB": _by_numpy(np.subtract),
    "SUM": _reducing(np.sum),
}
"""Operators that sizes are computed with, as numpy computes them. None takes longer than what it
reads and makes is long."""
