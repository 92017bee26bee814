"""Benchmarks of several build folders, for a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rankslice.measurement.bench.figures import Ratio, all_series
from rankslice.measurement.bench.records import Bench
from rankslice.views.bench_texts import RATE_HEAD, RATIO_HEAD, rate_row, ratio_row
from rankslice.views.charts import Axis, Estimate, Mark, interval_chart
from rankslice.views.page import Figure, Section, Table


@dataclass(frozen=True, slots=True)
class KeptBench:
    """The last benchmark of a build folder."""

    name: str
    """Of the folder, as the user gave it."""
    bench: Bench | None
    """``None``: it could not be read."""
    ratios: tuple[Ratio, ...] = ()
    """Its figures over those of the first folder that has a benchmark."""
    notes: tuple[str, ...] = ()
    """What must be known to read them, or why there are none."""


def bench_section(benches: Sequence[KeptBench]) -> Section:
    """Return the rates and latencies of benchmarks, and their ratios, with intervals."""
    read = [(kept.name, kept.bench) for kept in benches if kept.bench is not None]
    rates = tuple(
        (name, *rate_row(bench, series)) for name, bench in read for series in all_series(bench)
    )
    found = [(kept.name, ratio) for kept in benches for ratio in kept.ratios]
    texts = tuple(f"{kept.name}: {note}" for kept in benches for note in kept.notes)
    head = ("folder", *RATE_HEAD)
    parts: list[Table | Figure] = []
    if rates:
        parts.append(Table("Rates and mean latencies", head, rates, (3, 4, 5, 6)))
    if found:
        rows = tuple((name, *ratio_row(ratio)) for name, ratio in found)
        caption = f"Ratios to {read[0][0]}"
        parts.append(Table(caption, ("folder", *RATIO_HEAD), rows, (3, 4)))
        parts.append(
            Figure(
                caption,
                interval_chart(
                    [_estimate(*each) for each in found], _RATIO, reference=Mark(1.0, "the same")
                ),
            )
        )
    return Section("Benchmarks", texts, tuple(parts))


_RATIO = Axis("ratio, with its 95 % interval")


def _estimate(name: str, ratio: Ratio) -> Estimate:
    found = ratio.ratio
    text = ratio_row(ratio)[2]
    return Estimate(
        f"{name}, {ratio.load}: {ratio.figure}", found.value, found.low, found.high, text
    )
