"""The pages of one run and of several, in a real browser."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks_made import bench, start
from browsers import DESKTOP, PHONE, Elements, opened
from kept_runs import kept_run, plan, rank_run, run_record

from rankslice.backend.runtime.figures.rank_figures import EnergyFigures
from rankslice.measurement.board_history import BoardHistory
from rankslice.session.bench.bench import compare
from rankslice.views.content import Table
from rankslice.views.page import page_html
from rankslice.views.report_page import report_page
from rankslice.views.run_page import run_page
from rankslice.views.side_by_side import KeptBench

HOSTILE = "</script><script>document.title = 'taken'</script><img src=x onerror='alert(1)'>"
LONG = "edge01_a_long_name_" * 12


def hostile_run() -> str:
    ranks = (rank_run(0, HOSTILE, host=HOSTILE, processor=HOSTILE), rank_run(1, LONG))
    energy = EnergyFigures("edge01", "measured", "x", 3.0, 1.0, 3.0, 3.0, rails={HOSTILE: 1.0})
    record = run_record(*ranks, model=HOSTILE, notes=(LONG,), bottleneck=HOSTILE, energy=(energy,))
    return page_html(run_page(record))


def hostile_report() -> str:
    odd = plan()
    odd = replace(odd, layers=tuple(replace(s, layers=(HOSTILE, LONG)) for s in odd.layers))
    pages = (("Timeline", "o%20ut/trace.html"),)
    runs = [
        replace(kept_run(), pages=pages),
        kept_run(HOSTILE, odd, model=HOSTILE, conditions=((HOSTILE, LONG),)),
        kept_run(LONG, plan(Conv1=1)),
    ]
    return page_html(report_page(runs))


@pytest.mark.parametrize("page_of", [hostile_run, hostile_report])
def test_names_are_texts(page_of: Callable[[], str]) -> None:
    page = page_of()
    assert Elements(page).found
    assert 1 == page.count("<script")
    assert "<img" not in page


def test_one_run_alone_has_a_report() -> None:
    assert "Not comparable" not in page_html(report_page([kept_run()]))


def test_a_run_without_a_frame_has_a_page() -> None:
    record = run_record(completed=0, latency_counts=(), energy=(), conditions=(), command=())
    assert Elements(page_html(run_page(record))).found


def test_the_modes_of_boards_have_a_table_even_without_a_sample() -> None:
    for record in (run_record(), run_record(hardware=())):
        page = page_html(run_page(record))
        assert "Modes before the start" in page
        assert "schedutil from 300 to 1958.4 MHz" in page


def test_what_boards_were_like_is_drawn_over_time() -> None:
    series = {f"temperature_c.{HOSTILE}": (40.0, math.nan, 60.0), "frames_inside": (1.0, 2.0, 3.0)}
    history = BoardHistory("edge01", (5, 10**9 + 5, 2 * 10**9 + 5), series, ())
    page = page_html(run_page(run_record(), [history]))
    assert "Temperature, °C</span>" in page
    assert "Clock, MHz" not in page
    assert "edge01 does not provide: power." in page
    assert 1 == page.count("<script")


def test_rails_have_a_chart_of_power_and_a_table_of_energy() -> None:
    series = {"rail_power_w.VDD_SOC": (1.0, 1.2), "rail_power_w.VDD_GPU": (0.5, 0.6)}
    page = run_page(run_record(), [BoardHistory("edge01", (0, 10**9), series, ())])
    parts = [part for section in page.sections for part in section.parts]
    tables = {part.caption: part.rows for part in parts if isinstance(part, Table)}
    assert (("edge01", "VDD_SOC", "3 J", "1 W", "3 mJ"),) == tables["Energy by rail"]
    assert "Power by rail, W</span>" in page_html(page)


@pytest.mark.ci
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("page_of", [hostile_run, hostile_report])
def test_pages_fit_and_are_quiet(
    browser: Any, page_of: Callable[[], str], size: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "page.html").write_text(page_of(), encoding="utf-8")
    with opened(browser, tmp_path / "page.html", size) as page:
        assert "taken" != page.title()
        assert page.locator("svg").first.is_visible()


@pytest.mark.ci
def test_the_ratios_of_a_report_can_be_copied(browser: Any, tmp_path: Path) -> None:
    runs = [kept_run(), kept_run("other", throughput_fps=150.0)]
    (tmp_path / "page.html").write_text(page_html(report_page(runs)), encoding="utf-8")
    with opened(browser, tmp_path / "page.html", PHONE) as page:
        page.get_by_role("button").first.click()
        page.get_by_role("button").first.filter(has_text="copied").wait_for()
        lines = str(page.evaluate("navigator.clipboard.readText()")).splitlines()
        assert "figure\tout\tother\tother / out" == lines[0]
        assert "throughput, frames/s\t100.00\t150.00\t1.50" == lines[1]


def test_benchmarks_are_compared_with_intervals_or_not_with_a_reason() -> None:
    times = np.random.default_rng(1).normal(5e6, 1e5, (2, 5, 200)).astype(int)
    first, other = (
        bench([start(value * factor, turn=turn) for turn, value in enumerate(own)])
        for factor, own in zip((1, 2), times, strict=True)
    )
    comparison = compare(other, first)
    benches = [
        KeptBench("out", first),
        KeptBench(HOSTILE, other, comparison.ratios, comparison.notes),
        KeptBench("odd", None, notes=("odd/bench.json: this is not a benchmark",)),
    ]
    page = page_html(report_page([kept_run()], benches))
    assert "Ratios to out</span>" in page
    assert "<td>slower</td>" in page
    assert "odd: odd/bench.json: this is not a benchmark" in page
    assert 1 == page.count("<script")
