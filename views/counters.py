"""What boards were like during a trace: numbers over time, on the clock of the trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rankslice.measurement.board_history import BoardHistory
from rankslice.measurement.trace.trace_events import Trace

_UNITS = {
    "temperature_c": "°C",
    "frequency_mhz": "MHz",
    "memory_available_mb": "MB",
    "memory_mb": "MB",
    "power_w": "W",
    "gpu_temperature_c": "°C",
    "gpu_power_w": "W",
    "gpu_utilisation_percent": "%",
}
"""Of quantities that have one."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A number that changes with time."""

    board: str
    name: str
    unit: str
    """Empty: none."""
    values: tuple[tuple[int, float], ...]
    """Times in nanoseconds on the clock of the trace, ascending, and what it is from then on."""


def counters_of(trace: Trace, histories: Sequence[BoardHistory]) -> tuple[Counter, ...]:
    """Return the samples of the boards that have ranks, series by series."""
    return tuple(counter for history in histories for counter in _counters(trace, history))


def _counters(trace: Trace, history: BoardHistory) -> Iterator[Counter]:
    placed = zip(trace.ranks, trace.plan.ranks, strict=True)
    clock = next((rank.clock for rank, where in placed if where.board == history.board), None)
    if clock is None:
        return
    times = clock.convert(np.array(history.times_ns, np.int64)).tolist()
    for name, values in history.series.items():
        known = tuple(
            (time, value) for time, value in zip(times, values, strict=True) if math.isfinite(value)
        )
        if known:
            yield Counter(history.board, name, _UNITS.get(name.partition(".")[0], ""), known)
