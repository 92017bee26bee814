"""Mappings found by NSGA-II: any mapping, several objectives.

A chromosome has one gene per layer, in topological order: the number of the device that runs it
(Guo et al., AutoDiCE, section IV-A).

NSGA-II: Deb et al., A fast and elitist multiobjective genetic algorithm, 2002; of pymoo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rankslice.exploration.results.front import Archive, Population, nondominated
from rankslice.exploration.search.search_options import GeneticOptions
from rankslice.exploration.search.space import Search, SearchSpace
from rankslice.exploration.search.variation import Random, random_slices
from rankslice.framework.errors import RankSliceError

_TRIES = 10
"""How often to draw for each mapping of the first population, if those drawn are there already."""


def nsga2(
    search: Search,
    options: GeneticOptions,
    seeds: Population | None = None,
    on_generation: Callable[[int], None] = lambda generation: None,
    is_enough: Callable[[], bool] = lambda: False,
) -> Archive:
    """Return the best mappings that NSGA-II tried; the same arguments give the same answer.

    Args:
        seeds: (n, layers): mappings to begin with; mappings of contiguous slices, drawn at random,
            fill the first population up.

    Raises:
        RankSliceError: pymoo is not installed.
    """
    space, archive = search.space, search.archive
    evolution = _Evolution(search, replace(space, blocks=None), on_generation, is_enough)
    seeds = _best_first(search, np.empty((0, space.layers), np.int64) if seeds is None else seeds)
    if space.blocks is None:
        evolution.run(options, seeds)
        return archive
    first_half = replace(options, generations=options.generations // 2)
    if first_half.generations:
        of_blocks = replace(evolution, space=replace(evolution.space, layers=space.genes))
        first_layers = np.unique(space.blocks, return_index=True)[1]
        of_blocks.run(first_half, seeds[:, first_layers])
    best = [archive.best(group, n) for group in archive.groups for n in range(space.objectives)]
    begun = np.array([row for row in best if row is not None], np.int64)
    evolution.run(
        replace(options, generations=options.generations - first_half.generations),
        np.concatenate([archive.assignments, begun.reshape(-1, space.layers), seeds]),
        after=first_half.generations,
    )
    return archive


def _best_first(search: Search, seeds: Population) -> Population:
    """Score seeds; return them without duplicates, those first that no other one beats."""
    if not len(seeds):
        return seeds
    seeds = seeds[np.sort(np.unique(seeds, axis=0, return_index=True)[1])]
    scores = search(seeds)
    possible = np.flatnonzero(scores.excess <= 0)
    first = possible[nondominated(scores.values[possible])]
    return np.concatenate([seeds[first], np.delete(seeds, first, axis=0)])


@dataclass(frozen=True, slots=True)
class _Evolution:
    search: Search
    space: SearchSpace
    """Of layers, or of blocks of layers."""
    on_generation: Callable[[int], None]
    is_enough: Callable[[], bool]

    def run(self, options: GeneticOptions, seeds: Population, after: int = 0) -> None:
        """Score mappings, generation by generation, after so many other generations."""
        try:
            from rankslice.exploration.search.pymoo_adapter import nsga2_algorithm
        except ImportError:
            raise RankSliceError(
                "NSGA-II needs pymoo: pip install 'rankslice[explore]', or use --method exact"
            ) from None
        random = np.random.default_rng(options.seed)
        first = first_population(self.space, options.population, seeds, random)
        algorithm = nsga2_algorithm(self.search, self.space, options, first)
        generation = after
        while algorithm.has_next() and not self.is_enough():
            algorithm.next()
            generation += 1
            self.on_generation(generation)
        # It ends early where no child differs from what is there already: small cases.
        self.on_generation(after + options.generations)


def first_population(
    space: SearchSpace, size: int, seeds: Population, random: Random
) -> Population:
    """Return (size, layers) mappings to begin with: seeds, then contiguous slices at random.

    No more than half are seeds, the first ones, so that the search does not begin in one corner.
    """
    known = {row.tobytes(): row for row in seeds[: max(1, size // 2)]}
    for _ in range(_TRIES * size):  # small cases may have fewer
        if len(known) == size:
            break
        row = random_slices(space, random)
        known.setdefault(row.tobytes(), row)
    return np.array(list(known.values()), np.int64)
