"""Input of the planner: a chain of layers, and the devices over which it may be cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes

Floats = NDArray[np.float64]


class ArgumentError(RankSliceError, ValueError):
    """Arguments that describe no chain of layers, or no devices."""


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator that may get a slice."""

    name: str
    """Unique: it identifies the slice."""
    kind: int
    """Row of the time table: devices of one row take the same time for the same layers."""
    board: str = ""
    """Devices of one board share its memory; empty: a board of its own."""
    memory_bytes: float = math.inf
    """Of the board, so the same for all of its devices."""
    bandwidth_bytes_s: float = math.inf
    """Of the board's network: a message between two boards takes the smaller one."""
    busy_w: float | None = None
    """Power it draws while it computes, on top of ``idle_w``; None: not known."""
    idle_w: float = 0.0
    """Power that its board draws as long as it is used at all; once for all of its devices."""


@dataclass(frozen=True, slots=True)
class LayerChain:
    """Layers one after the other, and the devices over which they may be cut."""

    times_s: ArrayLike
    """(kinds, layers): time of each layer on each kind of device in s; infinite where it cannot
    run. A slice takes the sum, unless ``spans_s`` says otherwise."""
    output_bytes: ArrayLike
    """(layers,): bytes that cross the cut behind each layer. If layers are read by others than the
    next one, count everything that is made before the cut and read behind it. Infinite: there can
    be no cut. The last layer's bytes are not sent."""
    memory_bytes: ArrayLike
    """(layers,), (kinds, layers), or (kinds, layers, layers) for spans: what layers take of the
    memory of the board they are on."""
    devices: Sequence[Device]
    """Each is used at most once."""
    spans_s: ArrayLike | None = None
    """(kinds, layers, layers): time of the slice from a first to a last layer, instead of sums. It
    need not grow with the span. A slice that has a layer with an infinite time is infinite
    nevertheless."""
    receive_memory_bytes: ArrayLike = 0.0
    """(layers,): memory on top for what a slice receives, by first layer."""
    send_memory_bytes: ArrayLike = 0.0
    """(layers,): memory on top for what a slice sends, by last layer."""
    bandwidth_bytes_s: ArrayLike = math.inf
    """(devices, devices), from row to column, or one number. Between two boards a message takes
    the smallest of this and the two devices' own."""
    latency_s: ArrayLike = 0.0
    """(devices, devices) or one number: added to each message, in s."""


def raise_faults(mistakes: Iterator[Mistake]) -> None:
    try:
        raise_mistakes(mistakes)
    except RankSliceError as error:
        raise ArgumentError(*error.mistakes) from None
