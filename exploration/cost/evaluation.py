"""Four figures for each of many assignments at once, as searches need them.

The same costs as :func:`rankslice.exploration.cost.cost_model.predict` explains for one assignment.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.messages import Messages, first_readers, messages_of, producer_of
from rankslice.exploration.cost.slot_memory import slot_bytes
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem
from rankslice.frontend.partition.segments import fewest_blocks

__all__ = [
    "Evaluations",
    "blocks_of",
    "core_users",
    "evaluate",
    "memory_of",
    "spans_of",
]

SLOTS = 2
"""Slots at each end of a channel between neighbouring stages of a chain."""

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What each of several assignments costs; all arrays are (assignments,)."""

    bottleneck_s: Floats
    """Time of the busiest part for each frame; its inverse is the throughput. inf: cannot run."""
    latency_s: Floats
    """Time of a frame that is alone in the pipeline; nan if it was not asked for."""
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
        population: (assignments, layers) indices of devices.
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


def _evaluate(problem: Problem, population: Indices, latency: bool) -> tuple[Floats, ...]:
    devices, boards = len(problem.devices), len(problem.boards)
    shape = (len(population), devices)
    spans = spans_of(population)
    kinds = problem.device_kinds[spans.device]
    seconds = problem.span_tables[kinds, spans.first, spans.last]
    compute = _sums(spans.row, spans.device, seconds, shape)
    used = np.zeros(shape, bool)
    used[spans.row, spans.device] = True
    sent = messages_of(problem, population)
    copying = sent.copy_s + problem.overheads.message_s
    busy = compute + problem.overheads.frame_s * used
    busy += _sums(sent.row, sent.origin, copying, shape)
    busy += _sums(sent.row, sent.target, copying, shape)
    possible = np.isfinite(busy).all(axis=1) & _is_together(problem, population)
    possible[sent.row[~np.isfinite(sent.nbytes)]] = False
    busy = np.where(np.isfinite(busy), busy, 0.0)
    links = (len(population), boards)
    bottleneck = np.max(
        np.hstack(
            [
                busy,
                busy @ _core_shares(problem).T,
                _sums(sent.row, problem.device_boards[sent.origin], sent.link_s, links),
                _sums(sent.row, problem.device_boards[sent.target], sent.link_s, links),
            ]
        ),
        axis=1,
    )
    bottleneck[~possible] = np.inf
    segments = span_numbers(population)
    if latency:
        segments = _segment_numbers(problem, population, segments, possible)
    memory = memory_of(problem, population, segments, sent)
    capacity = np.array([_or_inf(board.memory_bytes) for board in problem.boards])
    latencies = np.full(len(population), np.nan)
    if latency:
        latencies = np.where(possible, _latencies(problem, population, segments, sent), np.inf)
    return (
        bottleneck,
        latencies,
        memory.max(axis=1),
        _worst_energy(problem, busy, bottleneck, used),
        np.maximum(memory - capacity, 0.0).max(axis=1),
    )


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _sums(row: Indices, column: Indices, values: Floats, shape: tuple[int, int]) -> Floats:
    """Return the sums of values by row and column."""
    at, size = row * shape[1] + column, shape[0] * shape[1]
    flat: Floats = np.bincount(at, weights=values, minlength=size).astype(np.float64, copy=False)
    return flat.reshape(shape)


@dataclass(frozen=True, slots=True)
class Spans:
    """Neighbouring layers on one device, of all assignments; all arrays are (spans,)."""

    row: Indices
    """Which assignment."""
    device: Indices
    first: Indices
    last: Indices


def span_numbers(population: Indices) -> Indices:
    """Return (assignments, layers): the span of each layer, numbered from 0."""
    changes = population[:, 1:] != population[:, :-1]
    return np.pad(np.cumsum(changes, axis=1), ((0, 0), (1, 0)))


def spans_of(population: Indices) -> Spans:
    """Return the spans of assignments, row by row and in the layers' order."""
    starts = np.ones(population.shape, bool)
    starts[:, 1:] = population[:, 1:] != population[:, :-1]
    row, first = np.nonzero(starts)
    layers = population.shape[1]
    ends = np.append(first[1:], layers) - 1
    ends[ends < 0] = layers - 1  # the next span is the first of another row
    return Spans(row, population[row, first], first, ends)


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


def memory_of(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return what each assignment needs on each board, (assignments, boards), in bytes.

    Args:
        problem: layers and devices.
        population: (assignments, layers) indices of devices.
        segments: (assignments, layers): the segment of each layer, numbered from 0 in a
            topological order.
        sent: what the assignments send.
    """
    shape = len(population), len(problem.devices)
    spans = spans_of(population)
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes, dtype=np.float64)])
    device_bytes = _sums(spans.row, spans.device, held[spans.last + 1] - held[spans.first], shape)
    for weight in problem.shared_weights:
        readers = population[:, list(weight.readers)]
        count = _counts(readers, shape[1])
        device_bytes -= weight.nbytes * np.maximum(count - 1, 0)
    if len(problem.working_bytes):
        most = np.zeros(shape)
        starts = spans.row * population.shape[1] + spans.first
        work = np.maximum.reduceat(np.tile(problem.working_bytes, shape[0]), starts)
        np.maximum.at(most, (spans.row, spans.device), work)
        device_bytes += most
    if len(problem.rank_bytes):
        used = _counts(population, shape[1]) > 0
        device_bytes += used * problem.rank_bytes[problem.device_kinds]
    device_bytes += slot_bytes(problem, population, segments, sent)
    return device_bytes @ _board_of_device(problem)


def _counts(readers: Indices, devices: int) -> Floats:
    rows = np.repeat(np.arange(len(readers)), readers.shape[1])
    return _sums(rows, readers.ravel(), np.ones(readers.size), (len(readers), devices))


def _board_of_device(problem: Problem) -> Floats:
    """Return (devices, boards): 1 where a device is on a board."""
    table = np.zeros((len(problem.devices), len(problem.boards)))
    table[np.arange(len(problem.devices)), problem.device_boards] = 1
    return table


def _worst_energy(
    problem: Problem, busy: Floats, period: Floats, used: NDArray[np.bool_]
) -> Floats:
    """Return the energy of each frame on the used board that takes most, in joules."""
    on_board = _board_of_device(problem)
    unknown = ~np.isfinite(problem.active_w)
    active = (busy * np.where(unknown, 0.0, problem.active_w)) @ on_board
    idle = np.array([math.nan if b.idle_w is None else b.idle_w for b in problem.boards])
    finite = np.where(np.isfinite(period), period, 0.0)
    energy = active + finite[:, np.newaxis] * idle
    energy[(used & unknown) @ on_board > 0] = np.nan
    energy[~(used @ on_board > 0)] = 0.0
    worst = energy.max(axis=1)  # nan if one of them is
    return np.where(np.isfinite(period) | np.isnan(worst), worst, np.inf)


def _segment_numbers(
    problem: Problem, population: Indices, spans: Indices, possible: NDArray[np.bool_]
) -> Indices:
    """Return (assignments, layers): the segment of each layer, in a topological order.

    Where each device has one span, these are the spans.
    """
    used = (_counts(population, len(problem.devices)) > 0).sum(axis=1)
    found = spans.copy()
    for row in np.flatnonzero(possible & (spans[:, -1] + 1 > used)):
        for number, block in enumerate(blocks_of(problem, population[row].tolist())):
            found[row, list(block)] = number
    return found


def blocks_of(problem: Problem, assignment: Sequence[int]) -> Sequence[tuple[int, ...]]:
    """Return the layers of each segment of an assignment, in a topological order."""
    if problem.grouping is not None:
        return problem.grouping.blocks(assignment)[0]
    before: list[list[int]] = [[] for _ in problem.layers]
    for tensor in problem.tensors:
        for reader in tensor.readers:
            before[reader] += [tensor.producer] if tensor.producer != MODEL_INPUT else []
    return fewest_blocks(assignment, before).blocks


def _latencies(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return when a frame that is alone leaves, segment by segment; a device runs one at a time."""
    rows = np.arange(len(population))
    devices = np.full((len(population), 1 + int(segments.max(initial=0))), -1)
    devices[rows[:, None], segments] = population
    busy = _segments_s(problem, population, segments, devices, sent)
    arrivals = _arrivals(problem, population, segments)
    ends, free = np.zeros(devices.shape), np.zeros((len(population), len(problem.devices)))
    bounds = np.searchsorted(arrivals.segment, np.arange(devices.shape[1] + 1))
    for number, (first, end) in enumerate(itertools.pairwise(bounds)):
        here = slice(first, end)
        row = arrivals.row[here]
        begin = free[rows, devices[:, number]]
        np.maximum.at(begin, row, _there_s(ends, arrivals, here))
        exists = np.flatnonzero(devices[:, number] >= 0)
        ends[exists, number] = begin[exists] + busy[exists, number]
        free[exists, devices[exists, number]] = ends[exists, number]
    last = np.zeros(len(population))
    leaving = slice(bounds[-1], None)
    np.maximum.at(last, arrivals.row[leaving], _there_s(ends, arrivals, leaving))
    if not any(tensor.is_output for tensor in problem.tensors):
        return np.asarray(ends.max(axis=1))
    return last


def _segments_s(
    problem: Problem, population: Indices, segments: Indices, devices: Indices, sent: Messages
) -> Floats:
    """Return (assignments, segments): how long each takes for a frame, with its messages.

    Those of a device take together what its spans of layers do.
    """
    shape, of_devices = devices.shape, (len(population), len(problem.devices))

    def span_times(spans: Spans, where: Indices) -> Floats:
        times: Floats = problem.span_tables[problem.device_kinds[where], spans.first, spans.last]
        return times

    spans, pieces = spans_of(population), spans_of(segments)
    where = population[pieces.row, pieces.first]
    seconds = span_times(pieces, where)
    busy = _sums(pieces.row, pieces.device, seconds, shape)
    whole = _sums(spans.row, spans.device, span_times(spans, spans.device), of_devices)
    parts = _sums(pieces.row, where, seconds, of_devices)
    share = np.ones(of_devices)
    known = np.isfinite(whole) & np.isfinite(parts) & (parts > 0)
    np.divide(whole, parts, out=share, where=known)
    row = np.arange(len(population))[:, None]
    busy *= share[row, devices]
    first = np.full(of_devices, shape[1])
    np.minimum.at(first, (pieces.row, where), pieces.device)
    at = np.nonzero(first < shape[1])
    busy[at[0], first[at]] += problem.overheads.frame_s
    copying = sent.copy_s + problem.overheads.message_s
    makers = np.array([producer_of(problem, tensor) for tensor in problem.tensors])
    busy += _sums(sent.row, segments[sent.row, makers[sent.tensor]], copying, shape)
    busy += _sums(sent.row, first_readers(problem, population, segments, sent), copying, shape)
    return busy


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """Tensors that segments, or at the end the sink, wait for; all arrays are (arrivals,)."""

    row: Indices
    """Which assignment."""
    segment: Indices
    """That waits, ascending; behind all others the sink."""
    maker: Indices
    """Segment that makes it; -1: it comes from outside."""
    hop_s: Floats
    """How long it is under way, besides what the cores copy."""


def _there_s(ends: Floats, arrivals: _Arrivals, which: slice) -> Floats:
    """Return when some tensors have arrived."""
    maker = arrivals.maker[which]
    made: Floats = np.where(maker < 0, 0.0, ends[arrivals.row[which], maker])
    return made + arrivals.hop_s[which]


def _arrivals(problem: Problem, population: Indices, segments: Indices) -> _Arrivals:
    sink = int(segments.max(initial=0)) + 1
    pairs = [(number, layer, 0) for number, t in enumerate(problem.tensors) for layer in t.readers]
    pairs += [(n, problem.sink_layer, 1) for n, t in enumerate(problem.tensors) if t.is_output]
    tensors, readers, gives = np.array(pairs, np.int64).reshape(-1, 3).T
    made = np.array([tensor.producer for tensor in problem.tensors], np.int64)[tensors]
    enters = np.array([producer_of(problem, tensor) for tensor in problem.tensors])[tensors]
    sizes = np.array([tensor.nbytes for tensor in problem.tensors])[tensors]
    maker = np.where(made == MODEL_INPUT, -1, segments[:, made])
    waits = np.where(gives == 1, sink, segments[:, readers])
    row, edge = np.nonzero(maker != waits)
    order = np.argsort(waits[row, edge], kind="stable")
    row, edge = row[order], edge[order]
    origin, target = population[row, enters[edge]], population[row, readers[edge]]
    boards = problem.device_boards[origin], problem.device_boards[target]
    finite = np.where(np.isfinite(sizes), sizes, 0.0)[edge]
    carried = np.where(boards[0] == boards[1], 0.0, finite / problem.bandwidth_bytes_s[boards])
    hop_s = np.where(origin == target, 0.0, carried + problem.latency_s[boards])
    return _Arrivals(row, waits[row, edge], maker[row, edge], hop_s)
