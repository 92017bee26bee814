"""Model files of all formats: one way to read them, one way to write parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.graph import Layer, Tensor
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats.keras.reader import KERAS_SUFFIXES, KerasModel, read_keras
from rankslice.frontend.formats.keras.writer import FLOAT32, Conversion, keras_submodel
from rankslice.frontend.formats.onnx.reader import OnnxModel, read_onnx
from rankslice.frontend.formats.onnx.writer import SubModelFiles, segment_pieces
from rankslice.frontend.formats.tflite.reader import TfliteModel, read_tflite
from rankslice.frontend.formats.tflite.writer import submodel_pieces

__all__ = ["SUFFIXES", "Model", "read_model", "submodel_files"]

Model: TypeAlias = OnnxModel | TfliteModel | KerasModel
"""A model file: its path, its graph, and what its sub-models inherit."""

SUFFIXES = ("onnx", "tflite", *KERAS_SUFFIXES)
"""Suffixes of files of models."""


def read_model(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Model:
    """Return the model in a file, of the format that the suffix names.

    Args:
        path: the model file.
        shapes: sizes of inputs that the file does not fix, by the input's name.

    Raises:
        RankSliceError: the suffix is unknown, or the file is no such model, or none that can be
            sliced.
    """
    suffix = path.suffix.lower().lstrip(".")
    if suffix == "tflite":
        return read_tflite(path, shapes)
    if suffix == "onnx":
        return read_onnx(path, shapes)
    if suffix in KERAS_SUFFIXES:
        return read_keras(path, shapes)
    expected = joined([f".{name}" for name in SUFFIXES], "or")
    found = "is a folder" if path.is_dir() else f"has the suffix {quoted(path.suffix)}"
    raise RankSliceError(Mistake(str(path), found, f"expected a model file, {expected}"))


def submodel_files(
    model: Model,
    layers: Sequence[Layer],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    *,
    name: str,
    conversion: Conversion = FLOAT32,
) -> SubModelFiles:
    """Return what to write for some of a model's layers, in the format of its sub-models.

    Args:
        model: as read by :func:`read_model`.
        layers: in a topological order.
        inputs: what the layers read and do not make themselves, in the plan's order.
        outputs: what others read of what they make, in the plan's order.
        name: name of the file to be written.
        conversion: how a Keras model is converted.

    Raises:
        RankSliceError: there can be no such sub-model.
    """
    if isinstance(model, KerasModel):
        content = keras_submodel(model, layers, inputs, outputs, conversion, name=name)
        return SubModelFiles((content,), None)
    if isinstance(model, TfliteModel):
        return SubModelFiles(submodel_pieces(model, layers, inputs, outputs, name=name), None)
    return segment_pieces(model, layers, inputs, outputs, name=name)
