"""The fastest mapping of contiguous slices by the cost model: what bounds it, and all below a time.

The bound counts less than the cost model does, and never more: what a slice computes, what the
runtime takes of the cores for each tensor that it takes and gives, once each, and of its messages
over cables the part that no other cut can change. So no mapping of contiguous slices is faster. And
mappings in which each slice by itself stays below a time are all that can beat that time: if they
are few, all of them can be tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.problem import Problem
from rankslice.exploration.results.front import Archive, Population, Scores
from rankslice.exploration.search.planned import ContiguousPlanner
from rankslice.exploration.search.scoring import occurring
from rankslice.exploration.search.space import Score

__all__ = ["FastestFound", "Proof", "is_contiguous", "prove"]

Flags: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]

_SAME = 1e-9
"""Relative difference below which two times are the same."""

_MAX_PRODUCTS = 4e9
"""Most steps of finding out from where a plan can be completed: about a second."""

_AT_ONCE = 4096


def is_contiguous(population: Population, devices: int) -> Flags:
    """Tell which assignments give each device one span of layers."""
    runs = 1 + (population[:, 1:] != population[:, :-1]).sum(axis=1)
    return np.asarray(runs == occurring(population, devices).sum(axis=1))


class FastestFound:
    """Scores populations, and keeps what the fastest contiguous mapping takes."""

    def __init__(self, score: Score, devices: int) -> None:
        """Take what scores, throughput first."""
        self._score, self._devices = score, devices
        self.count = 0
        """Mappings that were scored."""
        self.bottleneck_s = float("inf")
        """Of the fastest contiguous one."""
        self.any_s = float("inf")
        """Of the fastest of all."""

    def __call__(self, population: Population) -> Scores:
        """Return what the mappings are worth."""
        self.count += len(population)
        scores = self._score(population)
        times = np.where(scores.excess <= 0, scores.values[:, 0], np.inf)
        self.any_s = float(times.min(initial=self.any_s))
        contiguous = is_contiguous(population, self._devices)
        self.bottleneck_s = float(times.min(initial=self.bottleneck_s, where=contiguous))
        return scores


@dataclass(frozen=True, slots=True)
class Proof:
    """What is certain of the fastest contiguous mapping, by the cost model."""

    bottleneck_s: float
    """Of the fastest one that was met; infinite: none was."""
    bound_s: float
    """None has less."""

    @property
    def is_proven(self) -> bool:
        """Whether the fastest one that was met is the fastest there is."""
        return self.bottleneck_s <= self.bound_s * (1 + _SAME)


def prove(problem: Problem, score: FastestFound, found: Archive, most: int) -> Proof:
    """Return what is certain of the fastest contiguous mapping, and try those that may beat it.

    Args:
        problem: what is searched.
        score: has met the best mappings that are known.
        found: takes what is tried.
        most: how many mappings may be scored.
    """
    bound = ContiguousPlanner(problem).bound_s()
    proof = Proof(score.bottleneck_s, bound)
    if proof.is_proven:
        return proof
    is_all = _Below(problem, score, found, most).run()
    return Proof(score.bottleneck_s, score.bottleneck_s if is_all else bound)


@dataclass(frozen=True, slots=True)
class _Begun:
    """Mappings that are decided up to a cut."""

    rows: Population
    """(n, layers)"""
    cuts: NDArray[np.int64]
    """(n,) where what is decided ends."""
    used: NDArray[np.int64]
    """(n,) devices in use, one bit each."""

    def part(self, which: NDArray[np.int64]) -> _Begun:
        """Return some of them."""
        return _Begun(self.rows[which], self.cuts[which], self.used[which])


class _Below:
    """Scores all contiguous mappings that may beat the fastest one known, if they are not many."""

    def __init__(self, problem: Problem, score: FastestFound, found: Archive, most: int) -> None:
        self._score, self._found, self._left = score, found, most
        spans = ContiguousPlanner(problem).least_spans_s()
        self._devices, self._cuts = len(problem.devices), len(problem.layers) + 1
        self._spans = np.full((self._devices, self._cuts, self._cuts), np.inf)
        upper = np.triu(np.ones((self._cuts - 1, self._cuts - 1), bool))
        for device, kind in enumerate(problem.device_kinds):
            self._spans[device, :-1, 1:][upper] = spans[kind][upper]

    def run(self) -> bool:
        """Return whether all were scored."""
        if self._devices * self._cuts**2 * 2.0**self._devices > _MAX_PRODUCTS:
            return False
        self._allowed = self._spans < self._score.bottleneck_s
        self._completed = self._completions()
        nothing = np.zeros(1, np.int64)
        return self._grow(_Begun(np.zeros((1, self._cuts - 1), np.int64), nothing, nothing))

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

    def _grow(self, begun: _Begun) -> bool:
        """Score what mappings that begin so can become; return whether there were few enough."""
        for grown in self._grown(begun):
            is_whole = grown.cuts == self._cuts - 1
            self._left -= is_whole.size
            if self._left < 0:
                return False
            whole = grown.rows[is_whole]
            self._found.add(whole, self._score(whole))
            if not is_whole.all() and not self._grow(grown.part(np.flatnonzero(~is_whole))):
                return False
        return True

    def _grown(self, begun: _Begun) -> Iterator[_Begun]:
        """Yield mappings with one more slice, those that may beat what is known."""
        position = np.arange(self._cuts - 1)
        for device in range(self._devices):
            free = np.flatnonzero(begun.used >> device & 1 == 0)
            for first in range(0, free.size, _AT_ONCE):
                part = begun.part(free[first : first + _AT_ONCE])
                after = part.used | 1 << device
                below = self._spans[device][part.cuts] < self._score.bottleneck_s * (1 - _SAME)
                number, end = np.nonzero(below & self._completed[after])
                kept = part.part(number)
                inside = (position >= kept.cuts[:, None]) & (position < end[:, None])
                yield _Begun(np.where(inside, device, kept.rows), end, after[number])
