"""The figures of a benchmark, computed from its raw values whenever they are shown."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.summary.rates import frames_to_fill
from rankslice.measurement.bench.bench_records import Bench, Load, Start
from rankslice.measurement.bench.bench_warm_up import WarmUp, find_warm_up
from rankslice.measurement.bench.duration_histogram import DurationHistogram
from rankslice.measurement.bench.intervals import (
    Advice,
    Components,
    Interval,
    advice,
    components,
    mapped,
    mean_interval,
    paired_ratio,
    percentile,
    percentile_interval,
    unpaired_ratio,
)


@dataclass(frozen=True)
class StartFigures:
    """One start without its warm-up."""

    start: Start
    window: int

    @cached_property
    def warm_up(self) -> WarmUp:
        """The frames that are left out: at least those that fill the pipeline."""
        warm_up = find_warm_up(self.start.latencies_ns)
        fill = min(frames_to_fill(self.window), len(self.start.latency_ns) // 2)
        return WarmUp(max(warm_up.frames, fill), warm_up.settled)

    @cached_property
    def latencies_ns(self) -> NDArray[np.int64]:
        return self.start.latencies_ns[self.warm_up.frames :]

    @property
    def mean_ns(self) -> float:
        return float(self.latencies_ns.mean())

    @property
    def throughput_fps(self) -> float:
        """Frames that came out per second, after those of the warm-up."""
        completed = self.start.completed_ns[self.warm_up.frames - 1 :]
        return 1e9 * (len(completed) - 1) / max(1, int(completed[-1] - completed[0]))

    def percentile_ns(self, percent: float) -> float:
        return percentile(self.latencies_ns, percent)

    @property
    def frame_s(self) -> float:
        return 1e-9 * float(self.start.completed_ns[-1]) / len(self.start.latency_ns)

    @property
    def without_frames_s(self) -> float:
        """Time of the start before the first frame that counts."""
        return max(1e-3, self.start.took_s - len(self.latencies_ns) * self.frame_s)


@dataclass(frozen=True)
class StageFigures:
    """How long one segment computes, in all starts, the warm-up left out."""

    rank: int
    route: int
    segment: int
    histogram: DurationHistogram
    mean_ns: Interval


@dataclass(frozen=True)
class SeriesFigures:
    """A job under a load, in all starts."""

    subject: int
    load: int
    starts: tuple[StartFigures, ...]

    @cached_property
    def histogram(self) -> DurationHistogram:
        return DurationHistogram(np.concatenate([start.latencies_ns for start in self.starts]))

    @cached_property
    def mean_ns(self) -> Interval:
        return mean_interval(start.mean_ns for start in self.starts)

    @cached_property
    def throughput_fps(self) -> Interval:
        return mean_interval(start.throughput_fps for start in self.starts)

    def percentile_ns(self, percent: float) -> Interval:
        return percentile_interval((start.latencies_ns for start in self.starts), percent)

    def board_mean(self, name: str) -> float | None:
        """Return the mean of a field of the starts, such as ``temperature_c``.

        ``None``: no start has it.
        """
        values = [getattr(start.start, name) for start in self.starts]
        known = [value for value in values if value is not None]
        return fmean(known) if known else None

    @property
    def unsettled(self) -> int:
        return sum(not start.warm_up.settled for start in self.starts)

    @cached_property
    def components(self) -> Components | None:
        """Where the variance of the mean comes from; ``None``: there is one start."""
        return components([start.latencies_ns for start in self.starts])

    @property
    def advice(self) -> Advice | None:
        """What would give the mean to one per cent; ``None``: there is one start."""
        if self.components is None:
            return None
        frame_s = np.mean([figures.frame_s for figures in self.starts])
        start_s = np.mean([figures.without_frames_s for figures in self.starts])
        return advice(self.components, self.mean_ns.value, float(start_s), float(frame_s))

    @cached_property
    def stages(self) -> tuple[StageFigures, ...]:
        """By rank; a start that took one route alone knows nothing of the stages of the other."""
        times: dict[tuple[int, int, int], list[NDArray[np.int64]]] = {}
        for figures in self.starts:
            for stage in figures.start.stages:
                compute_ns = np.array(stage.compute_ns, np.int64)
                # A rank in turn has had its share of the frames of the warm-up.
                first = figures.warm_up.frames * len(compute_ns) // len(figures.start.latency_ns)
                if len(compute_ns) > first:
                    name = (stage.rank, stage.route, stage.segment)
                    times.setdefault(name, []).append(compute_ns[first:])
        return tuple(
            StageFigures(
                *name,
                DurationHistogram(np.concatenate(by_start)),
                mean_interval(float(compute_ns.mean()) for compute_ns in by_start),
            )
            for name, by_start in sorted(times.items())
        )


def series(bench: Bench, subject: int, load: int) -> SeriesFigures:
    window = bench.subjects[subject].window
    starts = [StartFigures(start, window) for start in bench.of(subject, load)]
    return SeriesFigures(subject, load, tuple(starts))


def by_frequency(bench: Bench) -> list[SeriesFigures]:
    """Return the series of a benchmark at frequencies, by these; empty: none was set."""
    loads = enumerate(bench.loads)
    numbers = [n for n, load in loads if load.frequency_mhz is not None and bench.of(0, n)]
    return [series(bench, 0, number) for number in numbers]


def all_series(bench: Bench) -> list[SeriesFigures]:
    return [
        series(bench, subject, load)
        for load in range(len(bench.loads))
        for subject in range(len(bench.subjects))
        if bench.of(subject, load)
    ]


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure of one job over that of another, under a load."""

    load: str
    figure: str
    measured: Interval
    reference: Interval
    """In the same unit: milliseconds, or frames per second."""
    ratio: Interval
    more: str
    less: str
    """What a ratio above and below 1 means."""


_TimeOf = Callable[[StartFigures], float]
_TIMES: dict[str, _TimeOf] = {
    "mean": lambda start: start.mean_ns,
    "p50": lambda start: start.percentile_ns(50),
    "p99": lambda start: start.percentile_ns(99),
}


def ratios(
    load: Load, measured: SeriesFigures, reference: SeriesFigures, *, paired: bool
) -> list[Ratio]:
    """Return one job's figures over another's, as far as they can be compared.

    The throughput is not, where frames come at a rate of their own: it is that rate. In the closed
    loop latencies are not if the windows differ, as these decide them.

    Args:
        paired: whether their starts were measured in turn, and are compared pair by pair.
    """
    ratio = paired_ratio if paired else unpaired_ratio

    def compared(figure: str, value: _TimeOf, unit: float, more: str, less: str) -> Ratio:
        sides = [[value(start) for start in side.starts] for side in (measured, reference)]
        means = [mapped(mean_interval(side), lambda mean: mean * unit) for side in sides]
        return Ratio(load.name, figure, means[0], means[1], ratio(*sides), more, less)

    rows = []
    if load.is_closed_loop:
        rows.append(
            compared("frames/s", lambda start: start.throughput_fps, 1.0, "faster", "slower")
        )
    if not load.is_closed_loop or measured.starts[0].window == reference.starts[0].window:
        rows += [
            compared(f"{name} ms", value, 1e-6, "slower", "faster")
            for name, value in _TIMES.items()
        ]
    return rows


def own_ratios(bench: Bench) -> list[Ratio]:
    """Return the first job's figures over the second's, in turns; empty: there is one."""
    if len(bench.subjects) < 2:
        return []
    rows: list[Ratio] = []
    for number, load in enumerate(bench.loads):
        sides = [series(bench, subject, number) for subject in (0, 1)]
        both = {start.start.turn for start in sides[0].starts}
        both &= {start.start.turn for start in sides[1].starts}
        if both:
            pairs = (_of_turns(side, both) for side in sides)
            rows += ratios(load, *pairs, paired=True)
    return rows


def _of_turns(side: SeriesFigures, turns: Set[int]) -> SeriesFigures:
    starts = {start.start.turn: start for start in side.starts if start.start.turn in turns}
    return replace(side, starts=tuple(starts.values()))


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
        own.board_mean("frequency_mhz"),
        own.board_mean("temperature_c"),
    )
