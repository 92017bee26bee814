"""A benchmark, printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from rankslice.commands.bench.bench import Compared
from rankslice.commands.bench.scenario import ScenarioRun
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.beside import BesideFigures
from rankslice.measurement.bench.duration_histogram import PERCENTS
from rankslice.measurement.bench.intervals import Interval, significantly
from rankslice.measurement.bench.quiet import unquiet
from rankslice.measurement.bench.scenarios import ScenarioFigures
from rankslice.measurement.bench.series import Ratio, SeriesFigures, all_series, own_ratios
from rankslice.views.bench_sections import (
    Explained,
    beside_section,
    explained_section,
    scenario_section,
)
from rankslice.views.bench_tables import (
    advice,
    latency_table,
    names_of,
    notes,
    rate_table,
    ratio_table,
)
from rankslice.views.content import Notice
from rankslice.views.terminal import show


def print_bench(bench: Bench, console: Console) -> None:
    """Print rates, latencies, the ratio of two jobs, and what has to be known to read them."""
    found = all_series(bench)
    show(console, rate_table(bench, found), latency_table(bench, found))
    if ratios := own_ratios(bench):
        show(console, ratio_table(names_of(bench), ratios))
    show(console, advice(bench, found), *notes(bench, found))


def print_beside(found: Sequence[BesideFigures], console: Console) -> None:
    """Print what a co-runner does to a job."""
    show(console, beside_section(found))


def print_explained(found: Sequence[Explained], console: Console) -> None:
    """Print where the variance of the latencies comes from."""
    show(console, explained_section(found))


def print_scenario(ran: ScenarioRun, console: Console) -> None:
    """Print the figures of a scenario, and those of the load generator's test."""
    warnings = Notice("Warning", tuple(unquiet(ran.bench)), "warning")
    show(console, scenario_section(ran.figures, ran.loadgen), warnings)


def print_compared(compared: Compared, names: tuple[str, str], console: Console) -> None:
    """Print the ratios of two files."""
    show(console, ratio_table(names, compared.ratios), Notice("Notes", compared.notes, "note"))


def bench_json(bench: Bench) -> dict[str, Any]:
    """Return the figures of a benchmark for ``--json``; raw values are in its own file."""
    return {
        "frames": bench.frames,
        "machine": {**asdict(bench.machine), "versions": dict(bench.machine.versions)},
        "boards": [asdict(board) for board in bench.boards],
        "quiet": not unquiet(bench),
        "warnings": unquiet(bench),
        "jobs": [
            {
                "name": each.name,
                "model": each.model,
                "window": each.window,
                "job_sha256": each.job_sha256,
            }
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


def beside_json(found: Sequence[BesideFigures]) -> list[dict[str, Any]]:
    """Return what a co-runner does to a job, for ``--json``."""
    return [
        {
            "beside": each.load.beside,
            "busy": each.load.busy,
            "cores": each.cores,
            "mean_ns": asdict(each.series.mean_ns),
            **{f"p{p}_ns": asdict(each.series.percentile_ns(p)) for p in (50, 99)},
            "ratio": None if each.ratio is None else asdict(each.ratio.ratio),
            "frequency_mhz": each.frequency_mhz,
            "temperature_c": each.temperature_c,
        }
        for each in found
    ]


def explained_json(found: Sequence[Explained]) -> list[dict[str, Any]]:
    """Return where the variance of the latencies comes from, for ``--json``."""
    return [
        {
            "job": each.job,
            "load": each.load,
            "shares": None if each.parts is None else each.parts.shares(),
            "shares_of_mean": None if each.parts is None else each.parts.shares_of_mean(),
            "parts": None if each.parts is None else asdict(each.parts),
            "text": each.lines(),
        }
        for each in found
    ]


def scenario_json(ran: ScenarioRun) -> dict[str, Any]:
    """Return the figures of a scenario for ``--json``."""
    record: dict[str, Any] = {"scenario": _figures_json(ran.figures)}
    if ran.loadgen is not None:
        seen = _figures_json(ran.loadgen.seen)
        record["loadgen"] = {**asdict(ran.loadgen.told), "seen": seen}
    return record


def _figures_json(figures: ScenarioFigures) -> dict[str, Any]:
    verdict = {"verdict": figures.verdict(), "is_within_limit": figures.is_within_limit}
    return {**asdict(figures), **verdict, "allowed_overruns": figures.allowed_overruns}
