"""Small random chains of layers, and the best pipeline of each by trying them all."""

from __future__ import annotations

import math
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


class Tried:
    """Tries every contiguous pipeline of a case."""

    def __init__(self, case: dict[str, Any], objective: str, period_s: float) -> None:
        self.devices: list[Device] = list(case["devices"])
        self.kinds, self.layers = case["times_s"].shape
        self.case = case
        self.objective = objective
        self.period_s = period_s
        self.spans = [self._span_table(kind) for kind in range(self.kinds)]
        self.bytes = [self._memory_table(kind) for kind in range(self.kinds)]
        self.message = self._messages()
        self.best = math.inf

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
        self._place(0, [], {}, 0.0, 0.0)
        return self.best

    def _place(
        self, layer: int, used: list[int], held: dict[str, float], slowest: float, cost: float
    ) -> None:
        value = slowest if self.objective == "throughput" else cost
        if slowest > self.period_s * SAME or value >= self.best:
            return
        if layer == self.layers:
            self.best = value
            return
        for index, device in enumerate(self.devices):
            if index not in used:
                self._place_on(index, device, layer, used, held, slowest, cost)

    def _place_on(
        self,
        index: int,
        device: Device,
        layer: int,
        used: list[int],
        held: dict[str, float],
        slowest: float,
        cost: float,
    ) -> None:
        message = self.message[used[-1], index][layer - 1] if used else 0.0
        for last in range(layer, self.layers):
            span = self.spans[device.kind][layer][last]
            needs = held.get(device.board, 0.0) + self.bytes[device.kind][layer][last]
            if math.isfinite(max(span, message)) and needs <= device.memory_bytes:
                more = span + message
                if self.objective == "energy":
                    idle = 0.0 if device.board in held else device.idle_w * self.period_s
                    more = span * (device.busy_w or 0.0) + idle
                self._place(
                    last + 1,
                    [*used, index],
                    {**held, device.board: needs},
                    max(slowest, span, message),
                    cost + more,
                )


def _quotient(size: float, rate: float) -> float:
    if size == 0:
        return 0.0
    if math.isinf(size):
        return math.inf
    return size / rate if rate else math.inf
