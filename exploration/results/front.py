"""The Pareto front: mappings that no other one beats in every objective."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Assignment: TypeAlias = NDArray[np.int64]
"""(layers,): the number of each layer's device."""

Population: TypeAlias = NDArray[np.int64]
"""(mappings, layers): numbers of devices."""

Floats: TypeAlias = NDArray[np.float64]

_PIECE = 512
"""Rows compared with the archive at once: bounds the memory that takes."""


@dataclass(frozen=True, slots=True)
class Scores:
    """What mappings are worth."""

    values: Floats
    """(mappings, objectives): each the better the smaller; anything where ``excess`` > 0."""
    excess: Floats
    """(mappings,): by how much a mapping is impossible; 0 for those that are possible."""
    groups: NDArray[np.int64]
    """(mappings,): the number of boards in use."""

    def part(self, which: NDArray[np.intp]) -> Scores:
        return Scores(self.values[which], self.excess[which], self.groups[which])


def nondominated(values: Floats) -> NDArray[np.intp]:
    """Return the rows that no other row dominates, ascending; of equal rows the first alone.

    Args:
        values: (rows, objectives), each objective the better the smaller.
    """
    left = np.lexsort(values.T[::-1])  # a row that dominates another one comes before it
    rows: list[int] = []
    while len(left):
        best, left = left[0], left[1:]
        rows.append(int(best))
        left = left[(values[left] < values[best]).any(axis=1)]
    return np.sort(np.array(rows, dtype=np.intp))


class Archive:
    """The best mappings so far.

    These are the front, and for each group (number of boards in use) the mapping with the least
    value of each objective, whether it is on the front or not: of all, and of those that are fast
    enough.
    """

    def __init__(self, layers: int, objectives: int, enough_s: float = 0.0) -> None:
        """Begin empty.

        Args:
            objectives: how many values each has; the first is the time between frames.
            enough_s: what that may be at most in a mapping that is fast enough.
        """
        self._enough_s = enough_s
        self.assignments: Population = np.empty((0, layers), np.int64)
        """(members, layers): those on the front."""
        self.values: Floats = np.empty((0, objectives))
        """(members, objectives): each the better the smaller."""
        self._best: dict[tuple[int, int, bool], tuple[tuple[float, ...], Assignment]] = {}

    def add(self, population: Population, scores: Scores) -> None:
        """Add mappings that are possible, have finite values and improve the archive."""
        usable = np.isfinite(scores.values).all(axis=1) & (scores.excess <= 0)
        population, scores = population[usable], scores.part(np.flatnonzero(usable))
        self._add_best(population, scores)
        fresh = np.flatnonzero(~_covered(scores.values, self.values))
        fresh = fresh[nondominated(scores.values[fresh])]
        kept = ~_covered(self.values, scores.values[fresh])
        self.assignments = np.concatenate([self.assignments[kept], population[fresh]])
        self.values = np.concatenate([self.values[kept], scores.values[fresh]])

    def _add_best(self, population: Population, scores: Scores) -> None:
        values, fast = scores.values, scores.values[:, 0] <= self._enough_s
        objectives = range(values.shape[1])
        for group, enough in itertools.product(np.unique(scores.groups), (False, True)):
            rows = np.flatnonzero((scores.groups == group) & (fast | (not enough)))
            order = (*objectives[1:], 0) if enough else objectives
            for objective in objectives if rows.size else ():
                # Of mappings alike in this objective the one that is better in the others.
                first = [objective, *(n for n in order if n != objective)]
                row = rows[np.lexsort(values[rows][:, first[::-1]].T)[0]]
                rank = tuple(map(float, values[row, first]))
                known = self._best.get((int(group), objective, enough))
                if known is None or rank < known[0]:
                    self._best[int(group), objective, enough] = (rank, population[row].copy())

    def best(self, group: int, objective: int) -> Assignment | None:
        known = self._best.get((group, objective, False))
        return None if known is None else known[1]

    def frugal(self) -> list[Assignment]:
        """Return those of the first group with any fast enough that need least of something."""
        enough = sorted(key for key in self._best if key[2])
        return [self._best[key][1] for key in enough if key[0] == enough[0][0] and key[1] > 0]

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(sorted({group for group, *_ in self._best}))


def _covered(values: Floats, by: Floats) -> NDArray[np.bool_]:
    """Tell of each row whether a row of ``by`` is at least as good in every objective."""
    pieces = [
        np.any(np.all(by[None] <= values[start : start + _PIECE, None], axis=2), axis=1)
        for start in range(0, len(values), _PIECE)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, bool)


def spread_out(values: Floats, most: int) -> NDArray[np.intp]:
    """Return at most ``most`` rows of a front that show all of it, ascending.

    Those with the least value of each objective come first; then, one by one, the row that is
    farthest from all chosen ones, each objective measured from its least to its greatest value.
    """
    if len(values) <= most:
        return np.arange(len(values))
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1)
    chosen = list(dict.fromkeys(int(row) for row in values.argmin(axis=0)))[:most]
    distance = np.min([_distance(scaled, row) for row in chosen], axis=0)
    while len(chosen) < most:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, _distance(scaled, chosen[-1]))
    return np.sort(np.array(chosen, dtype=np.intp))


def _distance(scaled: Floats, row: int) -> Floats:
    distance: Floats = np.linalg.norm(scaled - scaled[row], axis=1)
    return distance
