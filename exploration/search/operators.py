"""How mappings are drawn, crossed and mutated.

Crossover swaps a stretch of layers between two parents. A mutation moves what makes a difference to
a pipeline: a stretch of layers, a border between two slices, two devices that swap their layers, or
a device that is given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from rankslice.exploration.results.front import Assignment, Population
from rankslice.exploration.search.space import SearchSpace

Random: TypeAlias = np.random.Generator


def random_slices(space: SearchSpace, random: Random) -> Assignment:
    """Return a mapping of contiguous slices, each on a device of its own, all drawn at random."""
    slices = int(random.integers(1, min(space.devices, space.layers) + 1))
    cuts = random.choice(space.layers - 1, slices - 1, replace=False) + 1
    devices = random.permutation(space.devices)[:slices]
    return devices[np.searchsorted(np.sort(cuts), np.arange(space.layers), side="right")]


def swap_stretches(parents: Any, random: Random) -> Any:
    """Return (2, matings, layers) children: each pair of parents swaps one stretch of layers."""
    _, matings, layers = parents.shape
    ends = np.sort(random.integers(0, layers + 1, (matings, 2)), axis=1)
    position = np.arange(layers)
    inside = (ends[:, :1] <= position) & (position < ends[:, 1:])
    return np.where(inside, parents[::-1], parents)


def fresh_children(
    children: Population, there: Iterable[Assignment], devices: int, random: Random
) -> Population:
    """Return the children; mutated are those that equal an earlier one, or one that is there.

    Their figures are known already. Where a population has converged, nearly all children are of
    that kind.
    """
    known = {row.tobytes() for row in there}
    rows = []
    for child in children:
        row = mutated(child, devices, random) if child.tobytes() in known else child
        known.add(row.tobytes())
        rows.append(row)
    return np.array(rows, np.int64)


def mutated(row: Assignment, devices: int, random: Random) -> Assignment:
    """Return a mapping that differs from ``row`` by one move."""
    moves = (_move_stretch, _move_border, _swap_devices, _give_up_device)
    move = moves[int(random.integers(len(moves)))]
    return move(row.copy(), devices, random)


def _length(most: int, random: Random) -> int:
    """Return a length from 1 to ``most``: short ones are as likely as long ones."""
    return min(most, int(math.exp(random.random() * math.log(most + 1))))


def _move_stretch(row: Assignment, devices: int, random: Random) -> Assignment:
    length = _length(len(row), random)
    start = int(random.integers(len(row) - length + 1))
    row[start : start + length] = random.integers(devices)
    return row


def _move_border(row: Assignment, devices: int, random: Random) -> Assignment:
    borders = np.flatnonzero(row[1:] != row[:-1]) + 1
    if not len(borders):
        return _move_stretch(row, devices, random)
    border = int(random.choice(borders))
    if random.random() < 0.5:
        length = _length(len(row) - border, random)
        row[border : border + length] = row[border - 1]
    else:
        length = _length(border, random)
        row[border - length : border] = row[border]
    return row


def _swap_devices(row: Assignment, devices: int, random: Random) -> Assignment:
    first, second = random.choice(np.unique(row)), random.integers(devices)
    swapped = row.copy()
    swapped[row == first] = second
    swapped[row == second] = first
    return swapped


def _give_up_device(row: Assignment, devices: int, random: Random) -> Assignment:
    used = np.unique(row)
    row[row == random.choice(used)] = random.choice(used)
    return row
