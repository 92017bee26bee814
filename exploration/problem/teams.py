"""Devices that take turns on the same layers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Turns
from rankslice.framework.turns import by_weights

if TYPE_CHECKING:
    from rankslice.exploration.problem.problem import Problem


@dataclass(frozen=True)
class Team:
    """Devices that take turns: one entry of a mapping, and a rank for each."""

    devices: tuple[int, ...]
    """Indices of the problem's devices. Where frames enter, or results leave, the first has them
    all."""
    weights: tuple[int, ...] = ()
    """How many frames each handles of those of all; empty: equally many."""

    @cached_property
    def turns(self) -> tuple[Turns, ...]:
        """The frames that each device handles."""
        return by_weights(self.weights or (1,) * len(self.devices))

    @cached_property
    def pattern(self) -> NDArray[np.int64]:
        """(period,): the device that handles each frame, and again from the beginning."""
        found = np.zeros(self.turns[0].period, np.int64)
        for device, turns in zip(self.devices, self.turns, strict=True):
            found[list(turns.positions)] = device
        return found

    def key(self, keys: Sequence[str]) -> str:
        """Return the key of the mapping's entry: ``a*2|b``."""
        weights = self.weights or (1,) * len(self.devices)
        parts = zip(self.devices, weights, strict=True)
        return "|".join(keys[device] + (f"*{n}" if n > 1 else "") for device, n in parts)


def with_turns(problem: Problem, most_turns: int) -> Problem:
    """Return a problem in which devices of one kind may take turns; each of them once at a time."""
    return replace(problem, teams=teams_of_kinds(problem.device_kinds.tolist(), most_turns))


_MOST_TEAMS = 64
"""Of one size; of more devices only neighbours take turns."""


def teams_of_kinds(kinds: Sequence[int], most_turns: int) -> tuple[Team, ...]:
    """Return the teams in which devices of one kind can take turns."""
    alike: dict[int, list[int]] = defaultdict(list)
    for device, kind in enumerate(kinds):
        alike[kind].append(device)
    return tuple(
        Team(devices)
        for size in range(2, most_turns + 1)
        for found in alike.values()
        for devices in _chosen(found, size)
    )


def _chosen(devices: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield so many devices of some: in all ways, or if there are too many, neighbours alone."""
    if math.comb(len(devices), size) <= _MOST_TEAMS:
        yield from combinations(devices, size)
        return
    for first in range(len(devices) - size + 1):
        yield tuple(devices[first : first + size])
