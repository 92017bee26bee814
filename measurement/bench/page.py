"""A benchmark as one HTML page."""

from __future__ import annotations

from rankslice.measurement.bench.figures import all_series, own_ratios
from rankslice.measurement.bench.quiet import unquiet
from rankslice.measurement.bench.records import Bench
from rankslice.measurement.bench.texts import (
    RATIO_HEAD,
    SERIES_HEAD,
    advice_texts,
    notes_of,
    ratio_row,
    series_row,
)
from rankslice.measurement.pages.page import Page, Section, Table


def bench_page(bench: Bench) -> Page:
    """Return the page of a benchmark."""
    found = all_series(bench)
    rows = tuple(series_row(bench, each) for each in found)
    right = tuple(range(2, len(SERIES_HEAD)))
    tables = [Table("Rates and latencies", SERIES_HEAD, rows, right)]
    if ratios := own_ratios(bench):
        first, second = (subject.name for subject in bench.subjects)
        caption = f"{first} over {second}, in turns"
        right = tuple(range(2, len(RATIO_HEAD) - 1))
        tables.append(Table(caption, RATIO_HEAD, tuple(map(ratio_row, ratios)), right))
    notes = (*notes_of(bench, found), *unquiet(bench.machine, bench.starts))
    return Page(
        f"Benchmark of {bench.subjects[0].name}",
        f"{bench.machine.processor}, {bench.machine.cores} cores, {bench.machine.kernel}",
        (
            Section("Figures", notes, tuple(tables)),
            Section("Accuracy", tuple(advice_texts(bench, found))),
        ),
    )
