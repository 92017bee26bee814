"""Types and shapes of all tensors of an ONNX graph, without touching its weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
import onnx.shape_inference
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from rankslice.framework.errors import Mistake, nearest
from rankslice.framework.graph import ByteRange, Tensor, Weight
from rankslice.frontend.onnx_types import dtype_of
from rankslice.frontend.onnx_weights import is_external
from rankslice.frontend.onnx_wire import SMALL

__all__ = ["bind_inputs", "infer_tensors", "input_mistakes"]

_LONGEST_FOLLOWED = 1 << 12  # elements; vectors of shapes have a few


def bind_inputs(
    place: str, model: ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[ModelProto, list[Mistake]]:
    """Return the model with the given shapes as those of its inputs, and what contradicts it.

    Args:
        place: the model file, for messages.
        model: the model, unchanged by this.
        shapes: sizes by name of the input.
    """
    bound = ModelProto()
    bound.CopyFrom(model)
    inputs = {value.name: value for value in bound.graph.input}
    mistakes: list[Mistake] = []
    for name, shape in shapes.items():
        if name not in inputs:
            mistakes.append(
                Mistake(
                    f"{place}: input {name!r}", "the model has no such input", nearest(name, inputs)
                )
            )
            continue
        declared = inputs[name].type.tensor_type
        if declared.HasField("shape") and not _fits(declared.shape.dim, shape):
            mistakes.append(Mistake(f"{place}: input {name!r}", f"does not fit the shape {shape}"))
        declared.shape.CopyFrom(_shape_proto(shape))
    return bound, mistakes


def _fits(dims: Iterable[onnx.TensorShapeProto.Dimension], shape: tuple[int, ...]) -> bool:
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    return len(sizes) == len(shape) and all(
        declared in (None, given) for declared, given in zip(sizes, shape, strict=True)
    )


def _shape_proto(shape: Iterable[int]) -> onnx.TensorShapeProto:
    dims = [onnx.TensorShapeProto.Dimension(dim_value=size) for size in shape]
    return onnx.TensorShapeProto(dim=dims)


def input_mistakes(place: str, inputs: Iterable[ValueInfoProto]) -> Iterator[Mistake]:
    """Yield what keeps the model's inputs from having one type and one shape each."""
    for value in inputs:
        here = f"{place}: input {value.name!r}"
        declared = value.type.tensor_type
        if not dtype_of(declared.elem_type):
            kind = value.type.WhichOneof("value") or "value without a type"
            yield Mistake(here, f"is a {kind}", "expected a tensor with an element type")
        elif not declared.HasField("shape"):
            yield Mistake(here, "has no declared shape", "give its sizes with --shape")
        for index, dim in enumerate(declared.shape.dim):
            if not dim.HasField("dim_value") or dim.dim_value < 0:
                name = f" ({dim.dim_param!r})" if dim.dim_param else ""
                yield Mistake(
                    here,
                    f"dimension {index} is not fixed{name}",
                    "give all its sizes with --shape",
                )


def infer_tensors(model: ModelProto, weights: Mapping[str, Weight]) -> dict[str, Tensor]:
    """Return every tensor of the graph whose type is declared or can be inferred, by name.

    Where inference fails, what the file declares is taken; what it does not declare is missing
    in the result, or has the shape ``None``.

    Args:
        model: the skeleton, with fixed shapes of the inputs.
        weights: the graph's weights by name; small ones in files of their own are read, since
            shapes may depend on them.
    """
    inferred = _infer(_inference_model(model, weights), data_prop=False)
    results = [model, inferred]
    if _is_incomplete(inferred):
        results.append(_infer(_without_long_vectors(inferred), data_prop=True))
    found: dict[str, Tensor] = {}
    for result in results:
        for name, tensor in _tensors(result.graph).items():
            if tensor.shape is not None or name not in found:
                found[name] = tensor
    return found


def _infer(model: ModelProto, *, data_prop: bool) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=data_prop)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return model


def _is_incomplete(model: ModelProto) -> bool:
    known = {name for name, tensor in _tensors(model.graph).items() if tensor.shape is not None}
    return any(name and name not in known for node in model.graph.node for name in node.output)


def _without_long_vectors(model: ModelProto) -> ModelProto:
    """Return a model whose long vectors have no length, so that their values are not followed.

    Following values takes some hundred bytes per element of every vector, shape or not.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.value_info):
        dims = value.type.tensor_type.shape.dim
        if len(dims) == 1 and dims[0].dim_value > _LONGEST_FOLLOWED:
            dims[0].Clear()
    return copy


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
    for node in model.graph.node:
        constant = _left_out_constant(node)
        if constant is None:
            graph.node.append(node)
        else:
            graph.input.append(_value_of(node.output[0], constant))
    return copy


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
        raw_data=_read(weight.data),
    )


def _read(data: ByteRange) -> bytes:
    with data.path.open("rb") as file:
        file.seek(data.offset)
        return file.read(data.length)


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


def _tensors(graph: GraphProto) -> dict[str, Tensor]:
    values = (*graph.value_info, *graph.output, *graph.input)
    return {value.name: Tensor(value.name, *_type_and_shape(value.type)) for value in values}


def _type_and_shape(declared: TypeProto) -> tuple[str, tuple[int, ...] | None]:
    tensor = declared.tensor_type
    if not tensor.HasField("shape"):
        return dtype_of(tensor.elem_type), None
    dims = tensor.shape.dim
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return dtype_of(tensor.elem_type), None
    return dtype_of(tensor.elem_type), tuple(dim.dim_value for dim in dims)
