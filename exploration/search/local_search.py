"""Local search: small random changes to the best mappings known.

A stretch of layers moves, or a border between two slices; two devices swap their layers, one is
given up, or two mappings swap a stretch. The result may be any mapping, interleaved ones as well.
The budget is a number of mappings, so the same arguments give the same answer on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.results.front import Population
from rankslice.exploration.search.space import Search
from rankslice.exploration.search.variation import changed

_AT_ONCE = 128

_ELITE = 24
"""Mappings kept of each objective, the best in it."""

_MAX_ALIKE = 4
"""How many of them may have the same value."""

_DRAWS = 2
"""How many changes are drawn at most for each mapping to score: in small cases many are known."""

_FAST = 0.5
"""Share of parents that are among the fastest."""


def local_search(
    search: Search,
    seeds: Population,
    most: int,
    on_mappings: Callable[[int], None] = lambda done: None,
) -> None:
    """Score mappings that changes of the best ones lead to, so many at most.

    Args:
        seeds: (n, layers): mappings to begin with; without any there is nothing to change.
    """
    searching, before = _LocalSearch(search), search.count
    searching.take(seeds)
    for _ in range(math.ceil(_DRAWS * most / _AT_ONCE)):
        left = most - (search.count - before)
        if left <= 0 or not len(searching.rows):
            return
        searching.take(searching.children(min(_AT_ONCE, left)))
        on_mappings(search.count - before)


class _LocalSearch:
    def __init__(self, search: Search) -> None:
        self._search, self._space = search, search.space
        self._random = np.random.default_rng(0)
        self._seen: set[bytes] = set()
        self.rows: Population = np.empty((0, self._space.layers), np.int64)
        self._values: NDArray[np.float64] = np.empty((0, self._space.objectives))
        self._elites: list[Population] = []

    def take(self, population: Population) -> None:
        if not len(population):
            return
        self._seen.update(row.tobytes() for row in population)
        scores = self._search(population)
        possible = np.flatnonzero((scores.excess <= 0) & np.isfinite(scores.values[:, 0]))
        self.rows = np.concatenate([population[possible], self.rows])
        self._values = np.concatenate([scores.values[possible], self._values])
        best = [self._best(objective) for objective in range(self._space.objectives)]
        self._elites = [self.rows[chosen] for chosen in best]
        kept = np.unique(np.concatenate(best))
        self.rows, self._values = self.rows[kept], self._values[kept]

    def _best(self, objective: int) -> NDArray[np.intp]:
        """Return which mappings are the best in one objective, the newest of equal ones first."""
        values = np.nan_to_num(self._values[:, objective], nan=np.inf)
        order = np.argsort(values, kind="stable")
        ordered = values[order]
        starts = np.searchsorted(ordered, ordered)  # of those with the same value
        return order[np.arange(order.size) - starts < _MAX_ALIKE][:_ELITE]

    def children(self, most: int) -> Population:
        made = changed(self._parents(most), self._parents(most), self._space.devices, self._random)
        fresh = [row for row in made if self._is_new(row.tobytes())]
        return np.array(fresh, np.int64).reshape(-1, self._space.layers)

    def _is_new(self, name: bytes) -> bool:
        is_new = name not in self._seen
        self._seen.add(name)
        return is_new

    def _parents(self, count: int) -> Population:
        """Return some of the best, half of them for throughput: the better, the more often."""
        random = self._random
        others = np.concatenate([*self._elites[1:], self._search.archive.assignments])
        drawn = random.random((2, count))
        fast = self._elites[0][(len(self._elites[0]) * drawn[0] ** 2).astype(np.int64)]
        other = others[(len(others) * drawn[1]).astype(np.int64)]
        chosen: Population = np.where(random.random((count, 1)) < _FAST, fast, other)
        return chosen
