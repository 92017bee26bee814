"""The format of Keras models: ``.keras`` archives and HDF5 files."""

from __future__ import annotations

from rankslice.frontend.formats.keras.macs import keras_macs
from rankslice.frontend.formats.keras.merging import merge_normalisations, split_warnings
from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.frontend.formats.keras.writer import keras_submodel
from rankslice.frontend.formats.model_format import KINDS, Format
from rankslice.frontend.formats.tflite.engine_limits import open_size_mistakes

FORMAT = Format(
    name="keras",
    submodels="tflite",
    read=read_keras,
    submodel_files=keras_submodel,
    macs=keras_macs,
    conversions=KINDS,
    arrange=merge_normalisations,
    mistakes=lambda model, cut, ranks: open_size_mistakes(model.path, cut, ranks),
    warnings=split_warnings,
)
