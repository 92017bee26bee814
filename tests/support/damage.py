"""Sub-models with other weights than the model's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from real_jobs import replace_file

from rankslice.frontend.formats.tflite.reader import read_tflite


def change_weight(submodel: Path, by: float) -> None:
    """Add to the first value of the largest weight of an ONNX sub-model."""
    model = onnx.load(submodel)
    weight = max(model.graph.initializer, key=lambda each: len(each.raw_data))
    values = numpy_helper.to_array(weight).copy()
    values.flat[0] += by
    weight.CopyFrom(numpy_helper.from_array(values, weight.name))
    replace_file(submodel, model.SerializeToString())


def change_tflite_weight(submodel: Path) -> None:
    """Set the first value of the largest weight of a ``.tflite`` sub-model to 3."""
    content = bytearray(submodel.read_bytes())
    weights = [each.data for each in read_tflite(submodel).graph.weights if each.dtype == "float32"]
    place = max((data for data in weights if data), key=lambda data: data.length)
    content[place.offset : place.offset + 4] = np.float32(3).tobytes()
    replace_file(submodel, bytes(content))
