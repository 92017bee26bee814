"""MLPerf's load generator drives real jobs whose ranks sleep."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from real_jobs import chain_folder, let_ranks_sleep, processes_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "load_generator.py"
SLEEP_S = 0.004
RANKS = 2

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(
        platform.machine() != "x86_64" and find_spec("mlperf_loadgen") is None,
        reason="MLPerf's load generator has wheels for x86-64 only, and is not installed",
    ),
]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("generator"), RANKS), 1e3 * SLEEP_S)


def driven(folder: Path, scenario: str, file: Path, *options: str | Path) -> tuple[str, Any]:
    """Return what the script prints, and its figures."""
    command = [sys.executable, SCRIPT, folder, "--scenario", scenario, "--json", file, *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (0, "") == (ended.returncode, ended.stderr)
    return ended.stdout, json.loads(file.read_text())


def agree(reported: float, seen: float) -> None:
    """Check that times are equal but for what lies between the two clocks."""
    assert pytest.approx(seen, rel=0.05, abs=2e-3) == reported


def test_the_generator_and_our_clock_agree_on_single_queries(out: Path, tmp_path: Path) -> None:
    logs, file = tmp_path / "logs", tmp_path / "figures.json"
    printed, figures = driven(out, "single", file, "--frames", "100", "--logs", logs)
    assert "loadgen: the result is valid" in printed
    reported, seen, own = figures["loadgen"], figures["seen"], figures["this run"]
    assert 100 == reported["queries"] == own["queries"]
    for figure in ("mean_s", "percentile_s", "proven_s"):
        agree(reported[figure], seen[figure])
        assert reported[figure] >= SLEEP_S * RANKS
        assert own[figure] >= SLEEP_S * RANKS
    assert "Early stopping" in (logs / "mlperf_log_summary.txt").read_text()


def test_the_generator_and_our_clock_agree_on_a_server(out: Path, tmp_path: Path) -> None:
    options = ("--target-fps", "200", "--latency-limit-ms", "2")
    printed, figures = driven(out, "server", tmp_path / "figures.json", *options)
    reported, seen = figures["loadgen"], figures["seen"]
    assert (662, 662) == (reported["queries"], seen["queries"])
    assert (662, 662) == (reported["overruns"], seen["overruns"])
    assert "Would need to run at least" in printed
    # It counts from the scheduled time, our clock from when it has woken.
    assert reported["mean_s"] >= seen["mean_s"] - 1e-4


def test_the_generator_and_our_clock_agree_on_rates_and_on_queries_of_eight(tmp_path: Path) -> None:
    out, file = chain_folder(tmp_path, RANKS), tmp_path / "figures.json"
    let_ranks_sleep(out, 1e3 * SLEEP_S)
    _, figures = driven(out, "offline", file, "--frames", "200")
    agree(figures["loadgen"]["throughput_fps"], figures["seen"]["throughput_fps"])
    assert figures["seen"]["throughput_fps"] <= 1 / SLEEP_S

    let_ranks_sleep(out, 0.0)
    _, figures = driven(out, "multi", file)
    reported, seen = figures["loadgen"], figures["seen"]
    assert (662, 662) == (reported["queries"], seen["queries"])
    for figure in ("mean_s", "percentile_s", "proven_s"):
        agree(reported[figure], seen[figure])


def test_a_job_that_fails_under_the_generator_says_why(tmp_path: Path) -> None:
    folder = chain_folder(tmp_path, 1)
    failing = """

class NullEngine(NullEngine):
    done = 0

    def run(self, inputs, outputs):
        self.done += 1
        if self.done == 70:  # the run before the test has 64 frames
            raise RuntimeError("the accelerator is on fire")
        super().run(inputs, outputs)
"""
    let_ranks_sleep(folder, 0.0, engine=failing)
    command = [sys.executable, SCRIPT, folder, "--frames", "64"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert 1 == ended.returncode
    assert "the accelerator is on fire" in ended.stderr


def test_the_job_ends_with_the_generator(tmp_path: Path) -> None:
    folder, logs = chain_folder(tmp_path, 1), tmp_path / "logs"
    options = ("--scenario", "server", "--target-fps", "100", "--latency-limit-ms", "100")
    command = [sys.executable, SCRIPT, folder, *options, "--logs", logs]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not [*logs.glob("*")]:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert 128 + signal.SIGINT == process.wait(30)
    assert [] == [*folder.glob(".rankslice-run-*")]
    ends_s = time.monotonic() + 20
    while processes_of(folder) and time.monotonic() < ends_s:
        time.sleep(0.1)
    assert [] == processes_of(folder)
