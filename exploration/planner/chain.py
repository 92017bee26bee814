"""A chain of layers and the devices it may be cut over, as tables of spans."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.planner.layer_chain import Device, Floats

__all__ = ["Chain", "Flags", "Floats"]

Flags = NDArray[np.bool_]

_ROUNDING = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Chain:
    """Layers and devices: checked numbers, and tables that are made of them on demand.

    A *cut* is a number from 0 to ``layers``: cut ``c`` lies before layer ``c``. A slice goes from
    one cut to a later one, so tables of spans are (cuts, cuts).
    """

    devices: tuple[Device, ...]
    times_s: Floats
    """(kinds, layers)"""
    spans_s: Floats | None
    memory_bytes: Floats
    """(kinds, layers), or (kinds, layers, layers) for spans."""
    receive_bytes: Floats
    """(layers,): memory for what a slice receives, by its first layer."""
    send_bytes: Floats
    """(layers,): memory for what a slice sends, by its last layer."""
    board_of: tuple[int, ...]
    """Device -> board."""
    capacity_bytes: tuple[float, ...]
    link_of: NDArray[np.intp]
    """(devices, devices): row of ``link_s`` for a message from the one to the other."""
    link_s: Floats
    """(links + 1, cuts): time of the message at a cut; infinite where no message can be. The last
    row stands for no message at all: the first slice's."""
    closed: Flags
    """(cuts,): where there can be no cut, whatever the link."""
    counts_power: bool = True
    """Whether devices that differ only in power count as different."""
    most_turns: int = 1

    @property
    def layers(self) -> int:
        return int(self.times_s.shape[1])

    @property
    def cuts(self) -> int:
        return self.layers + 1

    @cached_property
    def types(self) -> tuple[tuple[int, float, float], ...]:
        """Kind, memory and power of each type of device: to one slice its devices are alike.

        Where devices can take turns, only as far as its time and memory go: 0 is for any power.
        """
        return tuple(dict.fromkeys(map(self._type, range(len(self.devices)))))

    @cached_property
    def type_of(self) -> tuple[int, ...]:
        """Device -> type."""
        index = {key: number for number, key in enumerate(self.types)}
        return tuple(index[self._type(device)] for device in range(len(self.devices)))

    def _type(self, device: int) -> tuple[int, float, float]:
        it = self.devices[device]
        # Whoever takes turns may draw another power than the others.
        watts = it.busy_w or 0.0 if self.counts_power and self.most_turns == 1 else 0.0
        return it.kind, self.capacity_bytes[self.board_of[device]], watts

    @cached_property
    def boards(self) -> tuple[tuple[int, ...], ...]:
        """Board -> its devices."""
        devices: list[list[int]] = [[] for _ in self.capacity_bytes]
        for device, board in enumerate(self.board_of):
            devices[board].append(device)
        return tuple(map(tuple, devices))

    @cached_property
    def span_s(self) -> tuple[Floats, ...]:
        """Type -> time of each span, (cuts, cuts); infinite where it cannot be computed."""
        tables = {kind: self._span_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _span_table(self, kind: int) -> Floats:
        sums = _running_sums(self.times_s[kind])
        if self.spans_s is None:
            return by_cuts(sums)
        return by_cuts(np.where(np.isinf(sums), np.inf, self.spans_s[kind]))

    @cached_property
    def span_bytes(self) -> tuple[Floats, ...]:
        """Type -> memory that a slice of each span takes, (cuts, cuts)."""
        tables = {kind: self._memory_table(kind) for kind in {kind for kind, _, _ in self.types}}
        return tuple(tables[kind] for kind, _, _ in self.types)

    def _memory_table(self, kind: int) -> Floats:
        nbytes = self.memory_bytes[kind]
        held = nbytes if nbytes.ndim == 2 else _running_sums(nbytes)
        return by_cuts(held + self.receive_bytes[:, None] + self.send_bytes[None, :])

    @cached_property
    def fits(self) -> tuple[Flags, ...]:
        """Type -> whether a device can compute a span and hold it alone, (cuts, cuts)."""
        return tuple(
            np.isfinite(span) & (held <= memory)
            for span, held, (_, memory, _) in zip(
                self.span_s, self.span_bytes, self.types, strict=True
            )
        )

    @cached_property
    def turns(self) -> tuple[int, ...]:
        """Type -> how many of its devices can take turns on a slice."""
        return tuple(
            min(self.type_of.count(index), self.most_turns) for index in range(len(self.types))
        )

    def slice_s(self, device: int, first: int, end: int) -> float:
        """Return the time of one span on a device: that of the table, without making all of it."""
        kind = self.devices[device].kind
        if self.spans_s is None:
            return float(np.cumsum(self.times_s[kind, first:end])[-1])
        return float(self.span_s[self.type_of[device]][first, end])

    def slice_bytes(self, device: int, first: int, end: int) -> float:
        nbytes = self.memory_bytes[self.devices[device].kind]
        held = nbytes[first, end - 1] if nbytes.ndim == 2 else np.cumsum(nbytes[first:end])[-1]
        return float(held + self.receive_bytes[first] + self.send_bytes[end - 1])

    @property
    def shares_memory(self) -> bool:
        """Whether two slices may have to share the memory of one board."""
        return any(
            len(devices) > 1 and math.isfinite(memory)
            for devices, memory in zip(self.boards, self.capacity_bytes, strict=True)
        )


def limit_in_turn(limit: float, turns: int) -> float:
    """Return how long a slice or a message may take of which a device gets one in so many.

    It is no less than that, and more by rounding only.
    """
    return limit if turns == 1 else limit * turns * (1 + _ROUNDING)


def _running_sums(values: Floats) -> Floats:
    """Return the sum of each span, (layers, layers); added up from its first layer on."""
    sums = np.triu(np.broadcast_to(values, (values.size, values.size)))
    return np.cumsum(sums, axis=1, out=sums)


def by_cuts(spans: Floats) -> Floats:
    """Return a table by cuts, (cuts, cuts), of one by first and last layer."""
    layers = spans.shape[0]
    table = np.full((layers + 1, layers + 1), np.inf)
    upper = np.triu(np.ones((layers, layers), np.bool_))
    table[:-1, 1:][upper] = spans[upper]
    return table
