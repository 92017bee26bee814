"""What onnxruntime refuses to load, found out without weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from onnx import ModelProto, TypeProto, ValueInfoProto, helper

from rankslice.framework.graph import Tensor, Weight
from rankslice.framework.wording import listed, on_one_line
from rankslice.frontend.formats.onnx.follow import Facts, node_alone, open_session
from rankslice.frontend.formats.onnx.nodes import (
    executed,
    function_table,
    inner_tensors,
    inputs_of,
    layer_names,
)
from rankslice.frontend.formats.onnx.shapes import inference_model, lacks_values
from rankslice.frontend.formats.onnx.types import element_type

_INITIALIZING = "Exception during initialization"
"""onnxruntime's words where an operator refuses its settings, or that a weight is an input."""

_NOISE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |/onnxruntime_src/\S+ [^)]*\) (\[with [^]]*\] )?"
)
"""Codes, and places in onnxruntime's source."""


def branches_of_other_sizes(
    model: ModelProto, weights: Mapping[str, Weight], tensors: Mapping[str, Tensor]
) -> frozenset[str]:
    functions, nodes = function_table(model.functions), model.graph.node
    branching = frozenset(
        name
        for name, node in zip(layer_names(nodes), nodes, strict=True)
        if any(inner.op_type == "If" for inner in executed(node, functions))
    )
    if branching and _is_complete(prepared := inference_model(model, weights)):
        made = [tensors[name] for node in nodes for name in node.output if name in tensors]
        types = _types({tensor.name: tensor for tensor in made if not tensor.is_open})
        known = [ValueInfoProto(name=name, type=kind) for name, kind in types.items()]
        prepared.graph.value_info.extend(known)
        return branching if _refusal(prepared) else frozenset()
    return branching


def refusals(
    where: str,
    model: ModelProto,
    prepared: ModelProto,
    weights: Mapping[str, Weight],
    tensors: Mapping[str, Tensor],
) -> Iterator[str]:
    reason = _refusal(prepared) if _is_complete(prepared) else ""
    if not reason:
        return
    types, refused = _types({**weights, **tensors}), {}
    values = {tensor.name: tensor for tensor in prepared.graph.initializer}
    left_out = weights.keys() - values.keys()
    for name, node in zip(layer_names(model.graph.node), model.graph.node, strict=True):
        if all(tensor_name in types for tensor_name in inputs_of(node)):
            alone = node_alone(Facts(model, types, values), node, filter(None, node.output))
            alone.functions.extend(model.functions)
            refusal = _refusal(alone) if _is_complete(alone) else ""
            if refusal and not (_INITIALIZING in refusal and left_out & {*node.input}):
                refused[name] = refusal
    if refused or _INITIALIZING not in reason:
        names = listed([*refused]) if 0 < len(refused) < len(model.graph.node) else "the model"
        reason = next(iter(refused.values()), reason)
        yield f"{where}: onnxruntime refuses {names} on a CPU: {reason}"


def _is_complete(model: ModelProto) -> bool:
    """Return whether no node has constants that were left out, in bodies for example."""
    return not any(map(lacks_values, inner_tensors(model.graph.node)))


def _refusal(model: ModelProto) -> str:
    try:
        open_session(model)
    except Exception as error:  # onnxruntime's exceptions have no common base class
        # Words that are no text are lost.
        return on_one_line(_NOISE.sub("", str(error)).strip()) or type(error).__name__
    return ""


def _types(tensors: Mapping[str, Tensor | Weight]) -> dict[str, TypeProto]:
    return {
        name: helper.make_tensor_type_proto(element_type(tensor.dtype), tensor.shape)
        for name, tensor in tensors.items()
        if tensor.dtype and tensor.shape is not None
    }
