"""The Pareto front of what a search has met: mappings that no other one beats in everything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Archive", "nondominated", "spread_out"]

_PIECE = 512
"""Rows compared with the archive at once: bounds the memory that takes."""


def nondominated(values: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the rows that no other row dominates, ascending; of equal rows the first alone.

    Args:
        values: (rows, objectives), each objective the better the smaller.
    """
    left = np.lexsort(values.T[::-1])  # a row that dominates another one comes before it
    found: list[int] = []
    while len(left):
        best, left = left[0], left[1:]
        found.append(int(best))
        left = left[(values[left] < values[best]).any(axis=1)]
    return np.sort(np.array(found, dtype=np.intp))


class Archive:
    """All mappings that were the best so far, in some respect, and still are.

    That is the front, and for each group (number of boards in use, say) the mapping with the
    least value of each objective, be it on the front or not.
    """

    def __init__(self, layers: int, objectives: int) -> None:
        """Begin empty.

        Args:
            layers: length of an assignment.
            objectives: how many values each has.
        """
        self.assignments: NDArray[np.int64] = np.empty((0, layers), np.int64)
        """(members, layers): those on the front."""
        self.values: NDArray[np.float64] = np.empty((0, objectives))
        """(members, objectives): each the better the smaller."""
        self._best: dict[tuple[int, int], tuple[tuple[float, ...], NDArray[np.int64]]] = {}

    def add(
        self,
        assignments: NDArray[np.int64],
        values: NDArray[np.float64],
        groups: NDArray[np.int64],
    ) -> None:
        """Take in what is better than what is here; rows with a value that is not finite are not.

        Args:
            assignments: (rows, layers).
            values: (rows, objectives), each the better the smaller.
            groups: (rows,), the group of each.
        """
        finite = np.flatnonzero(np.isfinite(values).all(axis=1))
        assignments, values, groups = assignments[finite], values[finite], groups[finite]
        self._add_best(assignments, values, groups)
        fresh = np.flatnonzero(~_covered(values, self.values))
        fresh = fresh[nondominated(values[fresh])]
        kept = ~_covered(self.values, values[fresh])
        self.assignments = np.concatenate([self.assignments[kept], assignments[fresh]])
        self.values = np.concatenate([self.values[kept], values[fresh]])

    def _add_best(
        self,
        assignments: NDArray[np.int64],
        values: NDArray[np.float64],
        groups: NDArray[np.int64],
    ) -> None:
        for group in np.unique(groups):
            rows = np.flatnonzero(groups == group)
            for objective in range(values.shape[1]):
                # Of mappings alike in this objective the one that is better in the others.
                others = np.delete(values[rows], objective, axis=1)
                keys = (*others.T[::-1], values[rows, objective])
                row = rows[np.lexsort(keys)[0]]
                rank = (
                    float(values[row, objective]),
                    *map(float, np.delete(values[row], objective)),
                )
                known = self._best.get((int(group), objective))
                if known is None or rank < known[0]:
                    self._best[int(group), objective] = (rank, assignments[row].copy())

    def best(self, group: int, objective: int) -> NDArray[np.int64] | None:
        """Return the assignment of a group with the least value of an objective, if any was met."""
        known = self._best.get((group, objective))
        return None if known is None else known[1]

    @property
    def groups(self) -> tuple[int, ...]:
        """The groups that were met, ascending."""
        return tuple(sorted({group for group, _ in self._best}))


def _covered(values: NDArray[np.float64], by: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Tell of each row whether a row of ``by`` is at least as good in every objective."""
    pieces = [
        np.any(np.all(by[None] <= values[start : start + _PIECE, None], axis=2), axis=1)
        for start in range(0, len(values), _PIECE)
    ]
    return np.concatenate(pieces) if pieces else np.empty(0, bool)


def spread_out(values: NDArray[np.float64], most: int) -> NDArray[np.intp]:
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


def _distance(scaled: NDArray[np.float64], row: int) -> NDArray[np.float64]:
    distance: NDArray[np.float64] = np.linalg.norm(scaled - scaled[row], axis=1)
    return distance
