"""Model files of all formats: one way to read them, one way to write parts of them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.hashing import file_sha256, joint_sha256
from rankslice.framework.graph import Graph
from rankslice.framework.wording import joined, quoted
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.model_format import FLOAT32, Conversion, Format, Model
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.formats.saved_model.folder import (
    GRAPH,
    ConvertedModel,
    convert_saved_model,
    is_saved_model,
)
from rankslice.frontend.partition.partition import PartitionSegment

__all__ = [
    "FORMATS",
    "Model",
    "find_format",
    "format_named",
    "format_of",
    "formats_of",
    "is_saved_model",
    "model_sha256",
    "read_converted",
    "read_model",
    "submodel_files",
]

FORMATS = {
    "onnx": "rankslice.frontend.formats.onnx.format",
    "tflite": "rankslice.frontend.formats.tflite.format",
    "keras": "rankslice.frontend.formats.keras.format",
    "h5": "rankslice.frontend.formats.keras.format",
    "hdf5": "rankslice.frontend.formats.keras.format",
    "yaml": "rankslice.frontend.formats.parts.format",
    "yml": "rankslice.frontend.formats.parts.format",
}
"""Suffix of a file -> module that has the :class:`Format` as ``FORMAT``. It is imported when a
model needs it. The name that a format gives to its graphs is one of its suffixes."""

_OF_SAVED_MODELS = "tflite"
"""What SavedModel folders are converted to."""


def find_format(path: Path) -> Format[Any] | None:
    suffix = _OF_SAVED_MODELS if is_saved_model(path) else path.suffix.lower().lstrip(".")
    return format_named(suffix) if suffix in FORMATS else None


def format_of(graph: Graph) -> Format[Any]:
    return format_named(graph.format)


def formats_of(graph: Graph) -> tuple[str, ...]:
    """Return the formats of a model's sub-models: one, unless it consists of parts."""
    parts = dict.fromkeys(layer.part.format for layer in graph.layers if layer.part)
    return tuple(parts) or (format_of(graph).submodels,)


def model_sha256(path: Path) -> str:
    """Return the SHA-256 of a model: of several files, that of their digests."""
    model_format = find_format(path)
    files = model_format.files(path) if model_format else (path,)
    return joint_sha256([*map(file_sha256, files)])


def format_named(name: str) -> Format[Any]:
    model_format: Format[Any] = import_module(FORMATS[name]).FORMAT
    return model_format


def read_model(path: Path, sizes: GivenSizes = NO_SIZES) -> Model:
    """Return the model in a file, of the format that the suffix names; or in a SavedModel folder.

    The path of a SavedModel's record is that of the file to which it was converted.
    """
    model_format = find_format(path)
    if model_format is None:
        expected = joined([f".{suffix}" for suffix in FORMATS], "or")
        _refuse_parts_of_tensorflow(path)
        what = f"has the suffix {quoted(path.suffix)}"
        what = f"is a folder without {GRAPH}" if path.is_dir() else what
        raise RankSliceError(Mistake(str(path), what, f"expected a model file, {expected}"))
    if is_saved_model(path):
        return read_converted(convert_saved_model(path, sizes.signature), sizes)
    if sizes.signature:
        found = f"{path} is no SavedModel folder, and has no signatures to choose from"
        raise RankSliceError(Mistake("--signature", found, "leave it out"))
    model: Model = model_format.read(path, sizes)
    return model


def read_converted(converted: ConvertedModel, sizes: GivenSizes) -> Model:
    """Return the model to which one was converted; messages name the latter's path."""
    try:
        model: Any = read_model(converted.file, replace(sizes, signature=""))
    except RankSliceError as error:
        file, known = str(converted.file), str(converted.source)
        raise RankSliceError(*(str(m).replace(file, known) for m in error.mistakes)) from None
    warnings = (converted.notice, *model.graph.warnings)
    read: Model = replace(model, graph=replace(model.graph, warnings=warnings))
    return read


_FREEZER = "convert it to .tflite with TensorFlow: tf.compat.v1.lite.TFLiteConverter"


def _refuse_parts_of_tensorflow(path: Path) -> None:
    """Refuse files of TensorFlow that are no model by themselves, and tell what is one."""
    if path.name == GRAPH:
        found = "is a part of a SavedModel of TensorFlow"
        raise RankSliceError(Mistake(str(path), found, f"give its folder, {path.parent}"))
    if path.suffix.lower() == ".pb":
        expected = f"{_FREEZER}.from_frozen_graph({str(path)!r}, INPUTS, OUTPUTS).convert()"
        raise RankSliceError(Mistake(str(path), "is a frozen graph of TensorFlow", expected))


def submodel_files(
    model: Model, part: PartitionSegment, *, name: str, conversion: Conversion = FLOAT32
) -> SubModelFiles:
    """Return the files of a sub-model of some of a model's layers."""
    return format_of(model.graph).submodel_files(model, part, name, conversion)
