"""What ``run`` prints, and the class names that it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice, succeed
from kept_runs import TIMES, rank_run, run_record
from rich.console import Console

from rankslice.backend.runtime.figures.acceleration import Acceleration
from rankslice.backend.runtime.figures.rank_figures import RouteFigures
from rankslice.backend.runtime.job import ALL, Tensor, Turns
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.backend.runtime.system.modes import BoardMode, ClockMode
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.board_history import HardwareSummary
from rankslice.measurement.summary import RunSummary
from rankslice.views.classes import read_labels
from rankslice.views.run_text import run_parts, shape_lines, shapes_json
from rankslice.views.terminal import show


def ran(*compute_ms: float) -> RunSummary:
    ranks = [
        rank_run(number, f"board_cpu{number}", mean, host="board", frames=5)
        for number, mean in enumerate(compute_ms)
    ]
    end_to_end, before, after = ({**TIMES, "mean": mean} for mean in (48.72, 4.934, 0.004))
    return run_record(
        *ranks,
        frames=5,
        completed=5,
        throughput_fps=None,
        throughput_of="too few frames",
        latency_ms=end_to_end,
        preprocess_ms=before,
        postprocess_ms=after,
        hardware=(),
    ).summary


def printed(summary: RunSummary) -> str:
    console = Console(width=200, color_system=None, highlight=False)
    with console.capture() as captured:
        show(console, *run_parts(summary))
    return captured.get()


def test_one_rank_has_three_steps_and_their_sum_and_queues() -> None:
    assert (
        "means: preprocessing 4.93 ms, inference 43.19 ms, postprocessing 0.00 ms;"
        " end to end 48.72 ms\n"
    ) in printed(ran(43.188))


def test_ranks_that_take_turns_have_a_column_that_says_which_frames_they_handle() -> None:
    summary = ran(1.0, 2.0, 3.0)
    turns = (ALL, Turns(3, (0, 2)), Turns(3, (1,)))
    ranks = tuple(map(lambda rank, own: replace(rank, turns=own), summary.ranks, turns))
    rows = [line.split("│") for line in printed(replace(summary, ranks=ranks)).splitlines()]
    assert ["all", "0, 2 of 3", "1 of 3"] == [
        row[-2].strip() for row in rows if "board" in str(row)
    ]
    assert "frames ┃" not in printed(summary)


def test_ranks_of_two_routes_have_columns_for_both_and_dashes_where_they_had_no_frame() -> None:
    summary = ran(1.0, 2.0)
    times = {**TIMES, "p50": 3.0, "p99": 4.0, "mean": 3.5}
    ranks = (
        replace(summary.ranks[0], surge=RouteFigures(frames=0, compute_ms=TIMES)),
        replace(
            *(summary.ranks[1],),
            frames=0,
            surge=RouteFigures(frames=2, compute_ms=times, turns=Turns(2, (1,))),
        ),
    )
    shown = printed(replace(summary, ranks=ranks, surge_window=6))
    cells = [[cell.strip() for cell in row.split("│")] for row in shown.splitlines()]
    assert ["2.00", "9.00", "3.00", "0.10", "2.50", "80", "–", "–", "all", ""] == cells[3][4:]
    assert ["–", "–", "3.00", "0.10", "2.50", "80", "3.00", "4.00", "1 of 2", ""] == cells[4][4:]
    assert "surge p50" in shown
    assert "window 4 (for a surge 6)" in shown
    assert "rank 0 1.00 ms, rank 1 3.50 ms for a surge, postprocessing" in shown


def test_the_warm_up_is_told_and_who_had_none() -> None:
    summary = ran(1.0, 2.0)
    warm = replace(summary.ranks[0], warm_up_ms=12.344)
    cold = replace(summary.ranks[1], not_warmed_up=("segment 0: it draws random numbers",))
    assert (
        "warm-up before frame 0: rank 0 12.34 ms\n"
        "rank 1 was not warmed up: segment 0: it draws random numbers\n"
    ) in printed(replace(summary, ranks=(warm, cold)))


def test_a_rate_that_nobody_knows_is_not_printed() -> None:
    assert "5 frames, rate unknown (too few frames), window 4" in printed(ran(1.0))


def flat(value: float) -> dict[str, float]:
    return {"min": value, "mean": value, "max": value}


def test_a_hot_board_is_told_with_what_slowed_it_down() -> None:
    series = {
        "temperature_c.cpu0-thermal": {"min": 40.0, "mean": 60.0, "max": 83.1},
        "temperature_c.gpu-thermal": flat(70.0),
        "frequency_mhz.policy0": {"min": 1209.6, "mean": 1500.0, "max": 2400.0},
        "frequency_mhz.policy7": flat(2000.0),
        "cooling_state.thermal-cpufreq-0": {"min": 0.0, "mean": 0.5, "max": 2.0},
        "cooling_state.devfreq-gpu": flat(0.0),
        "throttle_count.core": flat(7.0),
        "throttle_count.package": {"min": 7.0, "mean": 7.5, "max": 8.0},
        "gpu_utilisation_percent": flat(41.0),
        "memory_available_mb": {"min": 5120.0, "mean": 5200.0, "max": 5300.0},
    }
    hot = HardwareSummary("edge01", 5, series, ("power",))
    shown = printed(replace(ran(1.0), hardware=(hot,)))
    assert (
        "hardware of edge01: up to 83 °C (cpu0-thermal), lowest clock 1210 MHz (policy0),"
        " throttled (thermal-cpufreq-0, package), GPU 41 % busy, 5.12 GB of memory left\n"
    ) in shown


def test_the_mode_of_a_board_is_a_line_and_of_a_board_without_one_none() -> None:
    clocks = (ClockMode("policy0", "schedutil", 300.0, 1958.4), ClockMode("x.gpu", "", None, None))
    modes = {"nx01": BoardMode("15W", 2, clocks), "vm": BoardMode()}
    assert (
        "mode of nx01: power mode 15W (2), policy0 schedutil from 300 to 1958.4 MHz,"
        " x.gpu ? from ? to ? MHz\n"
    ) in (shown := printed(replace(ran(1.0), modes=modes)))
    assert "mode of vm" not in shown


def test_what_a_board_does_not_tell_is_named_once_and_a_short_run_says_nothing() -> None:
    silent = HardwareSummary(
        "edge02", 5, {"memory_available_mb": flat(100.0)}, ("frequency", "throttling", "power")
    )
    cool = HardwareSummary("edge03", 5, {"temperature_c.x": flat(40.0)}, ())
    short = HardwareSummary("edge04", 0, {}, ("temperature",))
    shown = printed(replace(ran(1.0), hardware=(silent, cool, short)))
    assert "hardware of edge02: 100 MB of memory left; frequency and throttling unknown\n" in shown
    assert "hardware of edge03: up to 40 °C (x), not throttled\n" in shown
    assert "edge04" not in shown


def test_each_rank_is_a_stage() -> None:
    assert ", rank 0 46.20 ms, rank 1 40.59 ms, postprocessing" in printed(ran(46.2, 40.594))


def test_class_names_are_lines_of_text(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    assert ("cat", "dog") == read_labels(tmp_path / "labels.txt")


@pytest.mark.parametrize(
    "value",
    [
        ["cat", "1", "dog"],
        {"2": "dog", "0": "cat"},
        {"0": ["n02123045", "cat"], "2": ["n02084071", "dog"]},
    ],
)
def test_class_names_are_found_in_json_and_a_missing_one_is_its_number(
    value: object, tmp_path: Path
) -> None:
    (tmp_path / "labels.json").write_text(json.dumps(value))
    assert ("cat", "1", "dog") == read_labels(tmp_path / "labels.json")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "7", '["cat", 1]', "[" * 100_000),
        *('{"cat": "0"}', '{"-1": "cat"}', '{"1000000": "cat"}', '{"0": []}'),
    ],
)
def test_json_of_another_form_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text(text)
    with pytest.raises(RankSliceError, match="holds no class names"):
        read_labels(tmp_path / "labels.json")


def test_a_period_is_the_inverse_of_a_rate(built: Path) -> None:
    shown = rankslice("run", built, "--period-ms", "40", "--dry-run")
    assert "--fps=25.0" in shown.out


def test_the_best_classes_are_shown_without_names_too(built: Path) -> None:
    ended = succeed("run", built, "--frames", "2", "--top", "2")
    assert "top 2" in ended.out
    assert "random 1" in ended.out


@pytest.mark.parametrize(
    ("tf32", "note"), [(False, ", without TF32"), (True, ", float32 as TF32"), (None, "")]
)
def test_a_run_on_nvidias_gpu_says_whether_float32_was_tf32(tf32: bool | None, note: str) -> None:
    record = Acceleration("CUDA", 7, 7, 1, tf32=tf32)
    summary = ran(43.19)
    (rank,) = summary.ranks
    shown = printed(replace(summary, ranks=(replace(rank, accelerated=record),)))
    assert f"rank 0: 7 of 7 operators by CUDA, in 1 partition{note}\n" in shown


def test_a_run_on_nvidias_gpu_says_what_was_used_and_what_not() -> None:
    record = Acceleration(
        *("CUDA", 7, 7, 1),
        tf32=False,
        uses=("device buffers", "blocking sync"),
        without={"CUDA graph": "it has If", "pinned slots": "a: no"},
    )
    summary = ran(43.19)
    (rank,) = summary.ranks
    shown = printed(replace(summary, ranks=(replace(rank, accelerated=record),)))
    assert (
        "in 1 partition, without TF32, with device buffers and blocking sync; no CUDA graph: it has"
        " If; no pinned slots: a: no\n"
    ) in shown.replace("\n ", " ")


def test_long_names_are_shortened_in_tables_at_their_middle() -> None:
    summary = ran(43.19)
    (rank,) = summary.ranks
    long = replace(rank, key=f"board-{'n' * 60}_cpu0", host=f"host-{'n' * 60}.example")
    shown = printed(replace(summary, ranks=(long,)))
    assert f"board-{'n' * 4}…{'n' * 16}_cpu0 " in shown
    assert f"host-{'n' * 5}…{'n' * 13}.example " in shown


BOXES = Tensor("boxes", "float32", (99, 4), ("?", ""))
COUNT = Tensor("count", "int64", (1,))


def results(folder: Path, *rows: int) -> Results:
    """Return results of a detector with so many boxes in each frame."""
    writer = ResultsWriter(folder / "r", "f", [COUNT, BOXES])
    for frame, count in enumerate(rows):
        writer.write(frame, [np.array([count]), np.zeros((count, 4), np.float32)])
    writer.close()
    return read_results(folder / "r")


@pytest.mark.parametrize(
    ("rows", "lines"),
    [((3, 0, 37), ["output boxes: 0 to 37 x 4"]), ((5, 5), ["output boxes: 5 x 4"]), ((), [])],
)
def test_the_sizes_of_an_open_output_are_told_from_the_least_to_the_largest(
    rows: tuple[int, ...], lines: list[str], tmp_path: Path
) -> None:
    assert lines == list(shape_lines(results(tmp_path, *rows)))


def test_files_have_the_shape_of_each_frame(tmp_path: Path) -> None:
    assert {"boxes": [[2, 4], [0, 4]]} == shapes_json(results(tmp_path, 2, 0))
