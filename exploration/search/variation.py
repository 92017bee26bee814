"""How mappings are drawn, crossed and changed at random.

A change moves what makes a difference to a pipeline: a stretch of layers moves, or a border between
two slices; two devices swap their layers, one gets those of another; or two mappings mix.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.results.front import Assignment, Population
from rankslice.exploration.search.space import SearchSpace

Random: TypeAlias = np.random.Generator

_MOVED, _SWAPPED, _RENAMED = 0.55, 0.15, 0.1
"""Shares of changes: a stretch or a border moves; two devices change roles; one device gets what
another one had. The rest mixes two mappings."""

_TWICE = 0.3
"""Share of changes that are followed by another one."""


def random_slices(space: SearchSpace, random: Random) -> Assignment:
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
    """Return the children; changed are those that equal an earlier one, or one that is there.

    Their figures are known already. Where a population has converged, nearly all children are of
    that kind.
    """
    known = {row.tobytes() for row in there}
    is_known = np.zeros((len(children), 1), bool)
    for number, child in enumerate(children):
        is_known[number] = child.tobytes() in known
        known.add(child.tobytes())
    return np.where(is_known, mutated(children, devices, random), children)


def mutated(population: Population, devices: int, random: Random) -> Population:
    """Return (n, layers) mappings that differ from those of a population by one change or two."""
    return changed(population, random.permutation(population), devices, random)


def changed(parents: Population, mates: Population, devices: int, random: Random) -> Population:
    """Return (n, layers) mappings that differ from their parents by one change, or by two.

    Args:
        mates: (n, layers): what stretches are taken from when two mappings mix.
    """
    children = _changed_once(parents, mates, devices, random)
    twice = random.random((len(children), 1)) < _TWICE
    return np.where(twice, _changed_once(children, mates, devices, random), children)


def _changed_once(
    parents: Population, mates: Population, devices: int, random: Random
) -> Population:
    count, layers = parents.shape
    rows, position = np.arange(count), np.arange(layers)
    kind = random.random((count, 1))
    length = np.minimum(layers, np.exp(random.random(count) * np.log(layers + 1)).astype(np.int64))
    start = random.integers(0, layers, count)
    # A border moves if what follows it joins the run before it, or what precedes it the run after.
    begins = _run_begins(parents)[rows, start]
    back = random.random(count) < 0.5
    first = np.where(back, begins - length, begins)
    joined = parents[rows, np.where(back, begins, np.maximum(begins - 1, 0))]
    free = random.random(count) < 0.5
    first, target = (
        np.where(free, start, first),
        np.where(free, _devices(random, devices, count), joined),
    )
    inside = (first[:, None] <= position) & (position < (first + length)[:, None])
    moved = np.where(inside, target[:, None], parents)
    mixed = np.where(inside, mates, parents)
    one = parents[rows, random.integers(0, layers, count)][:, None]
    other = _devices(random, devices, count)[:, None]
    renamed = np.where(parents == one, other, parents)
    swapped = np.where(parents == other, one, renamed)
    return np.select(
        [kind < _MOVED, kind < _MOVED + _SWAPPED, kind < _MOVED + _SWAPPED + _RENAMED],
        [moved, swapped, renamed],
        mixed,
    )


def _devices(random: Random, devices: int, count: int) -> NDArray[np.int64]:
    return random.integers(0, devices, count)


def _run_begins(population: Population) -> NDArray[np.int64]:
    """Return (n, layers): the first layer of the run of neighbours that each layer is in."""
    begins = np.zeros(population.shape, np.int64)
    begins[:, 1:] = np.where(
        population[:, 1:] != population[:, :-1], np.arange(1, population.shape[1]), 0
    )
    return np.maximum.accumulate(begins, axis=1)
