"""Assignments frame by frame: where devices take turns, another one has a frame's layers each time.

In a *phase*, frames whose layers are on the same devices, an assignment is one without turns. What
a mapping costs follows from its phases: how busy its parts are is the mean over all frames, what
they hold is what they need in any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.spans import Floats, Indices
from rankslice.exploration.problem.problem import Problem
from rankslice.framework.turns import ALL, Turns

_Number = TypeVar("_Number", np.float64, np.int64, np.bool_)

_MOST_FRAMES = 100_000
"""Of so many frames phases are counted, where many teams begin again only after more."""


@dataclass(frozen=True, slots=True)
class Phases:
    """All phases of assignments; arrays are (phases, ...), an assignment's follow each other."""

    population: Indices
    """(phases, layers) indices of devices."""
    sources: Indices
    """The device where frames enter."""
    sinks: Indices
    """The device where results leave."""
    begins: Indices
    """(assignments,): the first phase of each."""
    shares: Floats
    """Which part of an assignment's frames each phase has."""
    clashes: NDArray[np.bool_]
    """(assignments,): whether a device would be in two teams, or in one and alone."""
    turns: tuple[Turns, ...]
    """All that there are; the first is all frames."""
    turns_of: Indices
    """(assignments, devices): which of them each device handles."""

    @property
    def in_turn(self) -> bool:
        """Whether any devices take turns."""
        return len(self.population) > len(self.begins)

    @property
    def assignments(self) -> Indices:
        """Return the assignment of each phase."""
        ends = np.append(self.begins[1:], len(self.population))
        return np.repeat(np.arange(len(self.begins)), ends - self.begins)

    def mean(self, values: Floats) -> Floats:
        """Return (assignments, ...): the mean over all frames."""
        if not self.in_turn:
            return values
        shares = self.shares.reshape(-1, *(1,) * (values.ndim - 1))
        found: Floats = np.add.reduceat(shares * values, self.begins, axis=0)
        return found

    def most(self, values: NDArray[_Number]) -> NDArray[_Number]:
        """Return (assignments, ...): the largest of all phases."""
        if not self.in_turn:
            return values
        found: NDArray[_Number] = np.maximum.reduceat(values, self.begins, axis=0)
        return found


def phases_of(problem: Problem, population: Indices) -> Phases:
    """Return the phases of assignments, (assignments, layers) numbers of devices and teams."""
    devices = len(problem.devices)
    ends = (population[:, problem.source_layer], population[:, problem.sink_layer])
    if not (population >= devices).any():
        count = len(population)
        shares, clashes = np.ones(count), np.zeros(count, bool)
        whole = np.zeros((count, devices), np.int64)
        return Phases(population, *ends, np.arange(count), shares, clashes, (ALL,), whole)
    found = [_of_one(problem, row) for row in population]
    counts = [len(shares) for _, shares in found]
    first = np.array([problem.members(n)[0] for n in range(devices + len(problem.teams))])
    turns, turns_of = _turns(problem, population)
    return Phases(
        np.concatenate([rows for rows, _ in found]),
        np.repeat(first[ends[0]], counts),
        np.repeat(first[ends[1]], counts),
        np.cumsum([0, *counts[:-1]]),
        np.concatenate([shares for _, shares in found]),
        np.array([_clashes(problem, row) for row in population]),
        turns,
        turns_of,
    )


def _of_one(problem: Problem, row: Indices) -> tuple[Indices, Floats]:
    """Return the phases of an assignment, and which part of its frames each has."""
    devices = len(problem.devices)
    teams = [problem.teams[n - devices] for n in np.unique(row[row >= devices])]
    if not teams:
        return row[np.newaxis], np.ones(1)
    period = math.lcm(*(len(team.pattern) for team in teams))
    frames = np.arange(min(period, _MOST_FRAMES))
    chosen = np.array([team.pattern[frames % len(team.pattern)] for team in teams])
    each, counts = np.unique(chosen, axis=1, return_counts=True)
    numbers = np.tile(np.arange(devices + len(problem.teams)), (each.shape[1], 1))
    numbers[:, np.unique(row[row >= devices])] = each.T
    return numbers[:, row], counts / len(frames)


def _clashes(problem: Problem, row: Indices) -> bool:
    used = [device for number in np.unique(row) for device in problem.members(int(number))]
    return len(used) > len({*used})


def _turns(problem: Problem, population: Indices) -> tuple[tuple[Turns, ...], Indices]:
    """Return all turns that there are, and which of them the devices of assignments have."""
    devices, numbers = len(problem.devices), {ALL: 0}
    found = np.zeros((len(population), devices), np.int64)
    for row, assignment in enumerate(population):
        for number in np.unique(assignment[assignment >= devices]):
            team = problem.teams[number - devices]
            for device, turns in zip(team.devices, team.turns, strict=True):
                found[row, device] = numbers.setdefault(turns, len(numbers))
    return tuple(numbers), found
