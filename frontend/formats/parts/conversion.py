"""Parts in Keras, which become ``.tflite`` files as a whole before they are read."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from rankslice.framework.files.hashing import file_sha256
from rankslice.frontend.formats import (
    find_format,
    format_of,
    read_converted,
    read_model,
    submodel_files,
)
from rankslice.frontend.formats.input_shapes import NO_SIZES, GivenSizes
from rankslice.frontend.formats.model_format import Model
from rankslice.frontend.formats.pieces import PositionedFile, write_submodel
from rankslice.frontend.formats.saved_model.folder import ConvertedModel, folder_until_exit
from rankslice.frontend.partition.partition import whole_segment

_Items: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


def read_part_file(path: Path, sizes: GivenSizes = NO_SIZES) -> Model:
    """Return the model in a part's file; one in Keras, as the ``.tflite`` file that it becomes.

    What was converted before is not again.

    Raises:
        RankSliceError: it cannot be read, or cannot be converted as a whole.
    """
    kind = find_format(path)
    if kind is None or not kind.is_converted:
        return read_model(path, sizes)
    with PositionedFile(path, "expected a model file"):
        sha256 = file_sha256(path)
    items = (tuple(sorted(given.items())) for given in (sizes.fixed, sizes.at_most))
    converted, settled = _converted(path, sha256, *items)
    model: Any = read_converted(converted, settled)
    named: Model = replace(model, graph=replace(model.graph, name=path.name))
    return named


@cache
def _converted(
    path: Path, sha256: str, fixed: _Items, at_most: _Items
) -> tuple[ConvertedModel, GivenSizes]:
    """Return a model's file in the format of its sub-models, and the sizes of its inputs."""
    model = read_model(path, GivenSizes(dict(fixed), dict(at_most)))
    suffix, inputs = format_of(model.graph).submodels, model.graph.inputs
    file = folder_until_exit() / f"{path.stem}.{suffix}"
    write_submodel(submodel_files(model, whole_segment(model.graph), name=file.name), file)
    sizes = GivenSizes(
        {tensor.name: tensor.shape or () for tensor in inputs if not tensor.is_open},
        {tensor.name: tensor.shape or () for tensor in inputs if tensor.is_open},
    )
    return ConvertedModel(path, file), sizes
