"""When the segments of assignments compute, and when a frame that is alone leaves."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.message_costs import (
    NO_SEGMENT,
    Messages,
    first_readers,
    message_numbers,
    readings_of,
    senders,
)
from rankslice.exploration.cost.populations import Floats, Indices, Spans, occurring, spans_of, sums
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem
from rankslice.frontend.partition.segments import fewest_blocks


def segment_numbers(
    problem: Problem, population: Indices, spans: Indices, possible: NDArray[np.bool_]
) -> Indices:
    """Return (assignments, layers): the segment of each layer, in a topological order.

    Assignments may have numbers of teams. Where each device has one span, these are the spans.
    """
    numbers = len(problem.devices) + len(problem.teams)
    used = occurring(population, numbers).sum(axis=1)
    numbered = spans.copy()
    for row in np.flatnonzero(possible & (spans[:, -1] + 1 > used)):
        for number, block in enumerate(blocks_of(problem, population[row].tolist())):
            numbered[row, list(block)] = number
    return numbered


def blocks_of(problem: Problem, assignment: Sequence[int]) -> Sequence[tuple[int, ...]]:
    """Return the layers of each segment of an assignment, in a topological order."""
    if problem.grouping is not None:
        return problem.grouping.blocks(assignment)[0]
    before: list[list[int]] = [[] for _ in problem.layers]
    for tensor in problem.tensors:
        for reader in tensor.readers:
            before[reader] += [tensor.producer] if tensor.producer != MODEL_INPUT else []
    return fewest_blocks(assignment, before).blocks


@dataclass(frozen=True, slots=True)
class SegmentTimes:
    """How long segments take for a frame, in seconds; all arrays are (assignments, segments)."""

    devices: Indices
    """-1: the assignment has no such segment."""
    compute_s: Floats
    """Those of a device take together what its spans of layers do."""
    busy_s: Floats
    """With their messages, and what the runtime takes of each frame."""


def segment_times(
    problem: Problem, population: Indices, segments: Indices, sent: Messages
) -> SegmentTimes:
    """Return how long the segments of assignments take.

    The maker of a tensor pays for sending it, its first reader on a device for receiving it, and
    for letting others of its board read it there.

    Args:
        segments: (assignments, layers): the segment of each layer, in a topological order.
    """
    shape = len(population), 1 + int(segments.max(initial=0))
    devices = np.full(shape, -1)
    devices[np.arange(shape[0])[:, None], segments] = population
    spans, pieces = spans_of(population), spans_of(segments)
    where = population[pieces.row, pieces.first]
    compute_s = _compute_s(problem, spans, pieces, where, devices)
    busy_s = compute_s.copy()
    first = np.full((shape[0], len(problem.devices)), shape[1])
    np.minimum.at(first, (pieces.row, where), pieces.owner)
    at = np.nonzero(first < shape[1])
    busy_s[at[0], first[at]] += problem.overheads.frame_s
    readers = first_readers(problem, population, segments, sent)
    for ends in (senders(problem, population, segments, sent, readers), readers):
        pays = ends != NO_SEGMENT
        busy_s += sums(sent.row[pays], ends[pays], sent.costs.core_s[pays], shape)
    return SegmentTimes(devices, compute_s, busy_s)


def _unpaid_s(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return (messages,): what they take of cores besides, where no segment has the frame."""
    unpaid_s = np.zeros(len(sent.row))
    is_usual = sent.homes == population[:, problem.home_layers]
    if is_usual.all() and (sent.sinks == population[:, problem.sink_layer]).all():
        return unpaid_s
    readers = first_readers(problem, population, segments, sent)
    for ends in (senders(problem, population, segments, sent, readers), readers):
        unpaid = ends == NO_SEGMENT
        unpaid_s[unpaid] += sent.costs.core_s[unpaid]
    return unpaid_s


def _compute_s(
    problem: Problem, spans: Spans, pieces: Spans, where: Indices, devices: Indices
) -> Floats:
    """Return the times of segments, in proportion to those of their pieces without a gap."""

    def span_s(of: Spans, on: Indices) -> Floats:
        return problem.span_tables[problem.device_kinds[on], of.first, of.last]

    of_devices = len(devices), len(problem.devices)
    piece_s = span_s(pieces, where)
    whole = sums(spans.row, spans.owner, span_s(spans, spans.owner), of_devices)
    parts = sums(pieces.row, where, piece_s, of_devices)
    share = np.ones(of_devices)
    known = np.isfinite(whole) & np.isfinite(parts) & (parts > 0)
    np.divide(whole, parts, out=share, where=known)
    row = np.arange(len(devices))[:, None]
    return sums(pieces.row, pieces.owner, piece_s, devices.shape) * share[row, devices]


def latencies(
    problem: Problem, population: Indices, segments: Indices, sent: Messages, times: SegmentTimes
) -> Floats:
    """Return when a frame that is alone leaves, segment by segment; a device runs one at a time."""
    rows = np.arange(len(population))
    devices = times.devices
    row, waiting, maker, hop_s = _arrivals(problem, population, segments, sent)
    ends, free = np.zeros(devices.shape), np.zeros((len(population), len(problem.devices)))

    def arrived_s(which: slice) -> Floats:
        made: Floats = np.where(maker[which] < 0, 0.0, ends[row[which], maker[which]])
        return made + hop_s[which]

    bounds = np.searchsorted(waiting, np.arange(devices.shape[1] + 1))
    for number, (first, end) in enumerate(itertools.pairwise(bounds)):
        here = slice(first, end)
        begin = free[rows, devices[:, number]]
        np.maximum.at(begin, row[here], arrived_s(here))
        exists = np.flatnonzero(devices[:, number] >= 0)
        ends[exists, number] = begin[exists] + times.busy_s[exists, number]
        free[exists, devices[exists, number]] = ends[exists, number]
    last = np.zeros(len(population))
    leaving = slice(bounds[-1], None)
    np.maximum.at(last, row[leaving], arrived_s(leaving))
    if not any(tensor.is_output for tensor in problem.tensors):
        return np.asarray(ends.max(axis=1))
    return last


def _arrivals(
    problem: Problem, population: Indices, segments: Indices, sent: Messages
) -> tuple[Indices, Indices, Indices, Floats]:
    """Return what segments, and at the end the sink, wait for; all arrays are (arrivals,).

    By arrival: the assignment; the segment that waits, ascending, behind all others the sink; the
    one that makes the tensor, -1 if it comes from outside; for how long it is under way, besides
    what the cores take.
    """
    sink = int(segments.max(initial=0)) + 1
    tensors, devices, readers, by_sink = readings_of(problem, population, sent.sinks)
    made = np.array([tensor.producer for tensor in problem.tensors], np.int64)[tensors]
    maker = np.where(made == MODEL_INPUT, -1, segments[:, made])
    waits = np.where(by_sink, sink, segments[:, readers])
    row, edge = np.nonzero(maker != waits)
    order = np.argsort(waits[row, edge], kind="stable")
    row, edge = row[order], edge[order]
    target = devices[row, edge]
    hop_s = np.zeros(len(row))
    is_sent = sent.homes[row, tensors[edge]] != target
    brings = message_numbers(problem, sent, row, tensors[edge], target)[is_sent]
    hop_s[is_sent] = (sent.since_made_s() + _unpaid_s(problem, population, segments, sent))[brings]
    return row, waits[row, edge], maker[row, edge], hop_s
