"""Four figures for each of many assignments at once, as searches need them.

The same costs as :func:`rankslice.exploration.cost_model.predict` explains for one assignment.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.messages import Messages, messages_of, producer_of
from rankslice.exploration.problem import MODEL_INPUT, LayerTensor, Problem
from rankslice.exploration.slot_memory import slot_bytes

__all__ = [
    "Evaluations",
    "core_users",
    "evaluate",
    "memory_of",
    "runs_of",
]

SLOTS = 2
"""Slots at each end of a channel between neighbouring stages of a chain."""

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Evaluations:
    """What each of several assignments costs; all arrays are (assignments,)."""

    bottleneck_s: Floats
    """Time of the busiest part for each frame; its inverse is the throughput. inf: it cannot
    run."""
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

    The rate is that of :func:`predict`. Latency lets each layer's result travel as soon as it is
    there, and so can be shorter.

    Args:
        problem: layers and places.
        population: (assignments, layers) indices of places.
        latency: whether to work out latencies, which takes most of the time.
    """
    population = np.asarray(population, np.int64)
    step = max(1, _MOST_FLAGS // max(1, len(problem.tensors) * len(problem.places)))
    parts = [
        _evaluate(problem, population[begin : begin + step], latency)
        for begin in range(0, len(population), step)
    ]
    columns = zip(*parts, strict=True) if parts else [()] * 5
    return Evaluations(*(np.concatenate(column or (np.zeros(0),)) for column in columns))


_MOST_FLAGS = 1 << 24
"""Bytes of the table that finds who needs which tensor; larger populations are split."""


def _evaluate(problem: Problem, population: Indices, latency: bool) -> tuple[Floats, ...]:
    places, boards = len(problem.places), len(problem.boards)
    shape = (len(population), places)
    runs = runs_of(population)
    kinds = problem.place_kinds[runs.place]
    compute = _sums(runs.row, runs.place, problem.span_tables[kinds, runs.first, runs.last], shape)
    used = np.zeros(shape, bool)
    used[runs.row, runs.place] = True
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
                _sums(sent.row, problem.place_boards[sent.origin], sent.link_s, links),
                _sums(sent.row, problem.place_boards[sent.target], sent.link_s, links),
            ]
        ),
        axis=1,
    )
    bottleneck[~possible] = np.inf
    memory = memory_of(problem, population, run_numbers(population), sent)
    capacity = np.array([_or_inf(board.memory_bytes) for board in problem.boards])
    latencies = np.full(len(population), np.nan)
    if latency:
        latencies = np.where(possible, _latencies(problem, population), np.inf)
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
class Runs:
    """Neighbouring layers on one place, of all assignments; all arrays are (runs,)."""

    row: Indices
    """Which assignment."""
    place: Indices
    first: Indices
    last: Indices


def run_numbers(population: Indices) -> Indices:
    """Return (assignments, layers): the run of each layer, numbered from 0."""
    changes = population[:, 1:] != population[:, :-1]
    return np.pad(np.cumsum(changes, axis=1), ((0, 0), (1, 0)))


def runs_of(population: Indices) -> Runs:
    """Return the runs of assignments, row by row and in the layers' order."""
    starts = np.ones(population.shape, bool)
    starts[:, 1:] = population[:, 1:] != population[:, :-1]
    row, first = np.nonzero(starts)
    layers = population.shape[1]
    ends = np.append(first[1:], layers) - 1
    ends[ends < 0] = layers - 1  # the next run is the first of another row
    return Runs(row, population[row, first], first, ends)


def _is_together(problem: Problem, population: Indices) -> NDArray[np.bool_]:
    """Tell which assignments keep on one place what cannot be apart."""
    fine = np.ones(len(population), bool)
    for group in problem.together:
        chosen = population[:, list(group)]
        fine &= (chosen == chosen[:, :1]).all(axis=1)
    return fine


def core_users(problem: Problem) -> dict[tuple[int, int], list[int]]:
    """Return the places that use each core, by board and core, if there are several."""
    users: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, place in enumerate(problem.places):
        for core in place.cores:
            users[place.board, core].append(number)
    return {core: places for core, places in users.items() if len(places) > 1}


def _core_shares(problem: Problem) -> Floats:
    """Return (shared cores, places): how much of a place's time it keeps a core busy."""
    groups = sorted({tuple(places) for places in core_users(problem).values()})
    shares = np.zeros((len(groups), len(problem.places)))
    for row, places in enumerate(groups):
        shares[row, list(places)] = [problem.places[p].host_share or 0.0 for p in places]
    return shares


def memory_of(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return what each assignment needs on each board, (assignments, boards), in bytes.

    Args:
        problem: layers and places.
        population: (assignments, layers) indices of places.
        segments: (assignments, layers): the segment of each layer, numbered from 0 in a
            topological order.
        sent: what the assignments send.
    """
    shape = len(population), len(problem.places)
    runs = runs_of(population)
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes, dtype=np.float64)])
    place_bytes = _sums(runs.row, runs.place, held[runs.last + 1] - held[runs.first], shape)
    for weight in problem.shared_weights:
        readers = population[:, list(weight.readers)]
        count = _counts(readers, shape[1])
        place_bytes -= weight.nbytes * np.maximum(count - 1, 0)
    if len(problem.working_bytes):
        most = np.zeros(shape)
        starts = runs.row * population.shape[1] + runs.first
        work = np.maximum.reduceat(np.tile(problem.working_bytes, shape[0]), starts)
        np.maximum.at(most, (runs.row, runs.place), work)
        place_bytes += most
    if len(problem.rank_bytes):
        used = _counts(population, shape[1]) > 0
        place_bytes += used * problem.rank_bytes[problem.place_kinds]
    place_bytes += slot_bytes(problem, population, segments, sent)
    return place_bytes @ _board_of_place(problem)


def _counts(readers: Indices, places: int) -> Floats:
    rows = np.repeat(np.arange(len(readers)), readers.shape[1])
    return _sums(rows, readers.ravel(), np.ones(readers.size), (len(readers), places))


def _board_of_place(problem: Problem) -> Floats:
    """Return (places, boards): 1 where a place is on a board."""
    table = np.zeros((len(problem.places), len(problem.boards)))
    table[np.arange(len(problem.places)), problem.place_boards] = 1
    return table


def _worst_energy(
    problem: Problem, busy: Floats, period: Floats, used: NDArray[np.bool_]
) -> Floats:
    """Return the energy of each frame on the used board that takes most, in joules."""
    on_board = _board_of_place(problem)
    unknown = ~np.isfinite(problem.active_w)
    active = (busy * np.where(unknown, 0.0, problem.active_w)) @ on_board
    idle = np.array([math.nan if b.idle_w is None else b.idle_w for b in problem.boards])
    finite = np.where(np.isfinite(period), period, 0.0)
    energy = active + finite[:, np.newaxis] * idle
    energy[(used & unknown) @ on_board > 0] = np.nan
    energy[~(used @ on_board > 0)] = 0.0
    worst = energy.max(axis=1)  # nan if one of them is
    return np.where(np.isfinite(period) | np.isnan(worst), worst, np.inf)


def _latencies(problem: Problem, population: Indices) -> Floats:
    """Return when a frame that is alone leaves, layer by layer; a place runs one at a time."""
    columns = np.ascontiguousarray(population.T)
    times = np.ascontiguousarray(_layer_times(problem, population).T)
    hops = _hops(problem)
    ends = np.zeros(columns.shape)
    free = np.zeros(len(population) * len(problem.places))
    offsets = np.arange(len(population)) * len(problem.places)

    def arrival(tensor: LayerTensor, target: Indices) -> Floats:
        made = ends[tensor.producer] if tensor.producer != MODEL_INPUT else 0.0
        under_way = hops.seconds(columns[producer_of(problem, tensor)], target, tensor.nbytes)
        there: Floats = made + under_way
        return there

    reads = _reads_of_layers(problem)
    for layer, places in enumerate(columns):
        at = offsets + places
        begin = free[at]
        for tensor in reads[layer]:
            np.maximum(begin, arrival(tensor, places), out=begin)
        begin += times[layer]
        ends[layer] = begin
        free[at] = begin
    outputs = [tensor for tensor in problem.tensors if tensor.is_output]
    leaving = [arrival(tensor, columns[problem.sink_layer]) for tensor in outputs]
    last: Floats = np.max([*leaving, np.zeros(len(population))], axis=0)
    return last


def _layer_times(problem: Problem, population: Indices) -> Floats:
    """Return (assignments, layers): each layer's share of the time of its run, in seconds.

    The first layer of each place also takes what the runtime takes of every frame.
    """
    kinds = problem.place_kinds[population]
    times = problem.times_s[kinds, np.arange(population.shape[1])]
    runs = runs_of(population)
    starts = runs.row * population.shape[1] + runs.first
    run_kinds = problem.place_kinds[runs.place]
    spans = problem.span_tables[run_kinds, runs.first, runs.last]
    sums = np.add.reduceat(times.ravel(), starts)
    ratio = np.ones(len(spans))
    np.divide(spans, sums, out=ratio, where=np.isfinite(spans) & np.isfinite(sums) & (sums > 0))
    times = times * np.repeat(ratio, runs.last - runs.first + 1).reshape(times.shape)
    if problem.overheads.frame_s:
        _, first = np.unique(runs.row * len(problem.places) + runs.place, return_index=True)
        times[runs.row[first], runs.first[first]] += problem.overheads.frame_s
    return times


@dataclass(frozen=True, slots=True)
class _Hops:
    """How long tensors are under way, by origin and target: (places, places)."""

    per_byte_s: Floats
    fixed_s: Floats

    def seconds(self, origin: Indices, target: Indices, nbytes: float) -> Floats:
        size = nbytes if math.isfinite(nbytes) else 0.0
        found: Floats = self.per_byte_s[origin, target] * size + self.fixed_s[origin, target]
        return found


def _hops(problem: Problem) -> _Hops:
    boards = problem.place_boards
    carry = 1 / problem.bandwidth_bytes_s[np.ix_(boards, boards)]
    same = boards[:, np.newaxis] == boards
    copy = np.where(same, carry, problem.overheads.network_s_per_byte)
    per_byte = 2 * copy + np.where(same, 0.0, carry)  # copied at each end
    fixed = problem.latency_s[np.ix_(boards, boards)] + 2 * problem.overheads.message_s
    np.fill_diagonal(per_byte, 0.0)
    np.fill_diagonal(fixed, 0.0)
    return _Hops(per_byte, fixed)


def _reads_of_layers(problem: Problem) -> list[list[LayerTensor]]:
    reads: list[list[LayerTensor]] = [[] for _ in problem.layers]
    for tensor in problem.tensors:
        for reader in tensor.readers:
            reads[reader].append(tensor)
    return reads
