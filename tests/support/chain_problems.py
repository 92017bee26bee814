"""Small problems of mapping: a chain of layers on boards with CPU and GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from rankslice.exploration.problem.make_problem import make_problem
from rankslice.exploration.problem.problem import Problem, explored_layers
from rankslice.framework.platform import Accelerator, Board, Link, Platform
from rankslice.frontend.formats import read_model

CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
chain (float[1,64] x0) => (float[1,64] x{layers}) {{
{body}
}}
"""


def write_chain(path: Path, layers: int) -> Path:
    """Write a model of layers one after the other, ``l1`` to ``l<layers>``."""
    body = "\n".join(f"  x{n} = Relu (x{n - 1})" for n in range(1, layers + 1))
    model = onnx.parser.parse_model(CHAIN.format(layers=layers, body=body))
    for number, node in enumerate(model.graph.node, 1):
        node.name = f"l{number}"
    onnx.save(model, path)
    return path


def platform(boards: int, *, power: bool = False, memory_mb: float | None = None) -> Platform:
    """Return boards ``b1``, ``b2``, ... with four cores and a GPU each, in a gigabit network."""
    return Platform(
        "boards.yaml",
        tuple(
            Board(
                f"b{number}",
                f"b{number}",
                cores=(0, 1, 2, 3),
                gpus=(Accelerator("onnxruntime", (("provider", "CUDA"),)),),
                memory_mb=memory_mb,
                idle_w=2.0 if power else None,
                busy_w=10.0 if power else None,
            )
            for number in range(1, boards + 1)
        ),
        Link(bandwidth_mbps=1000, latency_ms=0.2),
    )


def problem(folder: Path, boards: Platform, layers: int = 6, gpu: float = 3.0) -> Problem:
    """Return the problem of a chain whose n-th layer takes n ms on a CPU, less on a GPU."""
    graph = read_model(write_chain(folder / "chain.onnx", layers)).graph
    assert layers == len(explored_layers(graph))
    cpu_s = np.arange(1, layers + 1) / 1e3
    return make_problem(graph, boards, np.stack([cpu_s, cpu_s / gpu]))
