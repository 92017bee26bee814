"""What a co-runner does, told from values that are made."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from benchmarks_made import MS, bench, start

from rankslice.measurement.bench.bench_records import Bench, CoRunnerCores, Load
from rankslice.measurement.bench.series import beside_figures
from rankslice.views.bench_sections import beside_lines, beside_row, beside_section
from rankslice.views.content import Figure

BUSY = (0.0, 0.5, 1.0)


def slowed(times: float, *, mhz: float | None = None) -> Bench:
    """Return a benchmark whose latency grows with the co-runner's work, up to so many times."""
    draw = np.random.default_rng(5)
    starts = []
    for turn in range(4):
        for load, busy in enumerate(BUSY):
            usual = 10 * MS * (1 + (times - 1) * busy) * draw.normal(1, 0.005)
            made = start(draw.normal(usual, MS / 10, 80), load=load, turn=turn)
            cores = [CoRunnerCores("", 1.9 * busy)] if busy else []
            cores += [CoRunnerCores("edge02", 0.4)] if busy == 0.5 else []
            frequency = None if mhz is None else mhz - 200 * busy
            starts.append(replace(made, co_runner=tuple(cores), frequency_mhz=frequency))
    loads = [Load(f"busy {busy}", 50.0, beside="cpu", busy=busy) for busy in BUSY]
    return bench(starts, loads=loads)


def test_a_slower_job_and_a_lower_frequency_are_told() -> None:
    measured = beside_figures(slowed(1.5, mhz=2000.0))
    assert measured[0].ratio is None
    assert [1.25, 1.5] == [
        pytest.approx(beside.ratio.ratio.value, rel=0.01) for beside in measured[1:] if beside.ratio
    ]
    assert [2000, 1900, 1800] == [beside.frequency_mhz for beside in measured]
    assert ["0.00", "0.95 (here), 0.40 (edge02)"] == [
        beside_row(beside)[1] for beside in measured[:2]
    ]
    row = beside_row(measured[2])
    assert ("100 %", "1.90", "1800", "-") == (row[0], row[1], row[6], row[7])
    lines = [*beside_lines(measured)]
    assert re.match(
        r"beside a co-runner \(cpu\) that works 100 % of the time the mean latency is"
        r" 1\.\d+ times that without it \(95 %: 1\.\d+ to 1\.\d+\)",
        lines[0],
    )
    assert ["temperature: absent, the board does not provide it"] == lines[1:]
    figures = [part for part in beside_section(measured).parts if isinstance(part, Figure)]
    assert ["latency", "frequency"] == [figure.caption for figure in figures]
    assert all("co-runner (cpu) works, % of the time</text>" in figure.svg for figure in figures)


def test_no_effect_is_not_significant() -> None:
    lines = [*beside_lines(beside_figures(slowed(1.0)))]
    assert "does not differ significantly" in lines[0]
    assert "frequency: absent, the board does not provide it" in lines


def test_there_is_nothing_to_tell_without_a_co_runner() -> None:
    assert [] == beside_figures(bench([start([MS] * 80)]))
