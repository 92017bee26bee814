"""Memory of the slots in which assignments keep tensors: as many as the runtime allocates.

How many slots a tensor gets on a rank follows from levels, as in the runtime's ``wiring.py``. Of a
board's ranks one has slots of a tensor: the rank that makes it, or receives it from another board.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.pipeline.wiring import slots
from rankslice.exploration.cost.messages import Messages, message_numbers
from rankslice.exploration.cost.spans import Floats, Indices
from rankslice.exploration.problem.problem import MODEL_INPUT, Problem


def slot_bytes(problem: Problem, population: Indices, segments: Indices, sent: Messages) -> Floats:
    """Return the size of all slots of each device, (assignments, devices), in bytes.

    Args:
        problem: layers and devices.
        population: (assignments, layers) indices of devices.
        segments: (assignments, layers): the segment of each layer, numbered from 0 in a
            topological order.
        sent: what the assignments send.
    """
    homes = population[:, problem.home_layers]
    makers = _makers(problem, segments)
    readings = _readings(problem, population, segments, homes, makers)
    levels = _levels(readings, len(population), 2 + int(segments.max(initial=-1)))
    flow = _Flow(problem, population, homes, makers, levels, readings, sent)
    sizes = problem.slot_bytes
    shape = len(population), len(problem.devices)
    found = np.zeros(shape)
    np.add.at(found, (np.arange(shape[0])[:, None], homes), flow.slots_at_home() * sizes)
    np.add.at(found, (sent.row, sent.target), flow.slots_away() * sizes[sent.tensor])
    return found


def _makers(problem: Problem, segments: Indices) -> Indices:
    """Return (assignments, tensors): 1 + the segment that makes a tensor; 0 is the source."""
    producers = np.array([tensor.producer for tensor in problem.tensors], np.int64)
    return np.where(producers == MODEL_INPUT, 0, segments[:, producers] + 1)


@dataclass(frozen=True, slots=True)
class _Readings:
    """Tensors that segments read of others; all arrays are (readings,)."""

    row: Indices
    """Which assignment."""
    tensor: Indices
    device: Indices
    """Of the reader."""
    segment: Indices
    """1 + the segment that reads."""
    maker: Indices
    """1 + the segment that makes the tensor; 0 is the source."""
    is_local: NDArray[np.bool_]
    """Whether it is made on the same device."""


def _readings(
    problem: Problem, population: Indices, segments: Indices, homes: Indices, makers: Indices
) -> _Readings:
    """Return the readings, ordered by the segment that reads."""
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


def _levels(readings: _Readings, rows: int, count: int) -> Indices:
    """Return (assignments, 1 + segments): the levels of the source, 0, and of the segments."""
    levels = np.ones((rows, count), np.int64)
    levels[:, 0] = 0
    bounds = np.searchsorted(readings.segment, np.arange(1, count + 1))
    for segment, (begin, end) in enumerate(itertools.pairwise(bounds), 1):
        row = readings.row[begin:end]
        made = levels[row, readings.maker[begin:end]]
        np.maximum.at(levels[:, segment], row, made + 2 - readings.is_local[begin:end])
    return levels


class _Flow:
    """At which levels tensors are written and last read, where they are made and elsewhere."""

    def __init__(
        self,
        problem: Problem,
        population: Indices,
        homes: Indices,
        makers: Indices,
        levels: Indices,
        readings: _Readings,
        sent: Messages,
    ) -> None:
        self.problem, self.homes = problem, homes
        """(assignments, tensors): the device where a tensor is made, or enters."""
        self.written = np.take_along_axis(levels, makers, axis=1)
        """(assignments, tensors)"""
        self.readings, self.sent = readings, sent
        self.boards = problem.device_boards
        home_boards = self.boards[homes]
        self.is_near = self.boards[readings.device] == home_boards[readings.row, readings.tensor]
        """(readings,): whether the reader's board is that of the tensor's home."""
        self.read = levels[readings.row, readings.segment]
        self.sinks = population[:, problem.sink_layer]
        self.is_input = np.array([t.producer == MODEL_INPUT for t in problem.tensors], bool)
        self.is_output = np.array([tensor.is_output for tensor in problem.tensors], bool)
        hops = self.homes != self.sinks[:, None]
        arriving = np.where(self.is_output, self.written + hops, 0)
        self.sink_level = 1 + arriving.max(axis=1, initial=0)
        """(assignments,): also the plan's window."""

    def slots_at_home(self) -> Indices:
        """Return (assignments, tensors): the slots where a tensor is made; 0: none."""
        given_here = self.is_output & (self.boards[self.homes] == self.boards[self.sinks][:, None])
        last = np.where(given_here, self.sink_level[:, None], 0)
        here = self.is_near
        at = self.readings.row[here], self.readings.tensor[here]
        np.maximum.at(last, at, self.read[here])
        leaves = ~self.sent.is_local
        at = self.sent.row[leaves], self.sent.tensor[leaves]
        np.maximum.at(last, at, self.written[at] + 1)
        needed = np.where(self.is_input | (last > 0), slots(self.written, last), 0)
        found: Indices = np.minimum(needed, self.sink_level[:, None])
        return found

    def slots_away(self) -> Indices:
        """Return (messages,): the slots where a tensor is received; 0: inside a board."""
        sent, sink_boards = self.sent, self.boards[self.sinks]
        to_sink = self.is_output[sent.tensor] & (self.boards[sent.target] == sink_boards[sent.row])
        last = np.where(to_sink, self.sink_level[sent.row], 0)
        away = ~self.is_near
        row, tensor, device = self.readings.row, self.readings.tensor, self.readings.device
        brings = message_numbers(self.problem, sent, row[away], tensor[away], device[away])
        received = np.where(sent.before < 0, np.arange(len(sent.row)), sent.before)[brings]
        np.maximum.at(last, received, self.read[away])
        needed = np.minimum(
            slots(self.written[sent.row, sent.tensor] + 1, last), self.sink_level[sent.row]
        )
        return np.where(sent.is_local, 0, needed)
