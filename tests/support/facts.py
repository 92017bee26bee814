"""What a build tells boards of model files that tests load as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx

from rankslice.backend.runtime.job import Facts, Tensor
from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.onnx.nodes import Operator, executed, onnx_facts, operators_of
from rankslice.frontend.formats.tflite.operators import tflite_facts
from rankslice.frontend.formats.tflite.wire import FlatFile, read_tables


def facts_of_tflite(path: Path) -> Facts:
    try:
        with FlatFile(path) as file:
            return tflite_facts(read_tables(file))
    except RankSliceError:  # it is no model
        return Facts()


def facts_of_onnx(model: onnx.ModelProto, inputs: Sequence[Tensor]) -> Facts:
    found = (operators_of(executed(node, {}), {}) for node in model.graph.node)
    return onnx_facts(frozenset[Operator]().union(*found), inputs)
