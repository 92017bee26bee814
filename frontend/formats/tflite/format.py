"""The format of ``.tflite`` files."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.graph import Layer, Tensor
from rankslice.frontend.formats.conversion import Conversion
from rankslice.frontend.formats.format import Format
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.formats.tflite.flex import flex_mistakes
from rankslice.frontend.formats.tflite.macs import tflite_macs
from rankslice.frontend.formats.tflite.reader import TfliteModel, read_tflite
from rankslice.frontend.formats.tflite.writer import submodel_pieces

__all__ = ["FORMAT"]


def _submodel_files(
    model: TfliteModel,
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    name: str,
    conversion: Conversion,
) -> SubModelFiles:
    return SubModelFiles(submodel_pieces(model, layers, inputs, outputs, name=name))


FORMAT = Format(
    name="tflite",
    submodels="tflite",
    read=read_tflite,
    submodel_files=_submodel_files,
    macs=tflite_macs,
    mistakes=flex_mistakes,
)
