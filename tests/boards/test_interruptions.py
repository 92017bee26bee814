"""Jobs and deployments that are broken off, and what comes after them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import COMMAND
from onnx import numpy_helper
from real_jobs import DIGITS
from waiting import until

from boards import Boards
from boards.deployments import (
    MAPPING,
    Launcher,
    build_for,
    deploy,
    forget_results,
    home,
    of_job,
    run,
    sleeping_chain,
)
from rankslice.backend.runtime.sinks.results import read_results

pytestmark = pytest.mark.ci

OTHER = {"board1_cpu0": ["conv1..conv3"], "board2_cpu0": ["relu3..softmax"]}


@pytest.fixture(scope="module")
def sleeping(rack: Boards, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder whose ranks sleep, deployed."""
    out = sleeping_chain(rack, tmp_path_factory.mktemp("chain"), 20)
    assert 0 == deploy(rack, out).code
    return out


def left_on(rack: Boards, within_s: float) -> list[str]:
    """Return what is left of a job on boards after some time, or once nothing is."""
    deadline = time.monotonic() + within_s
    while (left := [line for board in rack for line in of_job(board)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    return left


def running(rack: Boards, out: Path) -> tuple[Launcher, int]:
    """Return a job that has no end, and how many frames have come out."""
    forget_results(rack[1])
    launcher = Launcher(rack, out, "--frames", "1000000")
    return launcher, launcher.wait_for_frames(rack[1])


def test_ctrl_c_ends_a_job_everywhere_and_keeps_its_results(rack: Boards, sleeping: Path) -> None:
    launcher, had = running(rack, sleeping)
    launcher.process.send_signal(signal.SIGINT)
    try:
        assert 1 == launcher.process.wait(15)
        errors = launcher.errors()
    finally:
        launcher.close()
    assert "error: interrupted" in errors
    assert "Traceback" not in errors
    assert had <= len(read_results(sleeping / "results.bin"))
    assert [] == left_on(rack, within_s=1)


@pytest.mark.slow
def test_a_launcher_that_is_killed_leaves_nothing(rack: Boards, sleeping: Path) -> None:
    launcher, _ = running(rack, sleeping)
    launcher.process.kill()
    try:
        assert [] == left_on(rack, within_s=15)
    finally:
        launcher.close()


def test_jobs_run_one_after_the_other(rack: Boards, tmp_path: Path) -> None:
    outs = [
        build_for(rack, tmp_path / str(number), DIGITS, mapping)
        for number, mapping in enumerate((MAPPING, OTHER))
    ]
    for out in outs:
        assert 0 == deploy(rack, out).code
    for number, out in enumerate([*outs, outs[0]]):
        ended = run(rack, out, "--frames", str(10 + number), "--verify", "exact")
        assert 0 == ended.code, ended.err
        assert f"{10 + number} frames compared" in ended.out


def test_a_deployment_that_is_broken_off_leaves_the_older_package(
    rack: Boards, tmp_path: Path
) -> None:
    mapping = {"board1_cpu0": ["first"], "board2_cpu0": ["second"]}
    older, newer = (
        build_for(rack, folder, products(folder, seed), mapping)
        for seed, folder in enumerate((tmp_path / "older", tmp_path / "newer"))
    )
    assert 0 == deploy(rack, older).code
    before = packages_on(rack)
    rack[1].set_rate(2)
    broken = subprocess.Popen(
        [*COMMAND, "deploy", newer, "--ssh-config", rack.ssh_config],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        wait_for_copy(rack)
        os.killpg(broken.pid, signal.SIGINT)  # as the terminal does
        told, _ = broken.communicate(timeout=20)
    finally:
        broken.kill()
        rack[1].set_rate(1000)
    assert 130 == broken.returncode, told
    assert "Traceback" not in told
    assert before[1] == packages_on(rack)[1]
    assert 0 == run(rack, older, "--frames", "5", "--verify").code
    assert "does not have this package" in run(rack, newer, "--frames", "5").err
    assert 0 == deploy(rack, newer).code
    assert [] == list((home(rack[1]) / "staging").iterdir())
    assert 0 == run(rack, newer, "--frames", "5", "--verify").code


def products(folder: Path, seed: int) -> Path:
    """Write a model of two layers with 2 MB of weights each; return its file."""
    folder.mkdir()
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 700] x) => (float[1, 700] y)'
        " { [first] t = MatMul(x, v) [second] y = MatMul(t, w) }"
    )
    random = np.random.default_rng(seed)
    for name in ("v", "w"):
        values = random.standard_normal((700, 700), np.float32) / np.float32(26)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def packages_on(rack: Boards) -> list[set[str]]:
    """Return which packages each board has."""
    return [{path.name for path in (home(board) / "packages").iterdir()} for board in rack]


def wait_for_copy(rack: Boards) -> None:
    """Wait until the second board has got a part of a package."""
    staging = home(rack[1]) / "staging"
    until(lambda: any(path.is_file() for path in staging.rglob("*")), 30)
