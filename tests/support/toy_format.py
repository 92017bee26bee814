"""A model format as someone outside would add one: lines of text, sliced into ONNX files.

``input x 1 4`` names what a frame brings and its shape, ``Relu a x`` an ONNX operator of the same
shape with what it makes and reads, ``output a`` what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onnx import TensorProto, ValueInfoProto, helper

from rankslice.framework.graph import ByteRange, Graph, Layer, Tensor
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.model_format import Conversion, Format
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.partition.partition import PartitionSegment


@dataclass(frozen=True, slots=True)
class ToyModel:
    path: Path
    graph: Graph


def read(path: Path, sizes: GivenSizes = NO_SIZES) -> ToyModel:
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    tensors: dict[str, Tensor] = {}
    inputs, outputs, layers = [], [], []
    for kind, name, *rest in lines:
        if kind == "input":
            tensors[name] = Tensor(name, "float32", tuple(map(int, rest)))
            inputs.append(tensors[name])
        elif kind == "output":
            outputs.append(tensors[name])
        else:
            read = tuple(tensors[source] for source in rest)
            tensors[name] = Tensor(name, "float32", read[0].shape)
            layers.append(Layer(name, kind, read, (tensors[name],), (), ByteRange(path, 0, 0)))
    return ToyModel(path, Graph(path.name, "toy", tuple(layers), tuple(inputs), tuple(outputs), ()))


def submodel_files(
    model: ToyModel, part: PartitionSegment, name: str, conversion: Conversion
) -> SubModelFiles:
    nodes = [
        helper.make_node(layer.op, [tensor.name for tensor in layer.inputs], [layer.name])
        for layer in part.layers
    ]
    ends = ([*map(_described, part.inputs)], [*map(_described, part.outputs)])
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(
        helper.make_graph(nodes, name, *ends), opset_imports=opsets, ir_version=8
    )
    return SubModelFiles((proto.SerializeToString(),))


def _described(tensor: Tensor) -> ValueInfoProto:
    return helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.shape)


FORMAT = Format(
    name="toy",
    submodels="onnx",
    read=read,
    submodel_files=submodel_files,
    macs=lambda layer: 100 if layer.op == "Mul" else 0,
    conversions=("float32",),
    warnings=lambda cut: [f"toys fall into {len(cut.segments)} parts"],
)
