"""Runs at once on the same boards, and builds that share a plan: none disturbs another one."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from command_line import COMMAND
from real_jobs import debians_mpirun, wheels_mpirun

from boards import Boards
from boards.deployments import deploy, deployed_digits, home, run
from rankslice.backend.package import write_packages
from rankslice.backend.runtime.sinks.results import read_results
from rankslice.framework.plan import plan_from_json

pytestmark = pytest.mark.ci

COUNTS = (60, 45)


@pytest.fixture(scope="module")
def out(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the digit classifier, deployed."""
    return deployed_digits(rack, tmp_path_factory.mktemp("job"))


def start(rack: Boards, out: Path, *arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "run", out, "--ssh-config", rack.ssh_config, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


@pytest.mark.parametrize("open_mpi", [wheels_mpirun, debians_mpirun])
def test_runs_at_once_on_one_build_get_the_results_of_their_own_inputs(
    open_mpi: Callable[[], Path], rack: Boards, out: Path, tmp_path: Path
) -> None:
    mpirun, running = open_mpi(), []
    for number, count in enumerate(COUNTS):
        frames, results = tmp_path / f"{number}.npz", tmp_path / f"{number}.bin"
        images = np.random.default_rng(number).random((count, 1, 8, 8), np.float32)
        np.savez(frames, image=images)
        arguments = ("--input", frames, "--results", results, "--verify", "exact", "--fps", "20")
        running.append(start(rack, out, *arguments, "--mpirun", mpirun))
    told = [job.communicate(timeout=120)[0] for job in running]
    for number, count in enumerate(COUNTS):
        assert 0 == running[number].returncode, told[number]
        assert f"{count} frames compared" in told[number]
        assert count == len(read_results(tmp_path / f"{number}.bin"))


def test_builds_of_one_plan_with_other_packages_stay_beside_each_other(
    rack: Boards, out: Path, tmp_path: Path
) -> None:
    other = tmp_path / "outw"
    shutil.copytree(out, other)
    shutil.rmtree(other / "packages")

    def add_wheels(board: str, wanted: object, folder: Path) -> None:
        folder.mkdir()
        (folder / "some.whl").write_text(f"{board} {wanted}")

    write_packages(other, plan_from_json((out / "plan.json").read_text()), add_wheels=add_wheels)
    assert 0 == deploy(rack, other).code
    for folder in (out, other, out):
        ended = run(rack, folder, "--frames", "5", "--verify")
        assert 0 == ended.code, ended.err


def test_what_dead_runs_leave_is_ended_and_swept(rack: Boards, out: Path) -> None:
    runs = home(rack[0]) / "runs"
    names = [f"{'0' * 12}-{number:016}" for number in range(6)]
    *dead, fresh = (runs / name for name in names)
    for number, folder in enumerate([*dead, fresh]):
        folder.mkdir()
        (folder / "lock").touch()
        os.utime(folder, (number, number))
    for folder in dead:
        os.utime(folder / "lock", (0, 0))
    strange = runs / "somebody-elses"
    strange.mkdir()
    os.chown(strange, 12345, 12345)
    lonely = "setsid env RANKSLICE_JOB=$1 sleep 1234 </dev/null >/dev/null 2>&1 &"
    rack[0].run(["sh", "-c", lonely, "sh", names[0]])
    ended = run(rack, out, "--frames", "5", "--verify")
    assert 0 == ended.code, ended.err
    assert "" == rack[0].run(["pgrep", "--full", "sleep 1234"], check=False).stdout
    assert fresh.is_dir()
    assert strange.is_dir()
    assert not any(folder.exists() for folder in dead[:3])
    assert not list(runs.glob("*/results.bin"))
