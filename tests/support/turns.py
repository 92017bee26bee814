"""Small random chains whose devices can take turns, and the best pipeline of each by trying."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
from chains import SAME, Tried, random_case

from rankslice.exploration import Device


def random_turns_case(seed: int) -> dict[str, Any]:
    """Return fields of a ``LayerChain``: few layers and kinds, several devices of each kind."""
    draw = np.random.default_rng([seed, 24])
    while True:
        case = random_case(int(draw.integers(1 << 31)))
        kinds, layers = case["times_s"].shape
        if kinds <= 2 and layers <= 6 and 2 <= len(case["devices"]) <= 5:
            return case


def random_turns(seed: int) -> int:
    """Return how many devices may take turns in a case."""
    return (2, 3, 8, 8)[seed % 4]


class TriedInTurns(Tried):
    """Tries every contiguous pipeline of a case whose slices may have several devices each."""

    def __init__(
        self, case: dict[str, Any], objective: str, period_s: float, most_turns: int
    ) -> None:
        super().__init__(case, objective, period_s)
        self.most_turns = most_turns
        self.known: dict[object, tuple[float, float]] = {}

    def run(self) -> float:
        """Return the least bottleneck, latency or energy; infinite if there is no pipeline."""
        self._try(0, (), frozenset(), {}, 0.0, 0.0)
        return self.best

    def _try(
        self,
        layer: int,
        last: tuple[int, ...],
        used: frozenset[int],
        held: dict[str, float],
        slowest: float,
        cost: float,
    ) -> None:
        value = slowest if self.objective == "throughput" else cost
        if slowest > self.period_s * SAME or value >= self.best:
            return
        if layer == self.layers:
            self.best = value
            return
        for group in self._groups(used):
            longest, load = self._exchanged(last, group, layer - 1) if last else (0.0, 0.0)
            if not math.isfinite(longest):
                continue
            for behind in range(layer, self.layers):
                kind = self.devices[group[0]].kind
                span = self.spans[kind][layer][behind]
                after = self._held(group, held, self.bytes[kind][layer][behind])
                if math.isfinite(span) and after is not None:
                    more = span + longest
                    if self.objective == "energy":
                        more = self._joules(group, held, span)
                    self._try(
                        behind + 1,
                        group,
                        used | {*group},
                        after,
                        max(slowest, span / len(group), load),
                        cost + more,
                    )

    def _groups(self, used: frozenset[int]) -> Iterator[tuple[int, ...]]:
        """Yield free devices that can take turns: equal ones, on boards with equal memory."""
        for size in range(1, self.most_turns + 1):
            for group in combinations(range(len(self.devices)), size):
                alike = {self._likeness(self.devices[index]) for index in group}
                if len(alike) == 1 and not used & {*group}:
                    yield group

    def _likeness(self, device: Device) -> object:
        return device.kind, device.memory_bytes

    def _held(
        self, group: tuple[int, ...], held: dict[str, float], size: float
    ) -> dict[str, float] | None:
        """Return what boards hold with one more slice; None, if one is full."""
        after = dict(held)
        for index in group:
            board = self.devices[index].board
            after[board] = after.get(board, 0.0) + size
            if after[board] > self.devices[index].memory_bytes:
                return None
        return after

    def _joules(self, group: tuple[int, ...], held: dict[str, float], span: float) -> float:
        fresh = {self.devices[index].board: self.devices[index].idle_w for index in group}
        idle = sum(watts * self.period_s for board, watts in fresh.items() if board not in held)
        power = sum(self.devices[index].busy_w or 0.0 for index in group) / len(group)
        return span * power + idle

    def _exchanged(
        self, senders: tuple[int, ...], receivers: tuple[int, ...], cut: int
    ) -> tuple[float, float]:
        """Return the longest message at a cut, and the most time per frame that one place takes."""
        key = senders, receivers, cut
        if key not in self.known:
            self.known[key] = self._sent(senders, receivers, cut)
        return self.known[key]

    def _sent(
        self, senders: tuple[int, ...], receivers: tuple[int, ...], cut: int
    ) -> tuple[float, float]:
        frames = len(senders) * len(receivers)
        busy: dict[object, float] = {}
        longest = 0.0
        for frame in range(frames):
            one, other = senders[frame % len(senders)], receivers[frame % len(receivers)]
            time = self.message[one, other][cut]
            longest = max(longest, time)
            from_board, to_board = self.devices[one].board, self.devices[other].board
            places: list[object] = [("sends", one), ("receives", other)]
            if from_board != to_board:
                places += [("leaves", from_board), ("enters", to_board)]
            for place in places:
                busy[place] = busy.get(place, 0.0) + time / frames
        return longest, max(busy.values())
