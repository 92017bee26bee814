"""What the frequency of processors does to a job, told from values that are made."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
from benchmarks_made import MS, bench, start

from rankslice.commands.bench.show import frequencies_csv, frequencies_json
from rankslice.measurement.bench.bench_records import Bench, Load
from rankslice.measurement.bench.quiet import unquiet
from rankslice.measurement.bench.series import by_frequency
from rankslice.views.bench_sections import frequency_section
from rankslice.views.content import Figure, Notice, Table

SET = (600.0, 1200.0, 2400.0)


def swept(*, mj: float | None = 12.0, reached: float = 2400.0) -> Bench:
    """Return a benchmark whose latency is inverse to the frequency, up to the one reached."""
    draw = np.random.default_rng(5)
    starts = []
    for turn in range(3):
        for load, mhz in enumerate(SET):
            real = min(mhz, reached)
            made = start(draw.normal(6000 * MS / real, MS / 50, 80), load=load, turn=turn)
            of_board = {"frequency_mhz": real, "limit_mhz": real, "temperature_c": 40.0 + turn}
            starts.append(replace(made, **of_board, mj_per_frame=mj))
    return bench(starts, loads=[Load(f"{mhz:g} MHz", 50.0, frequency_mhz=mhz) for mhz in SET])


def test_latency_rate_and_energy_are_drawn_over_frequency_and_latency_over_temperature() -> None:
    measured = swept()
    section = frequency_section(measured, by_frequency(measured))
    figures = [part for part in section.parts if isinstance(part, Figure)]
    assert [
        "latency over frequency",
        "rate over frequency",
        "energy per frame, mJ",
        "mean latency of each start over temperature",
    ] == [figure.caption for figure in figures]
    assert figures[3].values is not None
    assert [("600 MHz", "40"), ("600 MHz", "41")] == [row[:2] for row in figures[3].values.rows[:2]]
    (table,) = (part for part in section.parts if isinstance(part, Table))
    assert ("600", "600.0", "41.00", "100.0", "10.00", "10.00") == table.rows[0][:6]
    assert [row[7] for row in table.rows] == ["12.00"] * 3
    (notice,) = (part for part in section.parts if isinstance(part, Notice))
    assert () == notice.texts


def test_a_clock_that_was_not_as_it_was_set_and_an_absent_sensor_are_told() -> None:
    measured = swept(mj=None, reached=1600.0)
    section = frequency_section(measured, by_frequency(measured))
    assert section.parts[-1] == Notice(
        "Notes",
        (
            "2400 MHz: the kernel set 1600 MHz on average",
            "2400 MHz: the clocks had 1600 MHz on average",
            "the energy is absent: the board does not provide it, or the starts are too short",
        ),
        "note",
    )


def test_a_line_of_the_table_is_a_frequency_and_no_energy_an_empty_cell() -> None:
    records = frequencies_json(swept(mj=None))
    rows = [*csv.DictReader(frequencies_csv(records).splitlines())]
    assert ["600.0", "1200.0", "2400.0"] == [row["frequency_mhz"] for row in rows]
    assert {""} == {row["mj_per_frame"] for row in rows}
    assert [records[0]["p95_ns"]["value"]] == [float(rows[0]["p95_ns"])]
    assert [] == frequencies_json(bench([start([MS] * 80)]))


def test_a_governor_does_not_disturb_where_the_frequency_is_set() -> None:
    measured = swept()
    machine = replace(measured.machine, governor="schedutil")
    assert [] == unquiet(replace(measured, machine=machine))
    alone = replace(measured, machine=machine, loads=tuple(map(Load, "abc")))
    assert ["the machine was not quiet: the governor 'schedutil'"] == [
        text[:51] for text in unquiet(alone)
    ]
