"""What a co-runner does to a job: latency against its work, and what goes with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from rankslice.measurement.bench.figures import Ratio, SeriesFigures, ratios, series
from rankslice.measurement.bench.intervals import Interval, is_significant
from rankslice.measurement.bench.records import Bench, Load, Start
from rankslice.views.bench_texts import milliseconds, number_text
from rankslice.views.charts import Point, Series, line_chart
from rankslice.views.page import Figure, Notice, Section, Table
from rankslice.views.scales import Axis
from rankslice.views.stacked import stacked_charts

BESIDE_HEAD = ("busy", "cores", "mean ms", "p50", "p99", "times the mean alone", "MHz", "°C")
_UNKNOWN = "-"
_MS = 1e-6
_PERCENTS = (50.0, 99.0)


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


def beside_row(found: BesideFigures) -> tuple[str, ...]:
    """Return the texts of a row under :data:`BESIDE_HEAD`."""
    own = found.series
    return (
        f"{100 * found.load.busy:g} %",
        _cores_text(found.cores),
        milliseconds(own.mean_ns.value),
        *(milliseconds(own.histogram.percentile_ns(percent)) for percent in _PERCENTS),
        _UNKNOWN if found.ratio is None else _ratio_text(found.ratio.ratio),
        *(_UNKNOWN if each is None else number_text(each) for each in _hardware(found)),
    )


def _cores_text(cores: dict[str, float]) -> str:
    """Return a number, or one for each board if there are several."""
    if len(cores) < 2:
        return f"{sum(cores.values()):.2f}"
    return ", ".join(f"{value:.2f} ({name or 'here'})" for name, value in cores.items())


def _hardware(found: BesideFigures) -> tuple[float | None, float | None]:
    return found.frequency_mhz, found.temperature_c


def _ratio_text(ratio: Interval) -> str:
    if not ratio.is_known:
        return number_text(ratio.value)
    return f"{number_text(ratio.value)} ({number_text(ratio.low)} to {number_text(ratio.high)})"


def beside_lines(found: Sequence[BesideFigures]) -> Iterator[str]:
    """Yield what the co-runner does to the job, and what is not known."""
    busiest = max(found, key=lambda each: each.load.busy)
    if busiest.ratio is not None:
        ratio, load = busiest.ratio.ratio, busiest.load
        share = f"{100 * load.busy:g} %"
        beside = f"beside a co-runner ({load.beside}) that works {share} of the time"
        if not ratio.is_known:
            yield f"{beside} the mean latency is {number_text(ratio.value)} times that without it"
        elif is_significant(ratio):
            bounds = f"{number_text(ratio.low)} to {number_text(ratio.high)}"
            yield (
                f"{beside} the mean latency is {number_text(ratio.value)} times that without it"
                f" (95 %: {bounds})"
            )
        else:
            yield f"{beside} the mean latency does not differ significantly"
    for name, absent in (
        ("frequency", all(each.frequency_mhz is None for each in found)),
        ("temperature", all(each.temperature_c is None for each in found)),
    ):
        if absent:
            yield f"{name}: absent, the board does not provide it"


def beside_section(found: Sequence[BesideFigures]) -> Section:
    """Return latency against the co-runner's work, with frequency and temperature below it."""
    kind = found[0].load.beside
    work = Axis(f"co-runner ({kind}) works, % of the time")
    rows = tuple(map(beside_row, found))
    table = Table("beside a co-runner", BESIDE_HEAD, rows, tuple(range(len(BESIDE_HEAD))))
    lines = [
        Series("mean", tuple(_point(each, each.series.mean_ns) for each in found)),
        *(
            Series(
                f"p{percent:g}",
                tuple(_point(each, each.series.percentile_ns(percent)) for each in found),
            )
            for percent in _PERCENTS
        ),
    ]
    charts = [line_chart(lines, work, Axis("latency, ms")), *_hardware_charts(found, work)]
    caption = "latency" if len(charts) == 1 else "latency, and what the board was like"
    figure = Figure(caption, stacked_charts(charts, f"{caption} over {work.label}"), table)
    notes = tuple(f"{text[:1].upper()}{text[1:]}." for text in beside_lines(found))
    return Section(
        f"Beside a co-runner: {kind}", (), (figure, table, Notice("What it says", notes))
    )


def _point(found: BesideFigures, value: Interval) -> Point:
    low, high = (value.low, value.high) if value.is_known else (None, None)
    return Point(
        100 * found.load.busy,
        _MS * value.value,
        None if low is None else _MS * low,
        None if high is None else _MS * high,
    )


def _hardware_charts(found: Sequence[BesideFigures], work: Axis) -> Iterator[str]:
    for place, label in enumerate(("frequency, MHz", "temperature, °C")):
        values = [(100 * each.load.busy, _hardware(each)[place]) for each in found]
        points = tuple(Point(x, y) for x, y in values if y is not None)
        if points:
            yield line_chart([Series(label, points)], work, Axis(label))
