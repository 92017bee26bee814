"""Benchmarks of real jobs, whose ranks sleep instead of computing."""

from __future__ import annotations

import itertools
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from benchmarks_made import MS, bench, start, subject
from browsers import DESKTOP, PHONE, opened, running_browser
from command_line import rankslice as command
from real_jobs import chain_folder, let_ranks_sleep, replace_file

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.system.modes import BoardMode
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.bench_records import Bench, Load, Start, read_bench, write_bench
from rankslice.measurement.bench.series import all_series, own_ratios, series
from rankslice.session.bench.bench import CLOSED, LIVE, Compared, compare
from rankslice.session.bench.starts import Measured, run_start
from rankslice.views.bench_page import bench_page
from rankslice.views.bench_tables import LIVE_NOTE, notes_of
from rankslice.views.page import page_html

STALL_S, STALLED, FRAMES = 0.3, 40, 80

STALLING = f"""

class NullEngine(NullEngine):
    done = 0

    def run(self, inputs, outputs):
        time.sleep({STALL_S} if self.done == {STALLED} else 0.02 if self.done % 10 == 9 else 0.001)
        self.done += 1
        super().run(inputs, outputs)
"""


def test_a_stall_delays_no_arrival_and_shows_in_all_frames_behind_it(tmp_path: Path) -> None:
    folder = let_ranks_sleep(chain_folder(tmp_path, 1), 0.0, engine=STALLING)
    measured = Measured("out", folder, RunOptions(frames=FRAMES))
    found = run_start(measured, Load("100 frames/s", 100.0))
    spacing = np.diff(np.array(found.arrived_ns))
    assert [10 * MS] == pytest.approx([*{*np.round(spacing, -3)}], abs=2000)
    # What a frame waits at least follows from the schedule alone, however busy the machine is.
    for behind in range(25):
        late = STALL_S - 0.01 * behind
        assert found.latency_ns[STALLED + behind] >= 1e9 * late
    times = np.array(found.stages[0].compute_ns)
    assert FRAMES == len(times)
    assert (times >= 1 * MS).all()
    assert (times[9::10] >= 20 * MS).all()
    figures = series(bench([found], loads=(Load("100 frames/s", 100.0),)), 0, 0)
    assert 1e9 * STALL_S <= figures.histogram.max_ns
    assert 1e9 * (STALL_S - 0.01 * 8) <= figures.percentile_ns(85).value
    assert figures.stages[0].histogram.percentile_ns(95) >= 20 * MS


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("bench"), 2), 3.0)


@pytest.mark.ci
@pytest.mark.parametrize("turn", [0, 2])
def test_a_benchmark_that_is_cut_short_keeps_its_complete_turns(
    out: Path, tmp_path: Path, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = itertools.count()

    def fails_in_turn(measured: Measured, load: Load) -> Start:
        if next(starts) == turn:
            raise KeyboardInterrupt
        return run_start(measured, load)

    monkeypatch.setattr("rankslice.session.bench.co_runner.run_start", fails_in_turn)
    file = tmp_path / "bench.json"
    options = ("--starts", "3", "--frames", "40", "--load-levels", "none", "--out", file)
    ended = command("bench", out, *options)
    assert 130 == ended.code
    assert (turn > 0) == file.exists()
    if turn:
        assert "cut short: only complete turns count" in ended.err
        assert "closed loop" in ended.out
        assert [0, 1] == [each.turn for each in read_bench(file).starts]


@pytest.fixture(scope="module")
def measured(out: Path) -> Bench:
    """Return a benchmark of a job against itself, with what went on."""
    told: list[tuple[str, int, int]] = []
    benchmark = rankslice.bench(
        out,
        out,
        starts=2,
        frames=40,
        load_levels=(0.5,),
        on_progress=lambda *each: told.append(each),
    )
    assert (8, 8) == told[-1][1:]
    return benchmark


@pytest.mark.ci
def test_jobs_are_measured_in_turns_under_each_load(measured: Bench, out: Path) -> None:
    assert not {"run.json", "report.json"} & {file.name for file in out.iterdir()}
    assert [CLOSED, "50 %"] == [load.name for load in measured.loads]
    assert [2, 2] == [len(measured.of(subject, 1)) for subject in (0, 1)]
    closed, opened_loop = measured.loads
    assert closed.fps is None
    assert opened_loop.fps is not None
    rates = [
        np.mean([figures.throughput_fps for figures in one_series.starts])
        for one_series in all_series(measured)
        if one_series.load == 0
    ]
    assert opened_loop.fps == pytest.approx(min(rates) / 2)
    turns = [(each.load, each.turn) for each in measured.starts]
    assert turns[::2] == turns[1::2]
    assert {"frames/s", "mean ms", "p50 ms", "p99 ms"} == {
        ratio.figure for ratio in own_ratios(measured)
    }
    for each in measured.starts:
        assert [2, 40] == [len(each.stages), len(each.stages[0].compute_ns)]
        assert all(min(stage.compute_ns) >= 3 * MS for stage in each.stages)
    assert "Python" in dict(measured.machine.versions)


@pytest.mark.ci
def test_a_page_opens_in_a_browser(measured: Bench, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    page.write_text(page_html(bench_page(measured)))
    with running_browser() as browser:
        for size in (DESKTOP, PHONE):
            with opened(browser, page, size) as shown:
                titles = shown.locator("h2").all_inner_texts()
                assert {"Rates and latencies", "Closed loop", "50 %"} < {*titles}
                assert shown.locator("svg").count() >= 9


@pytest.mark.ci
def test_the_command_measures_and_writes_values_and_page(out: Path, tmp_path: Path) -> None:
    options = ("--starts", "1", "--frames", "40", "--load-levels", "none")
    ended = command("bench", out, *options, "--json", tmp_path / "figures.json")
    assert 0 == ended.code, ended.err
    assert "closed loop" in ended.out
    assert "a single start gives no interval" in ended.out
    benchmark = read_bench(out / "bench.json")
    assert 1 == len(benchmark.starts)
    assert (out / "bench.html").read_text().startswith("<!DOCTYPE html>")
    figures = json.loads((tmp_path / "figures.json").read_text(), parse_constant=pytest.fail)
    assert {"low": None, "high": None} == {
        bound: figures["series"][0]["throughput_fps"][bound] for bound in ("low", "high")
    }
    assert "closed loop" == figures["series"][0]["load"]["name"]
    assert not (out / "results.bin").exists()
    earlier = shutil.copy(out / "bench.json", tmp_path / "earlier.json")
    again = command("report", earlier, out / "bench.json", "--html", tmp_path / "report.html")
    assert 0 == again.code, again.err
    assert "one start gives no interval" in again.out


CAMERA = """

import numpy as np
import time


class Camera:
    isOpened = release = lambda self: True
    get = lambda self, what: 32

    def __init__(self, *given):
        self.due = time.monotonic()

    def read(self):
        self.due += 0.02
        time.sleep(max(0, self.due - time.monotonic()))
        return True, np.zeros((32, 32, 3), np.uint8)


class OpenCV:
    VideoCapture, CAP_V4L2 = Camera, 0
    CAP_PROP_FRAME_HEIGHT = CAP_PROP_FRAME_WIDTH = 0


load_opencv = lambda: OpenCV
Path.is_char_device = lambda path: True
"""
"""In place of OpenCV's: 50 frames per second."""


@pytest.mark.ci
def test_frames_of_a_camera_are_measured_as_they_come(tmp_path: Path) -> None:
    pictures = onnx.parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,3,4,4] x) => (float[1,3,4,4] y) { [L0] y = Relu(x) }
        """
    )
    folder = let_ranks_sleep(chain_folder(tmp_path, 1, pictures), 3.0)
    code = folder / "runtime" / "sources" / "camera_source.py"
    replace_file(code, code.read_bytes() + CAMERA.encode())
    benchmark = rankslice.bench(folder, folder, input="camera:0", starts=2, frames=40)
    assert [Load(LIVE, is_live=True)] == [*benchmark.loads]
    assert [(0, 0), (0, 1), (1, 0), (1, 1)] == sorted((s.subject, s.turn) for s in benchmark.starts)
    for each in benchmark.starts:
        assert 20 * MS == pytest.approx(np.diff(each.arrived_ns).mean(), rel=0.1)
        assert 3 * MS < min(each.latency_ns)
    assert {"mean ms", "p50 ms", "p99 ms"} == {ratio.figure for ratio in own_ratios(benchmark)}
    assert LIVE_NOTE in notes_of(benchmark, all_series(benchmark))
    assert LIVE_NOTE in compare(benchmark, benchmark).notes
    beside = rankslice.bench(folder, load="cpu", busy=(1,), input="camera:0", starts=1, frames=40)
    assert ["as they come, alone", "as they come, cpu busy 100 %"] == [
        load.name for load in beside.loads
    ]


@pytest.mark.ci
def test_the_unsliced_model_runs_on_the_accelerator_of_the_source(tmp_path: Path) -> None:
    out = rankslice.build(
        Path(__file__).parents[3] / "models" / "digits.onnx",
        {"local_cpu0": ["conv1..pool1"], "local_cpu1": ["conv3..softmax"]},
        out=tmp_path / "out",
    ).folder
    benchmark = rankslice.bench(out, "unsliced", starts=1, frames=40, load_levels=())
    assert ["unsliced", "digits.onnx"] == [benchmark.subjects[1].name, benchmark.subjects[1].model]
    assert ["local_cpu0"] == [rank.key for rank in benchmark.subjects[1].ranks]
    assert {"onnxruntime"} == {rank.engine for each in benchmark.subjects for rank in each.ranks}


def two(fps: float | None = None, *, model: str = "a" * 64, times: int = 1) -> Bench:
    starts = [start([times * MS + turn] * 60, turn=turn) for turn in range(3)]
    load = Load(CLOSED if fps is None else "80 %", fps)
    return bench(starts, (subject(sha256=model),), (load,))


def test_files_are_compared_under_the_loads_that_they_share() -> None:
    compared = compare(two(times=2), two(times=1))
    assert isinstance(compared, Compared)
    assert 2 == pytest.approx(next(r for r in compared.ratios if r.figure == "mean ms").ratio.value)
    assert any("not measured in turns" in note for note in compared.notes)
    same = compare(two(50.0), two(50.1))
    assert {"mean ms", "p50 ms", "p99 ms"} == {ratio.figure for ratio in same.ratios}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (two(model="c" * 64), "different models"),
        (two(50.0), "no load in common"),
    ],
)
def test_files_that_have_nothing_in_common_are_refused(other: Bench, message: str) -> None:
    with pytest.raises(RankSliceError, match=message):
        compare(two(), other)


def test_files_of_a_board_in_two_modes_say_so() -> None:
    fast, slow = two(), two()
    slow = replace(slow, machine=replace(slow.machine, mode=BoardMode("10W", 1)))
    fast = replace(fast, machine=replace(fast.machine, mode=BoardMode("15W", 2)))
    assert (
        "board vm ran with power mode 10W (1) in this one and with power mode 15W (2) in the first"
        " one"
    ) in compare(slow, fast).notes


def test_rates_that_differ_are_no_load_in_common() -> None:
    with pytest.raises(RankSliceError, match="no load in common"):
        compare(two(50.0), two(60.0))


def test_a_comparison_is_printed_with_its_verdict(tmp_path: Path) -> None:
    names = tmp_path / "slow.json", tmp_path / "fast.json"
    for name, times in zip(names, (2, 1), strict=True):
        write_bench(two(times=times), name)
    page, figures = tmp_path / "report.html", tmp_path / "report.json"
    ended = command("report", *reversed(names), "--html", page, "--json", figures)
    assert 0 == ended.code, ended.err
    assert "slower" in ended.out
    assert "Ratios to" in page.read_text()
    _, compared = json.loads(figures.read_text())["benchmarks"]
    assert [str(names[0])] == [compared["name"]]
    ratios = {each["figure"]: each["ratio"]["value"] for each in compared["ratios"]}
    assert 2 == pytest.approx(ratios["mean ms"])
    assert "not measured in turns" in ended.out
