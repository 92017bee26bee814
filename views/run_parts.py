"""Tables and figures of runs, one or several side by side, for pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from rankslice.backend.runtime.figures.rank_figures import Counts, RankFigures, RouteFigures
from rankslice.backend.runtime.job import ALL
from rankslice.backend.runtime.sources.switching import Change
from rankslice.backend.runtime.summary.rates import frames_text, rate_text
from rankslice.framework.wording import digits, joules_text, mb_text, ms_text, short_ms_text
from rankslice.measurement.summary import RunSummary, merged_counts, percentile_ms, total_count
from rankslice.views.charts import (
    Axis,
    Bar,
    Mark,
    Point,
    Series,
    bar_figure,
    histogram_figure,
    line_figure,
)
from rankslice.views.content import UNKNOWN, Figure, Table

_PERCENTILES = (0, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.9, 99.99, 99.999)
_MAX_BINS = 40
_MAX_NUMBERS = 20
"""Of frames, that a line names."""
_WIDE = 10
"""So many times the smallest value is too much for a linear axis."""
_LATENCY = "latency, ms"
MAX_CURVES = 8


def known(value: float | None, text: Callable[[float], str]) -> str:
    return UNKNOWN if value is None else text(value)


def millijoules_text(millijoules: float) -> str:
    return joules_text(millijoules / 1e3)


_TEXTS: dict[str, Callable[[float], str]] = {"ms": short_ms_text, "MB": mb_text}


def rank_table(ranks: Sequence[RankFigures]) -> Table:
    """Return the figures of each rank; columns without any are left out.

    A figure of :class:`RankFigures` that has a heading has a column.
    """
    has_surge = any(rank.surge for rank in ranks)
    columns = {
        "rank": [str(rank.rank) for rank in ranks],
        "accelerator": [rank.key for rank in ranks],
        "host": [rank.host for rank in ranks],
        "compute p50": [_computed(rank, "p50", may_idle=has_surge) for rank in ranks],
        "p99": [_computed(rank, "p99", may_idle=has_surge) for rank in ranks],
    }
    for field in fields(RankFigures):
        values = [getattr(rank, field.name) for rank in ranks]
        if "heading" in field.metadata and any(value is not None for value in values):
            text = _TEXTS.get(field.metadata["unit"], digits)
            columns[field.metadata["heading"]] = [known(value, text) for value in values]
    surges = [rank.surge for rank in ranks]
    for percentile in ("p50", "p99") if has_surge else ():
        columns[f"surge {percentile}"] = [_computed(s, percentile, may_idle=True) for s in surges]
    if any(rank.turns != ALL for rank in ranks):
        columns["frames"] = [str(rank.turns) for rank in ranks]
    if any(surge and surge.turns != ALL for surge in surges):
        columns["surge frames"] = [str(surge.turns) if surge else UNKNOWN for surge in surges]
    rows = tuple(zip(*columns.values(), strict=True))
    return Table("milliseconds per frame; peak memory in MB", (*columns,), rows)


def _computed(figures: RouteFigures | None, percentile: str, *, may_idle: bool) -> str:
    if figures is None or (may_idle and not figures.frames):
        return UNKNOWN
    return short_ms_text(figures.compute_ms[percentile])


def rate_of(summary: RunSummary) -> str:
    """Return the number of frames, the rate and the window in a line."""
    rate, of = summary.throughput_fps, summary.throughput_of
    return rate_text(summary.completed, rate, of, summary.window, summary.surge_window)


def route_texts(completed: int, on_surge: int, switches: Sequence[Change]) -> Iterator[str]:
    usual = frames_text(completed - on_surge)
    yield f"{usual} took the normal route, {on_surge} the surge route"
    for switch in switches:
        yield (
            f"{switch.time_s:.2f} s: {switch.route} from frame {switch.frame} on,"
            f" {switch.waiting} waiting: {switch.reason}"
        )


def numbers_text(numbers: Sequence[int], count: int | None = None) -> str:
    """Return the first numbers, and how many more there are, of ``count`` in all."""
    shown = ", ".join(map(str, numbers[:_MAX_NUMBERS]))
    more = (len(numbers) if count is None else count) - _MAX_NUMBERS
    return f"{shown} and {more} more" if more > 0 else shown


def percentiles(counts: Counts, most_ms: float) -> list[tuple[float, float]]:
    """Return percentiles that so many values tell, and the largest value at the end."""
    count = total_count(counts)
    shown = [percent for percent in _PERCENTILES if count * (100 - percent) >= 100]
    curve = [(percent, min(percentile_ms(counts, percent), most_ms)) for percent in shown]
    return [*curve, (100.0, most_ms)] if count else []


def percentile_figure(caption: str, series: Sequence[tuple[str, RunSummary]]) -> Figure:
    curves = [
        (name, percentiles(run.latency_counts, run.latency_ms["max"])) for name, run in series
    ]
    return curves_figure(caption, curves, _LATENCY)


def curves_figure(
    caption: str, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]], unit: str
) -> Figure:
    values = [y for _, curve in curves for _, y in curve if y > 0]
    is_wide = bool(values) and max(values) > _WIDE * min(values)
    series = [Series(name, tuple(Point(x, y) for x, y in curve)) for name, curve in curves]
    y = Axis(unit, "log" if is_wide else "linear")
    return line_figure(caption, series, Axis("percentile", "percentile"), y)


def latency_histogram(caption: str, summary: RunSummary) -> Figure:
    """Return a histogram of latencies, with the median and the 99th percentile marked."""
    bins = merged_counts(summary.latency_counts, _MAX_BINS)
    times = summary.latency_ms
    marks = [Mark(times[name], f"{name} {ms_text(times[name])}") for name in ("p50", "p99")]
    # The bins are equally wide on this scale alone.
    return histogram_figure(caption, bins, Axis(_LATENCY, "log"), x_marks=marks)


def busy_figure(caption: str, ranks: Sequence[tuple[str, RankFigures]]) -> Figure:
    """Return the computing and waiting time per frame of each rank, as bars."""
    bars = []
    for name, rank in ranks:
        if rank.frames:
            compute, wait = rank.compute_ms["mean"], rank.wait_ms
            bars.append(Bar(name, (compute, wait), f"{ms_text(compute)} + {ms_text(wait)} ms"))
    kinds = ("computes", "waits: nothing is ready")
    return bar_figure(caption, bars, kinds, Axis("milliseconds per frame"))
