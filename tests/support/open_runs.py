"""``.tflite`` models in LiteRT's engine, on frames of different sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from litert_engines import loaded
from numpy.typing import NDArray

from rankslice.backend.runtime.engines import Engine, EngineSettings
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.framework.graph import Graph, Tensor


class Run:
    """A model or a sub-model in an engine."""

    def __init__(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        self._inputs = [tensor.name for tensor in inputs]
        self._outputs = [tensor.in_job() for tensor in outputs]
        self._slots = [make_slot(spec) for spec in self._outputs]
        given = [tensor.in_job() for tensor in inputs]
        self._engine: Engine = loaded(EngineSettings(), given, self._outputs, model=path)

    def run(self, values: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self._engine.run([values[name] for name in self._inputs], self._slots)
        return {
            spec.name: values_in(slot).copy()
            for spec, slot in zip(self._outputs, self._slots, strict=True)
        }


def drawn_frame(graph: Graph, random: np.random.Generator, least: int) -> dict[str, NDArray[Any]]:
    """Return inputs of random values and sizes, from ``least`` to the bounds."""
    values = {}
    for tensor in graph.inputs:
        shape = [
            int(random.integers(least, size, endpoint=True)) if symbol else size
            for size, symbol in zip(tensor.shape or (), tensor.symbols or ("",) * 9, strict=False)
        ]
        drawn = (
            random.normal(size=shape) if "float" in tensor.dtype else random.integers(0, 9, shape)
        )
        values[tensor.name] = np.asarray(drawn, tensor.dtype)
    return values
