"""Layers whose element types their accelerators do not take, as the platform file has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.backend.runtime.job import Rank
from rankslice.framework.errors import Mistake
from rankslice.framework.graph import Layer
from rankslice.framework.platform import Accelerator, Platform
from rankslice.framework.wording import joined, listed
from rankslice.frontend.partition.partition import Partition

_OF_SIZES = frozenset(("bool", "int32", "int64"))
"""Types of sizes and indices, which every accelerator leaves to the CPU or knows."""


def unfit_layers(
    cut: Partition, ranks: Sequence[Rank], platform: Platform
) -> Iterator[tuple[Accelerator, Mistake]]:
    """Yield the ranks with layers that make elements which their accelerator does not take."""
    boards = {board.name: board for board in platform.boards}
    for rank in ranks:
        unit = boards[rank.board].accelerator(rank.accelerator) if rank.board in boards else None
        if unit is None or not unit.types:
            continue
        layers = [
            layer
            for segment in cut.segments
            if segment.rank == rank.rank
            for layer in segment.layers
        ]
        unfit = {layer.name: kinds for layer in layers if (kinds := _other_types(layer, unit))}
        if unfit:
            made = dict.fromkeys(kind for types in unfit.values() for kind in types)
            takes = f"the {rank.accelerator} takes {joined([*unit.types])}"
            verb = "makes" if len(unfit) == 1 else "make"
            found = f"{takes}, and {listed([*unfit])} {verb} {joined([*made])}"
            remedy = "quantise the model, or map these layers to a CPU"
            yield unit, Mistake(f"rank {rank.rank} ({rank.key})", found, remedy)


def _other_types(layer: Layer, unit: Accelerator) -> tuple[str, ...]:
    made = dict.fromkeys(tensor.dtype for tensor in layer.outputs)
    return tuple(kind for kind in made if kind not in unit.types and kind not in _OF_SIZES)
