"""The costs of one assignment, worked out tensor by tensor and segment by segment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
            (tensor, origin, target)
            for tensor in problem.tensors
            for origin, target in self._ways(tensor)
        ]
        self.segment_s = self._segments()

    def _readers(self, tensor: LayerTensor) -> list[int]:
        return [*tensor.readers, *([self.problem.sink_layer] if tensor.is_output else [])]

    def _producer(self, tensor: LayerTensor) -> int:
        return self.problem.source_layer if tensor.producer == MODEL_INPUT else tensor.producer

    def _ways(self, tensor: LayerTensor) -> Iterator[tuple[int, int]]:
        """Yield from where devices get a tensor: from its home, or from one of their own board."""
        home = self.assignment[self._producer(tensor)]
        holders = {self.problem.devices[home].board: home}
        targets = {self.assignment[reader] for reader in self._readers(tensor)} - {home}
        for target in sorted(targets, key=self.assignment.index):
            board = self.problem.devices[target].board
            yield holders.get(board, home), target
            holders.setdefault(board, target)

    def _boards(self, origin: int, target: int) -> tuple[int, int]:
        return self.problem.devices[origin].board, self.problem.devices[target].board

    def _pays_at(self, tensor: LayerTensor, device: int) -> int:
        """Return the segment that makes a tensor, or else the first one of a device to read it."""
        made = self.maker[self._producer(tensor)]
        readers = [self.maker[reader] for reader in self._readers(tensor)]
        of_device = [made, *sorted(readers)]
        return next(number for number in of_device if self.device_of[number] == device)

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
        for tensor, origin, target in self.messages:
            boards = self._boards(origin, target)
            seconds = overheads.token_s
            if boards[0] != boards[1]:
                seconds = overheads.message_s + tensor.nbytes * overheads.network_s_per_byte
            for device in (origin, target):
                found[self._pays_at(tensor, device)] += seconds
        return found

    def bottleneck_s(self) -> float:
        """Return the time of the busiest device, core or direction of a link."""
        busy: dict[object, float] = defaultdict(float)
        for device, seconds in zip(self.device_of, self.segment_s, strict=True):
            busy[device] += seconds
            for core in self.problem.devices[device].cores:
                share = self.problem.devices[device].host_share or 0.0
                busy[self.problem.devices[device].board, core] += seconds * share
        for tensor, origin, target in self.messages:
            boards = self._boards(origin, target)
            if boards[0] != boards[1]:
                carry_s = tensor.nbytes / self.problem.bandwidth_bytes_s[boards]
                busy["from", boards[0]] += carry_s
                busy["to", boards[1]] += carry_s
        return max(busy.values())

    def latency_s(self) -> float:
        """Return when the last result of a frame that is alone has reached the sink."""
        ends: list[float] = []
        free: dict[int, float] = defaultdict(float)
        hops: dict[tuple[str, int], float] = {}
        for tensor, origin, target in self.messages:
            before = hops.get((tensor.name, origin), 0.0)
            hops[tensor.name, target] = before + self._hop_s(tensor, origin, target)

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

    def _hop_s(self, tensor: LayerTensor, origin: int, target: int) -> float:
        boards = self._boards(origin, target)
        carry_s = float(tensor.nbytes / self.problem.bandwidth_bytes_s[boards])
        return float(self.problem.latency_s[boards]) + (carry_s if boards[0] != boards[1] else 0.0)
