"""What is searched, and what tells how good a mapping is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.results.front import Archive, Population, Scores

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

    def archive(self) -> Archive:
        """Return what keeps the best mappings."""
        return Archive(self.layers, self.objectives, self.enough_s)


@dataclass(frozen=True, slots=True)
class GeneticOptions:
    """Settings of NSGA-II; the defaults are those of the AutoDiCE paper."""

    population: int = 100
    mutation: float = 0.1
    """Probability that a child is mutated."""
    crossover: float = 0.5
    """Probability that two parents mix; their children are copies otherwise."""
    generations: int = 400
    seed: int = 0


def recording(score: Score, archive: Archive) -> Score:
    """Return what scores populations and puts them into an archive."""

    def recorded(population: Population) -> Scores:
        scores = score(population)
        archive.add(population, scores)
        return scores

    return recorded
