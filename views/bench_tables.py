"""The figures of a benchmark as tables and notices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from math import inf
from pathlib import PurePath

from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.wording import number_text, percent_text
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.duration_histogram import PERCENTS
from rankslice.measurement.bench.intervals import Interval, significantly
from rankslice.measurement.bench.quiet import LIVE_NOTE, unquiet, unseen
from rankslice.measurement.bench.series import Ratio, SeriesFigures
from rankslice.views.charts import Axis, Mark, interval_figure
from rankslice.views.content import Figure, Notice, Table

RATE_HEAD = ("job", "load", "frames/s", "95 %", "mean ms", "95 %")
RATIO_HEAD = ("load", "figure", "ratio", "95 %", "")
_FEW = 10
"""So many frames are to lie beyond a percentile."""
_MAX_STARTS = 1000
_SHORT_S = 1.0


def names_of(bench: Bench) -> tuple[str, ...]:
    """Return short names of the jobs: the last parts of their paths, or more if these are equal."""
    whole = [subject.name for subject in bench.subjects]
    last = [PurePath(name).name or name for name in whole]
    for names in (last, whole):
        if len({*names}) == len(names):
            return tuple(names)
    return tuple(f"{name} ({number})" for number, name in enumerate(last, 1))


def around_text(interval: Interval) -> str:
    """Return the half width of an interval over its value: ``±1.2 %``; ``-``: it is not known."""
    per_cent = 100 * interval.half_width
    if not per_cent < inf:
        return "-"
    return f"±{per_cent:.0f} %" if per_cent >= 10 else f"±{per_cent:.2g} %"


def milliseconds(nanoseconds: float) -> str:
    return number_text(1e-6 * nanoseconds)


def rate_rows(bench: Bench, measured: Sequence[SeriesFigures]) -> Iterator[tuple[str, ...]]:
    """Yield rows of :data:`RATE_HEAD`."""
    for series in measured:
        rate, mean = series.throughput_fps, series.mean_ns
        yield (
            *_who(bench, series),
            *(number_text(rate.value), around_text(rate)),
            *(milliseconds(mean.value), around_text(mean)),
        )


def rate_table(bench: Bench, measured: Sequence[SeriesFigures]) -> Table:
    return Table("rates and mean latencies", RATE_HEAD, tuple(rate_rows(bench, measured)))


def latency_table(bench: Bench, measured: Sequence[SeriesFigures]) -> Table:
    rows = []
    for series in measured:
        times = (series.histogram.percentile_ns(percent) for percent in PERCENTS)
        jitter = milliseconds(series.histogram.jitter_ns)
        rows.append((*_who(bench, series), *map(milliseconds, times), jitter))
    head = ("job", "load", *(f"p{percent:g}" for percent in PERCENTS), "jitter")
    return Table("latencies, ms", head, tuple(rows))


def percentile_table(bench: Bench, measured: Sequence[SeriesFigures]) -> Table:
    """Return percentiles with the intervals that they are in with a confidence of 95 per cent."""
    rows = []
    for series in measured:
        intervals = map(series.percentile_ns, (50, 90, 99))
        cells = (
            (milliseconds(one.value), f"{milliseconds(one.low)} to {milliseconds(one.high)}")
            for one in intervals
        )
        rows.append((*_who(bench, series), *chain.from_iterable(cells)))
    head = ("job", "load", "p50", "95 %", "p90", "95 %", "p99", "95 %")
    return Table("percentiles of latencies, ms", head, tuple(rows))


def ratio_row(ratio: Ratio) -> tuple[str, ...]:
    interval = ratio.ratio
    bounds = (
        f"{number_text(interval.low)} to {number_text(interval.high)}" if interval.is_known else "-"
    )
    verdict = significantly(interval, ratio.more, ratio.less)
    return ratio.load, ratio.figure, number_text(interval.value), bounds, verdict


def ratio_table(names: Sequence[str], ratios: Sequence[Ratio]) -> Table:
    first, second = names
    return Table(f"{first} over {second}", RATIO_HEAD, tuple(map(ratio_row, ratios)))


def ratio_figure(caption: str, ratios: Sequence[tuple[str, Ratio]]) -> Figure:
    """Return those ratios, given a name of each, whose intervals are known."""
    intervals = [(name, one.ratio) for name, one in ratios if one.ratio.is_known]
    return interval_figure(caption, intervals, Axis("ratio", "log"), Mark(1.0, "equal"))


def notes(bench: Bench, measured: Sequence[SeriesFigures]) -> Notice:
    return Notice("Notes", tuple(notes_of(bench, measured)), "note")


def machine_warnings(bench: Bench) -> Notice:
    return Notice("Warning", tuple(unquiet(bench)), "warning")


def _who(bench: Bench, series: SeriesFigures) -> tuple[str, str]:
    return names_of(bench)[series.subject], bench.loads[series.load].name


def notes_of(bench: Bench, measured: Sequence[SeriesFigures]) -> Iterator[str]:
    models = dict.fromkeys((subject.model_sha256, subject.model) for subject in bench.subjects)
    if len(models) > 1:
        yield f"the jobs run different models: {', '.join(name for _, name in models)}"
    for load in bench.loads:
        if load.share is not None and load.fps is not None:
            yield f"{load.name} of the saturation throughput is {number_text(load.fps)} frames/s"
    for board in unseen(bench):
        yield (
            f"it is not known whether board {board} was quiet: it is sampled once per second, and"
            " no start was long enough"
        )
    if any(load.is_live for load in bench.loads):
        yield LIVE_NOTE
    unsettled = [
        f"{series.unsettled} of {len(series.starts)} of {', '.join(_who(bench, series))}"
        for series in measured
        if series.unsettled
    ]
    if unsettled:
        yield f"starts that never settled, of which the second half counts: {'; '.join(unsettled)}"
    shortest = min(1e-9 * int(start.completed_ns[-1]) for start in bench.starts)
    if shortest < _SHORT_S:
        yield (
            f"the frames of a start take only {number_text(shortest)} s, too short to see slow"
            " changes: give more --frames"
        )
    counts = [series.histogram.count for series in measured]
    few = [percent for percent in PERCENTS if round(min(counts) * (1 - percent / 100), 6) < _FEW]
    if few:
        needed = frames_text(round(_FEW / (1 - few[0] / 100)))
        yield (
            f"percentiles from p{few[0]:g} on are not reliable: p{few[0]:g} takes {needed} over all"
            f" starts, but there are only {min(counts)}"
        )
    if len(measured[0].starts) < 2:
        yield "a single start gives no interval"


def advice(bench: Bench, measured: Sequence[SeriesFigures]) -> Notice:
    return Notice("Advice", tuple(_advice(bench, measured)))


def _advice(bench: Bench, measured: Sequence[SeriesFigures]) -> Iterator[str]:
    for series in measured:
        parts, wanted = series.components, series.advice
        if parts is None or wanted is None:
            continue
        frames = len(series.starts[0].latencies_ns)
        among = parts.starts + parts.frames / frames
        share = parts.starts / among if among else 0.0
        needed = (
            f"±1 % takes about {wanted.starts} starts of {frames_text(wanted.frames)}"
            if wanted.starts <= _MAX_STARTS
            else "±1 % cannot be reached on this machine at present"
        )
        yield (
            f"{', '.join(_who(bench, series))}: {percent_text(share)} of the variance of the mean"
            f" comes from the starts, the rest from frames; {needed}"
        )
