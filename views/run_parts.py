"""Tables and figures of runs, one or several side by side, for pages."""

from __future__ import annotations

from collections.abc import Sequence

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.framework.wording import digits
from rankslice.measurement.counts import Count, merged, percentile_ms
from rankslice.measurement.runs.record import RankRun, RunRecord, Times
from rankslice.views.charts import (
    Axis,
    Bar,
    Bin,
    Mark,
    Point,
    Series,
    histogram_chart,
    line_chart,
    stacked_bars,
)
from rankslice.views.page import Figure, Table

UNKNOWN = "–"
_PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9, 99.99, 99.999)
_MOST_BINS = 40
_WIDE = 10
"""So many times the smallest value is too much for a linear axis."""
_LATENCY = "latency, ms"


def ms_text(value: float | None) -> str:
    """Return milliseconds with the digits that matter; a dash if they are unknown."""
    if value is None:
        return UNKNOWN
    return f"{value:.2f}" if value >= 1 or not value else f"{value:.3g}"


def mb_text(value: float | None) -> str:
    """Return megabytes; a dash if they are unknown."""
    return UNKNOWN if value is None else f"{value:.0f}"


def rate_text(record: RunRecord) -> str:
    """Return the rate of a run and what it is of."""
    if record.throughput_fps is None:
        return f"rate unknown ({record.throughput_of})"
    return f"{record.throughput_fps:.2f} frames/s ({record.throughput_of})"


def frames_sentence(record: RunRecord) -> str:
    """Return how many frames a run had, at which rate."""
    dropped = f", {record.dropped} arrivals dropped" if record.dropped else ""
    return f"{frames_text(record.completed)}{dropped}, {rate_text(record)}, window {record.window}"


def percentiles(counts: Sequence[Count], most_ms: float) -> list[tuple[float, float]]:
    """Return percentiles that so many values tell, and the largest value at the end."""
    total = sum(each.count for each in counts)
    shown = [percent for percent in _PERCENTILES if total * (100 - percent) >= 100]
    found = [(percent, min(percentile_ms(counts, percent), most_ms)) for percent in shown]
    return [*found, (100.0, most_ms)] if total else []


def percentile_figure(caption: str, series: Sequence[tuple[str, RunRecord]]) -> Figure:
    """Return the percentiles of the latencies of runs."""
    curves = [(name, percentiles(run.latency_counts, run.latency_ms.max)) for name, run in series]
    return curves_figure(caption, curves, _LATENCY)


def curves_figure(
    caption: str, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], unit: str
) -> Figure:
    """Return curves over percentiles; a column of values for each."""
    values = [y for _, curve in curves for _, y in curve if y > 0]
    is_wide = bool(values) and max(values) > _WIDE * min(values)
    svg = line_chart(
        [Series(name, tuple(Point(x, y) for x, y in curve)) for name, curve in curves],
        *(Axis("percentile", "percentile"), Axis(unit, "log" if is_wide else "linear")),
    )
    places = sorted({x for _, curve in curves for x, _ in curve})
    columns = [dict(curve) for _, curve in curves]
    rows = tuple(
        (f"{place:g}", *(ms_text(column.get(place)) for column in columns)) for place in places
    )
    head = ("percentile", *(f"{name}, ms" for name, _ in curves))
    return Figure(caption, svg, Table(caption, head, rows, tuple(range(len(head)))))


def histogram_figure(caption: str, counts: Sequence[Count], times: Times, axis: str) -> Figure:
    """Return how many frames took how long, with the median and the 99th percentile marked."""
    bins = [Bin(each.low_ms, each.high_ms, each.count) for each in merged(counts, _MOST_BINS)]
    marked = {"p50": times.p50, "p99": times.p99}
    marks = [Mark(value, f"{name} {ms_text(value)}") for name, value in marked.items()]
    # The bins are equally wide on this scale alone.
    svg = histogram_chart(bins, Axis(axis, "log"), x_marks=marks)
    rows = tuple((digits(b.low, 4), digits(b.high, 4), f"{b.count:g}") for b in bins)
    return Figure(caption, svg, Table(caption, ("from, ms", "to, ms", "frames"), rows, (0, 1, 2)))


def rank_name(rank: RankRun) -> str:
    """Return what a rank is called in tables."""
    return f"rank {rank.rank} ({rank.key})"


def busy_figure(caption: str, ranks: Sequence[tuple[str, RankRun]]) -> Figure:
    """Return how the computing thread of each rank spends its time, per frame that it handles."""
    rows = [(name, rank.compute_ms.mean, rank.wait_ms) for name, rank in ranks if rank.frames]
    svg = stacked_bars(
        [
            Bar(name, (compute, wait), f"{ms_text(compute)} + {ms_text(wait)} ms")
            for name, compute, wait in rows
        ],
        ("computes", "waits: nothing is ready"),
        Axis("milliseconds per frame"),
    )
    cells = tuple((name, ms_text(compute), ms_text(wait)) for name, compute, wait in rows)
    table = Table(caption, ("rank", "compute mean, ms", "wait mean, ms"), cells, (1, 2))
    return Figure(caption, svg, table)


def times_row(name: str, times: Times) -> tuple[str, ...]:
    """Return a row of :data:`TIMES_HEAD`."""
    return (
        name,
        *(ms_text(value) for value in (times.mean, times.p50, times.p90, times.p99, times.max)),
    )


TIMES_HEAD = ("milliseconds", "mean", "p50", "p90", "p99", "max")
"""Of tables whose rows are :func:`times_row`."""
