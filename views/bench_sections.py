"""Sections of a benchmark: MLPerf's scenarios, reasons of variance, the effect of a co-runner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rankslice.framework.wording import fixed_text, number_text, percent_text
from rankslice.measurement.bench.bench_records import Bench
from rankslice.measurement.bench.intervals import Interval, is_significant
from rankslice.measurement.bench.scenarios import ScenarioFigures
from rankslice.measurement.bench.series import BesideFigures, SeriesFigures, all_series
from rankslice.measurement.bench.variance import VarianceParts, explanation, variance_parts
from rankslice.views.bench_tables import milliseconds, names_of
from rankslice.views.charts import Axis, Bar, Point, Series, bar_figure, line_figure
from rankslice.views.content import Notice, Section, Table

_UNKNOWN = "-"
_MS = 1e-6
_LEVELS = {
    "frames": "between frames",
    "machine": "machine, over time",
    "starts": "between starts",
}
_PERCENTS = (50.0, 99.0)
"""Of latencies beside a co-runner."""


def scenario_section(figures: ScenarioFigures) -> Section:
    scenario, rate = figures.scenario, number_text(figures.throughput_fps)
    head: tuple[str, ...] = ("measured by", "frames", "frames/s")
    row: tuple[str, ...] = ("this run", str(figures.frames), rate)
    if scenario.percentile is not None:
        percentile = f"p{100 * scenario.percentile:g}"
        proven = f"{percentile} at 99 % confidence"
        head = ("measured by", "queries", "frames/s", "mean ms", percentile, proven)
        times = (figures.mean_s, figures.percentile_s, figures.proven_s)
        cells = (_UNKNOWN if time is None else number_text(1e3 * time) for time in times)
        row = ("this run", str(figures.queries), rate, *cells)
    text = f"MLPerf {scenario.name}, where {scenario.arrival}: {figures.verdict()}"
    table = Table(f"MLPerf {scenario.name}", head, (row,))
    return Section("MLPerf scenario", (), (table, Notice("Answer", (text,))))


@dataclass(frozen=True, slots=True)
class Explained:
    """A job under a load, and where the variance of its latencies comes from."""

    job: str
    load: str
    parts: VarianceParts | None
    """``None``: there are too few starts or frames to tell."""

    def lines(self) -> list[str]:
        if self.parts is None:
            return ["At least two starts are needed to split the variance."]
        return explanation(self.parts)


def explained(bench: Bench) -> list[Explained]:
    names = names_of(bench)
    return [
        Explained(names[series.subject], bench.loads[series.load].name, _parts(series))
        for series in all_series(bench)
    ]


def _parts(series: SeriesFigures) -> VarianceParts | None:
    starts = sorted(series.starts, key=lambda start: start.start.began_s)
    return variance_parts([start.latencies_ns for start in starts])


def explained_section(explanations: Sequence[Explained]) -> Section:
    """Show the shares of the variance: of a frame's latency, and of the mean."""
    rows: list[tuple[str, ...]] = []
    bars = []
    for one in explanations:
        if (parts := one.parts) is None:
            continue
        for of, shares, deviation in (
            ("a frame", parts.shares(), parts.total**0.5),
            ("the mean", parts.shares_of_mean(), parts.uncertainty * parts.mean_ns),
        ):
            cells = (percent_text(shares[level]) for level in _LEVELS)
            rows.append((one.job, one.load, of, *cells, milliseconds(deviation)))
            percents = tuple(100 * share for share in shares.values())
            bars.append(Bar(f"{one.job}, {one.load}: {of}", percents))
    head = ("job", "load", "of", *_LEVELS.values(), "deviation ms")
    table = Table("variance of the latency", head, tuple(rows))
    text = tuple(f"{one.job}, {one.load}: {' '.join(one.lines())}" for one in explanations)
    if not bars:
        return Section("Why it varies", text)
    kinds, axis = tuple(_LEVELS.values()), Axis("% of the variance")
    figure = bar_figure("where the variance comes from", bars, kinds, axis)
    return Section("Why it varies", text, (table, figure))


_OVER_FREQUENCY = (50.0, 95.0)
_MAX_OFF = 0.02
"""By what share a clock may differ from what was set without a word of it."""


def frequency_section(bench: Bench, measured: Sequence[SeriesFigures]) -> Section:
    """Return latency, rate and energy over the clocks' frequency, and latency over temperature."""
    loads = [bench.loads[series.load] for series in measured]
    pairs = [(load.frequency_mhz or 0.0, own) for load, own in zip(loads, measured, strict=True)]
    clock, latency = Axis("frequency that is set, MHz"), Axis("latency, ms")
    lines = [
        Series("mean", tuple(_point(mhz, own.mean_ns, _MS) for mhz, own in pairs)),
        *(
            Series(f"p{p:g}", tuple(_point(mhz, own.percentile_ns(p), _MS) for mhz, own in pairs))
            for p in _OVER_FREQUENCY
        ),
    ]
    rates = Series("rate", tuple(_point(mhz, own.throughput_fps) for mhz, own in pairs))
    energy = [(mhz, own.board_mean("mj_per_frame")) for mhz, own in pairs]
    figures = [
        line_figure("latency over frequency", lines, clock, latency),
        line_figure("rate over frequency", [rates], clock, Axis("frames/s")),
    ]
    if points := tuple(Point(mhz, value) for mhz, value in energy if value is not None):
        named = "energy per frame, mJ"
        figures.append(line_figure(named, [Series(named, points)], clock, Axis(named)))
    warm = [Series(f"{mhz:g} MHz", _over_temperature(own), is_joined=False) for mhz, own in pairs]
    if any(series.points for series in warm):
        caption = "mean latency of each start over temperature"
        figures.append(line_figure(caption, warm, Axis("temperature, °C"), latency))
    head = ("set, MHz", "measured", "°C", "frames/s", "mean ms", "p50", "p95", "mJ per frame")
    table = Table("by frequency", head, tuple(frequency_row(*pair) for pair in pairs))
    notice = Notice("Notes", tuple(_frequency_lines(pairs)), "note")
    return Section("Frequencies of the processors", (), (*figures, table, notice))


def _over_temperature(series: SeriesFigures) -> tuple[Point, ...]:
    starts = ((one.start.temperature_c, _MS * one.mean_ns) for one in series.starts)
    return tuple(Point(celsius, mean) for celsius, mean in starts if celsius is not None)


def frequency_row(mhz: float, series: SeriesFigures) -> tuple[str, ...]:
    times = (series.mean_ns.value, *(series.percentile_ns(p).value for p in _OVER_FREQUENCY))
    return (
        f"{mhz:g}",
        _known(series.board_mean("frequency_mhz")),
        _known(series.board_mean("temperature_c")),
        number_text(series.throughput_fps.value),
        *map(milliseconds, times),
        _known(series.board_mean("mj_per_frame")),
    )


def _known(value: float | None) -> str:
    return _UNKNOWN if value is None else number_text(value)


def _frequency_lines(pairs: Sequence[tuple[float, SeriesFigures]]) -> Iterator[str]:
    """Yield where clocks were not as they were set, and what is not known."""
    for mhz, series in pairs:
        names = {"limit_mhz": "the kernel set", "frequency_mhz": "the clocks had"}
        for name, what in names.items():
            value = series.board_mean(name)
            if value is not None and abs(value / mhz - 1) > _MAX_OFF:
                yield f"{mhz:g} MHz: {what} {number_text(value)} MHz on average"
    for name, what in (
        ("frequency_mhz", "the measured frequency"),
        ("temperature_c", "the temperature"),
        ("mj_per_frame", "the energy"),
    ):
        if all(series.board_mean(name) is None for _, series in pairs):
            yield f"{what} is absent: the board does not provide it, or the starts are too short"


def beside_section(measured: Sequence[BesideFigures]) -> Section:
    """Return latency against the co-runner's work, with frequency and temperature."""
    kind = measured[0].load.beside
    pairs = [(100 * one.load.busy, one.series) for one in measured]
    work = Axis(f"co-runner ({kind}) works, % of the time")
    lines = [
        Series("mean", tuple(_point(busy, own.mean_ns, _MS) for busy, own in pairs)),
        *(
            Series(f"p{p:g}", tuple(_point(busy, own.percentile_ns(p), _MS) for busy, own in pairs))
            for p in _PERCENTS
        ),
    ]
    figures = [line_figure("latency", lines, work, Axis("latency, ms"))]
    for label in _hardware(measured[0]):
        values = [(100 * one.load.busy, _hardware(one)[label]) for one in measured]
        caption = label.partition(",")[0]
        if points := tuple(Point(x, y) for x, y in values if y is not None):
            figures.append(line_figure(caption, [Series(label, points)], work, Axis(label)))
    head = ("busy", "cores", "mean ms", "p50", "p99", "times the mean alone", "MHz", "°C")
    table = Table("beside a co-runner", head, tuple(map(beside_row, measured)))
    notice = Notice("What it says", tuple(beside_lines(measured)))
    return Section(f"Beside a co-runner: {kind}", (), (*figures, table, notice))


def beside_row(measured: BesideFigures) -> tuple[str, ...]:
    own = measured.series
    return (
        f"{100 * measured.load.busy:g} %",
        _cores_text(measured.cores),
        milliseconds(own.mean_ns.value),
        *(milliseconds(own.histogram.percentile_ns(percent)) for percent in _PERCENTS),
        _UNKNOWN if measured.ratio is None else _ratio_text(measured.ratio.ratio),
        *map(_known, _hardware(measured).values()),
    )


def _cores_text(cores: dict[str, float]) -> str:
    if len(cores) < 2:
        return fixed_text(sum(cores.values()))
    return ", ".join(f"{fixed_text(value)} ({name or 'here'})" for name, value in cores.items())


def _hardware(measured: BesideFigures) -> dict[str, float | None]:
    return {"frequency, MHz": measured.frequency_mhz, "temperature, °C": measured.temperature_c}


def _ratio_text(ratio: Interval) -> str:
    if not ratio.is_known:
        return number_text(ratio.value)
    return f"{number_text(ratio.value)} ({number_text(ratio.low)} to {number_text(ratio.high)})"


def beside_lines(measured: Sequence[BesideFigures]) -> Iterator[str]:
    """Yield what the co-runner does to the job, and what is not known."""
    busiest = max(measured, key=lambda one: one.load.busy)
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
    for label in _hardware(measured[0]):
        if all(_hardware(one)[label] is None for one in measured):
            yield f"{label.partition(',')[0]}: absent, the board does not provide it"


def _point(x: float, value: Interval, unit: float = 1.0) -> Point:
    ends = (unit * value.low, unit * value.high) if value.is_known else ()
    return Point(x, unit * value.value, *ends)
