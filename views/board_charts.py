"""What boards were like during a run: for pages, and on the clock of a trace."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rankslice.framework.wording import digits
from rankslice.measurement.board_history import BoardHistory, mode_texts
from rankslice.measurement.summary import RunSummary
from rankslice.measurement.trace.trace_events import Trace
from rankslice.views.charts import Axis, Point, Series, line_figure
from rankslice.views.content import Figure, Section, Table

_QUANTITIES = {
    "temperature_c": ("Temperature", "°C"),
    "gpu_temperature_c": ("Temperature of the GPU", "°C"),
    "frequency_mhz": ("Clock", "MHz"),
    "power_w": ("Power", "W"),
    "rail_power_w": ("Power by rail", "W"),
    "gpu_power_w": ("Power of the GPU", "W"),
    "rate_fps": ("Rate", "frames/s"),
    "memory_available_mb": ("", "MB"),
    "memory_mb": ("", "MB"),
    "gpu_utilisation_percent": ("", "%"),
}
"""Their names in charts, empty: they are not drawn; and their units."""
_MAX_SERIES = 8
_MAX_POINTS = 600


def hardware_section(summary: RunSummary, histories: Sequence[BoardHistory]) -> Section:
    """Return the section on modes and hardware; without a sample it says so."""
    modes = tuple(
        (board, of, text)
        for board, mode in summary.modes.items()
        for of, text in mode_texts(mode).items()
    )
    tables = [Table("Modes before the start", ("board", "of", "mode"), modes)] if modes else []
    boards = summary.hardware
    rows = tuple(
        (board.board, name, *(digits(values[of], 4) for of in ("min", "mean", "max")))
        for board in boards
        for name, values in board.series.items()
    )
    absent = [
        f"{board.board} does not provide: {', '.join(board.absent)}."
        for board in boards
        if board.absent
    ]
    if not rows:
        about = "No sample was taken while frames were processed: there is one per second."
        return Section("Hardware", (about, *absent), (*tables,))
    about = "One sample a second; only seconds in which frames went through count."
    head = ("board", "value", "min", "mean", "max")
    tables.append(Table("Boards and ranks", head, rows))
    return Section("Hardware", (about, *absent), (*hardware_figures(histories), *tables))


def hardware_figures(histories: Sequence[BoardHistory]) -> tuple[Figure, ...]:
    """Return a figure over time for each quantity that a board reports."""
    figures = (
        _figure(quantity, f"{caption}, {unit}", histories)
        for quantity, (caption, unit) in _QUANTITIES.items()
        if caption
    )
    return tuple(figure for figure in figures if figure is not None)


def _figure(quantity: str, caption: str, histories: Sequence[BoardHistory]) -> Figure | None:
    """Return a quantity over time, the series with the largest values first."""
    series = [
        Series(f"{history.board} {name.partition('.')[2]}".rstrip(), _points(history, values))
        for history in histories
        for name, values in history.series.items()
        if name.partition(".")[0] == quantity
    ]
    series = [one for one in series if len(one.points) > 1]
    series.sort(key=lambda one: max(point.y for point in one.points), reverse=True)
    if not series:
        return None
    seconds = Axis("seconds since the first sample")
    return line_figure(caption, series[:_MAX_SERIES], seconds, Axis(caption))


def _points(history: BoardHistory, values: Sequence[float]) -> tuple[Point, ...]:
    first = history.times_ns[0]
    points = [
        Point(1e-9 * (time - first), value)
        for time, value in zip(history.times_ns, values, strict=True)
        if math.isfinite(value)
    ]
    return tuple(points[:: len(points) // _MAX_POINTS + 1])


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
            _, unit = _QUANTITIES.get(name.partition(".")[0], ("", ""))
            yield Counter(history.board, name, unit, known)
