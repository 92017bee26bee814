"""Where the variance of a benchmark's latencies comes from, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankslice.measurement.bench.figures import SeriesFigures, all_series
from rankslice.measurement.bench.records import Bench
from rankslice.measurement.bench.variance import VarianceParts, explanation, variance_parts
from rankslice.views.bench_texts import names_of, number_text
from rankslice.views.charts import Bar, stacked_bars
from rankslice.views.page import Figure, Section, Table
from rankslice.views.scales import Axis

LEVELS = {
    "frames": "between frames",
    "machine": "machine, over time",
    "starts": "between starts",
}
EXPLAINED_HEAD = ("job", "load", "of", *LEVELS.values(), "deviation ms")


@dataclass(frozen=True, slots=True)
class Explained:
    """A job under a load, and where the variance of its latencies comes from."""

    job: str
    load: str
    parts: VarianceParts | None
    """``None``: there are too few starts or frames to tell."""

    def lines(self) -> list[str]:
        """Return what was found in sentences."""
        if self.parts is None:
            return ["At least two starts are needed to split the variance."]
        return explanation(self.parts)


def explained(bench: Bench) -> list[Explained]:
    """Return where the variance comes from, by load and job."""
    names = names_of(bench)
    return [
        Explained(names[each.subject], bench.loads[each.load].name, _parts(each))
        for each in all_series(bench)
    ]


def _parts(series: SeriesFigures) -> VarianceParts | None:
    starts = sorted(series.starts, key=lambda each: each.start.began_s)
    return variance_parts([each.latencies_ns for each in starts])


def explained_rows(found: Explained) -> list[tuple[str, ...]]:
    """Return a row for a frame's latency and one for the mean under :data:`EXPLAINED_HEAD`."""
    parts = found.parts
    if parts is None:
        return []
    mean_ms = 1e-6 * parts.mean_ns
    rows = (
        ("a frame", parts.shares(), 1e-6 * parts.total**0.5),
        ("the mean", parts.shares_of_mean(), parts.uncertainty * mean_ms),
    )
    return [
        (
            *(found.job, found.load, of),
            *(f"{100 * shares[level]:.0f} %" for level in LEVELS),
            number_text(deviation),
        )
        for of, shares, deviation in rows
    ]


def explained_section(found: Sequence[Explained]) -> Section:
    """Return the section of a page that tells where the variance comes from."""
    rows = tuple(row for each in found for row in explained_rows(each))
    right = tuple(range(3, len(EXPLAINED_HEAD)))
    table = Table("variance of the latency", EXPLAINED_HEAD, rows, right)
    bars = [
        Bar(f"{row[0]}, {row[1]}: {row[2]}", tuple(100 * share for share in shares.values()))
        for each in found
        if each.parts is not None
        for row, shares in zip(
            explained_rows(each),
            (each.parts.shares(), each.parts.shares_of_mean()),
            strict=True,
        )
    ]
    text = tuple(f"{each.job}, {each.load}: {' '.join(each.lines())}" for each in found)
    figures = []
    if bars:
        svg = stacked_bars(bars, tuple(LEVELS.values()), Axis("% of the variance"))
        figures.append(Figure("where the variance comes from", svg, table))
    return Section("Why it varies", text, (table, *figures))
