"""Small random chains of layers, and the best pipeline of each by trying them all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np

from rankslice.exploration import Device, LayerChain, Pipeline, optimal_pipeline
from rankslice.exploration.planner.optimal import Objective

SAME = 1 + 1e-12


def planned(
    *,
    objective: Objective = "throughput",
    throughput_floor_fps: float = 0.0,
    most_turns: int = 1,
    most_steps: int = 100_000,
    **chain: Any,
) -> Pipeline:
    """Return the best pipeline of a chain whose fields are given one by one."""
    return optimal_pipeline(
        LayerChain(**chain),
        objective=objective,
        throughput_floor_fps=throughput_floor_fps,
        most_turns=most_turns,
        most_steps=most_steps,
    )


def random_case(seed: int) -> dict[str, Any]:
    """Return fields of a ``LayerChain``: few layers, few devices, every sort of limit."""
    draw = np.random.default_rng(seed)
    kinds = int(draw.integers(1, 4))
    layers = int(draw.integers(1, 11))
    case: dict[str, Any] = {
        "times_s": _times(draw, kinds, layers),
        "output_bytes": _output_bytes(draw, layers),
        "memory_bytes": draw.integers(0, 10, layers),
        "devices": _devices(draw, kinds, _most_devices(layers)),
    }
    for add in (_add_spans, _add_memory, _add_buffers, _add_links):
        if draw.random() < 0.4:
            add(draw, case)
    return case


def _output_bytes(draw: np.random.Generator, layers: int) -> np.ndarray:
    """Return what crosses cuts; sometimes nothing, and sometimes there can be no cut."""
    sent = draw.integers(0, 20, layers) * draw.choice([0.0, 1.0, 10.0], p=[0.1, 0.45, 0.45])
    return np.where(draw.random(layers) < draw.choice([0.0, 0.1]), math.inf, sent)


def _most_devices(layers: int) -> int:
    return 6 if layers <= 6 else 4


def _times(draw: np.random.Generator, kinds: int, layers: int) -> np.ndarray:
    """Return times, often few different ones, sometimes with layers that cannot run."""
    if draw.random() < 0.5:
        times = draw.integers(0, 6, (kinds, layers)).astype(float)
    else:
        times = draw.random((kinds, layers)) * draw.choice([1.0, 1e-3, 1e3])
    times = times * draw.choice([0.0, 1.0], p=[0.05, 0.95])
    if draw.random() < 0.3:
        times[draw.random((kinds, layers)) < 0.15] = math.inf
    return times


def _devices(draw: np.random.Generator, kinds: int, most: int) -> list[Device]:
    """Return devices on boards of their own, or several to a board."""
    number = int(draw.integers(1, most + 1))
    boards = int(draw.integers(1, number + 1)) if draw.random() < 0.5 else number
    rates = draw.choice([1.0, 5.0, 20.0, math.inf], boards)
    memory = draw.choice([8.0, 15.0, 30.0, math.inf], boards)
    if draw.random() < 0.6:
        rates[:], memory[:] = rates[0], memory[0]
    return [
        Device(
            f"device {index}",
            int(draw.integers(kinds)),
            f"board {index % boards}",
            float(memory[index % boards]),
            float(rates[index % boards]),
            busy_w=float(draw.integers(1, 4)),
            idle_w=float(index % boards % 2),
        )
        for index in range(number)
    ]


def _add_spans(draw: np.random.Generator, case: dict[str, Any]) -> None:
    """Let spans take what they want, or nearly the sum."""
    kinds, layers = case["times_s"].shape
    table = draw.random((kinds, layers, layers)) * 5
    if draw.random() < 0.5:
        finite = np.where(np.isinf(case["times_s"]), 0, case["times_s"])
        sums = np.cumsum(np.triu(np.repeat(finite[:, None], layers, 1)), axis=2)
        table = sums * draw.uniform(0.8, 1.2, sums.shape)
    case["spans_s"] = table


def _add_memory(draw: np.random.Generator, case: dict[str, Any]) -> None:
    kinds, layers = case["times_s"].shape
    shape = (kinds, layers) if draw.random() < 0.5 else (kinds, layers, layers)
    case["memory_bytes"] = draw.integers(0, 12, shape)


def _add_buffers(draw: np.random.Generator, case: dict[str, Any]) -> None:
    layers = case["times_s"].shape[1]
    case["receive_memory_bytes"] = draw.integers(0, 6, layers)
    case["send_memory_bytes"] = draw.integers(0, 6, layers)


def _add_links(draw: np.random.Generator, case: dict[str, Any]) -> None:
    number = len(case["devices"])
    case["bandwidth_bytes_s"] = draw.choice([0.0, 2.0, 5.0, 20.0, math.inf], (number, number))
    if draw.random() < 0.5:
        case["latency_s"] = draw.choice([0.0, 0.5, 1.5], (number, number))


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


class Tried:
    """Tries every contiguous pipeline of a case; a slice may have several devices in turn."""

    def __init__(
        self, case: dict[str, Any], objective: str, period_s: float, most_turns: int = 1
    ) -> None:
        self.devices: list[Device] = list(case["devices"])
        self.kinds, self.layers = case["times_s"].shape
        self.case = case
        self.objective = objective
        self.period_s = period_s
        self.spans = [self._span_table(kind) for kind in range(self.kinds)]
        self.bytes = [self._memory_table(kind) for kind in range(self.kinds)]
        self.message = self._messages()
        self.best = math.inf
        self.most_turns = most_turns
        self.known: dict[object, tuple[float, float]] = {}

    def _span_table(self, kind: int) -> list[list[float]]:
        spans = self.case.get("spans_s")
        table = None if spans is None else spans[kind]
        times = self.case["times_s"][kind]
        return [
            [
                math.fsum(times[first : last + 1])
                if table is None or np.isinf(times[first : last + 1]).any()
                else float(table[first, last])
                for last in range(self.layers)
            ]
            for first in range(self.layers)
        ]

    def _memory_table(self, kind: int) -> list[list[float]]:
        given = np.asarray(self.case["memory_bytes"])
        given = given if given.ndim == 1 else given[kind]
        receive = np.broadcast_to(self.case.get("receive_memory_bytes", 0), self.layers)
        send = np.broadcast_to(self.case.get("send_memory_bytes", 0), self.layers)
        return [
            [
                float(given[first : last + 1].sum() if given.ndim == 1 else given[first, last])
                + float(receive[first] + send[last])
                for last in range(self.layers)
            ]
            for first in range(self.layers)
        ]

    def _messages(self) -> dict[tuple[int, int], list[float]]:
        number = len(self.devices)
        rates = np.broadcast_to(self.case.get("bandwidth_bytes_s", math.inf), (number, number))
        delays = np.broadcast_to(self.case.get("latency_s", 0.0), (number, number))
        found = {}
        for one, sender in enumerate(self.devices):
            for other, receiver in enumerate(self.devices):
                rate = float(rates[one, other])
                if sender.board != receiver.board:
                    rate = min(rate, sender.bandwidth_bytes_s, receiver.bandwidth_bytes_s)
                found[one, other] = [
                    float(delays[one, other]) + _quotient(float(size), rate)
                    for size in self.case["output_bytes"]
                ]
        return found

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


def _quotient(size: float, rate: float) -> float:
    if size == 0:
        return 0.0
    if math.isinf(size):
        return math.inf
    return size / rate if rate else math.inf
