"""A job beside a co-runner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from command_line import rankslice as command
from real_jobs import CORES, chain_folder, let_ranks_sleep

from rankslice.commands.bench.co_runner import KINDS, co_runner, places
from rankslice.commands.build_folder import read_plan
from rankslice.framework.errors import RankSliceError
from rankslice.framework.plan import Plan
from rankslice.measurement.bench.records import read_bench


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = chain_folder(tmp_path_factory.mktemp("load"), 1)
    let_ranks_sleep(folder, 1.0)
    return folder


@pytest.fixture(scope="module")
def plan(out: Path) -> Plan:
    return read_plan(out)


@pytest.mark.parametrize("kind", KINDS)
def test_a_co_runner_works_until_the_block_ends(kind: str, plan: Plan) -> None:
    with co_runner(kind, 1.0, plan) as beside:
        (process,) = beside.processes
        assert (places(kind, plan)[0]) == os.sched_getaffinity(process.pid)
        end = time.monotonic() + 30
        while not beside.cores() and time.monotonic() < end:
            time.sleep(0.02)
        assert beside.cores() > 0
    assert process.returncode == -signal.SIGTERM
    with co_runner(kind, 0.0, plan) as beside:
        assert () == beside.processes
        assert 0 == beside.cores()


def test_a_co_runner_computes_where_ranks_are_and_does_the_rest_elsewhere(plan: Plan) -> None:
    (rank,) = plan.ranks
    assert [{core} for core in rank.cores] == places("cpu", plan)
    free = {*CORES} - {*rank.cores}
    assert [free or {*rank.cores}] == places("memory", plan)
    far = replace(plan, ranks=(replace(rank, host="edge09"),))
    with pytest.raises(RankSliceError, match="works on this machine alone"):
        places("cpu", far)


STARTED = """
import sys, time
from pathlib import Path
from rankslice.commands.bench.co_runner import co_runner
from rankslice.commands.build_folder import read_plan
with co_runner("cpu", 1.0, read_plan(Path(sys.argv[1]))) as beside:
    print(beside.processes[0].pid, flush=True)
    time.sleep(60)
"""


@pytest.mark.ci
def test_a_co_runner_ends_when_its_parent_is_killed(out: Path) -> None:
    command_line = [sys.executable, "-c", STARTED, str(out)]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        beside = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    _, alive = psutil.wait_procs([beside], timeout=20)
    assert [] == alive


@pytest.mark.ci
def test_a_job_is_measured_beside_a_co_runner_and_without_it(out: Path, tmp_path: Path) -> None:
    file, told = tmp_path / "kept.json", tmp_path / "told.json"
    options = ("--load", "cpu", "--busy", "100", "--starts", "2", "--frames", "80", "--explain")
    ended = command("bench", out, *options, "--out", file, "--json", told)
    assert 0 == ended.code, ended.err
    bench = read_bench(file)
    assert [("cpu", 0.0), ("cpu", 1.0)] == [(each.beside, each.busy) for each in bench.loads]
    assert [{0, 1}] * 2 == [{each.load for each in bench.starts if each.turn == t} for t in (0, 1)]
    for start in bench.starts:
        assert (start.beside_cores > 0) == (start.load == 1)
    found = json.loads(told.read_text())
    assert [None, pytest.approx(found["beside"][1]["ratio"]["value"])] == [
        each["ratio"] and each["ratio"]["value"] for each in found["beside"]
    ]
    assert pytest.approx(1) == sum(found["explained"][0]["shares"].values())
    words = " ".join(ended.out.split())
    assert "that works 100 % of the time the mean latency" in words
    assert "Of the variance of the latency" in words
    page = file.with_suffix(".html").read_text()
    assert "Beside a co-runner: cpu" in page
    assert "Why it varies" in page
