"""A benchmark as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, sqrt

import numpy as np

from rankslice.framework.wording import digits, joined
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.duration_histogram import DurationHistogram
from rankslice.measurement.bench.series import (
    Ratio,
    SeriesFigures,
    StageFigures,
    StartFigures,
    all_series,
    own_ratios,
)
from rankslice.measurement.board_history import mode_texts
from rankslice.views.bench_tables import (
    advice,
    latency_table,
    machine_warnings,
    milliseconds,
    names_of,
    notes,
    percentile_table,
    rate_table,
    ratio_figure,
    ratio_table,
)
from rankslice.views.charts import Axis, Mark, Point, Series, histogram_figure, line_figure
from rankslice.views.content import Figure, Page, Section, Table

_MAX_POINTS = 240
_BINS = 40
_MS = 1e-6
_LATENCY = Axis("latency, ms")


def bench_page(bench: Bench, first: Sequence[Section] = ()) -> Page:
    measured, names = all_series(bench), names_of(bench)
    ratios = own_ratios(bench)
    tables = (
        machine_warnings(bench),
        rate_table(bench, measured),
        latency_table(bench, measured),
        notes(bench, measured),
    )
    sections = [*first, Section("Rates and latencies", parts=tables)]
    if ratios:
        sections.append(_ratio_section(names, ratios))
    for number, load in enumerate(bench.loads):
        own = [series for series in measured if series.load == number]
        if own:
            text = [] if load.fps is None else [f"{digits(load.fps, 4)} frames arrive per second."]
            text = ["Frames arrive when the camera makes them."] if load.is_live else text
            title = f"{load.name[:1].upper()}{load.name[1:]}"
            sections.append(Section(title, (*text,), (*_load_figures(own, names),)))
    sections.append(_stage_section(bench, measured[0]))
    accuracy = percentile_table(bench, measured), advice(bench, measured)
    parts = accuracy if len(measured[0].starts) > 1 else ()
    sections.append(Section("Accuracy", parts=parts))
    sections.append(Section("Machine", parts=(_machine(bench),)))
    facts = f"{bench.machine.processor}, {bench.machine.cores} cores"
    starts = f"{len(measured[0].starts)} starts of {bench.frames} frames each"
    return Page(f"Benchmark of {joined(names)}", f"{facts}; {starts}", tuple(sections))


def _ratio_section(names: Sequence[str], ratios: Sequence[Ratio]) -> Section:
    table = ratio_table(names, ratios)
    is_known = any(one.ratio.is_known for one in ratios)
    named = [(f"{one.load}: {one.figure}", one) for one in ratios]
    figures = [ratio_figure(f"{table.caption}, 95 % intervals", named)] if is_known else []
    text = "Measured in turns: each pair of starts gives one ratio."
    return Section(table.caption, (text,), (table, *figures))


def _load_figures(own: Sequence[SeriesFigures], names: Sequence[str]) -> Iterator[Figure]:
    curves = []
    for one in own:
        if one.histogram.count:
            curve = one.histogram.curve()
            points = tuple(Point(percent, _MS * value) for percent, value in curve)
            curves.append(Series(names[one.subject], points))
    yield line_figure("latency by percentile", curves, Axis("percentile", "percentile"), _LATENCY)
    starts = [
        Series(names[one.subject], tuple(map(_start_point, one.starts)), is_joined=False)
        for one in own
    ]
    marks = [Mark(_MS * one.mean_ns.value, f"mean of {names[one.subject]}") for one in own]
    caption, mean = "mean latency of each start", Axis("mean latency, ms")
    yield line_figure(caption, starts, Axis("turn"), mean, y_marks=marks[: len(own) == 1])
    yield _warm_up_figure(own, names)


def _start_point(start: StartFigures) -> Point:
    values = _MS * start.latencies_ns
    size = max(1, round(sqrt(len(values))))
    count = len(values) // size
    means = values[: count * size].reshape(count, size).mean(axis=1)
    half = 1.96 * float(means.std(ddof=1)) / sqrt(count) if count > 1 else 0.0
    mean = float(values.mean())
    return Point(start.start.turn + 1, mean, mean - half, mean + half)


def _warm_up_figure(own: Sequence[SeriesFigures], names: Sequence[str]) -> Figure:
    series, marks = [], []
    for one in own:
        count = min(len(start.start.latency_ns) for start in one.starts)
        latencies = np.array([start.start.latencies_ns[:count] for start in one.starts])
        median_ms = _MS * np.median(latencies, axis=0)
        end = max(start.warm_up.frames for start in one.starts)
        most = min(count, max(3 * end, 50))
        frames = range(0, most, ceil(most / _MAX_POINTS))
        points = tuple(Point(frame, float(median_ms[frame])) for frame in frames)
        name = names[one.subject]
        series.append(Series(name, points))
        marks.append(Mark(end, f"warm-up of {name}" if len(own) > 1 else "end of the warm-up"))
    caption = "first frames, and the warm-up"
    return line_figure(caption, series, Axis("frame"), _LATENCY, x_marks=marks)


def _stage_section(bench: Bench, series: SeriesFigures) -> Section:
    ranks = bench.subjects[series.subject].ranks
    name, load = names_of(bench)[series.subject], bench.loads[series.load].name
    head = ("segment", "accelerator", "mean ms", "p50", "p99", "p99.99", "jitter")
    shown = [stage for stage in series.stages if stage.histogram.count]
    rows = []
    for stage in shown:
        percentiles = map(stage.histogram.percentile_ns, (50, 99, 99.99))
        times = (stage.mean_ns.value, *percentiles, stage.histogram.jitter_ns)
        rows.append((_stage_name(stage), ranks[stage.rank].key, *map(milliseconds, times)))
    table = Table("times of computing, ms", head, tuple(rows))
    figures = [_histogram_figure(_stage_name(stage), stage.histogram) for stage in shown]
    return Section(f"Stages of {name}", (f"In the {load}.",), (table, *figures))


def _stage_name(stage: StageFigures) -> str:
    route = " for a surge" if stage.route else ""
    return f"rank {stage.rank}, segment {stage.segment}{route}"


def _histogram_figure(name: str, histogram: DurationHistogram) -> Figure:
    """Return a histogram; what is beyond the 99th percentile by far is in its last bin."""
    low, p99 = histogram.min_ns, histogram.percentile_ns(99)
    high = min(histogram.max_ns, p99 + (p99 - low) / 2)
    width = max(1.0, (high - low) / _BINS)
    edges = [low + width * step for step in range(_BINS + 1)]
    counts = histogram.bins(edges)
    bins = [
        (_MS * low, _MS * (low + width), count) for low, count in zip(edges, counts, strict=False)
    ]
    return histogram_figure(f"compute of {name}", bins, Axis("compute, ms"))


def _machine(bench: Bench) -> Table:
    machine = bench.machine
    rows = [
        ("host", machine.host),
        ("processor", machine.processor),
        ("cores", f"{machine.cores}"),
        ("kernel", machine.kernel),
        ("governor", machine.governor or "unknown"),
        *((f"mode: {of}", text) for of, text in mode_texts(machine.mode).items()),
        ("load before and after", f"{machine.load_before:g}, {machine.load_after:g}"),
        *machine.versions,
    ]
    for board in bench.boards:
        governor = f"governor {board.governor or 'unknown'}"
        text = f"{board.cores} cores, {governor}, load before {board.load_before:g}"
        text += "".join(f", {of} {own}" for of, own in mode_texts(board.mode).items())
        rows.append((f"board {board.name}", text))
    for subject in bench.subjects:
        where = ", ".join(f"{rank.key} ({rank.engine})" for rank in subject.ranks)
        rows.append((f"job {subject.name}", f"{subject.model} on {where}, window {subject.window}"))
    return Table("machine, versions, jobs", ("what", ""), tuple(rows))
