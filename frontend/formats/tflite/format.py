"""The format of ``.tflite`` files."""

from __future__ import annotations

from rankslice.frontend.formats.model_format import Format
from rankslice.frontend.formats.tflite.engine_limits import flex_mistakes, open_size_mistakes
from rankslice.frontend.formats.tflite.macs import tflite_macs
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.writer import submodel_pieces

FORMAT = Format(
    name="tflite",
    submodels="tflite",
    read=read_tflite,
    submodel_files=lambda model, part, name, conversion: submodel_pieces(
        model, part.layers, part.inputs, part.outputs, name=name
    ),
    macs=tflite_macs,
    mistakes=lambda model, cut, ranks: (
        *flex_mistakes(model, cut, ranks),
        *open_size_mistakes(model.path, cut, ranks),
    ),
)
