"""Types and shapes of all tensors of an ONNX graph, without touching its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

import onnx
import onnx.inliner
import onnx.shape_inference
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

from rankslice.framework.errors import Mistake
from rankslice.framework.graph import Tensor, Weight
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.input_shapes import (
    Sizes,
    open_shape_mistake,
    shape_mistakes,
    shape_option,
)
from rankslice.frontend.formats.onnx.follow import follow_types, is_fixed
from rankslice.frontend.formats.onnx.nodes import inputs_of
from rankslice.frontend.formats.onnx.types import dtype_of
from rankslice.frontend.formats.onnx.weights import is_external
from rankslice.frontend.formats.onnx.wire import SMALL
from rankslice.frontend.formats.pieces import read_piece

Dimension = TensorShapeProto.Dimension

_INFERENCE_ERRORS = (
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
)
"""What the onnx package raises for models that it cannot understand."""


def bind_inputs(
    where: str, model: ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[ModelProto, list[Mistake]]:
    """Return the model with the given shapes as those of its inputs, and what contradicts it.

    A size that the model calls by a name (``batch``) holds for all inputs that name it.

    Args:
        where: the model file, for messages.
        model: the model, unchanged by this.
        shapes: sizes by name of the input.
    """
    bound = ModelProto()
    bound.CopyFrom(model)
    inputs = {value.name: value for value in bound.graph.input}
    sizes: dict[str, int] = {}
    declared = {name: _sizes(value.type.tensor_type) for name, value in inputs.items()}
    mistakes = list(shape_mistakes(where, declared, shapes))
    for name in (name for name in shapes if name in inputs):
        kind = inputs[name].type.tensor_type
        here = f"{where}: input {quoted(name)}"
        mistakes += _note_sizes(here, kind.shape.dim, shapes[name], sizes)
        kind.shape.CopyFrom(_shape_proto(shapes[name]))
    for value in bound.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return bound, mistakes


def _is_open(dim: Dimension) -> bool:
    return not dim.HasField("dim_value") or dim.dim_value < 0


def _note_sizes(
    here: str, dims: Iterable[Dimension], shape: Iterable[int], sizes: dict[str, int]
) -> Iterator[Mistake]:
    """Note the sizes of named dimensions; yield those that were noted with another size."""
    for index, (dim, size) in enumerate(zip(dims, shape, strict=False)):
        if dim.dim_param and sizes.setdefault(dim.dim_param, size) != size:
            found = f"dimension {index} ({dim.dim_param!r}) is {size}"
            yield Mistake(here, f"{found}, and {sizes[dim.dim_param]} elsewhere")


def _shape_proto(shape: Iterable[int]) -> onnx.TensorShapeProto:
    return TensorShapeProto(dim=[Dimension(dim_value=size) for size in shape])


def _sizes(declared: TypeProto.Tensor) -> Sizes | None:
    if not declared.HasField("shape"):
        return None
    dims = declared.shape.dim
    return [dim.dim_param or "?" if _is_open(dim) else dim.dim_value for dim in dims]


def input_mistakes(where: str, inputs: Iterable[ValueInfoProto]) -> Iterator[Mistake]:
    """Yield what keeps the model's inputs from having one type and one shape each."""
    for value in inputs:
        here = f"{where}: input {quoted(value.name)}"
        declared = value.type.tensor_type
        sizes = _sizes(declared)
        if not dtype_of(declared.elem_type):
            kind = value.type.WhichOneof("value") or "value without a type"
            yield Mistake(here, f"is a {kind}", "expected a tensor with an element type")
        elif sizes is None:
            option = shape_option(value.name, (1, 3, 224, 224))
            yield Mistake(here, "has no declared shape", f"give its sizes, for example: {option}")
        elif any(isinstance(size, str) for size in sizes):
            yield open_shape_mistake(where, value.name, sizes)


def infer_tensors(model: ModelProto, weights: Mapping[str, Weight]) -> dict[str, Tensor]:
    """Return every tensor of the graph whose type is declared or can be inferred, by name.

    Where inference fails, what the file declares is taken; what it does not declare is missing
    in the result, or has the shape ``None``.

    Args:
        model: the skeleton, with fixed shapes of the inputs.
        weights: the graph's weights by name; small ones in files of their own are read, since
            shapes may depend on them.
    """
    inferred = _infer(_inference_model(_inlined(model), weights))
    found = {name: _tensor(name, kind) for name, kind in _declared(inferred).items()}
    if any(tensor.shape is None for tensor in _made(inferred, found)):
        for name, kind in follow_types(inferred).items():
            found[name] = _tensor(name, kind)
    for name, kind in _declared(model).items():
        if name not in found or found[name].shape is None:
            found[name] = _tensor(name, kind)
    return found


def _infer(model: ModelProto) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model)
    except _INFERENCE_ERRORS:
        return model


def _inlined(model: ModelProto) -> ModelProto:
    """Return the model with the bodies of its local functions in place of their calls.

    Tensors of the graph keep their names.
    """
    if not model.functions:
        return model
    try:
        return onnx.inliner.inline_local_functions(model)
    except _INFERENCE_ERRORS:
        return model


def _declared(model: ModelProto) -> dict[str, TypeProto]:
    """Return the types that stand in a model, by the tensor's name."""
    graph = model.graph
    return {value.name: value.type for value in (*graph.value_info, *graph.output, *graph.input)}


def _made(model: ModelProto, found: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Yield what the layers make."""
    for node in model.graph.node:
        for name in filter(None, node.output):
            yield found.get(name, Tensor(name, "", None))


def _inference_model(model: ModelProto, weights: Mapping[str, Weight]) -> ModelProto:
    """Return a model of the same shapes in which values that were left out are typed inputs."""
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.initializer[:], graph.node[:]
    listed = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        kept = _with_values(tensor, weights[tensor.name])
        if kept is not None:
            graph.initializer.append(kept)
        elif tensor.name not in listed:
            graph.input.append(_value_of(tensor.name, tensor))
    for node in _in_order(model.graph.node):
        constant = _left_out_constant(node)
        if constant is None:
            graph.node.append(node)
        else:
            graph.input.append(_value_of(node.output[0], constant))
    return copy


def _in_order(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    """Return the nodes in an order in which they can run; as they are if they form a cycle."""
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    sources = {
        index: [maker[name] for name in inputs_of(node) if name in maker]
        for index, node in enumerate(nodes)
    }
    if all(max(found, default=-1) < index for index, found in sources.items()):
        return list(nodes)
    try:
        return [nodes[index] for index in TopologicalSorter(sources).static_order()]
    except CycleError:
        return list(nodes)


def _with_values(tensor: TensorProto, weight: Weight) -> TensorProto | None:
    """Return a small tensor with its values in it, or ``None`` for one whose values we lack."""
    if not is_external(tensor):
        return None if _lacks_values(tensor) else tensor
    if weight.data is None or weight.data.length > SMALL:
        return None
    return TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        raw_data=read_piece(weight.data),
    )


def _left_out_constant(node: NodeProto) -> TensorProto | None:
    """Return the value of a Constant node if the skeleton left out what stands in it."""
    if node.op_type != "Constant" or len(node.output) != 1:
        return None
    values = [item.t for item in node.attribute if item.name == "value" and item.HasField("t")]
    return values[0] if values and _lacks_values(values[0]) else None


def _lacks_values(tensor: TensorProto) -> bool:
    payloads = (
        tensor.raw_data,
        tensor.float_data,
        tensor.int32_data,
        tensor.int64_data,
        tensor.double_data,
        tensor.uint64_data,
        tensor.string_data,
    )
    return 0 not in tensor.dims and not any(payloads)


def _value_of(name: str, tensor: TensorProto) -> ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))


def _tensor(name: str, declared: TypeProto) -> Tensor:
    tensor = declared.tensor_type
    dims = [dim.dim_value for dim in tensor.shape.dim]
    return Tensor(name, dtype_of(tensor.elem_type), tuple(dims) if is_fixed(declared) else None)
