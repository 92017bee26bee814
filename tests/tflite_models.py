"""The small ``.tflite`` models, and what tests do with them."""

from __future__ import annotations

from pathlib import Path

from rankslice.frontend.partition import PartitionSegment
from rankslice.frontend.pieces import write_pieces
from rankslice.frontend.tflite_reader import TfliteModel
from rankslice.frontend.tflite_writer import FLATBUFFER_LIMIT, submodel_pieces

FOLDER = Path(__file__).parent / "tflite"

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
