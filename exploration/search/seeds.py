"""Mappings to begin a search with: contiguous slices, as long as each device is fast."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rankslice.exploration.problem.problem import MODEL_INPUT, Problem

__all__ = ["balanced", "balanced_seeds", "crossing_bytes"]

_HALVINGS = 40


def balanced_seeds(problem: Problem) -> NDArray[np.int64]:
    """Return (n, layers) mappings of contiguous slices, balanced by the times of single layers.

    Devices are taken board by board, fastest first, and kind by kind; of each of these orders the
    first one, the first two and so on.
    """
    rows = [
        row
        for order in _orders(problem)
        for count in range(1, len(order) + 1)
        if (row := balanced(problem, order[:count])) is not None
    ]
    found = np.array(rows, np.int64).reshape(-1, len(problem.layers))
    return np.unique(found, axis=0)


def _orders(problem: Problem) -> Iterator[list[int]]:
    """Yield orders in which a frame may pass the devices."""
    kinds = problem.device_kinds
    can_run = np.isfinite(problem.times_s)
    # By the layers that it can run, so that one strange layer does not put a GPU last.
    speed = [
        np.mean(times[can]) if can.any() else np.inf
        for times, can in zip(problem.times_s, can_run, strict=True)
    ]
    everywhere = range(len(problem.devices))
    yield sorted(
        everywhere, key=lambda device: (problem.device_boards[device], speed[kinds[device]])
    )
    yield sorted(everywhere, key=lambda device: (speed[kinds[device]], device))
    for kind in range(len(problem.times_s)):
        yield [device for device in everywhere if kinds[device] == kind]
    for device in everywhere:
        yield [device]


def balanced(problem: Problem, devices: list[int]) -> NDArray[np.int64] | None:
    """Return (layers,) contiguous slices on devices in that order, the longest as short as it goes.

    Channels count as nothing. ``None``: a device cannot run what would be its own.
    """
    times = problem.times_s[problem.device_kinds[devices]]
    sums = np.pad(np.cumsum(times, axis=1), ((0, 0), (1, 0)))
    if not np.isfinite(sums).all():
        return None
    low, high = 0.0, float(sums[:, -1].min())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _ends(sums, middle)[-1] < len(problem.layers):
            low = middle
        else:
            high = middle
    ends = _ends(sums, high)
    stages = np.searchsorted(ends, np.arange(len(problem.layers)), side="right")
    return np.array(devices, np.int64)[np.minimum(stages, len(devices) - 1)]


def _ends(sums: NDArray[np.float64], most_s: float) -> list[int]:
    """Return where each slice ends if it takes as many layers as fit into a time."""
    end = 0
    ends = []
    for row in sums:
        end = int(np.searchsorted(row, row[end] + most_s * (1 + 1e-12), side="right")) - 1
        ends.append(end)
    return ends


def crossing_bytes(problem: Problem) -> NDArray[np.float64]:
    """Return (layers - 1,): the bytes that layers after each border need of those before it.

    Model inputs come from the layer at which frames enter; model outputs go to the last layer that
    makes one.
    """
    finite, endless = np.zeros((2, len(problem.layers) + 1))
    for tensor in problem.tensors:
        first = problem.source_layer if tensor.producer == MODEL_INPUT else tensor.producer
        last = max((*tensor.readers, problem.sink_layer if tensor.is_output else 0))
        if last > first:
            changes, size = (finite, tensor.nbytes) if np.isfinite(tensor.nbytes) else (endless, 1)
            changes[first] += size
            changes[last] -= size
    crossing = np.maximum(np.cumsum(finite), 0.0)  # what is added and taken away may leave a rest
    return np.where(np.cumsum(endless) > 0, np.inf, crossing)[:-2]
