"""Random networks, as graph records and as ONNX models, and random assignments to ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from rankslice.framework.graph import (
    ByteRange,
    Graph,
    Layer,
    Tensor,
    Weight,
    constant_layers,
)
from rankslice.frontend.partition.partition import used_layers

_RECORD = ByteRange(Path("network.onnx"), 0, 0)
_WIDTH = 4
_WIDEST = 8
_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Identity")
_BINARY = ("Add", "Sub", "Max")
_WEIGHTED = ("Mul", "MatMul")
_OPS = (*_UNARY, *_BINARY, *_BINARY, *_WEIGHTED, "Split", "Split", "Concat", "Constant")


@dataclass(frozen=True)
class Node:
    """A layer of a network; every tensor is float32 of shape [1, width]."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()


@dataclass(frozen=True)
class Network:
    """What a graph record and an ONNX model are made of."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    widths: Mapping[str, int]
    """Of all tensors that are computed."""
    weights: Mapping[str, tuple[int, ...]]
    """Shapes."""
    rows: int | str = 1
    """First size of all tensors of the ONNX model; the name of an open one."""

    def graph(self) -> Graph:
        """Return the record that a reader would make of :meth:`model`, byte ranges aside."""
        tensors = {name: Tensor(name, "float32", (1, width)) for name, width in self.widths.items()}
        weights = {
            name: Weight(name, "float32", shape, 4 * int(np.prod(shape)), _RECORD, None)
            for name, shape in self.weights.items()
        }
        layers = tuple(
            Layer(
                node.name,
                node.op,
                tuple(tensors[name] for name in dict.fromkeys(node.inputs)),
                tuple(tensors[name] for name in node.outputs),
                tuple(weights[name] for name in node.weights),
                _RECORD,
            )
            for node in self.nodes
        )
        return Graph(
            "network.onnx",
            "onnx",
            layers,
            tuple(tensors[name] for name in self.inputs),
            tuple(tensors[name] for name in self.outputs),
            tuple(weights.values()),
        )

    def model(self) -> ModelProto:
        """Return an ONNX model that runs; its values are of order 1 and the same every time."""
        random = np.random.default_rng(len(self.nodes))
        weights = [
            numpy_helper.from_array(random.uniform(-1, 1, shape).astype(np.float32), name)
            for name, shape in self.weights.items()
        ]
        graph = helper.make_graph(
            [_node_proto(node, random) for node in self.nodes],
            "network",
            [self._value(name) for name in self.inputs],
            [self._value(name) for name in self.outputs],
            weights,
        )
        opsets = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    def _value(self, name: str):
        return helper.make_tensor_value_info(
            name, TensorProto.FLOAT, [self.rows, self.widths[name]]
        )


def _node_proto(node: Node, random: np.random.Generator) -> NodeProto:
    attributes = {}
    if node.op in ("Split", "Concat"):
        attributes["axis"] = 1
    if node.op == "Constant":
        values = random.uniform(-1, 1, (1, _WIDTH)).astype(np.float32)
        attributes["value"] = numpy_helper.from_array(values)
    inputs = [*node.inputs, *node.weights]
    return helper.make_node(node.op, inputs, node.outputs, name=node.name, **attributes)


@st.composite
def networks(draw: st.DrawFn, max_layers: int = 12, *, rows: int | str = 1) -> Network:
    """Draw networks with skip edges, layers with two outputs, constants and unused results.

    Some model output depends on a model input; a model input may be unused. If ``rows`` names an
    open size, all tensors have it, and there are no constants, which would have one row.
    """
    ops = _OPS if rows == 1 else tuple(op for op in _OPS if op != "Constant")
    inputs = tuple(f"x{n}" for n in range(draw(st.integers(1, 3))))
    widths = dict.fromkeys(inputs, _WIDTH)
    weights: dict[str, tuple[int, ...]] = {}
    nodes = [_draw_node(draw, "n0", "Relu", widths, weights)]
    for number in range(1, draw(st.integers(1, max_layers))):
        nodes.append(_draw_node(draw, f"n{number}", draw(st.sampled_from(ops)), widths, weights))
    made = [name for node in nodes for name in node.outputs]
    fed = set(inputs)
    for node in nodes:
        fed |= set(node.outputs) if fed & set(node.inputs) else set()
    main = draw(st.sampled_from([name for name in reversed(made) if name in fed]))
    others = draw(st.sets(st.sampled_from(made), max_size=3))
    outputs = tuple(draw(st.permutations(sorted({main} | others))))
    return Network(inputs, outputs, tuple(nodes), widths, weights, rows)


def _draw_node(
    draw: st.DrawFn, name: str, op: str, widths: dict[str, int], weights: dict[str, tuple[int, ...]]
) -> Node:
    """Draw what a node reads, and note the widths of what it makes."""
    first = draw(st.sampled_from(sorted(widths, reverse=True)))
    width = widths[first]
    inputs, made, own = (first,), (width,), ()
    if op in _BINARY:
        inputs = (first, draw(st.sampled_from([t for t, w in widths.items() if w == width])))
    elif op in _WEIGHTED:
        own = (f"w{name}",)
        weights[own[0]] = (width, width) if op == "MatMul" else (1, width)
    elif op == "Constant":
        inputs, made = (), (_WIDTH,)
    elif op == "Split" and width % 2 == 0:
        made = (width // 2, width // 2)
    elif op == "Concat":
        fitting = [t for t, w in widths.items() if w + width <= _WIDEST]
        second = draw(st.sampled_from(fitting)) if fitting else None
        inputs = (first, second) if second else (first,)
        made = (sum(widths[t] for t in inputs),)
    elif op == "Split":
        op = "Relu"
    outputs = tuple(f"{name}.{n}" for n in range(len(made)))
    widths.update(zip(outputs, made, strict=True))
    return Node(name, op, inputs, outputs, own)


def random_graphs(max_layers: int = 12) -> st.SearchStrategy[Graph]:
    """Draw graph records without files."""
    return networks(max_layers).map(Network.graph)


@st.composite
def assignments(draw: st.DrawFn, graph: Graph, max_ranks: int = 4) -> dict[str, int]:
    """Draw a rank for each layer, so that each rank has a layer that a frame needs."""
    needed = used_layers(graph) - constant_layers(graph)
    drawn = {layer.name: draw(st.integers(0, max_ranks - 1)) for layer in graph.layers}
    ranks = sorted({drawn[name] for name in needed})
    return {name: ranks.index(rank) if rank in ranks else 0 for name, rank in drawn.items()}


@st.composite
def mapped_graphs(
    draw: st.DrawFn, max_layers: int = 12, max_ranks: int = 4
) -> tuple[Graph, dict[str, int]]:
    """Draw graphs, and the ranks of their layers."""
    graph = draw(random_graphs(max_layers))
    return graph, draw(assignments(graph, max_ranks))


@st.composite
def pairs_of(draw: st.DrawFn, ranks: int) -> frozenset[tuple[int, int]]:
    """Draw pairs of ranks that share memory, the lower one first; not always transitively."""
    possible = list(combinations(range(ranks), 2))
    return frozenset(draw(st.sets(st.sampled_from(possible))) if possible else ())
