"""An ONNX file as a :class:`Graph`, its weights left where they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from google.protobuf.message import DecodeError
from onnx import ModelProto, NodeProto

from rankslice.framework.errors import raise_mistakes
from rankslice.framework.graph import RANDOM, ByteRange, Graph, Layer, Tensor, Weight
from rankslice.framework.wording import quoted
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.onnx.checks import (
    function_mistakes,
    header_mistakes,
    is_text,
    tensor_mistakes,
)
from rankslice.frontend.formats.onnx.nodes import (
    Operator,
    attributes_of,
    draws_random_numbers,
    executed,
    function_table,
    inputs_of,
    key_of,
    layer_names,
    operator,
    operators_of,
)
from rankslice.frontend.formats.onnx.refusals import branches_of_other_sizes, refusals
from rankslice.frontend.formats.onnx.shapes import bind_inputs, infer_tensors, inference_model
from rankslice.frontend.formats.onnx.types import is_fixed
from rankslice.frontend.formats.onnx.weights import inner_data, read_weights
from rankslice.frontend.formats.onnx.wire import BYTES, Scan, WireFile, scan_model
from rankslice.frontend.partition.order import topological_order

_INPUTS_HAVE_DEFAULTS = 4
"""From this version of ONNX's format on."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An ONNX file: its graph, and what its sub-models inherit."""

    path: Path
    graph: Graph
    ir_version: int
    """Version of ONNX's own format. Before 4, weights must be listed as graph inputs."""
    opsets: tuple[tuple[str, int], ...]
    graph_name: str
    header: tuple[ByteRange, ...]
    """Records of the file outside its graph: versions, operator sets, metadata, ..."""
    graph_notes: tuple[ByteRange, ...]
    """Records of the graph that describe it: its description and metadata."""
    functions: Mapping[str, tuple[ByteRange, ...]]
    """Records of the local functions that a layer needs, by the layer's name; layers that call
    none are missing."""
    operators: Mapping[str, frozenset[Operator]]
    """What layers run, by the layer's name."""
    branches_of_other_sizes: frozenset[str]
    """Names of layers with a branch that may be for other sizes, and so never taken."""
    fixed_inputs: frozenset[str]
    """Names of the inputs whose sizes are fixed in the file."""
    inner_data: Mapping[ByteRange | bytes, tuple[ByteRange, ...]]
    """Values in other files that constants within a layer or a function have, by the record of
    that layer or function; those without are missing."""


def inner_data_of(model: OnnxModel, record: ByteRange | bytes) -> tuple[ByteRange, ...]:
    return model.inner_data.get(record, ())


def read_onnx(path: Path, sizes: GivenSizes = NO_SIZES) -> OnnxModel:
    """Return the graph of an ONNX model file.

    Memory and time do not grow with the weights: they are looked up, not read. The ``record``
    of a layer or a weight is its whole field of the ``GraphProto``, tag and length included, so
    that neighbours in the file are neighbours byte by byte.
    """
    where = str(path)
    with WireFile(path) as file:
        scan = scan_model(file)
        model = _parse(file, scan)
        raise_mistakes(header_mistakes(where, model))
        raise_mistakes((*tensor_mistakes(where, model.graph), *function_mistakes(where, model)))
        weights = {weight.name: weight for weight in read_weights(file, scan, model.graph)}
    for name in _overridden(model, sizes) & weights.keys():
        del weights[name]
    nodes = dict(zip(layer_names(model.graph.node), model.graph.node, strict=True))
    outside = _inner_data(path, scan, model, nodes)
    bound, settled, mistakes = bind_inputs(where, model, weights, sizes)
    raise_mistakes(mistakes)
    prepared = inference_model(model if settled.bounds else bound, weights)
    tensors, warnings = infer_tensors(where, model, bound, prepared, settled)
    loose = branches_of_other_sizes(bound, weights, tensors)
    alone = inference_model(model, weights) if loose else prepared
    functions = function_table(model.functions)
    run = {name: [*executed(node, functions)] for name, node in nodes.items()}
    operators = {name: operators_of(inner, functions) for name, inner in run.items()}
    layers = topological_order(where, _layers(path, scan, nodes, operators, weights, tensors))
    return OnnxModel(
        path=path,
        graph=replace(
            _graph(path.name, bound, layers, weights, tensors),
            warnings=(*warnings, *refusals(path.name, model, alone, weights, tensors)),
        ),
        ir_version=model.ir_version,
        opsets=tuple((entry.domain, entry.version) for entry in model.opset_import),
        graph_name=model.graph.name,
        header=scan.header,
        graph_notes=scan.graph_notes,
        functions=_functions(path, scan, model, run),
        operators=operators,
        branches_of_other_sizes=loose,
        fixed_inputs=frozenset(value.name for value in model.graph.input if is_fixed(value.type)),
        inner_data=outside,
    )


def _overridden(model: ModelProto, sizes: GivenSizes) -> set[str]:
    """Return the inputs with a default to which sizes are given: frames bring their values.

    The defaults are taken out of the model. Before version 4 all weights had to be listed as
    inputs, so being listed says nothing there.
    """
    if model.ir_version < _INPUTS_HAVE_DEFAULTS:
        return set()
    graph = model.graph
    wanted = {value.name for value in graph.input} & {*sizes.fixed, *sizes.at_most}
    kept = [tensor for tensor in graph.initializer if tensor.name not in wanted]
    sparse = [tensor for tensor in graph.sparse_initializer if tensor.values.name not in wanted]
    del graph.initializer[:], graph.sparse_initializer[:]
    graph.initializer.extend(kept)
    graph.sparse_initializer.extend(sparse)
    return wanted


def _graph(
    name: str,
    model: ModelProto,
    layers: tuple[Layer, ...],
    weights: Mapping[str, Weight],
    tensors: Mapping[str, Tensor],
) -> Graph:
    input_names = (value.name for value in model.graph.input if value.name not in weights)
    output_names = tuple(dict.fromkeys(value.name for value in model.graph.output))
    read = [weight for layer in layers for weight in layer.weights]
    passed_on = [weights[name] for name in output_names if name in weights]
    stored = {weight.name: Tensor(weight.name, weight.dtype, weight.shape) for weight in passed_on}
    known = {**tensors, **stored}
    return Graph(
        name=name,
        format="onnx",
        layers=layers,
        inputs=tuple(tensors[name] for name in input_names),
        outputs=tuple(known[name] for name in output_names),
        weights=tuple(dict.fromkeys((*read, *passed_on))),
    )


def _parse(file: WireFile, scan: Scan) -> ModelProto:
    try:
        model: ModelProto = ModelProto.FromString(scan.skeleton)
    except DecodeError:
        raise file.malformed(0, "its records are inconsistent") from None
    if not is_text(model):
        raise file.malformed(0, "a name is not UTF-8 text")
    return model


def _inner_data(
    path: Path, scan: Scan, model: ModelProto, nodes: Mapping[str, NodeProto]
) -> dict[ByteRange | bytes, tuple[ByteRange, ...]]:
    owners = [
        *((f"layer {quoted(name)}", [node]) for name, node in nodes.items()),
        *((f"function {quoted(function.name)}", function.node) for function in model.functions),
    ]
    data: dict[ByteRange | bytes, tuple[ByteRange, ...]] = {
        field.record(path): inner_data(f"{path}: {name}", path, held)
        for (name, held), field in zip(owners, (*scan.nodes, *scan.functions), strict=True)
    }
    return {record: ranges for record, ranges in data.items() if ranges}


def _functions(
    path: Path, scan: Scan, model: ModelProto, run: Mapping[str, list[NodeProto]]
) -> dict[str, tuple[ByteRange, ...]]:
    records = [
        (key, field.record(path))
        for field, function in zip(scan.functions, model.functions, strict=True)
        for key in function_table([function])
    ]
    called = {name: {*map(key_of, inner)} for name, inner in run.items()}
    needed = {name: [r for key, r in records if key in keys] for name, keys in called.items()}
    return {name: tuple(records_of) for name, records_of in needed.items() if records_of}


def _layers(
    path: Path,
    scan: Scan,
    nodes: Mapping[str, NodeProto],
    operators: Mapping[str, frozenset[Operator]],
    weights: Mapping[str, Weight],
    tensors: Mapping[str, Tensor],
) -> list[Layer]:
    outputs = {name for node in nodes.values() for name in node.output}
    known = {**{name: Tensor(name, "", None) for name in outputs}, **tensors}
    return [
        Layer(
            name=name,
            op=operator(node),
            inputs=tuple(known[name] for name in inputs_of(node) if name not in weights),
            outputs=tuple(known[name] for name in node.output if name),
            weights=tuple(weights[name] for name in inputs_of(node) if name in weights),
            record=field.record(path),
            deterministic=not (is_drawn := draws_random_numbers(operators[name])),
            lasting=(RANDOM,) if is_drawn else (),
            operands=tuple(
                (weights.get(name) or known[name]) if name else None for name in node.input
            ),
            attributes=attributes_of(node),
        )
        for (name, node), field in zip(nodes.items(), scan.nodes, strict=True)
    ]


_METADATA, _KEY, _VALUE = 14, 1, 2
_MAX_PAIR = 1 << 20
"""Of a pair, in bytes; longer ones are passed over."""


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of an ONNX file; of a key that comes again, the last value."""
    metadata = {}
    with WireFile(path) as file:
        for pair in file.fields(0, file.size):
            if (pair.number, pair.wire) != (_METADATA, BYTES) or pair.end - pair.body > _MAX_PAIR:
                continue
            texts = {
                field.number: file.read(field.body, field.end).decode(errors="replace")
                for field in file.fields(pair.body, pair.end)
                if field.wire == BYTES
            }
            metadata[texts.get(_KEY, "")] = texts.get(_VALUE, "")
    return metadata
