"""What is searched, what tells how good a mapping is, and the search that tries all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.results.front import Archive, Population, Scores
from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import count_text

Score: TypeAlias = Callable[[Population], Scores]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """What is searched."""

    layers: int
    devices: int
    """How many numbers an assignment may have: of devices, and of teams of devices in turn."""
    objectives: int
    blocks: NDArray[np.int64] | None = None
    """(layers,): the number of the block each layer belongs to, ascending from 0; with them,
    whole blocks are moved, by NSGA-II in the first half of its generations."""
    enough_s: float = 0.0
    """Time between frames that come by the clock; 0: as fast as possible."""

    @property
    def genes(self) -> int:
        """How many layers, or blocks of layers, get a device each."""
        return self.layers if self.blocks is None else int(self.blocks[-1]) + 1

    @property
    def mappings(self) -> int:
        return int(self.devices**self.genes)

    def archive(self) -> Archive:
        return Archive(self.layers, self.objectives, self.enough_s)


MAX_MAPPINGS = 2_000_000
"""Limit of ``--method exhaustive``: about a minute for a small network."""

_AT_ONCE = 4096


def exhaustive(
    score: Score,
    space: SearchSpace,
    most: int = MAX_MAPPINGS,
    on_mappings: Callable[[int], None] = lambda count: None,
    otherwise: str = "use nsga2 or exact",
    archive: Archive | None = None,
) -> Archive:
    """Return the best of all mappings there are, in each respect.

    With blocks in ``space``, of all mappings that keep each block together.

    Args:
        otherwise: advice if there are more, as a clause.
        archive: takes them; what is there already goes before what is as good.

    Raises:
        RankSliceError: there are more than ``most``.
    """
    blocks = np.arange(space.layers) if space.blocks is None else space.blocks
    count = space.mappings
    if count > most:
        what = f"{space.genes} {'layers' if space.blocks is None else 'blocks of layers'}"
        raise RankSliceError(
            f"{what} on {space.devices} accelerators can be mapped in {_counted(count)}"
            f" ways, and --method exhaustive tries at most {_counted(most)}; {otherwise}"
        )
    archive = space.archive() if archive is None else archive
    for start in range(0, count, _AT_ONCE):
        population = every_mapping(space.devices, space.genes, start, min(start + _AT_ONCE, count))
        population = population[:, blocks]
        archive.add(population, score(population))
        on_mappings(start + len(population))
    return archive


def every_mapping(devices: int, genes: int, start: int, end: int) -> Population:
    """Return mappings number ``start`` to ``end`` of all there are: (end - start, genes)."""
    powers = np.array([devices**gene for gene in reversed(range(genes))], dtype=np.int64)
    return np.arange(start, end, dtype=np.int64)[:, None] // powers % devices


def _counted(count: int) -> str:
    return count_text(count) if count < 10**18 else f"10^{len(str(count)) - 1}"
