"""Types of an ONNX graph's tensors, found layer by layer, with small values followed.

The ``onnx`` package infers the shapes of a whole graph, but follows the values on which shapes
depend through few operators, knows no operators but the standard ones, and not all of those. Here
one layer is asked about at a time: what is known of its inputs, values included, is put into a
model of that layer alone. Its result's type comes from ``onnx``, or from onnxruntime for operators
about which ``onnx`` says nothing; its result's values, if they are few, are computed. Weights are
never needed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnx.shape_inference
from google.protobuf.message import DecodeError
from onnx import (
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime
from rankslice.frontend.formats.onnx.nodes import bodies_of, inputs_of
from rankslice.frontend.formats.onnx.types import dims_of, is_fixed

_MAX_FOLLOWED = 1 << 10
"""Elements of a value that is followed; vectors of shapes have a few, masks some hundreds."""

_LONG = 1 << 16
"""Elements of a vector."""

_OPERATORS = """
    Abs Add And Cast Ceil Clip Concat Constant ConstantOfShape CumSum Div Equal Expand Flatten Floor
    Gather GatherElements GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Mean Min Mod
    Mul Neg NonZero Not OneHot Or Pow Range Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum Reshape Round ScatterElements ScatterND Shape Sign Size Slice Split Sqrt Squeeze Sub
    Sum Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
_FOLLOWED = frozenset(_OPERATORS.split())
"""Operators that shapes are computed with. None takes longer than what it reads and makes is
long, whatever its settings."""

_ML = "ai.onnx.ml"

_MAX_RUN = 1 << 22
"""Elements, or numbers of results, with which an operator is run to learn its sizes."""

INFERENCE_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    DecodeError,
    RuntimeError,
    ValueError,
)
"""What the ``onnx`` package raises for models that it cannot understand."""


def fits(kind: TypeProto, claim: TypeProto) -> bool:
    """Return whether what is known of a type leaves open that it is the one that a file claims."""
    known, claimed = kind.tensor_type, claim.tensor_type
    if known.elem_type and known.elem_type != claimed.elem_type:
        return False
    if not known.HasField("shape"):
        return True
    return len(known.shape.dim) == len(claimed.shape.dim) and all(
        not dim.HasField("dim_value") or dim.dim_value == (other.dim_value or dim.dim_value)
        for dim, other in zip(known.shape.dim, claimed.shape.dim, strict=True)
    )


def has_long_vector(types: Iterable[TypeProto]) -> bool:
    return any(
        len(kind.tensor_type.shape.dim) == 1 and kind.tensor_type.shape.dim[0].dim_value > _LONG
        for kind in types
    )


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a model's tensors."""

    model: ModelProto
    types: dict[str, TypeProto] = field(default_factory=dict)
    values: dict[str, TensorProto] = field(default_factory=dict)
    """Small ones only."""


def infer_whole(model: ModelProto, *, values: bool = False) -> ModelProto:
    """Return a model with the types that the ``onnx`` package infers, or as it is if it cannot.

    ``values``: whether it follows those on which shapes depend.
    """
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=values)
    except INFERENCE_ERRORS:
        return model


def follow_types(model: ModelProto, decide: Decision | None = None) -> dict[str, TypeProto]:
    """Return the types of the graph's tensors as far as they can be found, by name.

    Args:
        model: nodes in a topological order, without local functions; inputs and ``value_info``
            say what is known already.
        decide: gives types to outputs of a node about which nothing else tells all.
    """
    facts = Facts(model)
    for value in (*model.graph.value_info, *model.graph.output, *model.graph.input):
        _learn_type(facts, value.name, value.type)
    for tensor in model.graph.initializer:
        _learn_value(facts, tensor.name, tensor)
    for node in model.graph.node:
        for value in _results(facts, node):
            _learn_type(facts, value.name, value.type)
        for value in decide(facts, node) if decide is not None else ():
            facts.types[value.name] = value.type
        _follow_values(facts, node)
    return facts.types


Decision: TypeAlias = Callable[[Facts, NodeProto], Iterable[ValueInfoProto]]
"""Gives types to outputs of a node, by what is known so far."""


def _learn_type(facts: Facts, name: str, kind: TypeProto) -> None:
    if kind.WhichOneof("value") and (name not in facts.types or is_fixed(kind)):
        facts.types[name] = kind


def _learn_value(facts: Facts, name: str, tensor: TensorProto) -> None:
    facts.types[name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    if math.prod(tensor.dims) <= _MAX_FOLLOWED:
        facts.values[name] = tensor


def _results(facts: Facts, node: NodeProto) -> Iterable[ValueInfoProto]:
    """Return the outputs of a node whose types are not known yet, typed as far as possible."""
    open_ones = [
        name
        for name in node.output
        if name and not (name in facts.types and is_fixed(facts.types[name]))
    ]
    if not open_ones or any(name not in facts.types for name in inputs_of(node)):
        return ()
    alone = node_alone(facts, node, open_ones)
    opsets = {entry.domain or "ai.onnx": entry.version for entry in facts.model.opset_import}
    if not _has_inference(node.op_type, node.domain, opsets.get(node.domain or "ai.onnx", 0)):
        return _asked_of_engine(alone)
    kept = _kept_by_loop(facts, node) if node.op_type == "Loop" and not node.domain else ()
    return [*_inferred(alone), *kept]


@cache
def _has_inference(op_type: str, domain: str, opset: int) -> bool:
    if domain == _ML:  # for many of them it tells a part, or nothing
        return False
    try:
        schema = onnx.defs.get_schema(op_type, opset, "" if domain == "ai.onnx" else domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_type_and_shape_inference_function)


def _inferred(alone: ModelProto) -> Iterable[ValueInfoProto]:
    outputs: Iterable[ValueInfoProto] = ()
    # onnx follows the values of vectors of any length, so it is asked to only where that helps.
    for follows in (False, True):
        if follows and has_long_vector(value.type for value in (*alone.graph.input, *outputs)):
            break
        try:
            model = onnx.shape_inference.infer_shapes(alone, data_prop=follows)
        except INFERENCE_ERRORS:
            return ()
        outputs = tuple(model.graph.output)
        if all(is_fixed(value.type) for value in outputs):
            break
    return outputs


def _kept_by_loop(facts: Facts, node: NodeProto) -> Iterable[ValueInfoProto]:
    """Return the outputs that a Loop carries from pass to pass without changing their shape.

    They have the shape with which they enter: a pass that gets it gives it back.
    """
    body = next(bodies_of(node), GraphProto())
    carried = [facts.types[name] for name in node.input[2:] if name]
    if len(body.input) != 2 + len(carried):
        return ()
    alone = _body_alone(facts, node, body)
    for value, kind in zip(alone.graph.input[2:], carried, strict=False):  # then what is outside
        value.type.CopyFrom(kind)
    for value in alone.graph.output:
        value.ClearField("type")
    after = [*_inferred(alone)][1:]
    return [
        ValueInfoProto(name=name, type=kind)
        for name, kind, value in zip(node.output, carried, after, strict=False)
        if name and is_fixed(kind) and kind == value.type
    ]


def body_types(
    facts: Facts, node: NodeProto, body: GraphProto, decide: Decision
) -> Sequence[TypeProto]:
    """Return the types of what a body of a node makes, as far as they can be found.

    What the body itself is given (the state of a loop) has the types that it declares.
    """
    alone = _body_alone(facts, node, body)
    for value in alone.graph.output:
        value.type.tensor_type.ClearField("shape")
    types = follow_types(alone, decide)
    return [types.get(value.name, TypeProto()) for value in body.output]


def _body_alone(facts: Facts, node: NodeProto, body: GraphProto) -> ModelProto:
    """Return a body of a node as a model, whose further inputs are what it reads from outside."""
    alone = node_alone(facts, node, [])
    own = {value.name for value in (*body.input, *body.initializer)}
    outer = [value for value in alone.graph.input if value.name not in own]
    values = [value for value in alone.graph.initializer if value.name not in own]
    alone.graph.CopyFrom(body)
    alone.graph.input.extend(outer)
    alone.graph.initializer.extend(values)
    return alone


def node_alone(facts: Facts, node: NodeProto, outputs: Iterable[str]) -> ModelProto:
    names = inputs_of(node)
    values = [name for name in names if name in facts.values]
    graph = GraphProto(
        name="alone",
        node=[node],
        input=[
            ValueInfoProto(name=name, type=facts.types[name])
            for name in names
            if name not in facts.values
        ],
        output=[ValueInfoProto(name=name) for name in outputs],
    )
    for within in (graph, *bodies_of(graph.node[0])):  # values are not looked up across graphs
        for name in values:
            within.initializer.add().CopyFrom(facts.values[name])
            within.initializer[-1].name = name
    return ModelProto(
        ir_version=max(4, facts.model.ir_version),
        opset_import=facts.model.opset_import,
        graph=graph,
    )


def _asked_of_engine(alone: ModelProto) -> Iterable[ValueInfoProto]:
    """Return the outputs of a model of one node as onnxruntime types them.

    A shape that it does not know looks like that of a scalar, so the shape is asked for, too. The
    node is run for that if its sizes depend on nothing but those that it reads.
    """
    names = [value.name for value in alone.graph.output]
    may_run = _may_run(alone)
    for name in names:
        alone.graph.node.append(helper.make_node("Shape", [name], [f"{name} shape"]))
        alone.graph.output.append(ValueInfoProto(name=f"{name} shape"))
    if all(entry.domain for entry in alone.opset_import):
        alone.opset_import.append(helper.make_opsetid("", 17))
    try:
        session = open_session(alone)
    except Exception:  # onnxruntime's exceptions have no common base class
        return ()
    typed = {output.name: output for output in session.get_outputs()}
    shapes = {
        name: typed[name].shape
        for name in names
        if typed[f"{name} shape"].shape == [len(typed[name].shape)]
    }
    sizes_of_all = [size for shape in shapes.values() for size in shape]
    if may_run and (len(shapes) < len(names) or not all(isinstance(s, int) for s in sizes_of_all)):
        zeros = {value.name: _zeros(value.type) for value in alone.graph.input}
        with suppress(Exception):  # of onnxruntime, as above
            measured = session.run([f"{name} shape" for name in names], zeros)
            shapes = {name: sizes.tolist() for name, sizes in zip(names, measured, strict=True)}
    return [
        ValueInfoProto(name=name, type=_type_of(typed[name].type, shapes.get(name)))
        for name in names
    ]


def open_session(model: ModelProto) -> Any:
    """Return onnxruntime's session of a small model on a CPU, not optimised.

    Raises:
        Exception: onnxruntime refuses the model.
    """
    onnxruntime = load_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        enable_fallback=0,  # which prints
    )


def _may_run(alone: ModelProto) -> bool:
    """Return whether a node's sizes depend on those of its inputs alone, and are no burden."""
    (node,) = alone.graph.node
    types = [value.type for value in alone.graph.input]
    settings = [item.i for item in node.attribute]
    return (
        (node.domain == _ML or node.op_type == "MeanVarianceNormalization")
        and all(is_fixed(kind) for kind in types)
        and sum(math.prod(dims_of(kind)) for kind in types) <= _MAX_RUN
        and max(settings, default=0) <= _MAX_RUN
    )


def _zeros(kind: TypeProto) -> np.ndarray[Any, Any]:
    dtype = helper.tensor_dtype_to_np_dtype(kind.tensor_type.elem_type)
    return np.full(dims_of(kind), "" if dtype.kind == "O" else 0, dtype)


def _type_of(text: str, shape: list[int | str | None] | None) -> TypeProto:
    element = text.removeprefix("tensor(").removesuffix(")").upper()
    number = dict(TensorProto.DataType.items()).get(element, TensorProto.UNDEFINED)
    return helper.make_tensor_type_proto(number, shape)


def _follow_values(facts: Facts, node: NodeProto) -> None:
    if node.op_type not in _FOLLOWED or node.domain not in ("", "ai.onnx"):
        return
    outputs = [name for name in node.output if name]
    if not all(_is_small(facts, node, name) for name in outputs):
        return
    measured = [facts.types.get(name, TypeProto()) for name in node.input]
    if node.op_type == "Shape" and len(outputs) == len(measured) == 1 and is_fixed(measured[0]):
        ends = {item.name: item.i for item in node.attribute}
        sizes = dims_of(measured[0])[ends.get("start") : ends.get("end")]
        chosen = np.array(sizes, np.int64)
        _learn_value(facts, outputs[0], numpy_helper.from_array(chosen, outputs[0]))
    elif all(name in facts.values for name in inputs_of(node)):
        for name, value in _computed(node_alone(facts, node, outputs)).items():
            _learn_value(facts, name, value)


def _is_small(facts: Facts, node: NodeProto, name: str) -> bool:
    kind = facts.types.get(name, TypeProto())
    if not is_fixed(kind):
        return node.op_type == "NonZero"  # as many as its input has, times the rank
    return math.prod(dims_of(kind)) <= _MAX_FOLLOWED


def _computed(alone: ModelProto) -> dict[str, TensorProto]:
    from onnx.reference import ReferenceEvaluator

    names = [value.name for value in alone.graph.output]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(alone).run(names, {})
    except Exception:  # whatever the operators' own code raises; the values stay unknown
        return {}
    return {
        name: numpy_helper.from_array(value, name)
        for name, value in zip(names, map(np.asarray, results), strict=True)
        if value.dtype.kind in "biuf"
    }
