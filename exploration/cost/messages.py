"""What assignments of layers to devices send: each tensor once to each device that needs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.cost.spans import Floats, Indices
from rankslice.exploration.problem.overheads import Overheads
from rankslice.exploration.problem.problem import Problem


@dataclass(frozen=True, slots=True)
class MessageCosts:
    """What messages take, in seconds; all arrays are (messages,)."""

    copy_s: Floats
    """Of the cores at each end, to copy it: inside a board, or into and out of the network."""
    link_s: Floats
    """Of the links of both boards; 0 inside one board."""
    latency_s: Floats


def message_costs(
    nbytes: Floats,
    bandwidth_bytes_s: Floats,
    latency_s: Floats,
    is_local: NDArray[np.bool_],
    overheads: Overheads,
) -> MessageCosts:
    """Return what messages take of cores and links.

    Args:
        nbytes: size of each; infinite for one that cannot be sent.
        bandwidth_bytes_s: between its boards, or inside its board.
        latency_s: the same.
        is_local: whether it stays inside one board.
        overheads: what the network's code takes of the cores.
    """
    sent = np.where(np.isfinite(nbytes), nbytes, 0.0)
    carry_s = sent / bandwidth_bytes_s
    copy_s = np.where(is_local, carry_s, sent * overheads.network_s_per_byte)
    link_s = np.where(is_local, 0.0, carry_s)
    return MessageCosts(np.where(np.isfinite(nbytes), copy_s, np.inf), link_s, latency_s)


@dataclass(frozen=True, slots=True)
class Messages:
    """Tensors that go from device to device, of all assignments; all arrays are (messages,)."""

    row: Indices
    """Which assignment."""
    tensor: Indices
    origin: Indices
    target: Indices
    costs: MessageCosts

    def hop_s(self) -> Floats:
        """Return how long each is under way, besides what the cores copy."""
        return self.costs.link_s + self.costs.latency_s


def messages_of(problem: Problem, population: Indices) -> Messages:
    """Return what assignments send: each tensor once to each other device that needs it."""
    tensors, readers = _edges(problem)
    homes = problem.home_layers
    target = population[:, readers]
    row, edge = np.nonzero(population[:, homes[tensors]] != target)
    needed = np.zeros((len(population), len(problem.tensors), len(problem.devices)), bool)
    needed[row, tensors[edge], target[row, edge]] = True
    row, tensor, device = np.nonzero(needed)
    start = population[row, homes[tensor]]
    boards = problem.device_boards[start], problem.device_boards[device]
    costs = message_costs(
        problem.tensor_bytes[tensor],
        problem.bandwidth_bytes_s[boards],
        problem.latency_s[boards],
        boards[0] == boards[1],
        problem.overheads,
    )
    return Messages(row, tensor, start, device, costs)


def first_readers(
    problem: Problem, population: Indices, segments: Indices, sent: Messages
) -> Indices:
    """Return (messages,): the first segment that reads each, where it arrives.

    Args:
        problem: layers and devices.
        population: (assignments, layers) indices of devices.
        segments: (assignments, layers): the segment of each layer, in a topological order.
        sent: all that the assignments send, of :func:`messages_of`.
    """
    tensors, readers = _edges(problem)
    target = population[:, readers]
    row, edge = np.nonzero(population[:, problem.home_layers[tensors]] != target)
    found = np.full(len(sent.row), np.iinfo(np.int64).max)
    at = message_numbers(problem, sent, row, tensors[edge], target[row, edge])
    np.minimum.at(found, at, segments[row, readers[edge]])
    return found


def message_numbers(
    problem: Problem, sent: Messages, row: Indices, tensor: Indices, target: Indices
) -> Indices:
    """Return which messages bring tensors to devices; any, where none does."""
    count, devices = len(problem.tensors), len(problem.devices)
    keys = (sent.row * count + sent.tensor) * devices + sent.target  # ascending
    return np.searchsorted(keys, (row * count + tensor) * devices + target)


def _edges(problem: Problem) -> tuple[Indices, Indices]:
    """Return tensor and layer of each reading; the last layer reads model outputs."""
    pairs = [
        (number, reader)
        for number, tensor in enumerate(problem.tensors)
        for reader in sorted(
            {*tensor.readers, *((problem.sink_layer,) if tensor.is_output else ())}
        )
    ]
    tensors, readers = np.array(pairs, np.int64).reshape(-1, 2).T
    return tensors, readers
