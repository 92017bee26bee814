"""What assignments need of the memory of boards."""

from __future__ import annotations

import numpy as np

from rankslice.exploration.cost.messages import Messages
from rankslice.exploration.cost.phases import Phases
from rankslice.exploration.cost.slot_memory import slot_bytes
from rankslice.exploration.cost.spans import Floats, Indices, counts, spans_of, sums
from rankslice.exploration.problem.problem import Problem


def memory_of(problem: Problem, phases: Phases, segments: Indices, sent: Messages) -> Floats:
    """Return what each assignment needs on each board, (assignments, boards), in bytes.

    Devices that take turns need what they need for each frame that they handle.

    Args:
        problem: layers and devices.
        phases: the assignments, without turns.
        segments: (assignments, layers): the segment of each layer, numbered from 0 in a
            topological order.
        sent: what the assignments send.
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
        used = counts(population, shape[1]) > 0
        device_bytes += used * problem.rank_bytes[problem.device_kinds]
    device_bytes = phases.most(device_bytes)
    device_bytes += slot_bytes(problem, phases, segments, sent)
    return device_bytes @ problem.is_on_board


def weights_of(problem: Problem, population: Indices) -> Floats:
    """Return (assignments, devices): the size of the weights of each device, each once."""
    shape = len(population), len(problem.devices)
    spans = spans_of(population)
    held = np.concatenate([[0.0], np.cumsum(problem.weight_bytes, dtype=np.float64)])
    found = sums(spans.row, spans.owner, held[spans.last + 1] - held[spans.first], shape)
    for weight in problem.shared_weights:
        readers = counts(population[:, list(weight.readers)], shape[1])
        found -= weight.nbytes * np.maximum(readers - 1, 0)
    return found
