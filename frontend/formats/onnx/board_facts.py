"""What boards are told of an ONNX sub-model, by its operators."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from onnx import NodeProto

from rankslice.backend.runtime.job.records import RANDOM, Facts
from rankslice.framework.graph import Tensor
from rankslice.frontend.formats.onnx.nodes import RANDOM_OPERATORS, Functions, executed, key_of

_KNOWN_DOMAINS = ("", "ai.onnx.ml", "com.microsoft")
"""Domains of which no other operators than these leave something for the next run."""

_RANDOM = RANDOM_OPERATORS | {"Sampling", "BiasDropout", "BitmaskDropout", "BitmaskBiasDropout"}
_TRAINED_DROPOUT = 3
"""Inputs of an operator Dropout that may be told to train; it draws nothing otherwise."""

_CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})

_FLOATS = ("float", "bfloat")
"""How names of types begin that have a value for a number divided by zero."""


class Operator(NamedTuple):
    """An operator as a node calls it."""

    domain: str
    """Empty for ONNX's own."""
    name: str
    inputs: int


def operators_of(node: NodeProto, functions: Functions) -> frozenset[Operator]:
    """Return what a node runs: itself, its bodies, and what is in the functions that it calls."""
    return frozenset(
        Operator(key_of(inner)[0], inner.op_type, len(inner.input))
        for inner in executed(node, functions)
        if key_of(inner) not in functions
    )


def onnx_facts(operators: Collection[Operator], inputs: Iterable[Tensor]) -> Facts:
    names = {each.name for each in operators}
    has_integers = any(not tensor.dtype.startswith(_FLOATS) for tensor in inputs)
    return Facts(
        keeps=_kept(operators),
        divides=not names.isdisjoint({"Div", "Mod"}) and (has_integers or "Cast" in names),
        control_flow=min(names & _CONTROL_FLOW, default=""),
    )


def _kept(operators: Collection[Operator]) -> str:
    if strange := sorted({each.domain for each in operators} - {*_KNOWN_DOMAINS}):
        return f"it has operators of {strange[0]}, which may keep something"
    is_random = any(
        each.name in _RANDOM or (each.name == "Dropout" and each.inputs >= _TRAINED_DROPOUT)
        for each in operators
    )
    return RANDOM if is_random else ""
