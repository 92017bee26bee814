"""The small ``.tflite`` models, and what tests do with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rankslice.frontend.formats.pieces import write_pieces
from rankslice.frontend.formats.tflite.builder import flatbuffer
from rankslice.frontend.formats.tflite.reader import TfliteModel
from rankslice.frontend.formats.tflite.wire import FlatFile, Table, read_tables
from rankslice.frontend.formats.tflite.writer import FLATBUFFER_LIMIT, submodel_pieces
from rankslice.frontend.partition.partition import PartitionSegment

FOLDER = Path(__file__).parents[1] / "models" / "tflite"

NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.tflite")))


def model_file(name: str) -> Path:
    return FOLDER / f"{name}.tflite"


def written(
    model: TfliteModel, segment: PartitionSegment, path: Path, *, limit: int = FLATBUFFER_LIMIT
) -> Path:
    """Write a segment's sub-model and return its path."""
    pieces = submodel_pieces(
        model, segment.layers, segment.inputs, segment.outputs, name=path.name, limit=limit
    )
    write_pieces(pieces, path)
    return path


def edited(
    name: str,
    folder: Path,
    main: Callable[[Table], Table] = lambda table: table,
    *,
    whole: Callable[[Table], Table] = lambda table: table,
) -> Path:
    """Write a model with other tables and return its path.

    Args:
        name: the model.
        folder: where to write.
        main: what to make of the main subgraph.
        whole: what to make of the table Model, after that.
    """
    with FlatFile(model_file(name)) as file:
        root = read_tables(file)
    first, *others = root.tables("subgraphs")
    changed = whole(root.changed({"subgraphs": (main(first), *others)}))
    path = folder / "edited.tflite"
    write_pieces(flatbuffer(changed, b"TFL3"), path)
    return path
