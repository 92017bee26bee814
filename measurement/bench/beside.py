"""What a co-runner does to a job, in figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from rankslice.measurement.bench.bench_records import Bench, Load
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
    """Return the figures by the co-runner's share of the time; empty: there was none."""
    numbers = [n for n, load in enumerate(bench.loads) if load.beside and bench.of(0, n)]
    alone = next((number for number in numbers if not bench.loads[number].busy), None)
    reference = None if alone is None else series(bench, 0, alone)
    return [_figures(bench, number, reference) for number in numbers]


def _figures(bench: Bench, number: int, alone: SeriesFigures | None) -> BesideFigures:
    load, own = bench.loads[number], series(bench, 0, number)
    starts = [figures.start for figures in own.starts]
    ratio = None
    if load.busy and alone is not None and len(alone.starts) == len(starts):
        rows = ratios(load, own, alone, paired=True)
        ratio = next(row for row in rows if row.figure.startswith("mean"))
    cores: dict[str, list[float]] = {}
    for of_board in (of_board for start in starts for of_board in start.co_runner):
        cores.setdefault(of_board.board, []).append(of_board.cores)
    return BesideFigures(
        load,
        own,
        {board: fmean(values) for board, values in cores.items()},
        ratio,
        _mean_of(start.frequency_mhz for start in starts),
        _mean_of(start.temperature_c for start in starts),
    )


def _mean_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
