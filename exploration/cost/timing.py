"""What assignments send, when their segments compute, and when a frame that is alone leaves.

Each tensor goes once to each device that needs it. From board to board it goes as a message, and
only once: other devices of that board read the slots of the device that receives it, as devices of
the maker's own board read the maker's.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.populations import (
    Floats,
    Indices,
    Phases,
    Spans,
    occurring,
    spans_of,
    sums,
)
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem
from rankslice.exploration.problem.runtime_costs import Overheads
from rankslice.frontend.partition.segments import fewest_blocks


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """What messages take, in seconds; all arrays are (messages,)."""

    copy_s: Floats
    """Of the cores at each end, to convert it, and to copy it into and out of the network; 0 inside
    one board."""
    runtime_s: Floats
    """Of the cores at each end, besides."""
    link_s: Floats
    """Of the links of both boards; 0 inside one board."""
    latency_s: Floats

    @property
    def core_s(self) -> Floats:
        return self.copy_s + self.runtime_s


def message_costs(
    nbytes: Floats,
    share: Floats,
    bandwidth_bytes_s: Floats | float,
    latency_s: Floats,
    is_local: NDArray[np.bool_],
    overheads: Overheads,
) -> MessageCosts:
    """Return what messages take of cores and links.

    Args:
        nbytes: size of each; infinite for one that cannot be sent.
        share: how much of it crosses to another board; less than 1: each end converts it.
        bandwidth_bytes_s: between its boards.
        latency_s: between its boards, or until a rank of the same board has woken up.
        is_local: whether it stays inside one board, where nothing is copied.
        overheads: what runtime and network take of the cores.
    """
    raw = np.where(np.isfinite(nbytes), nbytes, 0.0)
    sent, converted = share * raw, (share < 1) * raw
    copied_s = sent * overheads.network_s_per_byte + converted * overheads.convert_s_per_byte
    copy_s = np.where(is_local, 0.0, copied_s)
    return MessageCosts(
        np.where(np.isfinite(nbytes), copy_s, np.inf),
        np.where(is_local, overheads.token_s, overheads.message_s),
        np.where(is_local, 0.0, sent / bandwidth_bytes_s),
        latency_s,
    )


@dataclass(frozen=True, slots=True)
class Messages:
    """Tensors that go from device to device, of all assignments; all arrays are (messages,)."""

    row: Indices
    tensor: Indices
    origin: Indices
    """The device that sends it or, inside a board, whose slots are read."""
    target: Indices
    before: Indices
    """The message by which the origin has got it; -1: it is made there."""
    is_local: NDArray[np.bool_]
    """Whether it stays inside one board."""
    nbytes: Floats
    """What of it crosses; infinite for one that cannot be sent."""
    costs: MessageCosts
    keys: Indices
    """Of assignment, tensor and target; ascending."""
    places: Indices
    """(assignments, devices): in which order the messages of a tensor go to devices."""
    homes: Indices
    """(assignments, tensors): the device that makes each, or where it enters."""
    sinks: Indices
    """(assignments,): the device where results leave."""

    @property
    def hop_s(self) -> Floats:
        """How long each is under way, besides what the cores take."""
        return self.costs.link_s + self.costs.latency_s

    def since_made_s(self) -> Floats:
        """Return how long tensors are under way since they were made, besides the cores' part."""
        hop_s = self.hop_s
        return hop_s + np.where(self.before < 0, 0.0, hop_s[self.before])


def messages_of(problem: Problem, phases: Phases, spans: Spans) -> Messages:
    """Return the messages of assignments: each tensor once to each other device that needs it."""
    population = phases.population
    made = population[:, problem.home_layers]
    homes = np.where(problem.is_input, phases.sources[:, np.newaxis], made)
    tensors, target, *_ = readings_of(problem, population, phases.sinks)
    row, edge = np.nonzero(homes[:, tensors] != target)
    devices, places = _order(problem, len(population), spans)
    needed = np.zeros((len(population), len(problem.tensors), len(problem.devices)), bool)
    needed[row, tensors[edge], places[row, target[row, edge]]] = True
    row, tensor, place = np.nonzero(needed)
    device = devices[row, place]
    home, board = homes[row, tensor], problem.device_boards[device]
    keys = row * len(problem.tensors) + tensor
    before = _before(keys * len(problem.boards) + board, problem.device_boards[home] != board)
    start = np.where(before < 0, home, device[before])
    boards = problem.device_boards[start], board
    is_local = boards[0] == boards[1]
    nbytes = problem.tensor_bytes[tensor]
    share = np.where(problem.is_convertible[tensor], problem.wire_shares[boards], 1.0)
    costs = message_costs(
        nbytes,
        share,
        problem.bandwidth_bytes_s[boards],
        problem.latency_s[boards],
        is_local,
        problem.overheads,
    )
    keys = keys * len(problem.devices) + place
    ends = row, tensor, start, device, before, is_local
    return Messages(*ends, nbytes * share, costs, keys, places, homes, phases.sinks)


def _before(arrivals: Indices, leaves: NDArray[np.bool_]) -> Indices:
    """Return (messages,): the one that brings a tensor to the target's board; -1: it begins there.

    Args:
        arrivals: ascending, the same for a tensor's messages to devices of one board.
        leaves: whether the tensor comes from another board.
    """
    goes_on = np.zeros(len(arrivals), bool)
    np.equal(arrivals[1:], arrivals[:-1], out=goes_on[1:])
    goes_on &= leaves
    begins = np.maximum.accumulate(np.where(goes_on, 0, np.arange(len(arrivals))))
    return np.where(goes_on, begins, -1)


def _order(problem: Problem, rows: int, spans: Spans) -> tuple[Indices, Indices]:
    """Return the devices, board by board and those of a board as their ranks follow; their places.

    Both are (assignments, devices). Ranks follow each other as their first layers do.
    """
    layers = len(problem.layers)
    firsts = np.full((rows, len(problem.devices)), layers)
    np.minimum.at(firsts, (spans.row, spans.owner), spans.first)
    devices = np.argsort(problem.device_boards * (layers + 1) + firsts, axis=1)
    places = np.empty_like(devices)
    places[np.arange(rows)[:, None], devices] = np.arange(devices.shape[1])
    return devices, places


_NO_SEGMENT = -1


def _payers(
    problem: Problem, population: Indices, segments: Indices, sent: Messages
) -> tuple[Indices, Indices]:
    """Return (messages,): the segments that send each, and the first that read it on arrival.

    Those of a device that has no segment with the frame are :data:`_NO_SEGMENT`.
    """
    none = np.iinfo(np.int64).max
    tensors, target, readers, _ = readings_of(problem, population, sent.sinks)
    row, edge = np.nonzero(sent.homes[:, tensors] != target)
    at = message_numbers(problem, sent, row, tensors[edge], target[row, edge])
    reader = readers[edge]
    is_there = population[row, reader] == target[row, edge]
    first = np.full(len(sent.row), none)
    np.minimum.at(first, at, np.where(is_there, segments[row, reader], none))
    first[first == none] = _NO_SEGMENT
    layers = problem.home_layers[sent.tensor]
    is_there = population[sent.row, layers] == sent.homes[sent.row, sent.tensor]
    makers = np.where(is_there, segments[sent.row, layers], _NO_SEGMENT)
    return np.where(sent.before < 0, makers, first[sent.before]), first


def message_numbers(
    problem: Problem, sent: Messages, row: Indices, tensor: Indices, target: Indices
) -> Indices:
    """Return which messages bring tensors to devices; any, where none does."""
    count, devices = len(problem.tensors), len(problem.devices)
    keys = (row * count + tensor) * devices + sent.places[row, target]
    return np.searchsorted(sent.keys, keys)


def readings_of(
    problem: Problem, population: Indices, sinks: Indices
) -> tuple[Indices, Indices, Indices, NDArray[np.bool_]]:
    """Return each reading: its tensor, (assignments, readings) devices that read, and its layer.

    The last layer reads model outputs if the sink does, as the last array says.
    """
    pairs = [
        (number, reader, is_sink)
        for number, tensor in enumerate(problem.tensors)
        for reader, is_sink in (
            *((reader, False) for reader in tensor.readers),
            *(((problem.sink_layer, True),) if tensor.is_output else ()),
        )
    ]
    tensors, readers, is_sink = np.array(pairs, np.int64).reshape(-1, 3).T
    devices = np.where(is_sink == 1, sinks[:, np.newaxis], population[:, readers])
    return tensors, devices, readers, is_sink == 1


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
    for ends in _payers(problem, population, segments, sent):
        pays = ends != _NO_SEGMENT
        busy_s += sums(sent.row[pays], ends[pays], sent.costs.core_s[pays], shape)
    return SegmentTimes(devices, compute_s, busy_s)


def _unpaid_s(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return (messages,): what they take of cores besides, where no segment has the frame."""
    unpaid_s = np.zeros(len(sent.row))
    is_usual = sent.homes == population[:, problem.home_layers]
    if is_usual.all() and (sent.sinks == population[:, problem.sink_layer]).all():
        return unpaid_s
    for ends in _payers(problem, population, segments, sent):
        unpaid = ends == _NO_SEGMENT
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
