"""What assignments need of the memory of boards: weights, work, engines and slots.

How many slots a tensor gets on a rank follows from levels, as in the runtime's ``wiring.py``. Of a
board's ranks one has slots of a tensor: the rank that makes it, or receives it from another board.
Where ranks take turns, each has slots for as many frames as it handles of those that are needed. If
those of one board read a tensor in different frames, the runtime may let another of them have the
slots than is counted here.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Turns
from rankslice.backend.runtime.pipeline.wiring import slots
from rankslice.exploration.cost.populations import (
    Floats,
    Indices,
    Phases,
    counts,
    occurring,
    spans_of,
    sums,
)
from rankslice.exploration.cost.timing import Messages, message_numbers
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem


def slot_bytes(problem: Problem, phases: Phases, segments: Indices, sent: Messages) -> Floats:
    """Return the size of all slots of each device, (assignments, devices), in bytes.

    Args:
        segments: (phases, layers): the segment of each layer, numbered from 0 in a topological
            order.
    """
    kept_at_home, kept_away, window = _kept_frames(problem, phases, segments, sent)
    sizes = problem.slot_bytes
    rows, tensors = np.indices(sent.homes.shape).reshape(2, -1)
    at_home = _Frames(rows, tensors, sent.homes[rows, tensors], kept_at_home.ravel())
    away = _Frames(sent.row, sent.tensor, sent.target, kept_away)
    nbytes = np.zeros((len(phases.begins), len(problem.devices)))
    for frames in (at_home, away):
        kept = _slots(problem, phases, sent, frames, window)
        np.add.at(nbytes, (kept.row, kept.device), kept.number * sizes[kept.tensor])
    return nbytes


@dataclass(frozen=True, slots=True)
class _Frames:
    """For how many frames devices keep tensors; all arrays are (places,)."""

    row: Indices
    """Which phase; or which assignment."""
    tensor: Indices
    device: Indices
    number: Indices


def _slots(
    problem: Problem, phases: Phases, sent: Messages, frames: _Frames, window: Indices
) -> _Frames:
    """Return the slots of assignments for the frames that are kept in their phases."""
    if not phases.in_turn:
        return replace(frames, number=np.minimum(frames.number, window[frames.row]))
    row = phases.assignments[frames.row]
    homes = sent.homes[frames.row, frames.tensor]
    is_given = problem.is_output[frames.tensor] & (frames.device == sent.sinks[frames.row])
    made = np.where(problem.is_input[frames.tensor], 0, phases.turns_of[row, homes])
    needed = np.where(is_given, 0, phases.turns_of[row, frames.device])
    needed = np.where(frames.device == homes, made, needed)
    places, at = np.unique(
        np.stack([row, frames.tensor, frames.device, made, needed, homes]), axis=1,
        return_inverse=True,
    )  # fmt: skip
    most = np.zeros(places.shape[1], np.int64)
    np.maximum.at(most, at.ravel(), frames.number)
    most = np.minimum(most, window[places[0]])
    kinds, kind = np.unique(np.stack([places[3], places[4], most]), axis=1, return_inverse=True)
    depths = [_depth(phases.turns[one], phases.turns[other], n) for one, other, n in kinds.T]
    return _Frames(places[0], places[1], places[2], np.array(depths, np.int64)[kind.ravel()])


def _depth(made: Turns, needed: Turns, frames: int) -> int:
    """Return how many slots there are for frames that two ranks handle, of so many."""
    common = made.common(needed)
    # There are none only if a device would be in two teams, which cannot be.
    return max(1, common.most_in(frames)) if frames and common.positions else 0


@dataclass(frozen=True, slots=True)
class _Readings:
    row: Indices
    tensor: Indices
    device: Indices
    segment: Indices
    """1 + the segment that reads."""
    maker: Indices
    """1 + the segment that makes the tensor; 0 is the source."""
    is_local: NDArray[np.bool_]


def _readings(
    problem: Problem, population: Indices, segments: Indices, homes: Indices, makers: Indices
) -> _Readings:
    pairs = [(number, r) for number, t in enumerate(problem.tensors) for r in t.readers]
    tensors, readers = np.array(pairs, np.int64).reshape(-1, 2).T
    row, edge = np.nonzero(makers[:, tensors] != segments[:, readers] + 1)
    tensor, reader = tensors[edge], readers[edge]
    segment = segments[row, reader] + 1
    order = np.argsort(segment, kind="stable")
    row, tensor, reader = row[order], tensor[order], reader[order]
    device = population[row, reader]
    is_local = device == homes[row, tensor]
    return _Readings(row, tensor, device, segment[order], makers[row, tensor], is_local)


def _levels(
    problem: Problem, phases: Phases, segments: Indices, readings: _Readings
) -> tuple[Indices, Indices]:
    """Return the levels of the source, 0, and of the segments, (phases, 1 + segments).

    These are the first and the last of each: one that takes turns has several.
    """
    rows, count = len(segments), 2 + int(segments.max(initial=-1))
    last = np.ones((rows, count), np.int64)
    last[:, 0] = 0
    more = np.zeros_like(last)
    devices = np.zeros_like(last)
    if phases.in_turn:
        devices[np.arange(rows)[:, None], segments + 1] = phases.population
        own = np.array([turns.levels - 1 for turns in phases.turns])
        more[:, 1:] = own[phases.turns_of[phases.assignments[:, None], devices[:, 1:]]]
        last += more
    bounds = np.searchsorted(readings.segment, np.arange(1, count + 1))
    for segment, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        row = readings.row[begin:end]
        made = last[row, readings.maker[begin:end]] + more[row, segment]
        np.maximum.at(last[:, segment], row, made + 2 - readings.is_local[begin:end])
        if phases.in_turn:
            # A rank has one level, whoever makes what it reads.
            most = np.zeros((len(phases.begins), len(problem.devices)), np.int64)
            at = phases.assignments, devices[:, segment]
            np.maximum.at(most, at, last[:, segment])
            last[:, segment] = most[at]
    return last - more, last


def _kept_frames(
    problem: Problem, phases: Phases, segments: Indices, sent: Messages
) -> tuple[Indices, Indices, Indices]:
    """Return for how many frames tensors are kept, and the plan's window, (assignments,).

    They are kept where they are made, (phases, tensors), and where messages bring them,
    (messages,); 0 if these stay inside a board.
    """
    producers = np.array([tensor.producer for tensor in problem.tensors], np.int64)
    makers = np.where(producers == MODEL_INPUT, 0, segments[:, producers] + 1)
    readings = _readings(problem, phases.population, segments, sent.homes, makers)
    first, last_levels = _levels(problem, phases, segments, readings)
    boards, homes, sinks = problem.device_boards, sent.homes, sent.sinks
    begun = np.take_along_axis(first, makers, axis=1)
    written = np.take_along_axis(last_levels, makers, axis=1)
    is_near = boards[readings.device] == boards[homes][readings.row, readings.tensor]
    read = last_levels[readings.row, readings.segment]
    arriving = np.where(problem.is_output, written + (homes != sinks[:, None]), 0)
    window = phases.most(1 + arriving.max(axis=1, initial=0))
    sink_level = window[phases.assignments]

    given_here = problem.is_output & (boards[homes] == boards[sinks][:, None])
    last = np.where(given_here, sink_level[:, None], 0)
    np.maximum.at(last, (readings.row[is_near], readings.tensor[is_near]), read[is_near])
    leaves = ~sent.is_local
    at = sent.row[leaves], sent.tensor[leaves]
    np.maximum.at(last, at, written[at] + 1)
    at_home = np.where(problem.is_input | (last > 0), slots(begun, last), 0)

    given_there = problem.is_output[sent.tensor] & (boards[sent.target] == boards[sinks][sent.row])
    last = np.where(given_there, sink_level[sent.row], 0)
    away = tuple(part[~is_near] for part in (readings.row, readings.tensor, readings.device))
    brings = message_numbers(problem, sent, *away)
    received = np.where(sent.before < 0, np.arange(len(sent.row)), sent.before)[brings]
    np.maximum.at(last, received, read[~is_near])
    needed = slots(written[sent.row, sent.tensor] + 1, last)
    return at_home, np.where(sent.is_local, 0, needed), window


def memory_of(problem: Problem, phases: Phases, segments: Indices, sent: Messages) -> Floats:
    """Return what each assignment needs on each board, (assignments, boards), in bytes.

    Devices that take turns need what they need for each frame that they handle.
    """
    population = phases.population
    shape = len(population), len(problem.devices)
    device_bytes = weights_of(problem, population)
    if len(problem.working_bytes):
        spans = spans_of(population)
        most = np.zeros(shape)
        starts = spans.row * population.shape[1] + spans.first
        work = np.maximum.reduceat(np.tile(problem.working_bytes, shape[0]), starts)
        np.maximum.at(most, (spans.row, spans.owner), work)
        device_bytes += most
    if len(problem.rank_bytes):
        device_bytes += occurring(population, shape[1]) * problem.rank_bytes[problem.device_kinds]
    device_bytes = phases.most(device_bytes)
    device_bytes += slot_bytes(problem, phases, segments, sent)
    return device_bytes @ problem.is_on_board


def weights_of(problem: Problem, population: Indices) -> Floats:
    """Return (assignments, devices): the size of the weights of each device, each once."""
    shape = len(population), len(problem.devices)
    spans = spans_of(population)
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes, dtype=np.float64)])
    nbytes = sums(spans.row, spans.owner, held[spans.last + 1] - held[spans.first], shape)
    for weight in problem.shared_weights:
        readers = counts(population[:, list(weight.readers)], shape[1])
        nbytes -= weight.nbytes * np.maximum(readers - 1, 0)
    return nbytes
