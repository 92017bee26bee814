"""Proof that a mapping of contiguous slices is the fastest one, by the cost model.

The planner gives a bound. It counts what slices compute, the runtime's time for each of their
tensors, and the part of messages over cables that no other cut can change: never more than the cost
model. If the fastest mapping found does not reach the bound, all mappings are tried in which each
slice by itself takes less time than that mapping, if they are few: no other mapping can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.chain import by_cuts
from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Population
from rankslice.exploration.search.planned import ContiguousPlanner
from rankslice.exploration.search.space import Search

Flags: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

SAME = 1e-9
"""Relative difference below which two times are the same."""

_MAX_PRODUCTS = 4e9
"""Most steps of finding out from where a plan can be completed: about a second."""

_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Proof:
    """What is certain of the fastest contiguous mapping, by the cost model."""

    bottleneck_s: float
    """Of the fastest one found; infinite: none was found."""
    bound_s: float
    """No contiguous mapping takes less."""

    @property
    def is_proven(self) -> bool:
        return self.bottleneck_s <= self.bound_s * (1 + SAME)


def prove(problem: Problem, search: Search, most: int) -> Proof:
    """Return the proof for the fastest contiguous mapping; try mappings that may beat it."""
    bound = ContiguousPlanner(problem).bound_s()
    proof = Proof(search.contiguous_s, bound)
    if proof.is_proven or problem.teams:  # with these there are too many
        return proof
    is_all = _FasterMappings(problem, search, most).run()
    return Proof(search.contiguous_s, search.contiguous_s if is_all else bound)


@dataclass(frozen=True, slots=True)
class _PartialMappings:
    """Mappings whose layers before a cut have their devices."""

    rows: Population
    """(n, layers)"""
    cuts: NDArray[np.int64]
    """(n,)"""
    used: NDArray[np.int64]
    """(n,) devices in use, one bit each."""

    def part(self, which: NDArray[np.int64]) -> _PartialMappings:
        return _PartialMappings(self.rows[which], self.cuts[which], self.used[which])


class _FasterMappings:
    """Scores all contiguous mappings that may beat the fastest one known, if they are not many."""

    def __init__(self, problem: Problem, search: Search, most: int) -> None:
        self._search, self._left = search, most
        spans = ContiguousPlanner(problem).least_spans_s()
        self._devices, self._cuts = len(problem.devices), len(problem.layers) + 1
        self._spans = np.stack([by_cuts(spans[kind]) for kind in problem.device_kinds])

    def run(self) -> bool:
        if self._devices * self._cuts**2 * 2.0**self._devices > _MAX_PRODUCTS:
            return False
        self._allowed = self._spans < self._search.contiguous_s
        self._completed = self._completions()
        nothing = np.zeros(1, np.int64)
        return self._grow(
            _PartialMappings(np.zeros((1, self._cuts - 1), np.int64), nothing, nothing)
        )

    def _completions(self) -> Flags:
        """Return (sets of devices in use, cuts): whether the other devices can take the rest."""
        sets = np.arange(1 << self._devices)
        sizes = np.array([int(number).bit_count() for number in sets])
        done = np.zeros((sets.size, self._cuts), bool)
        done[:, -1] = True
        for size in range(self._devices - 1, -1, -1):
            for device in range(self._devices):
                mine = sets[(sizes == size) & (sets >> device & 1 == 0)]
                after = done[mine | 1 << device].astype(np.float32)
                done[mine] |= after @ self._allowed[device].T.astype(np.float32) > 0
        return done

    def _grow(self, begun: _PartialMappings) -> bool:
        """Score what mappings that begin so can become; return whether there were few enough."""
        for grown in self._grown(begun):
            is_whole = grown.cuts == self._cuts - 1
            self._left -= is_whole.size
            if self._left < 0:
                return False
            self._search(grown.rows[is_whole])
            if not is_whole.all() and not self._grow(grown.part(np.flatnonzero(~is_whole))):
                return False
        return True

    def _grown(self, begun: _PartialMappings) -> Iterator[_PartialMappings]:
        """Yield mappings with one more slice, those that may beat what is known."""
        position = np.arange(self._cuts - 1)
        for device in range(self._devices):
            free = np.flatnonzero(begun.used >> device & 1 == 0)
            for first in range(0, free.size, _AT_ONCE):
                part = begun.part(free[first : first + _AT_ONCE])
                after = part.used | 1 << device
                below = self._spans[device][part.cuts] < self._search.contiguous_s * (1 - SAME)
                number, end = np.nonzero(below & self._completed[after])
                kept = part.part(number)
                inside = (position >= kept.cuts[:, None]) & (position < end[:, None])
                yield _PartialMappings(np.where(inside, device, kept.rows), end, after[number])
