"""A benchmark, printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from rankslice.commands.bench.bench import Compared
from rankslice.commands.output import new_table, print_line, shortened
from rankslice.measurement.bench.figures import Ratio, SeriesFigures, all_series, own_ratios
from rankslice.measurement.bench.histogram import PERCENTS
from rankslice.measurement.bench.intervals import Interval, significantly
from rankslice.measurement.bench.quiet import unquiet
from rankslice.measurement.bench.records import Bench
from rankslice.measurement.bench.texts import (
    LATENCY_HEAD,
    RATE_HEAD,
    RATIO_HEAD,
    advice_texts,
    latency_row,
    names_of,
    notes_of,
    rate_row,
    ratio_row,
)


def print_bench(bench: Bench, console: Console) -> None:
    """Print rates, latencies, the ratio of two jobs, and what has to be known to read them."""
    found = all_series(bench)
    console.print(_table(RATE_HEAD, (rate_row(bench, each) for each in found)))
    latencies = (latency_row(bench, each) for each in found)
    console.print(_table(LATENCY_HEAD, latencies, "latencies in ms"))
    if ratios := own_ratios(bench):
        first, second = map(shortened, names_of(bench))
        console.print(_table(RATIO_HEAD, map(ratio_row, ratios), f"{first} over {second}"))
    for line in advice_texts(bench, found):
        print_line(console, line)
    for line in notes_of(bench, found):
        print_line(console, line, "note")
    for line in unquiet(bench.machine, bench.starts):
        print_line(console, f"the machine was not quiet: {line}", "warning")


def print_compared(compared: Compared, names: tuple[str, str], console: Console) -> None:
    """Print the ratios of two files."""
    caption = f"{shortened(names[0])} over {shortened(names[1])}"
    console.print(_table(RATIO_HEAD, map(ratio_row, compared.ratios), caption))
    for line in compared.notes:
        print_line(console, line, "note")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None) -> Table:
    table = new_table(head, range(2, len(head)), caption)
    for row in rows:
        table.add_row(*(shortened(cell) for cell in row))
    return table


def bench_json(bench: Bench) -> dict[str, Any]:
    """Return the figures of a benchmark for ``--json``; raw values are in its own file."""
    return {
        "frames": bench.frames,
        "machine": {**asdict(bench.machine), "versions": dict(bench.machine.versions)},
        "quiet": not unquiet(bench.machine, bench.starts),
        "warnings": unquiet(bench.machine, bench.starts),
        "jobs": [
            {"name": each.name, "model": each.model, "window": each.window, "plan": each.plan}
            for each in bench.subjects
        ],
        "series": [_series_json(bench, each) for each in all_series(bench)],
        "ratios": [_ratio_json(ratio) for ratio in own_ratios(bench)],
    }


def compared_json(compared: Compared) -> dict[str, Any]:
    """Return the ratios of two files for ``--json``."""
    return {
        "ratios": [_ratio_json(ratio) for ratio in compared.ratios],
        "notes": list(compared.notes),
    }


def _interval_json(found: Interval) -> dict[str, float | None]:
    """Return a value and its bounds, which are ``None`` where there are none."""
    bounds = (found.low, found.high) if found.is_known else (None, None)
    return {"value": found.value, "low": bounds[0], "high": bounds[1]}


def _ratio_json(ratio: Ratio) -> dict[str, Any]:
    return {
        "load": ratio.load,
        "figure": ratio.figure,
        "measured": _interval_json(ratio.measured),
        "reference": _interval_json(ratio.reference),
        "ratio": _interval_json(ratio.ratio),
        "verdict": significantly(ratio.ratio, ratio.more, ratio.less),
    }


def _series_json(bench: Bench, series: SeriesFigures) -> dict[str, Any]:
    histogram = series.histogram
    return {
        "job": bench.subjects[series.subject].name,
        "load": asdict(bench.loads[series.load]),
        "starts": len(series.starts),
        "throughput_fps": _interval_json(series.throughput_fps),
        "latency_ns": {
            "mean": _interval_json(series.mean_ns),
            **{f"p{percent:g}": histogram.percentile_ns(percent) for percent in PERCENTS},
            "least": histogram.least_ns,
            "largest": histogram.largest_ns,
            "jitter": histogram.jitter_ns,
            "intervals": {
                f"p{percent:g}": _interval_json(series.percentile_ns(percent))
                for percent in (50, 99)
            },
            "hdr": histogram.to_text(),
        },
        "warm_up": [asdict(each.warm_up) for each in series.starts],
        "components": None if series.components is None else asdict(series.components),
        "advice": None if series.advice is None else asdict(series.advice),
        "stages": [
            {
                "rank": each.rank,
                "route": each.route,
                "segment": each.segment,
                "mean_ns": _interval_json(each.mean_ns),
                **{f"p{p:g}_ns": each.histogram.percentile_ns(p) for p in PERCENTS},
                "hdr": each.histogram.to_text(),
            }
            for each in series.stages
        ],
    }
