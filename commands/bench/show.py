"""A benchmark, printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rankslice.framework.files.output_file import csv_lines
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.duration_histogram import PERCENTS
from rankslice.measurement.bench.intervals import Interval, significantly
from rankslice.measurement.bench.quiet import unquiet
from rankslice.measurement.bench.scenarios import ScenarioFigures
from rankslice.measurement.bench.series import (
    BesideFigures,
    Ratio,
    SeriesFigures,
    all_series,
    by_frequency,
    own_ratios,
)
from rankslice.views.bench_sections import (
    Explained,
)
from rankslice.views.bench_tables import (
    advice,
    latency_table,
    machine_warnings,
    names_of,
    notes,
    rate_table,
    ratio_table,
)
from rankslice.views.content import Part


def bench_parts(bench: Bench) -> Iterator[Part]:
    """Yield rates, latencies, the ratio of two jobs, and what has to be known to read them."""
    series = all_series(bench)
    yield rate_table(bench, series)
    yield latency_table(bench, series)
    if ratios := own_ratios(bench):
        yield ratio_table(names_of(bench), ratios)
    yield advice(bench, series)
    yield notes(bench, series)
    yield machine_warnings(bench)


def bench_json(bench: Bench) -> dict[str, Any]:
    return {
        "frames": bench.frames,
        "machine": {**asdict(bench.machine), "versions": dict(bench.machine.versions)},
        "boards": [asdict(board) for board in bench.boards],
        "quiet": not unquiet(bench),
        "warnings": unquiet(bench),
        "jobs": [
            {name: getattr(subject, name) for name in ("name", "model", "window", "job_sha256")}
            for subject in bench.subjects
        ],
        "series": [_series_json(bench, one) for one in all_series(bench)],
        "ratios": [ratio_json(ratio) for ratio in own_ratios(bench)],
    }


def _interval_json(interval: Interval) -> dict[str, float | None]:
    bounds = (interval.low, interval.high) if interval.is_known else (None, None)
    return {"value": interval.value, "low": bounds[0], "high": bounds[1]}


def ratio_json(ratio: Ratio) -> dict[str, Any]:
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
            "least": histogram.min_ns,
            "largest": histogram.max_ns,
            "jitter": histogram.jitter_ns,
            "intervals": {
                f"p{percent:g}": _interval_json(series.percentile_ns(percent))
                for percent in (50, 99)
            },
            "hdr": histogram.to_text(),
        },
        "warm_up": [asdict(stage.warm_up) for stage in series.starts],
        "components": None if series.components is None else asdict(series.components),
        "advice": None if series.advice is None else asdict(series.advice),
        "stages": [
            {
                "rank": stage.rank,
                "route": stage.route,
                "segment": stage.segment,
                "mean_ns": _interval_json(stage.mean_ns),
                **{f"p{p:g}_ns": stage.histogram.percentile_ns(p) for p in PERCENTS},
                "hdr": stage.histogram.to_text(),
            }
            for stage in series.stages
        ],
    }


def beside_json(measured: Sequence[BesideFigures]) -> list[dict[str, Any]]:
    return [
        {
            "beside": one.load.beside,
            "busy": one.load.busy,
            "cores": one.cores,
            "mean_ns": asdict(one.series.mean_ns),
            **{f"p{p}_ns": asdict(one.series.percentile_ns(p)) for p in (50, 99)},
            "ratio": None if one.ratio is None else asdict(one.ratio.ratio),
            "frequency_mhz": one.frequency_mhz,
            "temperature_c": one.temperature_c,
        }
        for one in measured
    ]


def frequencies_json(bench: Bench) -> list[dict[str, Any]]:
    """Return figures by frequency; empty: none was set."""
    return [
        {
            "frequency_mhz": bench.loads[one.load].frequency_mhz,
            "limit_mhz": one.board_mean("limit_mhz"),
            "measured_mhz": one.board_mean("frequency_mhz"),
            "temperature_c": one.board_mean("temperature_c"),
            "throughput_fps": _interval_json(one.throughput_fps),
            "mean_ns": _interval_json(one.mean_ns),
            **{f"p{p}_ns": _interval_json(one.percentile_ns(p)) for p in (50, 95)},
            "mj_per_frame": one.board_mean("mj_per_frame"),
        }
        for one in by_frequency(bench)
    ]


def frequencies_csv(records: Sequence[dict[str, Any]]) -> str:
    """Return a line per frequency, without the bounds of intervals."""
    rows = (
        [cell["value"] if isinstance(cell, dict) else cell for cell in record.values()]
        for record in records
    )
    return "".join(csv_lines([[*records[0]], *rows]))


def explained_json(explanations: Sequence[Explained]) -> list[dict[str, Any]]:
    return [
        {
            "job": one.job,
            "load": one.load,
            "shares": None if one.parts is None else one.parts.shares(),
            "shares_of_mean": None if one.parts is None else one.parts.shares_of_mean(),
            "parts": None if one.parts is None else asdict(one.parts),
            "text": one.lines(),
        }
        for one in explanations
    ]


def scenario_json(figures: ScenarioFigures) -> dict[str, Any]:
    derived = {
        "verdict": figures.verdict(),
        "is_within_limit": figures.is_within_limit,
        "allowed_overruns": figures.allowed_overruns,
    }
    return {"scenario": {**asdict(figures), **derived}}
