"""What a model consists of."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankslice.framework.graph import Graph, Layer, Tensor, Weight
from rankslice.frontend.onnx_reader import read_onnx

__all__ = ["Inspection", "inspect_model", "inspection_to_json", "print_inspection"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """A model with its totals."""

    graph: Graph
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    """Operator sets: domain (empty: ONNX's own) and version."""
    parameters: int
    """Numbers in the weights, shared ones counted once."""
    weight_bytes: int


def inspect_model(model: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Inspection:
    """Return what a model file consists of.

    Args:
        model: the model file.
        shapes: sizes of inputs that the file does not fix, by the input's name.

    Raises:
        RankSliceError: the file is no ONNX model, or one that cannot be sliced.
    """
    found = read_onnx(model, shapes)
    return Inspection(
        graph=found.graph,
        ir_version=found.ir_version,
        opsets=found.opsets,
        parameters=_parameters(found.graph.weights),
        weight_bytes=_weight_bytes(found.graph.weights),
    )


def inspection_to_json(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as a JSON object; shapes that are unknown are ``null``."""
    graph = inspection.graph
    return {
        "model": graph.name,
        "format": graph.format,
        "ir_version": inspection.ir_version,
        "opsets": {domain or "ai.onnx": version for domain, version in inspection.opsets},
        "inputs": _tensors_to_json(graph.inputs),
        "outputs": _tensors_to_json(graph.outputs),
        "layers": [_layer_to_json(layer) for layer in graph.layers],
        "totals": {
            "layers": len(graph.layers),
            "parameters": inspection.parameters,
            "weight_bytes": inspection.weight_bytes,
        },
    }


def print_inspection(inspection: Inspection, console: Console) -> None:
    """Print a table of the layers, then the inputs, the outputs and the totals."""
    graph = inspection.graph
    table = Table(title=Text(_printable(graph.name)), box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("layer", "operator", "output", "shape"):
        table.add_column(heading, overflow="fold")
    for heading in ("parameters", "MB"):
        table.add_column(heading, justify="right")
    for layer in graph.layers:
        table.add_row(
            Text(_printable(layer.name)),
            Text(_printable(layer.op)),
            Text("\n".join(_printable(tensor.name) for tensor in layer.outputs)),
            Text("\n".join(_shape(tensor) for tensor in layer.outputs)),
            f"{_parameters(layer.weights):,}" if layer.weights else "",
            _megabytes(_weight_bytes(layer.weights)) if layer.weights else "",
        )
    console.print(table)
    for label, tensors in (("input", graph.inputs), ("output", graph.outputs)):
        for tensor in tensors:
            console.print(Text(f"{label}: {_printable(tensor.name)} {_shape(tensor)}"))
    console.print(
        f"{len(graph.layers)} layers, {inspection.parameters:,} parameters, "
        f"{_megabytes(inspection.weight_bytes)} MB of weights",
        highlight=False,
    )


def _layer_to_json(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "op": layer.op,
        "inputs": _tensors_to_json(layer.inputs),
        "outputs": _tensors_to_json(layer.outputs),
        "parameters": _parameters(layer.weights),
        "weight_bytes": _weight_bytes(layer.weights),
    }


def _tensors_to_json(tensors: Iterable[Tensor]) -> list[dict[str, Any]]:
    return [
        {
            "name": tensor.name,
            "dtype": tensor.dtype or None,
            "shape": None if tensor.shape is None else list(tensor.shape),
        }
        for tensor in tensors
    ]


def _shape(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else "x".join(map(str, tensor.shape)) or "scalar"
    return f"{shape} {tensor.dtype or '?'}"


def _printable(name: str) -> str:
    """Return a name from a model file so that it cannot steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def _parameters(weights: Iterable[Weight]) -> int:
    return sum(math.prod(weight.shape) for weight in weights)


def _weight_bytes(weights: Iterable[Weight]) -> int:
    return sum(weight.nbytes for weight in weights)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.3f}"
