"""A job beside a co-runner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from command_line import rankslice as command
from real_jobs import CORES, chain_folder, let_ranks_sleep
from waiting import until

from rankslice.backend.agent.jobs.co_run import places, start as start_co_runner
from rankslice.backend.agent.jobs.folders import RefusedError
from rankslice.backend.runtime.options import RunOptions
from rankslice.measurement.bench.bench_records import read_bench
from rankslice.session.bench.co_runner import co_runner
from rankslice.session.run import PreparedRun, prepare


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("load"), 1), 1.0)


@pytest.fixture(scope="module")
def prepared(out: Path) -> PreparedRun:
    return prepare(out, RunOptions(frames=1))


@pytest.mark.parametrize(
    "kind", ["cpu", *(pytest.param(kind, marks=pytest.mark.ci) for kind in ("memory", "network"))]
)
def test_a_co_runner_works_until_the_block_ends(kind: str, prepared: PreparedRun) -> None:
    with co_runner(kind, 1.0, prepared) as beside:
        workers = co_runners()
        used, usable = {*prepared.plan.ranks[0].cores}, {*CORES}
        assert places(kind, used, usable) == [{*worker.cpu_affinity()} for worker in workers]
        until(lambda: beside.cores()[""] > 0, 30)
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert [] == alive
    with co_runner(kind, 0.0, prepared) as beside:
        assert {} == beside.cores()


def co_runners() -> list[psutil.Process]:
    """Return the processes that work beside a job of this process."""
    agents = psutil.Process().children()
    return [worker for agent in agents for worker in agent.children()]


def test_a_co_runner_computes_where_ranks_are_and_does_the_rest_elsewhere() -> None:
    assert [{1}, {2}] == places("cpu", {1, 2, 9}, {0, 1, 2, 3})
    assert [{0, 3}] == places("memory", {1, 2}, {0, 1, 2, 3})
    assert [{0, 1}] == places("network", {0, 1}, {0, 1})
    assert [{0}, {1}] == places("cpu", set(), {0, 1})


def test_a_co_runner_that_cannot_work_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"the co-runner does not start: .*Invalid argument"):
        start_co_runner("cpu", 1.0, {1 << 14})


STARTED = """
import sys, time
from pathlib import Path
from rankslice.backend.runtime.options import RunOptions
from rankslice.session.bench.co_runner import co_runner
from rankslice.session.run import prepare
with co_runner("cpu", 1.0, prepare(Path(sys.argv[1]), RunOptions(frames=1))):
    print("works", flush=True)
    time.sleep(60)
"""


@pytest.mark.ci
def test_a_co_runner_ends_when_its_parent_is_killed(out: Path) -> None:
    command_line = [sys.executable, "-c", STARTED, str(out)]
    with subprocess.Popen(command_line, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert "works\n" == parent.stdout.readline()
        beside = psutil.Process(parent.pid).children(recursive=True)
        assert 2 == len(beside)
        parent.kill()
    _, alive = psutil.wait_procs(beside, timeout=20)
    assert [] == alive


@pytest.mark.ci
def test_a_job_is_measured_beside_a_co_runner_and_without_it(out: Path, tmp_path: Path) -> None:
    file, shown = tmp_path / "kept.json", tmp_path / "shown.json"
    options = ("--load", "cpu", "--busy", "100", "--starts", "2", "--frames", "80", "--explain")
    ended = command("bench", out, *options, "--out", file, "--json", shown)
    assert 0 == ended.code, ended.err
    bench = read_bench(file)
    assert [("cpu", 0.0), ("cpu", 1.0)] == [(each.beside, each.busy) for each in bench.loads]
    assert [{0, 1}] * 2 == [{each.load for each in bench.starts if each.turn == t} for t in (0, 1)]
    for start in bench.starts:
        assert [True] * start.load == [own.board == "" and own.cores > 0 for own in start.co_runner]
    record = json.loads(shown.read_text())
    assert [None, pytest.approx(record["beside"][1]["ratio"]["value"])] == [
        comparison["ratio"] and comparison["ratio"]["value"] for comparison in record["beside"]
    ]
    assert pytest.approx(1) == sum(record["explained"][0]["shares"].values())
    words = " ".join(ended.out.split())
    assert "that works 100 % of the time the mean latency" in words
    assert "Of the variance of the latency" in words
    page = file.with_suffix(".html").read_text()
    assert "Beside a co-runner: cpu" in page
    assert "Why it varies" in page
