"""The figures of MLPerf's scenarios as texts of tables and lines, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator

from rankslice.measurement.bench.loadgen import LoadgenTest
from rankslice.measurement.bench.scenarios import ScenarioFigures
from rankslice.views.bench_texts import number_text
from rankslice.views.page import Notice, Section, Table

_UNKNOWN = "-"


def scenario_head(figures: ScenarioFigures) -> tuple[str, ...]:
    """Return the head of a table of a scenario's figures."""
    share = figures.scenario.percentile
    if share is None:
        return ("measured by", "frames", "frames/s")
    percentile = f"p{100 * share:g}"
    proven = f"{percentile} at 99 % confidence"
    return ("measured by", "queries", "frames/s", "mean ms", percentile, proven)


def scenario_rows(figures: ScenarioFigures, test: LoadgenTest | None) -> list[tuple[str, ...]]:
    """Return the rows of that table: our own job, and the load generator's test of it."""
    rows = [_row("this run", figures)]
    if test is None:
        return rows
    told, seen = test.told, _row("our clock in its test", test.seen)
    name = f"loadgen {told.version}"
    if figures.scenario.percentile is None:
        return [*rows, (name, str(test.seen.frames), _number(told.throughput_fps)), seen]
    times = [_milliseconds(each) for each in (told.mean_s, told.percentile_s, told.proven_s)]
    return [*rows, (name, str(told.queries), _number(told.throughput_fps), *times), seen]


def _row(name: str, figures: ScenarioFigures) -> tuple[str, ...]:
    rate = number_text(figures.throughput_fps)
    if figures.scenario.percentile is None:
        return name, str(figures.frames), rate
    values = figures.mean_s, figures.percentile_s, figures.proven_s
    return name, str(figures.queries), rate, *map(_milliseconds, values)


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else number_text(value)


def _milliseconds(seconds: float | None) -> str:
    return _UNKNOWN if seconds is None else number_text(1e3 * seconds)


def scenario_lines(figures: ScenarioFigures, test: LoadgenTest | None) -> Iterator[str]:
    """Yield what was found, in sentences without their full stops."""
    scenario = figures.scenario
    yield f"MLPerf {scenario.name}, where {scenario.arrival}: {figures.verdict()}"
    if test is None:
        return
    if test.told.is_valid:
        yield "loadgen: the result is valid"
    else:
        yield f"loadgen: the result is not valid: {test.told.reason.rstrip('.')}"
    yield agreement(test)
    own, other = _metric(figures), _metric_of_loadgen(test)
    yield (
        f"loadgen's figure is {number_text(other / own if own else 0.0)} times that of this run:"
        " its frames come from a program by a connection, not from the source of the job"
    )


def agreement(test: LoadgenTest) -> str:
    """Return how far loadgen's own figure and ours of the same queries are apart."""
    told, seen = _metric_of_loadgen(test), _metric(test.seen)
    return f"of the same queries loadgen and our clock differ by {_difference(seen, told)}"


def _difference(value: float, other: float) -> str:
    return f"{100 * abs(value / other - 1):.2f} %" if other else "all"


def _metric(figures: ScenarioFigures) -> float:
    """Return the figure that counts in the scenario."""
    return figures.throughput_fps if figures.percentile_s is None else figures.percentile_s


def _metric_of_loadgen(test: LoadgenTest) -> float:
    told = test.told
    value = told.throughput_fps if test.seen.percentile_s is None else told.percentile_s
    return value or 0.0


def scenario_section(figures: ScenarioFigures, test: LoadgenTest | None) -> Section:
    """Return the section of a page that tells a scenario's figures."""
    head = scenario_head(figures)
    rows = tuple(scenario_rows(figures, test))
    table = Table(f"MLPerf {figures.scenario.name}", head, rows, tuple(range(1, len(head))))
    told = tuple(f"{text[:1].upper()}{text[1:]}." for text in scenario_lines(figures, test))
    warns = figures.is_within_limit is False
    return Section("MLPerf scenario", (), (Notice("Answer", told, warns=warns), table))
