"""The format of ``.onnx`` files."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.framework.graph import Layer, Tensor
from rankslice.frontend.formats.conversion import Conversion
from rankslice.frontend.formats.format import Format, Versions
from rankslice.frontend.formats.onnx.macs import onnx_macs
from rankslice.frontend.formats.onnx.quantised_cuts import quantised_cut_warnings
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.writer import segment_pieces
from rankslice.frontend.formats.pieces import SubModelFiles

__all__ = ["FORMAT"]


def _submodel_files(
    model: OnnxModel,
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    name: str,
    conversion: Conversion,
) -> SubModelFiles:
    return segment_pieces(model, layers, inputs, outputs, name=name)


FORMAT = Format(
    name="onnx",
    submodels="onnx",
    read=read_onnx,
    submodel_files=_submodel_files,
    macs=onnx_macs,
    warnings=quantised_cut_warnings,
    versions=lambda model: Versions(model.ir_version, model.opsets),
)
