"""Real jobs under MLPerf's scenarios, with ranks that sleep instead of computing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import rankslice as command
from real_jobs import chain_folder, let_ranks_sleep

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.bench_records import Load, read_bench
from rankslice.measurement.bench.scenarios import SCENARIOS, arrival_times
from rankslice.session.bench.starts import Measured, run_start

SLEEP_S = 0.004
RANKS = 2


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("scenarios"), RANKS), 1e3 * SLEEP_S)


def test_a_query_begins_when_all_frames_of_the_one_before_are_out(out: Path) -> None:
    measured = Measured("out", out, RunOptions(frames=40, samples_per_query=8))
    start = run_start(measured, Load("queries"))
    begins = np.array(start.arrived_ns).reshape(5, 8)
    ends = begins + np.array(start.latency_ns).reshape(5, 8)
    assert (begins == begins[:, :1]).all()
    assert (begins[1:, 0] >= ends[:-1].max(axis=1)).all()
    # The first frame sleeps in each rank; the others follow it, one by one.
    assert (ends.max(axis=1) - begins[:, 0] >= 1e9 * SLEEP_S * (RANKS + 7)).all()


def test_a_scenario_is_measured_told_and_kept(out: Path, tmp_path: Path) -> None:
    kept, record = tmp_path / "kept.json", tmp_path / "told.json"
    ended = command("bench", out, "--scenario", "single", "--out", kept, "--json", record)
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
    figures = json.loads(record.read_text())["scenario"]
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


def test_a_scenario_says_what_it_needs(tmp_path: Path) -> None:
    for name, options, message in (
        ("server", {"target_fps": 9.0}, "--scenario server: needs --latency-limit-ms"),
        ("single", {"target_fps": 9.0}, "--target-fps: needs --scenario server"),
    ):
        with pytest.raises(RankSliceError, match=message):
            rankslice.bench_scenario(tmp_path, name, **options)
    with pytest.raises(RankSliceError, match="661 are too few to determine p99"):
        rankslice.bench_scenario(tmp_path, "server", target_fps=9, latency_limit_ms=9, frames=661)
    assert 5296 == SCENARIOS["multi"].min_frames
