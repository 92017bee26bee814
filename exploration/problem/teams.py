"""Devices that take turns on the same layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.turns import Turns, by_weights


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
        """Return the key of the mapping's entry: ``a*2|b``.

        Args:
            keys: of all devices.
        """
        weights = self.weights or (1,) * len(self.devices)
        parts = zip(self.devices, weights, strict=True)
        return "|".join(keys[device] + (f"*{n}" if n > 1 else "") for device, n in parts)
