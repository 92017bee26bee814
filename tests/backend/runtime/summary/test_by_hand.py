"""What a job that was started by hand prints at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from in_process import run_in_process
from real_jobs import digits_folder

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.backend.runtime.summary.by_hand import print_summary
from rankslice.backend.runtime.summary.rates import are_shares, scores_classes
from rankslice.framework.reading.read_driver import read_driver
from rankslice.measurement.summary import RunSummary, summarise

Print = Callable[[RunOptions], tuple[list[str], RunSummary]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of a classifier; never changed."""
    return digits_folder(tmp_path_factory.mktemp("digits"))


@pytest.fixture
def printed(folder: Path, capfd: pytest.CaptureFixture[str]) -> Print:
    """Run the job; return the lines, and what the launcher would say of the run."""

    def run(options: RunOptions) -> tuple[list[str], RunSummary]:
        records = run_in_process(folder, options)
        print_summary(records, read_driver(folder / "driver.py"), options)
        kept = options.results.is_file()
        completed_s = read_results(options.results).completed_s if kept else None
        return capfd.readouterr().out.splitlines(), summarise(records, completed_s)

    return run


def test_the_figures_are_the_launchers_with_the_best_classes(
    printed: Print, tmp_path: Path
) -> None:
    options = RunOptions(frames=30, results=tmp_path / "results.bin")
    lines, summary = printed(options)
    rate, latency, *ranks, bottleneck = lines[:5]
    assert f"30 frames, {summary.throughput_fps:.2f} frames/s (steady state), window 4" == rate
    assert latency.startswith(f"latency p50 {summary.latency_ms['p50']:.2f} ms, p90")
    for line, rank in zip(ranks, summary.ranks, strict=True):
        assert line.startswith(f"rank {rank.rank} ({rank.key} on localhost): computes ")
        assert f"{rank.compute_ms['mean']:.2f} ms, waits {rank.wait_ms:.2f} ms per frame" in line
    assert f"bottleneck: {summary.bottleneck}" == bottleneck
    scores = read_results(options.results).values(0)
    for frame, line in enumerate(lines[5:15]):
        best = scores[frame].argmax()
        assert line.startswith(f"frame {frame}: {best} {scores[frame].max():.3f}, ")
        assert 3 == line.count(" 0.") + line.count(" 1.")
    assert ["... and 20 more frames"] == lines[15:]


def test_without_a_results_file_there_are_no_classes(printed: Print) -> None:
    lines, summary = printed(RunOptions(frames=30, results=Path("/dev/null")))
    assert [f"bottleneck: {summary.bottleneck}"] == lines[4:]


def test_a_few_frames_have_no_rate(printed: Print, tmp_path: Path) -> None:
    lines, _ = printed(RunOptions(frames=1, results=tmp_path / "results.bin"))
    assert "1 frame, rate unknown (too few frames), window 4" == lines[0]
    assert lines[4].startswith("bottleneck: 1 frame is too few")
    assert lines[5].startswith("frame 0: ")
    assert 6 == len(lines)


def test_a_job_without_frames_has_no_latency_either(printed: Print, tmp_path: Path) -> None:
    lines, _ = printed(RunOptions(frames=0, results=tmp_path / "results.bin"))
    assert "0 frames, rate unknown (too few frames), window 4" == lines[0]
    assert lines[1].startswith("rank 0 ")
    assert lines[-1].startswith("bottleneck: 0 frames are too few")


@pytest.mark.parametrize(
    ("output", "has_classes"),
    [
        (Tensor("y", "float32", (1, 10)), True),
        (Tensor("y", "uint8", (1, 1000, 1, 1)), False),
        (Tensor("y", "float16", (2,)), True),
        (Tensor("y", "float32", (1, 1)), False),
        (Tensor("y", "float32", ()), False),
        (Tensor("y", "float32", (2, 10)), False),
        (Tensor("y", "bool", (1, 10)), False),
        (Tensor("y", "bfloat16", (1, 10)), False),
        (Tensor("y", "int4", (1, 10)), False),
        (Tensor("y", "float32", (1, 10), ("", "n")), False),
    ],
)
def test_a_classifier_has_one_number_for_each_class(output: Tensor, has_classes: bool) -> None:
    assert has_classes == scores_classes(output)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.25, 0.75, 0], True),
        ([0.2, 0.2, 0.2], False),
        ([-0.5, 1.5], False),
        ([float("nan"), 1], False),
    ],
)
def test_only_shares_that_add_up_to_one_are_classes(values: list[float], expected: bool) -> None:
    assert expected == are_shares(np.array([values], np.float32))


def test_the_numbers_of_a_regression_are_no_classes(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = RunOptions(frames=2, results=tmp_path / "results.bin")
    records = run_in_process(folder, options)
    content = bytearray(options.results.read_bytes())
    content[-4:] = np.float32(3.5).tobytes()
    options.results.write_bytes(content)
    print_summary(records, read_driver(folder / "driver.py"), options)
    assert "frame 0: " not in capfd.readouterr().out
