"""An engine from outside: numpy, for ONNX models of Relu and Add."""
# ruff: noqa: TID252 - a test puts it into the runtime of a build folder

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import Tensor
from . import Engine, EngineSettings

OPERATORS = {
    "Relu": lambda x: np.maximum(x, 0),
    "Add": np.add,
}


def version() -> str:
    return f"numpy {np.__version__}"


def open_engine(settings: EngineSettings) -> ToyEngine:
    return ToyEngine()


class ToyEngine(Engine):
    def load(self, path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        import onnx

        self._nodes = onnx.load(path).graph.node
        self._inputs = [spec.name for spec in inputs]
        self._outputs = [spec.name for spec in outputs]
        if strange := {node.op_type for node in self._nodes} - OPERATORS.keys():
            raise JobError(f"{path.name}: the toy engine has no {', '.join(strange)}")

    def run(self, inputs: Sequence[NDArray[Any]], outputs: Sequence[NDArray[Any]]) -> None:
        values = dict(zip(self._inputs, inputs, strict=True))
        for node in self._nodes:
            operands = [values[name] for name in node.input]
            values[node.output[0]] = OPERATORS[node.op_type](*operands)
        for name, output in zip(self._outputs, outputs, strict=True):
            output[:] = values[name]
