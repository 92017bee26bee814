"""Assignments frame by frame: where devices take turns, another one has a frame's layers each time.

In a *phase*, frames whose layers are on the same devices, an assignment is one without turns. What
a mapping costs follows from its phases: how busy its parts are is the mean over all frames, what
they hold is what they need in any.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import ALL, Turns
from rankslice.exploration.problem.problem import Problem

_Number = TypeVar("_Number", np.float64, np.int64, np.bool_)

_MAX_FRAMES = 100_000
"""Of so many frames phases are counted, where many teams begin again only after more."""


@dataclass(frozen=True, slots=True)
class Phases:
    """All phases of assignments; arrays are (phases, ...), an assignment's follow each other."""

    population: Indices
    """(phases, layers) indices of devices."""
    sources: Indices
    sinks: Indices
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
        return len(self.population) > len(self.begins)

    @property
    def assignments(self) -> Indices:
        ends = np.append(self.begins[1:], len(self.population))
        return np.repeat(np.arange(len(self.begins)), ends - self.begins)

    def mean(self, values: Floats) -> Floats:
        """Return (assignments, ...): the mean over all frames."""
        if not self.in_turn:
            return values
        shares = self.shares.reshape(-1, *(1,) * (values.ndim - 1))
        return np.add.reduceat(shares * values, self.begins, axis=0)

    def most(self, values: NDArray[_Number]) -> NDArray[_Number]:
        """Return (assignments, ...): the largest of all phases."""
        if not self.in_turn:
            return values
        return np.maximum.reduceat(values, self.begins, axis=0)


def phases_of(problem: Problem, population: Indices) -> Phases:
    """Return the phases of assignments, (assignments, layers) numbers of devices and teams."""
    devices = len(problem.devices)
    ends = (population[:, problem.source_layer], population[:, problem.sink_layer])
    if not (population >= devices).any():
        count = len(population)
        shares, clashes = np.ones(count), np.zeros(count, bool)
        whole = np.zeros((count, devices), np.int64)
        return Phases(population, *ends, np.arange(count), shares, clashes, (ALL,), whole)
    numbers = devices + len(problem.teams)
    used = occurring(population, numbers)
    together, group = np.unique(used[:, devices:], axis=0, return_inverse=True)
    groups = [_of_teams(problem, np.flatnonzero(teams)) for teams in together]
    group = group.ravel()
    counts = np.array([len(shares) for _, shares in groups])[group]
    begins = np.cumsum(counts) - counts
    rows = np.empty((int(counts.sum()), population.shape[1]), np.int64)
    shares = np.empty(len(rows))
    for number, (table, parts) in enumerate(groups):
        own = np.flatnonzero(group == number)
        at = begins[own][:, None] + np.arange(len(parts))
        rows[at] = table[:, population[own]].transpose(1, 0, 2)
        shares[at] = parts
    first = np.array([team.devices[0] for team in problem.numbered])
    turns, of_teams = _turns(problem, together)
    has_layers: Indices = used.astype(np.int64) @ problem.is_member
    return Phases(
        rows,
        np.repeat(first[ends[0]], counts),
        np.repeat(first[ends[1]], counts),
        begins,
        shares,
        np.asarray((has_layers > 1).any(axis=1)),
        turns,
        of_teams[group],
    )


def _of_teams(problem: Problem, teams: NDArray[np.intp]) -> tuple[Indices, Floats]:
    """Return the phases of assignments in which some teams are, and which part of frames each has.

    The phases are (phases, numbers): the device that stands for each number in an assignment.
    """
    numbers = np.arange(len(problem.devices) + len(problem.teams))
    if not len(teams):
        return numbers[np.newaxis], np.ones(1)
    patterns = [problem.teams[team].pattern for team in teams]
    frames = np.arange(min(math.lcm(*map(len, patterns)), _MAX_FRAMES))
    chosen = np.array([pattern[frames % len(pattern)] for pattern in patterns])
    members, counts = np.unique(chosen, axis=1, return_counts=True)
    table = np.tile(numbers, (members.shape[1], 1))
    table[:, len(problem.devices) + teams] = members.T
    return table, counts / len(frames)


def _turns(problem: Problem, together: NDArray[np.bool_]) -> tuple[tuple[Turns, ...], Indices]:
    """Return all turns that there are, and which of them devices have, (sets of teams, devices)."""
    numbers = {ALL: 0}
    turns_of = np.zeros((len(together), len(problem.devices)), np.int64)
    for row, teams in enumerate(together):
        for team in (problem.teams[number] for number in np.flatnonzero(teams)):
            for device, turns in zip(team.devices, team.turns, strict=True):
                turns_of[row, device] = numbers.setdefault(turns, len(numbers))
    return tuple(numbers), turns_of


Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


def sums(row: Indices, column: Indices, values: Floats, shape: tuple[int, int]) -> Floats:
    at, size = row * shape[1] + column, shape[0] * shape[1]
    flat: Floats = np.bincount(at, weights=values, minlength=size).astype(np.float64, copy=False)
    return flat.reshape(shape)


def occurring(numbers: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """Return (rows, count): whether each number occurs in a row."""
    used = np.zeros((len(numbers), count), bool)
    used[np.arange(len(numbers))[:, None], numbers] = True
    return used


def counts(readers: Indices, devices: int) -> Floats:
    """Return (rows, devices): how often each device stands in a row."""
    rows = np.repeat(np.arange(len(readers)), readers.shape[1])
    return sums(rows, readers.ravel(), np.ones(readers.size), (len(readers), devices))


@dataclass(frozen=True, slots=True)
class Spans:
    """Consecutive layers of one device or segment, of all assignments; all arrays are (spans,)."""

    row: Indices
    owner: Indices
    """The device or the segment."""
    first: Indices
    last: Indices


def span_numbers(population: Indices) -> Indices:
    """Return (assignments, layers): the span of each layer, numbered from 0."""
    changes = population[:, 1:] != population[:, :-1]
    return np.pad(np.cumsum(changes, axis=1), ((0, 0), (1, 0)))


def spans_of(owners: Indices) -> Spans:
    """Return the spans of (assignments, layers) owners, row by row and in the layers' order."""
    starts = np.ones(owners.shape, bool)
    starts[:, 1:] = owners[:, 1:] != owners[:, :-1]
    row, first = np.nonzero(starts)
    layers = owners.shape[1]
    ends = np.append(first[1:], layers) - 1
    ends[ends < 0] = layers - 1  # the next span is the first of another row
    return Spans(row, owners[row, first], first, ends)
