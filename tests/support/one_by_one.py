"""The costs of one assignment, worked out tensor by tensor and segment by segment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from rankslice.exploration.cost.timing import blocks_of
from rankslice.exploration.problem.problem import MODEL_INPUT, LayerTensor, Problem


class OneByOne:
    """Busy times, in seconds, and latency of an assignment."""

    def __init__(self, problem: Problem, assignment: Sequence[int]) -> None:
        self.problem, self.assignment = problem, [int(device) for device in assignment]
        self.blocks = [tuple(sorted(block)) for block in blocks_of(problem, self.assignment)]
        self.maker = {layer: n for n, block in enumerate(self.blocks) for layer in block}
        self.device_of = [self.assignment[block[0]] for block in self.blocks]
        self.messages = [
            (tensor, target)
            for tensor in problem.tensors
            for target in {self.assignment[r] for r in self._readers(tensor)}
            if target != self.assignment[self._producer(tensor)]
        ]
        self.segment_s = self._segments()

    def _readers(self, tensor: LayerTensor) -> list[int]:
        return [*tensor.readers, *([self.problem.sink_layer] if tensor.is_output else [])]

    def _producer(self, tensor: LayerTensor) -> int:
        return self.problem.source_layer if tensor.producer == MODEL_INPUT else tensor.producer

    def _boards(self, tensor: LayerTensor, target: int) -> tuple[int, int]:
        origin = self.assignment[self._producer(tensor)]
        return self.problem.devices[origin].board, self.problem.devices[target].board

    def _span_s(self, device: int, layers: Sequence[int]) -> float:
        """Return the time of each piece without a gap."""
        kind, total = self.problem.devices[device].kind, 0.0
        for _, piece in groupby(enumerate(layers), key=lambda pair: pair[1] - pair[0]):
            numbers = [layer for _, layer in piece]
            total += float(self.problem.span_tables[kind, numbers[0], numbers[-1]])
        return total

    def _segments(self) -> list[float]:
        overheads = self.problem.overheads
        alone = [self._span_s(d, b) for d, b in zip(self.device_of, self.blocks, strict=True)]
        sums: dict[int, float] = defaultdict(float)
        for device, seconds in zip(self.device_of, alone, strict=True):
            sums[device] += seconds
        found = []
        for number, device in enumerate(self.device_of):
            own = [layer for layer, on in enumerate(self.assignment) if on == device]
            share = self._span_s(device, own) / sums[device] if sums[device] else 1.0
            is_first = self.device_of.index(device) == number
            found.append(alone[number] * share + (overheads.frame_s if is_first else 0.0))
        for tensor, target in self.messages:
            boards = self._boards(tensor, target)
            per_byte = 1 / self.problem.bandwidth_bytes_s[boards]
            per_byte = per_byte if boards[0] == boards[1] else overheads.network_s_per_byte
            seconds = overheads.message_s + tensor.nbytes * per_byte
            readers = [self.maker[reader] for reader in self._readers(tensor)]
            found[self.maker[self._producer(tensor)]] += seconds
            found[min(n for n in readers if self.device_of[n] == target)] += seconds
        return found

    def bottleneck_s(self) -> float:
        """Return the time of the busiest device, core or direction of a link."""
        busy: dict[object, float] = defaultdict(float)
        for device, seconds in zip(self.device_of, self.segment_s, strict=True):
            busy[device] += seconds
            for core in self.problem.devices[device].cores:
                share = self.problem.devices[device].host_share or 0.0
                busy[self.problem.devices[device].board, core] += seconds * share
        for tensor, target in self.messages:
            boards = self._boards(tensor, target)
            if boards[0] != boards[1]:
                carry_s = tensor.nbytes / self.problem.bandwidth_bytes_s[boards]
                busy["from", boards[0]] += carry_s
                busy["to", boards[1]] += carry_s
        return max(busy.values())

    def latency_s(self) -> float:
        """Return when the last result of a frame that is alone has reached the sink."""
        ends: list[float] = []
        free: dict[int, float] = defaultdict(float)
        hops = {(t.name, target): self._hop_s(t, target) for t, target in self.messages}

        def there_s(tensor: LayerTensor, device: int) -> float:
            made = 0.0 if tensor.producer == MODEL_INPUT else ends[self.maker[tensor.producer]]
            return made + hops.get((tensor.name, device), 0.0)

        for number, (device, block) in enumerate(zip(self.device_of, self.blocks, strict=True)):
            reads = [t for t in self.problem.tensors if not {*block}.isdisjoint(t.readers)]
            waits = [there_s(t, device) for t in reads if self.maker.get(t.producer) != number]
            ends.append(max(free[device], *waits, 0.0) + self.segment_s[number])
            free[device] = ends[-1]
        sink = self.assignment[self.problem.sink_layer]
        outputs = [there_s(t, sink) for t in self.problem.tensors if t.is_output]
        return max(outputs, default=max(ends, default=math.nan))

    def _hop_s(self, tensor: LayerTensor, target: int) -> float:
        boards = self._boards(tensor, target)
        carry_s = float(tensor.nbytes / self.problem.bandwidth_bytes_s[boards])
        return float(self.problem.latency_s[boards]) + (carry_s if boards[0] != boards[1] else 0.0)
