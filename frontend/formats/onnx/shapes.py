"""Types and shapes of all tensors of an ONNX graph, without touching its weights."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import onnx
import onnx.inliner
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    TypeProto,
    ValueInfoProto,
)

from rankslice.framework.errors import Mistake, nearest, raise_mistakes
from rankslice.framework.graph import UNNAMED, Tensor, Weight, dtype_bits
from rankslice.framework.wording import quoted, size_option
from rankslice.frontend.formats.input_shapes import (
    GivenSizes,
    InputSizes,
    Sizes,
    replace_open,
    settle_inputs,
)
from rankslice.frontend.formats.onnx.follow import (
    INFERENCE_ERRORS,
    Decision,
    Facts,
    fits,
    follow_types,
    infer_whole,
)
from rankslice.frontend.formats.onnx.nodes import bodies_of, executed, inputs_of
from rankslice.frontend.formats.onnx.open_shapes import known_sizes, open_tensors
from rankslice.frontend.formats.onnx.types import dims_of, dtype_of, dtype_of_value, is_fixed
from rankslice.frontend.formats.onnx.weights import is_external
from rankslice.frontend.formats.onnx.wire import SMALL
from rankslice.frontend.formats.pieces import piece_bytes
from rankslice.frontend.partition.order import dependency_order


def bind_inputs(
    where: str, model: ModelProto, weights: Container[str], given: GivenSizes
) -> tuple[ModelProto, InputSizes, list[Mistake]]:
    """Return the model with the largest shapes of its inputs, these, and what is wrong."""
    bound = ModelProto()
    bound.CopyFrom(model)
    inputs = {value.name: value for value in bound.graph.input if value.name not in weights}
    mistakes: list[Mistake] = []
    declared: dict[str, Sizes | None] = {}
    for name, value in inputs.items():
        tensor = value.type.tensor_type
        if dtype_of(tensor.elem_type):
            sizes = [
                dim.dim_value
                if dim.HasField("dim_value") and dim.dim_value >= 0
                else dim.dim_param or "?"
                for dim in tensor.shape.dim
            ]
            declared[name] = sizes if tensor.HasField("shape") else None
        else:
            here = f"{where}: input {quoted(name)}"
            kind = value.type.WhichOneof("value") or "value without a type"
            mistakes.append(Mistake(here, f"is a {kind}", "expected a tensor with an element type"))
    settled, wrong = settle_inputs(where, declared, given)
    for name, shape in settled.shapes.items():
        dims = [TensorShapeProto.Dimension(dim_value=size) for size in shape]
        inputs[name].type.tensor_type.shape.CopyFrom(TensorShapeProto(dim=dims))
    known = {name for node in model.graph.node for name in node.output}
    for name in settled.others:
        if name not in known:
            found = "the model has no such tensor, and no open size of this name"
            mistakes.append(Mistake(f"{where}: {quoted(name)}", found, nearest(name, known)))
    return bound, settled, [*mistakes, *wrong]


def _bound_mistakes(
    where: str, model: ModelProto, settled: InputSizes, declared: Mapping[str, TypeProto]
) -> Iterator[Mistake]:
    if not settled.others:
        return
    alone = replace(settled, others={})
    tensors, _ = open_tensors(model, alone, declared)
    shapes = {name: tensor.shape for name, tensor in tensors.items() if tensor.shape is not None}
    partly = known_sizes(model, alone, declared) if settled.others.keys() - shapes.keys() else {}
    for name, given in settled.others.items():
        here = f"{where}: tensor {quoted(name)}"
        if name not in shapes:
            sizes = partly.get(name, (None,) * len(given))
        else:
            sizes = replace_open(shapes[name], tensors[name].symbols, None)
        # Where inputs are open, a size that was the same in all tries may be larger in a frame.
        fits = len(given) == len(sizes) and all(
            size is None or size == most or (settled.bounds and size < most)
            for size, most in zip(sizes, given, strict=True)
        )
        if name in shapes and not fits and None not in sizes:
            yield Mistake(here, f"all its sizes are fixed: {list(sizes)}", "leave it out")
        elif not fits:
            expected = ", ".join("?" if size is None else str(size) for size in sizes)
            yield Mistake(here, f"does not fit the sizes {list(given)}", f"it has [{expected}]")


def infer_tensors(
    where: str,
    model: ModelProto,
    bound: ModelProto,
    prepared: ModelProto,
    settled: InputSizes,
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Return every tensor of the graph whose type is declared or can be inferred, by name.

    Also returned: warnings.

    Sizes that the file declares of what layers make may be those of an earlier version of its
    inputs. So what follows from inputs and operators counts, and a declaration only where nothing
    follows. What is not declared either is missing in the result, or has the shape ``None``.

    Args:
        model: the skeleton.
        bound: the same with the largest shapes of the inputs.
        prepared: one of them for inference: the former if an input is open.

    Raises:
        RankSliceError: a bound contradicts a tensor's fixed sizes.
    """
    file = Path(where).name
    declared = _declared(model if settled.bounds else bound)
    raise_mistakes(_bound_mistakes(where, prepared, settled, declared))
    if settled.bounds:
        tensors, unsure = open_tensors(prepared, settled, declared)
        tensors = _with_declared(declared, tensors)
        peaks = (tensors[name] for name in unsure if name not in settled.others)
        warnings = [*_contradictions(file, model, tensors), *_peak_warnings(file, peaks)]
        return tensors, tuple(warnings)
    inferred = infer_whole(prepared)
    tensors = {name: _tensor(name, kind) for name, kind in _declared(inferred).items()}
    if any(tensor.shape is None for tensor in _made(inferred, tensors)):
        for name, kind in follow_types(inferred, _claims(declared)).items():
            tensors[name] = _tensor(name, kind)
    tensors = _with_declared(declared, tensors)
    unbounded = (tensor.dtype for tensor in _made(inferred, tensors) if tensor.shape is None)
    if settled.others or any(map(dtype_bits, unbounded)):
        for name, tensor in open_tensors(prepared, settled, declared)[0].items():
            is_needed = name not in tensors or tensors[name].shape is None or name in settled.others
            if is_needed and tensor.shape is not None:
                tensors[name] = tensor
    return tensors, tuple(_contradictions(file, bound, tensors))


def _peak_warnings(where: str, peaks: Iterable[Tensor]) -> Iterator[str]:
    for tensor in peaks:
        option = size_option("--at-most", tensor.name, tensor.shape or ())
        yield (
            f"{where}: tensor {quoted(tensor.name)} is not largest for the largest inputs; of those"
            f" tried it is at most {list(tensor.shape or ())}, and a frame with more ends the job"
            f" ({option} sets the bound)"
        )


def _contradictions(where: str, model: ModelProto, tensors: Mapping[str, Tensor]) -> Iterator[str]:
    made = {name for node in model.graph.node for name in node.output}
    claims = [_tensor(name, kind) for name, kind in _declared(model).items() if name in made]
    pairs = [(claim, tensors[claim.name]) for claim in claims if claim.dtype]
    wrong = [
        (claim, inferred)
        for claim, inferred in pairs
        if claim.dtype != inferred.dtype
        or (
            not (inferred.is_open or None in (claim.shape, inferred.shape))
            and claim.shape != inferred.shape
        )
    ]
    if wrong:
        claim, inferred = wrong[0]
        others = f", and {len(wrong) - 1} more" if wrong[1:] else ""
        yield (
            f"{where}: tensor {quoted(claim.name)} is declared as {_described(claim)}, but the"
            f" model's inputs and layers make it {_described(inferred)}{others}: what is declared"
            " is ignored"
        )


def _described(tensor: Tensor) -> str:
    return f"{tensor.dtype}{'' if tensor.shape is None else list(tensor.shape)}"


def _claims(declared: Mapping[str, TypeProto]) -> Decision:
    """Return a decision for the declared type, where no other is known."""

    def decide(facts: Facts, node: NodeProto) -> Iterator[ValueInfoProto]:
        for name in filter(None, node.output):
            kind = facts.types.get(name, TypeProto())
            if not is_fixed(kind) and name in declared and fits(kind, declared[name]):
                yield ValueInfoProto(name=name, type=declared[name])

    return decide


def _with_declared(
    declared: Mapping[str, TypeProto], tensors: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return tensors, and what a file says of others, or of those without a type."""
    for name, kind in declared.items():
        if name not in tensors or not tensors[name].dtype:
            tensors[name] = _tensor(name, kind)
    return tensors


def _declared(model: ModelProto) -> dict[str, TypeProto]:
    graph = model.graph
    return {value.name: value.type for value in (*graph.value_info, *graph.output, *graph.input)}


def _made(model: ModelProto, tensors: Mapping[str, Tensor]) -> Iterator[Tensor]:
    for node in model.graph.node:
        for name in filter(None, node.output):
            yield tensors.get(name, Tensor(name, "", None))


def inference_model(model: ModelProto, weights: Mapping[str, Weight]) -> ModelProto:
    """Return a model of the same shapes in which values that were left out are typed inputs.

    What it declares of results is left out, and local functions are inlined. Small weights in
    files of their own are read, since shapes may depend on them.
    """
    if model.functions:
        with suppress(*INFERENCE_ERRORS):
            model = onnx.inliner.inline_local_functions(model)
    copy = ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    del graph.initializer[:], graph.node[:], graph.value_info[:]
    for value in graph.output:
        value.ClearField("type")
    listed = {value.name for value in graph.input}
    for tensor in model.graph.initializer:
        kept = _with_values(tensor, weights[tensor.name])
        if kept is not None:
            graph.initializer.append(kept)
        elif tensor.name not in listed:
            graph.input.append(_value_of(tensor.name, tensor))
    for node in _in_order(model.graph.node):
        # The value of a Constant that the skeleton left out.
        held = [item.t for item in node.attribute if item.name == "value" and item.HasField("t")]
        if node.op_type == "Constant" and any(map(lacks_values, held)):
            graph.input.append(_value_of(node.output[0], held[0]))
        else:
            graph.node.append(node)
            _state_defaults(graph.node[-1])
    return copy


def _state_defaults(node: NodeProto) -> None:
    """State what STFT does by default; the ``onnx`` package infers the sizes of the contrary."""
    has_bodies = next(bodies_of(node), None) is not None
    for inner in executed(node, {}) if has_bodies else (node,):
        if inner.op_type == "STFT" and not any(item.name == "onesided" for item in inner.attribute):
            inner.attribute.append(onnx.helper.make_attribute("onesided", 1))


def _in_order(nodes: Sequence[NodeProto]) -> list[NodeProto]:
    maker = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    sources = [{maker[name] for name in inputs_of(node) if name in maker} for node in nodes]
    order = dependency_order(sources, range(len(nodes)))
    return [nodes[index] for index in order] if len(order) == len(nodes) else list(nodes)


def _with_values(tensor: TensorProto, weight: Weight) -> TensorProto | None:
    if not is_external(tensor):
        return None if lacks_values(tensor) else tensor
    if weight.data is None or weight.data.length > SMALL:
        return None
    return TensorProto(
        name=tensor.name,
        data_type=tensor.data_type,
        dims=tensor.dims,
        raw_data=piece_bytes(weight.data),
    )


def lacks_values(tensor: TensorProto) -> bool:
    payloads = ("raw", "float", "int32", "int64", "double", "uint64", "string")
    return 0 not in tensor.dims and not any(getattr(tensor, f"{name}_data") for name in payloads)


def _value_of(name: str, tensor: TensorProto) -> ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))


def _tensor(name: str, declared: TypeProto) -> Tensor:
    dims = dims_of(declared)
    # A message of no bytes would end the stream; one of open sizes has a header.
    symbols = tuple("" if size else UNNAMED for size in dims) if 0 in dims else ()
    shape = dims if is_fixed(declared) else None
    return Tensor(name, dtype_of_value(declared), shape, symbols if shape else ())
