"""What an ONNX node reads and does, the bodies of its control flow and functions included.

Also, what boards are told of a sub-model, by its operators.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

from rankslice.backend.runtime.job.records import RANDOM, Facts
from rankslice.framework.graph import AttributeValue, Tensor, unique_names

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a local function."""

Functions = Mapping[FunctionKey, FunctionProto]

_MAX_LIST = 64

_RANDOM = """
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike
"""
_RANDOM_OPERATORS = frozenset(_RANDOM.split())
_RANDOM_OF_ENGINE = frozenset({"Sampling", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout"})
_DROPOUT_INPUTS = 3
"""Of an operator Dropout that may be told to train; with fewer it draws nothing."""

_KNOWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
"""Domains of which no other operators than these leave something for the next run."""

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})

_FLOATS = ("float", "bfloat")
"""How names of types begin that have a value for a number divided by zero."""


def layer_names(nodes: Sequence[NodeProto]) -> list[str]:
    """Return a name for each node: its own if it is the only one of it, else with its place."""
    return unique_names([(node.name, node.op_type) for node in nodes])


def operator(node: NodeProto) -> str:
    """Return the operator's type, with its domain unless that is ONNX's own."""
    domain = _domain(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def attributes_of(node: NodeProto) -> tuple[tuple[str, AttributeValue], ...]:
    read = ((attribute.name, _value_of(attribute)) for attribute in node.attribute)
    return tuple((name, value) for name, value in read if value is not None)


def _value_of(attribute: AttributeProto) -> AttributeValue | None:
    kind = attribute.type
    if kind == AttributeProto.INT:
        return int(attribute.i)
    if kind == AttributeProto.FLOAT:
        return float(attribute.f)
    if kind == AttributeProto.INTS and len(attribute.ints) <= _MAX_LIST:
        return tuple(attribute.ints)
    if kind == AttributeProto.FLOATS and len(attribute.floats) <= _MAX_LIST:
        return tuple(attribute.floats)
    if kind == AttributeProto.STRING:
        with suppress(UnicodeDecodeError):
            return attribute.s.decode()
    return None


def inputs_of(node: NodeProto) -> list[str]:
    """Return the tensors a node reads, once each: its inputs, then what its bodies capture."""
    return [name for name in dict.fromkeys((*node.input, *_captured(node))) if name]


def _captured(node: NodeProto) -> Iterator[str]:
    for graph in bodies_of(node):
        inside = {
            *(value.name for value in graph.input),
            *(tensor.name for tensor in graph.initializer),
            *(sparse.values.name for sparse in graph.sparse_initializer),
            *(name for inner in graph.node for name in inner.output),
        }
        read = [name for inner in graph.node for name in inputs_of(inner)]
        outputs = [value.name for value in graph.output]
        yield from (name for name in (*read, *outputs) if name not in inside)


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the graphs that stand in a node's attributes: it is control flow if there are any."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inner_tensors(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Yield the tensors that stand in nodes: in attributes, and in the bodies of control flow."""
    for node in nodes:
        for attribute in node.attribute:
            yield from attribute.tensors
            if attribute.HasField("t"):
                yield attribute.t
        for graph in bodies_of(node):
            yield from graph.initializer
            yield from inner_tensors(graph.node)


def function_table(functions: Iterable[FunctionProto]) -> Functions:
    return {
        (_domain(function.domain), function.name, function.overload): function
        for function in functions
    }


def directly_called(nodes: Iterable[NodeProto], functions: Functions) -> Iterator[FunctionKey]:
    """Yield the local functions that nodes call, once for each call, and not what those call."""
    for node in nodes:
        for inner in executed(node, {}):
            if key_of(inner) in functions:
                yield key_of(inner)


def executed(node: NodeProto, functions: Functions) -> Iterator[NodeProto]:
    """Yield all nodes that a node runs: itself, and those in its bodies and functions."""
    seen: set[FunctionKey] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        key = key_of(current)
        if key in functions and key not in seen:
            seen.add(key)
            pending.extend(functions[key].node)
        for graph in bodies_of(current):
            pending.extend(graph.node)


def key_of(node: NodeProto) -> FunctionKey:
    return _domain(node.domain), node.op_type, node.overload


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def opset_of(opsets: Iterable[tuple[str, int]]) -> int:
    """Return the version of ONNX's own operators, of those that a model names by domain."""
    return max((version for domain, version in opsets if not _domain(domain)), default=1)


class Operator(NamedTuple):
    """An operator as a node calls it."""

    domain: str
    """Empty for ONNX's own."""
    name: str
    inputs: int


def operators_of(nodes: Iterable[NodeProto], functions: Functions) -> frozenset[Operator]:
    """Return the operators of nodes, calls of local functions left out."""
    return frozenset(
        Operator(key_of(node)[0], node.op_type, len(node.input))
        for node in nodes
        if key_of(node) not in functions
    )


def draws_random_numbers(operators: Iterable[Operator]) -> bool:
    return any(operator.name in _RANDOM_OPERATORS and not operator.domain for operator in operators)


def onnx_facts(operators: Collection[Operator], inputs: Iterable[Tensor]) -> Facts:
    names = {operator.name for operator in operators}
    has_integers = any(not tensor.dtype.startswith(_FLOATS) for tensor in inputs)
    return Facts(
        keeps=_kept(operators),
        divides=not names.isdisjoint({"Div", "Mod"}) and (has_integers or "Cast" in names),
        control_flow=min(names & _CONTROL_FLOW, default=""),
    )


def _kept(operators: Collection[Operator]) -> str:
    if strange := sorted({operator.domain for operator in operators} - {*_KNOWN_DOMAINS}):
        return f"it has operators of {strange[0]}, which may keep something"
    is_random = any(
        operator.name in _RANDOM_OPERATORS | _RANDOM_OF_ENGINE
        or (operator.name == "Dropout" and operator.inputs >= _DROPOUT_INPUTS)
        for operator in operators
    )
    return RANDOM if is_random else ""
