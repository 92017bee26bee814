"""Exhaustive search: every mapping is evaluated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rankslice.exploration.results.front import Archive, Population
from rankslice.exploration.search.space import Score, SearchSpace
from rankslice.framework.errors import RankSliceError
from rankslice.framework.quantities import count_text

MAX_MAPPINGS = 2_000_000
"""Limit of ``--method exhaustive``: about a minute for a small network."""

_AT_ONCE = 4096


def exhaustive(
    score: Score,
    space: SearchSpace,
    most: int = MAX_MAPPINGS,
    on_mappings: Callable[[int], None] = lambda count: None,
    otherwise: str = "use nsga2 or exact",
    found: Archive | None = None,
) -> Archive:
    """Return the best of all mappings there are, in each respect.

    With blocks in ``space``, of all mappings that keep each block together.

    Args:
        score: evaluates a whole population at once.
        space: layers, devices, and the number of objectives.
        most: how many mappings may be tried.
        on_mappings: is called with the number of mappings tried so far.
        otherwise: advice if there are more, as a clause.
        found: takes them; what is there already goes before what is as good.

    Raises:
        RankSliceError: there are more than ``most``.
    """
    blocks = np.arange(space.layers) if space.blocks is None else space.blocks
    genes = int(blocks.max()) + 1
    count = space.devices**genes
    if count > most:
        what = "layers" if space.blocks is None else "blocks of layers"
        raise RankSliceError(
            f"{genes} {what} on {space.devices} accelerators can be mapped in {_counted(count)}"
            f" ways, and --method exhaustive tries at most {_counted(most)}; {otherwise}"
        )
    found = space.archive() if found is None else found
    for start in range(0, count, _AT_ONCE):
        population = every_mapping(space.devices, genes, start, min(start + _AT_ONCE, count))
        population = population[:, blocks]
        found.add(population, score(population))
        on_mappings(start + len(population))
    return found


def every_mapping(devices: int, genes: int, start: int, end: int) -> Population:
    """Return mappings number ``start`` to ``end`` of all there are: (end - start, genes)."""
    powers = np.array([devices**gene for gene in reversed(range(genes))], dtype=np.int64)
    return np.arange(start, end, dtype=np.int64)[:, None] // powers % devices


def _counted(count: int) -> str:
    return count_text(count) if count < 10**18 else f"10^{len(str(count)) - 1}"
