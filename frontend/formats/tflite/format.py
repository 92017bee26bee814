"""The format of ``.tflite`` files."""

from __future__ import annotations

from rankslice.frontend.formats.model_format import Format
from rankslice.frontend.formats.tflite.engine_limits import flex_mistakes, open_size_mistakes
from rankslice.frontend.formats.tflite.forms import tflite_form
from rankslice.frontend.formats.tflite.macs import tflite_macs
from rankslice.frontend.formats.tflite.making import wire_fault, with_made_layers
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.frontend.formats.tflite.writer import tflite_submodel

FORMAT = Format(
    name="tflite",
    submodels="tflite",
    read=read_tflite,
    submodel_files=tflite_submodel,
    macs=tflite_macs,
    forms=lambda model: tflite_form,
    with_made_layers=with_made_layers,
    wire_fault=wire_fault,
    channels_last=True,
    mistakes=lambda model, cut, ranks: (
        *flex_mistakes(model, cut, ranks),
        *open_size_mistakes(model.path, cut, ranks),
    ),
)
