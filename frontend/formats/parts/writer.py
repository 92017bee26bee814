"""Sub-models of parts: each is one of the part's file, in its format."""

from __future__ import annotations

from dataclasses import replace

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.frontend.formats import submodel_files
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.parts.reader import PartsModel, ReadPart
from rankslice.frontend.formats.pieces import SubModelFiles
from rankslice.frontend.partition.partition import Partition, PartitionSegment


def parts_submodel(
    model: PartsModel, segment: PartitionSegment, name: str, conversion: Conversion = FLOAT32
) -> SubModelFiles:
    """Return the sub-model of layers of one part; its facts say what the file calls its tensors."""
    part = model.part_of(segment.layers[0])
    own = own_segment(part, segment)
    files = submodel_files(part.model, own, name=name, conversion=conversion)
    sides = ((segment.inputs, own.inputs), (segment.outputs, own.outputs))
    pairs = (pair for whole, in_file in sides for pair in zip(whole, in_file, strict=True))
    names = {whole.name: tensor.name for whole, tensor in pairs if whole.name != tensor.name}
    return replace(files, facts=replace(files.facts, names=tuple(names.items())))


def own_segment(part: ReadPart, segment: PartitionSegment) -> PartitionSegment:
    """Return a segment with the layers and tensors of the part's file."""
    missing = [t.name for t in segment.inputs if t.name not in part.own_tensors]
    if missing:  # a segment that reads nothing is given an input of the whole model
        found = f"layer {segment.layers[0].name!r} reads nothing that a frame brings"
        raise RankSliceError(Mistake(str(part.model.path), found, "map it with layers that do"))
    return replace(
        segment,
        layers=tuple(part.own_layers[layer.name] for layer in segment.layers),
        inputs=tuple(part.own_tensors[tensor.name] for tensor in segment.inputs),
        outputs=tuple(part.own_tensors[tensor.name] for tensor in segment.outputs),
        copies=tuple(part.own_layers[name].name for name in segment.copies),
    )


def own_cuts(model: PartsModel, cut: Partition) -> list[tuple[ReadPart, Partition]]:
    """Return by part: its segments, as a partition of its file."""
    return [
        (
            part,
            replace(
                cut,
                graph=part.model.graph,
                segments=tuple(
                    own_segment(part, segment)
                    for segment in cut.segments
                    if segment.layers[0].part == part.part
                ),
            ),
        )
        for part in model.parts
    ]
