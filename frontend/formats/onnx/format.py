"""The format of ``.onnx`` files."""

from __future__ import annotations

from rankslice.frontend.formats.model_format import Format
from rankslice.frontend.formats.onnx.forms import onnx_forms
from rankslice.frontend.formats.onnx.macs import onnx_macs
from rankslice.frontend.formats.onnx.making import channel_axis, wire_fault, with_made_layers
from rankslice.frontend.formats.onnx.quantised_cuts import quantised_cut_warnings
from rankslice.frontend.formats.onnx.reader import read_metadata, read_onnx
from rankslice.frontend.formats.onnx.writer import onnx_submodel

FORMAT = Format(
    name="onnx",
    submodels="onnx",
    read=read_onnx,
    submodel_files=onnx_submodel,
    macs=onnx_macs,
    warnings=quantised_cut_warnings,
    versions=lambda model: (model.ir_version, model.opsets),
    metadata=read_metadata,
    shows_bounds=True,
    forms=onnx_forms,
    with_made_layers=with_made_layers,
    wire_fault=wire_fault,
    channel_axis=channel_axis,
)
