"""What is wrong with an ONNX model, as far as its skeleton tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import GraphProto, ModelProto

from rankslice.framework.errors import Mistake
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.onnx.nodes import (
    FunctionKey,
    directly_called,
    function_table,
    inputs_of,
    layer_names,
)

_MAX_CALLS = 50_000


def is_text(message: Message) -> bool:
    """Return whether all strings of a message are UTF-8; protobuf hands out others as bytes."""
    for field, value in message.ListFields():
        values = [value] if isinstance(value, str | bytes | Message) else value
        if field.type == FieldDescriptor.TYPE_STRING and any(isinstance(v, bytes) for v in values):
            return False
        if field.type == FieldDescriptor.TYPE_MESSAGE and not all(map(is_text, values)):
            return False
    return True


def header_mistakes(where: str, model: ModelProto) -> Iterator[Mistake]:
    """Yield the mistakes that make it impossible to slice a model."""
    if model.ir_version < 3:
        found = f"its ir_version is {model.ir_version}"
        yield Mistake(where, found, "expected an ONNX model with ir_version 3 or later")
    if not model.opset_import:
        yield Mistake(where, "names no operator set", "expected an opset_import")
    if not model.graph.node:
        yield Mistake(where, "has no layers")
    if not model.graph.output:
        yield Mistake(where, "has no outputs")


def tensor_mistakes(where: str, graph: GraphProto) -> Iterator[Mistake]:
    stored = [
        *(tensor.name for tensor in graph.initializer),
        *(sparse.values.name for sparse in graph.sparse_initializer),
    ]
    constants = set(stored)
    brought = [value.name for value in graph.input if value.name not in constants]
    made = [name for node in graph.node for name in node.output if name]
    if "" in (*stored, *brought):
        yield Mistake(where, "a weight or an input has no name")
    for name, count in Counter([*stored, *brought, *made]).items():
        if count > 1:
            yield Mistake(f"{where}: tensor {quoted(name)}", f"is made {count} times")
    known = {*stored, *brought, *made}
    for layer, node in zip(layer_names(graph.node), graph.node, strict=True):
        for name in inputs_of(node):
            if name not in known:
                yield Mistake(
                    f"{where}: layer {quoted(layer)}",
                    f"reads {quoted(name)}, which nothing produces",
                )
    for name in dict.fromkeys(value.name for value in graph.output):
        if name not in known:
            yield Mistake(
                f"{where}: output {quoted(name)}",
                "no layer produces it",
                "expected the output of a layer, an input or a weight",
            )


def function_mistakes(where: str, model: ModelProto) -> Iterator[Mistake]:
    """Yield local functions that call themselves, and calls that lead to too many others.

    Whoever looks into functions, be it for shapes or to run them, follows each call of each call.
    """
    functions = function_table(model.functions)
    calls = {key: [*directly_called(item.node, functions)] for key, item in functions.items()}
    try:
        order = [*TopologicalSorter(calls).static_order()]
    except CycleError as error:
        names = " -> ".join(quoted(name) for _, name, _ in reversed(error.args[1]))
        yield Mistake(where, f"its functions call each other in a cycle: {names}")
        return
    total: dict[FunctionKey, int] = {}
    for key in order:
        total[key] = 1 + sum(total[called] for called in calls[key])
    count = sum(total[called] for called in directly_called(model.graph.node, functions))
    if count > _MAX_CALLS:
        yield Mistake(where, f"its layers lead to more than {_MAX_CALLS} calls of functions")
