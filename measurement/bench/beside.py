"""What a co-runner does to a job, in figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from rankslice.measurement.bench.bench_records import Bench, Load, Start
from rankslice.measurement.bench.series import Ratio, SeriesFigures, ratios, series


@dataclass(frozen=True, slots=True)
class BesideFigures:
    """A job beside a co-runner that works for a share of the time."""

    load: Load
    series: SeriesFigures
    cores: dict[str, float]
    """That the co-runner has had, by board; empty for the machine that started the job."""
    ratio: Ratio | None
    """The mean latency over that without a co-runner; ``None``: this is it."""
    frequency_mhz: float | None
    temperature_c: float | None


def beside_figures(bench: Bench) -> list[BesideFigures]:
    """Return what was measured beside a co-runner, by share of the time; empty: there was none."""
    numbers = [number for number, load in enumerate(bench.loads) if load.beside]
    numbers = [number for number in numbers if bench.of(0, number)]
    if not numbers:
        return []
    alone = next((number for number in numbers if not bench.loads[number].busy), None)
    reference = None if alone is None else series(bench, 0, alone)
    return [_figures(bench, number, reference) for number in numbers]


def _figures(bench: Bench, number: int, alone: SeriesFigures | None) -> BesideFigures:
    load, own = bench.loads[number], series(bench, 0, number)
    starts = [each.start for each in own.starts]
    ratio = None
    if load.busy and alone is not None and len(alone.starts) == len(starts):
        found = ratios(load, own, alone, paired=True)
        ratio = next(each for each in found if each.figure.startswith("mean"))
    return BesideFigures(
        load,
        own,
        _cores(starts),
        ratio,
        _mean_of(starts, lambda start: start.frequency_mhz),
        _mean_of(starts, lambda start: start.temperature_c),
    )


def _cores(starts: Sequence[Start]) -> dict[str, float]:
    told: dict[str, list[float]] = {}
    for start in starts:
        for each in start.co_runner:
            told.setdefault(each.board, []).append(each.cores)
    return {board: fmean(values) for board, values in told.items()}


def _mean_of(starts: Sequence[Start], value: Callable[[Start], float | None]) -> float | None:
    told = [found for found in map(value, starts) if found is not None]
    return fmean(told) if told else None
