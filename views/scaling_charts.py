"""How a model scales with the number of boards, as a table and charts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rankslice.exploration.objectives import columns
from rankslice.exploration.results.candidates import ScalingPoint
from rankslice.views.charts import Point, Series, line_figure
from rankslice.views.content import UNKNOWN, Figure, Table
from rankslice.views.scales import Axis


def scaling_table(points: Sequence[ScalingPoint]) -> Table:
    """Return a row for each number of boards; speed-ups are to the first one."""
    head = ("boards", *(row.head for row in columns()), "speed-up", "used", "limited by")
    first = points[0].candidate.best_known.throughput_fps if points else 1.0
    rows = []
    for point in points:
        figures = point.candidate.best_known
        rows.append(
            (
                str(point.boards),
                *(row.cell(point.candidate, figures, UNKNOWN) for row in columns()),
                f"{figures.throughput_fps / first:.2f}",
                str(len(point.candidate.boards)),
                point.candidate.bottleneck,
            )
        )
    caption = (
        "the fastest mapping on each number of boards; memory and energy: of the board that"
        " needs most"
    )
    return Table(caption, head, tuple(rows))


def scaling_figures(points: Sequence[ScalingPoint]) -> Iterator[Figure]:
    """Yield a chart for each figure that is known."""
    for row in columns():
        known = []
        for point in points:
            value = row.value(point.candidate, point.candidate.best_known)
            if value is not None:
                known.append(Point(point.boards, row.axis.convert(value)))
        if len(known) > 1:
            series = Series(row.name, tuple(known))
            yield line_figure(row.name.capitalize(), [series], Axis("boards"), Axis(row.axis.name))
