"""Memory that a job needs at least, compared with what boards have."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from jobs import FIGURE_2_RANKS, build_folder, figure_2, routed_figure, use_null_engine

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.system.processes import free_bytes
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.read_driver import read_driver
from rankslice.session.prepare import least_memory, prepare, too_little_memory

USUAL = RunOptions()


def needed(folder: Path, options: RunOptions = USUAL) -> dict[str, tuple[int, ...]]:
    return least_memory(read_driver(folder / "driver.py"), folder, options)


def test_memory_and_swap_count(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(
        "MemTotal: 900 kB\nMemFree: 1 kB\nMemAvailable:    300 kB\nSwapFree: 4 kB\n"
    )
    assert 304 * 1024 == free_bytes(tmp_path)


@pytest.mark.parametrize("text", ["", "MemAvailable: lots\n", "SwapFree: 4 kB\n"])
def test_memory_that_is_not_told_is_unknown(text: str, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text(text)
    assert free_bytes(tmp_path) is None


def test_both_routes_count(tmp_path: Path) -> None:
    folder = routed_figure(tmp_path)
    routes = read_driver(folder / "driver.py").routes
    files = [
        sum((folder / segment.file).stat().st_size for segment in route.segments)
        for route in routes
    ]
    computing = needed(folder)["local"]
    use_null_engine(folder)
    sleeping = needed(folder)["local"]
    assert files == [a - b for a, b in zip(computing, sleeping, strict=True)]
    assert min(sleeping) > 0


def test_slots_grow_with_the_window(tmp_path: Path) -> None:
    folder = build_folder(tmp_path, figure_2(), FIGURE_2_RANKS)
    few, many = (needed(folder, RunOptions(window=window))["local"] for window in (1, 50))
    assert few < many


def test_a_board_with_too_little_memory_is_told_with_both_routes() -> None:
    mistakes = too_little_memory(
        {"board a (h)": (2_000_000, 5_000_000)}, {"board a (h)": 6_000_000}
    )
    assert [
        "board a (h): needs 7 MB or more for weights and slots of both routes (2 MB for normal,"
        " 5 MB for surge), and has 6 MB free; give it fewer layers, run with a smaller --window, or"
        " end other programs there; without --surge it needs those of one route"
    ] == [*map(str, mistakes)]


@pytest.mark.parametrize("free", [7_000_000, None])
def test_a_board_that_may_have_enough_is_not_refused(free: int | None) -> None:
    assert [] == [*too_little_memory({"a": (2_000_000, 5_000_000)}, {"a": free})]


def test_a_job_that_cannot_fit_does_not_start(tmp_path: Path) -> None:
    folder = routed_figure(tmp_path)
    surge = read_driver(folder / "driver.py").routes[1]
    os.truncate(folder / surge.segments[0].file, 1 << 42)  # without blocks on the disk
    with pytest.raises(RankSliceError) as error:
        prepare(folder, USUAL)
    assert re.match(
        r"this machine: needs 4,398,047 MB or more for weights and slots of both routes"
        r" \(0 MB for normal, 4,398,047 MB for surge\), and has [\d,]+ MB free; ",
        str(error.value),
    )
    assert folder.resolve() == prepare(folder, USUAL, check_memory=False).folder
