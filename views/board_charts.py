"""What boards were like during a run, for its page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rankslice.framework.wording import digits
from rankslice.measurement.board_history import BoardHistory, HardwareSummary
from rankslice.views.charts import Point, Series, line_figure
from rankslice.views.content import Figure, Section, Table
from rankslice.views.scales import Axis

_CHARTS = {
    "temperature_c": "Temperature, °C",
    "gpu_temperature_c": "Temperature of the GPU, °C",
    "frequency_mhz": "Clock, MHz",
    "power_w": "Power, W",
    "gpu_power_w": "Power of the GPU, W",
    "rate_fps": "Rate, frames/s",
}
"""Quantities that are drawn."""
_MAX_SERIES = 8
_MAX_POINTS = 600


def hardware_section(
    boards: Sequence[HardwareSummary], histories: Sequence[BoardHistory]
) -> Section:
    """Return the section on hardware; without a sample it only says so."""
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
        return Section("Hardware", (about, *absent))
    about = "One sample a second; only seconds in which frames went through count."
    head = ("board", "value", "min", "mean", "max")
    table = Table("Boards and ranks", head, rows)
    return Section("Hardware", (about, *absent), (*hardware_figures(histories), table))


def hardware_figures(histories: Sequence[BoardHistory]) -> tuple[Figure, ...]:
    """Return what boards were like over time, a figure for each quantity that one of them told."""
    figures = (_figure(quantity, caption, histories) for quantity, caption in _CHARTS.items())
    return tuple(figure for figure in figures if figure is not None)


def _figure(quantity: str, caption: str, histories: Sequence[BoardHistory]) -> Figure | None:
    """Return what a quantity was over time, the series with the largest values first."""
    series = [
        Series(f"{history.board} {name.partition('.')[2]}".rstrip(), _points(history, values))
        for history in histories
        for name, values in history.series.items()
        if name.partition(".")[0] == quantity
    ]
    series = [each for each in series if len(each.points) > 1]
    series.sort(key=lambda each: max(point.y for point in each.points), reverse=True)
    if not series:
        return None
    seconds = Axis("seconds since the first sample")
    return line_figure(caption, series[:_MAX_SERIES], seconds, Axis(caption))


def _points(history: BoardHistory, values: Sequence[float]) -> tuple[Point, ...]:
    first = history.times_ns[0]
    found = [
        Point(1e-9 * (time - first), value)
        for time, value in zip(history.times_ns, values, strict=True)
        if math.isfinite(value)
    ]
    return tuple(found[:: len(found) // _MAX_POINTS + 1])
