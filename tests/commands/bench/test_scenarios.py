"""Real jobs under MLPerf's scenarios, with ranks that sleep instead of computing."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice as command
from real_jobs import chain_folder, let_ranks_sleep, processes_of

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.bench.loadgen import run_loadgen
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.bench_records import Load, read_bench
from rankslice.measurement.bench.scenarios import SCENARIOS, arrival_times
from rankslice.session.bench.scenario import scenario_request
from rankslice.session.bench.starts import Measured, run_start

SLEEP_S = 0.004
RANKS = 2

needs_loadgen = pytest.mark.skipif(
    platform.machine() != "x86_64" and find_spec("mlperf_loadgen") is None,
    reason="MLPerf's load generator has wheels for x86-64 only, and is not installed",
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chain_folder(tmp_path_factory.mktemp("scenarios"), RANKS)
    let_ranks_sleep(folder, 1e3 * SLEEP_S)
    return folder


def test_a_query_begins_when_all_frames_of_the_one_before_are_out(out: Path) -> None:
    measured = Measured("out", out, RunOptions(frames=40, samples_per_query=8))
    found = run_start(measured, Load("queries"), subject=0, number=0, turn=0)
    begins = np.array(found.arrived_ns).reshape(5, 8)
    ends = begins + np.array(found.latency_ns).reshape(5, 8)
    assert (begins == begins[:, :1]).all()
    assert (begins[1:, 0] >= ends[:-1].max(axis=1)).all()
    # The first frame sleeps in each rank; the others follow it, one by one.
    assert (ends.max(axis=1) - begins[:, 0] >= 1e9 * SLEEP_S * (RANKS + 7)).all()


def test_a_scenario_is_measured_told_and_kept(out: Path, tmp_path: Path) -> None:
    kept, told = tmp_path / "kept.json", tmp_path / "told.json"
    ended = command("bench", out, "--scenario", "single", "--out", kept, "--json", told)
    assert 0 == ended.code, ended.err
    assert "p90 at 99 % confidence" in " ".join(ended.out.split())
    assert (
        "MLPerf single, where the next query arrives when the previous one has finished: p90 <="
        in (ended.out)
    )
    bench = read_bench(kept)
    assert ["MLPerf single"] == [load.name for load in bench.loads]
    latencies = np.sort(bench.starts[0].latencies_ns)
    assert 64 == len(latencies)
    assert latencies[0] >= 1e9 * SLEEP_S * RANKS
    figures = json.loads(told.read_text())["scenario"]
    assert pytest.approx(1e-9 * latencies[57]) == figures["percentile_s"]
    assert pytest.approx(1e-9 * latencies[63]) == figures["proven_s"]
    assert "MLPerf scenario" in kept.with_suffix(".html").read_text()


@pytest.mark.ci
def test_a_server_gets_its_queries_by_the_schedule(out: Path) -> None:
    ran = rankslice.bench_scenario(out, "server", target_fps=200, latency_limit_ms=2, seed=7)
    (start,) = ran.bench.starts
    wanted = arrival_times(200, 662, seed=7)
    np.testing.assert_allclose(1e-9 * np.array(start.arrived_ns), wanted, atol=2e-9)
    assert 662 == ran.figures.overruns  # none can be faster than the ranks sleep
    assert ran.figures.is_within_limit is False
    assert 200 == ran.bench.loads[0].fps


def agree(told: float | None, seen: float | None) -> None:
    """Check that times are equal but for what lies between the two clocks."""
    assert told is not None
    assert pytest.approx(seen, rel=0.05, abs=2e-3) == told


@pytest.mark.ci
@needs_loadgen
def test_the_load_generator_and_our_clock_agree_on_single_queries(
    out: Path, tmp_path: Path
) -> None:
    logs, file, told = tmp_path / "logs", tmp_path / "kept.json", tmp_path / "told.json"
    options = ("--scenario", "single", "--frames", "100", "--loadgen", "--loadgen-logs", logs)
    ended = command("bench", out, *options, "--out", file, "--json", told)
    assert 0 == ended.code, ended.err
    assert "loadgen: the result is valid" in ended.out
    assert "of the same queries loadgen and our clock differ by" in ended.out
    found = json.loads(told.read_text())
    generator, own = found["loadgen"], found["scenario"]
    assert generator["is_valid"]
    assert 100 == generator["queries"] == own["queries"]
    for figure in ("mean_s", "percentile_s", "proven_s"):
        agree(generator[figure], generator["seen"][figure])
        assert generator[figure] >= SLEEP_S * RANKS
        assert own[figure] >= SLEEP_S * RANKS
    assert "Early stopping" in (logs / "mlperf_log_summary.txt").read_text()


@pytest.mark.ci
@needs_loadgen
def test_the_load_generator_and_our_clock_agree_on_a_server_and_on_queries_of_eight(
    out: Path, tmp_path: Path
) -> None:
    request = scenario_request(out, "server", RunOptions(), target_fps=200, latency_limit_ms=2)
    test = run_loadgen(request)
    assert (662, 662) == (test.told.queries, test.seen.queries)
    assert (662, 662) == (test.told.overruns, test.seen.overruns)
    assert not test.told.is_valid
    assert "Would need to run at least" in test.told.reason
    # It counts from the scheduled time, our clock from when it has woken.
    assert test.told.mean_s >= test.seen.mean_s - 1e-4

    test = run_loadgen(scenario_request(out, "offline", RunOptions(frames=200)))
    agree(test.told.throughput_fps, test.seen.throughput_fps)
    assert test.seen.throughput_fps <= 1 / SLEEP_S

    let_ranks_sleep(out, 0.0)
    test = run_loadgen(scenario_request(out, "multi", RunOptions()))
    assert (662, 662) == (test.told.queries, test.seen.queries)
    for figure in ("mean_s", "percentile_s", "proven_s"):
        agree(getattr(test.told, figure), getattr(test.seen, figure))


@pytest.mark.ci
@needs_loadgen
def test_a_job_that_fails_under_the_load_generator_says_why(tmp_path: Path) -> None:
    folder = chain_folder(tmp_path, 1)
    failing = """

class NullEngine(NullEngine):
    done = 0

    def run(self, inputs, outputs):
        self.done += 1
        if self.done == 40:
            raise RuntimeError("the accelerator is on fire")
        super().run(inputs, outputs)
"""
    let_ranks_sleep(folder, 0.0, engine=failing)
    with pytest.raises(RankSliceError, match="the accelerator is on fire"):
        run_loadgen(scenario_request(folder, "single", RunOptions()), tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


@pytest.mark.ci
@needs_loadgen
@pytest.mark.parametrize("after_s", [0.0, 1.5])
def test_a_job_under_the_load_generator_ends_with_it(tmp_path: Path, after_s: float) -> None:
    folder = chain_folder(tmp_path, 1)
    program = f"""
from pathlib import Path
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.bench.loadgen import run_loadgen
from rankslice.session.bench.scenario import scenario_request
options = {{"target_fps": 10.0, "latency_limit_ms": 100.0}}
run_loadgen(scenario_request(Path({str(folder)!r}), "server", RunOptions(), **options))
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        while not [*folder.glob(".rankslice-run-*")]:
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        process.wait(30)
    assert [] == [*folder.glob(".rankslice-run-*")]
    assert [] == processes_of(folder)


def test_a_scenario_says_what_it_needs(tmp_path: Path) -> None:
    for name, options, message in (
        ("server", {"target_fps": 9.0}, "--scenario server: needs --latency-limit-ms"),
        ("single", {"target_fps": 9.0}, "--target-fps: needs --scenario server"),
    ):
        with pytest.raises(RankSliceError, match=message):
            scenario_request(tmp_path, name, RunOptions(), **options)  # type: ignore[arg-type]
    with pytest.raises(RankSliceError, match="661 are too few to determine p99"):
        rankslice.bench_scenario(tmp_path, "server", target_fps=9, latency_limit_ms=9, frames=661)
    assert 5296 == SCENARIOS["multi"].least_frames


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("x86_64", r"pip install 'rankslice\[loadgen\]'"),
        ("aarch64", "its wheels are for x86-64 only; pip install mlcommons-loadgen compiles it"),
    ],
)
def test_without_the_load_generator_its_remedy_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, remedy: str
) -> None:
    monkeypatch.setattr("rankslice.commands.bench.loadgen.find_spec", lambda name: None)
    monkeypatch.setattr("rankslice.commands.bench.loadgen.machine", lambda: kind)
    with pytest.raises(RankSliceError, match=remedy):
        rankslice.bench_scenario(tmp_path, "single", loadgen=True)
