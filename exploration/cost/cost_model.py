"""What assignments of layers to devices cost, many at once: rate, latency, memory and energy.

Computing and sending overlap, so a pipeline is as fast as its busiest part. Those parts are

* a device: its layers' times, which are a little longer in a pipeline than when they are measured;
  what the runtime takes of the same cores for each frame and each message, and the network for each
  byte of a message between boards;
* a core that several devices share: the sum over them;
* a board's link, each direction for itself: bytes over bandwidth, summed over all messages that
  leave the board, or come in.

A tensor goes once to each device that needs it: to another board in one message, inside a board
without a copy. :func:`evaluate` gives four figures for each of many assignments;
:func:`rankslice.exploration.cost.prediction.predict` explains one of them, segment by segment and
with the source of every figure. Both read the same :class:`Costs`.

Devices that take turns are busy with their part of the frames, and so are links. Each holds what it
needs for a frame, and a frame takes as long as with the slowest of them, as results come in order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.board_memory import memory_of
from rankslice.exploration.cost.populations import (
    Floats,
    Indices,
    occurring,
    phases_of,
    span_numbers,
    spans_of,
    sums,
)
from rankslice.exploration.cost.timing import latencies, messages_of, segment_numbers, segment_times
from rankslice.exploration.problem.problem import Problem

SLOTS = 2
"""Slots at each end of a channel between neighbouring stages of a chain."""

_MAX_FLAGS = 1 << 24
"""Bytes of the table that finds who needs which tensor; larger populations are split."""


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What each of several assignments costs; all arrays are (assignments,)."""

    bottleneck_s: Floats
    """Time of the busiest part for each frame; its inverse is the throughput. inf: cannot run."""
    latency_s: Floats
    """Time of a frame that is alone in the pipeline, with the slowest of those in turn; nan if it
    was not asked for."""
    memory_bytes: Floats
    """Of the board that needs most."""
    energy_j: Floats
    """For each frame, of the board that takes most; nan where that of a used board is not known."""
    excess_bytes: Floats
    """By how much the worst board's memory is too small; 0: all suffices, or is not known."""


def evaluate(problem: Problem, population: Indices, *, latency: bool = True) -> Evaluations:
    """Return what assignments cost, all at once.

    Args:
        population: (assignments, layers) numbers of devices and teams.
        latency: whether to work out latencies, and for that the segments, which takes most of the
            time. Without them, memory counts each span of neighbouring layers as a segment.
    """
    population = np.asarray(population, np.int64)
    step = max(1, _MAX_FLAGS // max(1, len(problem.tensors) * len(problem.devices)))
    parts = [
        _evaluate(problem, population[begin : begin + step], latency)
        for begin in range(0, len(population), step)
    ]
    columns = zip(*parts, strict=True) if parts else [()] * 5
    return Evaluations(*(np.concatenate(column or (np.zeros(0),)) for column in columns))


def _evaluate(problem: Problem, numbers: Indices, latency: bool) -> tuple[Floats, ...]:
    costs = Costs(problem, numbers)
    segments = span_numbers(costs.population)
    leaves = np.full(len(numbers), np.nan)
    if latency:
        # Devices that take turns have the same segments, so these are found without phases.
        numbered = segment_numbers(problem, numbers, span_numbers(numbers), costs.can_run)
        segments = numbered[costs.phases.assignments]
        leaves = costs.latency_s(segments)
    memory = costs.memory_bytes(segments)
    sizes = (board.memory_bytes for board in problem.boards)
    capacity = np.array([math.inf if size is None else size for size in sizes])
    energy = costs.energies_j.max(axis=1)  # nan if one of them is
    excess = np.maximum(memory - capacity, 0.0).max(axis=1)
    return costs.bottleneck_s, leaves, memory.max(axis=1), energy, excess


class Costs:
    """What assignments cost, part by part."""

    def __init__(self, problem: Problem, numbers: Indices) -> None:
        """Take (assignments, layers) numbers of devices and teams."""
        self.problem = problem
        self.phases = phases_of(problem, numbers)
        self.population = population = self.phases.population
        shape = len(population), len(problem.devices)
        spans = spans_of(population)
        self.sent = sent = messages_of(problem, self.phases, spans)
        used = occurring(population, shape[1])
        self.used = self.phases.most(used)
        """(assignments, devices)"""
        seconds = problem.span_tables[problem.device_kinds[spans.owner], spans.first, spans.last]
        busy = sums(spans.row, spans.owner, seconds, shape) + problem.overheads.frame_s * used
        busy += sums(sent.row, sent.origin, sent.costs.core_s, shape)
        busy += sums(sent.row, sent.target, sent.costs.core_s, shape)
        self.possible = np.isfinite(busy).all(axis=1) & self._is_together()
        """(phases,)"""
        self.can_run = ~(self.phases.most(~self.possible) | self.phases.clashes)
        """(assignments,)"""
        self.busy_s = self.phases.mean(busy)
        """(assignments, devices): for how long each is busy for a frame of the stream."""

    def _is_together(self) -> NDArray[np.bool_]:
        fine = np.ones(len(self.population), bool)
        for group in self.problem.together:
            chosen = self.population[:, list(group)]
            fine &= (chosen == chosen[:, :1]).all(axis=1)
        return fine

    @cached_property
    def loads_s(self) -> Floats:
        """(assignments, parts): busy devices, groups of devices that share a core, and links.

        Each board has two links, one for what leaves and one for what comes in.
        """
        boards, sent = self.problem.device_boards, self.sent
        shape = len(self.population), len(self.problem.boards)
        ends = sent.origin, sent.target
        links = [sums(sent.row, boards[end], sent.costs.link_s, shape) for end in ends]
        ports = self.phases.mean(np.stack(links, axis=2).reshape(shape[0], 2 * shape[1]))
        return np.hstack([self.busy_s, _finite(self.busy_s) @ _core_shares(self.problem).T, ports])

    @cached_property
    def bottleneck_s(self) -> Floats:
        """(assignments,): inf where one cannot run."""
        return np.where(self.can_run, self.loads_s.max(axis=1), np.inf)

    def latency_s(self, segments: Indices) -> Floats:
        """Return (assignments,): when a frame that is alone leaves.

        Args:
            segments: (phases, layers): the segment of each layer, in a topological order.
        """
        times = segment_times(self.problem, self.population, segments, self.sent)
        alone = latencies(self.problem, self.population, segments, self.sent, times)
        slowest = self.phases.most(np.where(self.possible, alone, np.inf))
        return np.where(self.phases.clashes, np.inf, slowest)

    def memory_bytes(self, segments: Indices) -> Floats:
        """Return (assignments, boards); the segments are those of :meth:`latency_s`."""
        return memory_of(self.problem, self.phases, segments, self.sent)

    @cached_property
    def energies_j(self) -> Floats:
        """(assignments, boards): of each frame; 0 of unused boards, NaN where it is not known."""
        problem, period = self.problem, self.bottleneck_s
        unknown = ~np.isfinite(problem.active_w)
        idle = np.array([math.nan if b.idle_w is None else b.idle_w for b in problem.boards])
        used = self.used @ problem.is_on_board > 0
        finite = np.where(np.isfinite(period), np.maximum(period, problem.between_frames_s), 0.0)
        active_j = _finite(self.busy_s) * np.where(unknown, 0.0, problem.active_w)
        energy: Floats = active_j @ problem.is_on_board + finite[:, np.newaxis] * idle
        energy[(self.used & unknown) @ problem.is_on_board > 0] = np.nan
        energy[np.isinf(period)[:, np.newaxis] & ~np.isnan(energy)] = np.inf
        energy[~used] = 0.0
        return energy


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def core_groups(problem: Problem) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return the groups of devices that share a core, with the first board and core of each."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, device in enumerate(problem.devices):
        for core in device.cores:
            users[device.board, core].append(number)
    groups: dict[tuple[int, ...], tuple[int, int]] = {}
    for place, devices in users.items():
        if len(devices) > 1:
            groups.setdefault(tuple(devices), place)
    return groups


def _core_shares(problem: Problem) -> Floats:
    groups = core_groups(problem)
    shares = np.zeros((len(groups), len(problem.devices)))
    for row, devices in enumerate(groups):
        shares[row, list(devices)] = [problem.devices[p].host_share or 0.0 for p in devices]
    return shares
