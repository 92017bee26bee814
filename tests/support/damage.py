"""Sub-models with other weights than the model's."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import numpy_helper
from real_jobs import replace_file


def change_weight(submodel: Path, by: float) -> None:
    """Add to the first value of the largest weight of an ONNX sub-model."""
    model = onnx.load(submodel)
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] += by
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    replace_file(submodel, model.SerializeToString())
