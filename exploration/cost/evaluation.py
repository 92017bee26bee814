"""What assignments of layers to devices cost, many at once.

The same costs as :func:`rankslice.exploration.cost.cost_model.predict` explains for one assignment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.memory import memory_of
from rankslice.exploration.cost.messages import messages_of
from rankslice.exploration.cost.phases import phases_of
from rankslice.exploration.cost.spans import Floats, Indices, span_numbers, spans_of, sums
from rankslice.exploration.cost.timing import latencies, segment_numbers, segment_times
from rankslice.exploration.problem.problem import Problem

SLOTS = 2
"""Slots at each end of a channel between neighbouring stages of a chain."""


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

    Rate and latency are those of :func:`predict`. Memory is, too, with latencies; without them each
    span of neighbouring layers counts as a segment.

    Args:
        problem: layers and devices.
        population: (assignments, layers) numbers of devices and teams.
        latency: whether to work out latencies, and for that the segments, which takes most of the
            time.
    """
    population = np.asarray(population, np.int64)
    step = max(1, _MAX_FLAGS // max(1, len(problem.tensors) * len(problem.devices)))
    parts = [
        _evaluate(problem, population[begin : begin + step], latency)
        for begin in range(0, len(population), step)
    ]
    columns = zip(*parts, strict=True) if parts else [()] * 5
    return Evaluations(*(np.concatenate(column or (np.zeros(0),)) for column in columns))


_MAX_FLAGS = 1 << 24
"""Bytes of the table that finds who needs which tensor; larger populations are split."""


def _evaluate(problem: Problem, numbers: Indices, latency: bool) -> tuple[Floats, ...]:
    phases = phases_of(problem, numbers)
    population = phases.population
    shape = len(population), len(problem.devices)
    spans = spans_of(population)
    kinds = problem.device_kinds[spans.owner]
    seconds = problem.span_tables[kinds, spans.first, spans.last]
    used = np.zeros(shape, bool)
    used[spans.row, spans.owner] = True
    sent = messages_of(problem, phases, spans)
    busy = sums(spans.row, spans.owner, seconds, shape) + problem.overheads.frame_s * used
    busy += sums(sent.row, sent.origin, sent.costs.core_s, shape)
    busy += sums(sent.row, sent.target, sent.costs.core_s, shape)
    possible = np.isfinite(busy).all(axis=1) & _is_together(problem, population)
    busy = np.where(np.isfinite(busy), busy, 0.0)
    ports = len(population), len(problem.boards)
    loads = phases.mean(
        np.hstack(
            [
                busy,
                busy @ _core_shares(problem).T,
                sums(sent.row, problem.device_boards[sent.origin], sent.costs.link_s, ports),
                sums(sent.row, problem.device_boards[sent.target], sent.costs.link_s, ports),
            ]
        )
    )
    bottleneck = np.max(loads, axis=1)
    bottleneck[phases.most(~possible) | phases.clashes] = np.inf
    segments = span_numbers(population)
    leaves = np.full(len(numbers), np.nan)
    if latency:
        # Devices that take turns have the same segments, so these are found without phases.
        can_run = ~phases.most(~possible) & ~phases.clashes
        found = segment_numbers(problem, numbers, span_numbers(numbers), can_run)
        segments = found[phases.assignments]
        times = segment_times(problem, population, segments, sent)
        alone = latencies(problem, population, segments, sent, times)
        leaves = phases.most(np.where(possible, alone, np.inf))
        leaves[phases.clashes] = np.inf
    memory = memory_of(problem, phases, segments, sent)
    capacity = np.array([_or_inf(board.memory_bytes) for board in problem.boards])
    energies = board_energies(problem, phases.mean(busy), bottleneck, phases.most(used))
    energy = energies.max(axis=1)  # nan if one of them is
    return (
        bottleneck,
        leaves,
        memory.max(axis=1),
        np.where(np.isfinite(bottleneck) | np.isnan(energy), energy, np.inf),
        np.maximum(memory - capacity, 0.0).max(axis=1),
    )


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _is_together(problem: Problem, population: Indices) -> NDArray[np.bool_]:
    """Tell which assignments keep on one device what cannot be apart."""
    fine = np.ones(len(population), bool)
    for group in problem.together:
        chosen = population[:, list(group)]
        fine &= (chosen == chosen[:, :1]).all(axis=1)
    return fine


def core_users(problem: Problem) -> dict[tuple[int, int], list[int]]:
    """Return the devices that use each core, by board and core, if there are several."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, device in enumerate(problem.devices):
        for core in device.cores:
            users[device.board, core].append(number)
    return {core: devices for core, devices in users.items() if len(devices) > 1}


def _core_shares(problem: Problem) -> Floats:
    """Return (shared cores, devices): how much of a device's time it keeps a core busy."""
    groups = sorted({tuple(devices) for devices in core_users(problem).values()})
    shares = np.zeros((len(groups), len(problem.devices)))
    for row, devices in enumerate(groups):
        shares[row, list(devices)] = [problem.devices[p].host_share or 0.0 for p in devices]
    return shares


def board_energies(
    problem: Problem, busy: Floats, period: Floats, used: NDArray[np.bool_]
) -> Floats:
    """Return (assignments, boards): the energy of each frame in joules, 0 of unused boards.

    NaN where it is not known.

    Args:
        problem: layers and devices.
        busy: (assignments, devices): how long each computes for a frame, in seconds.
        period: (assignments,): time between frames, if they come as fast as they are taken.
        used: (assignments, devices).
    """
    unknown = ~np.isfinite(problem.active_w)
    active = (busy * np.where(unknown, 0.0, problem.active_w)) @ problem.is_on_board
    idle = np.array([math.nan if b.idle_w is None else b.idle_w for b in problem.boards])
    finite = np.where(np.isfinite(period), np.maximum(period, problem.between_frames_s), 0.0)
    energy: Floats = active + finite[:, np.newaxis] * idle
    energy[(used & unknown) @ problem.is_on_board > 0] = np.nan
    energy[~(used @ problem.is_on_board > 0)] = 0.0
    return energy
