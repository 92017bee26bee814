"""Each command, run by an account that has no entry, with no HOME: a container's, say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import COMMAND, Ended
from needed import NEEDS_SSH
from real_jobs import chain_folder, debians_mpirun, let_ranks_sleep, wheels_mpirun

NOBODY = 54321


def by_nobody(*arguments: object) -> Ended:
    """Return how a command ended that ran under a number without an account."""
    as_nobody = ["unshare", "--user", f"--map-user={NOBODY}"]
    if subprocess.run([*as_nobody, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs user namespaces (unshare --user)")
    without = {"HOME", "XDG_CACHE_HOME", "RANKSLICE_CACHE", "USER", "LOGNAME"}
    ended = subprocess.run(
        [*as_nobody, *COMMAND, *map(str, arguments)],
        env={name: value for name, value in os.environ.items() if name not in without},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert "Traceback" not in ended.stderr
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("job"), 2), 1)


@pytest.mark.ci
@pytest.mark.parametrize("mpirun", [wheels_mpirun, debians_mpirun])
def test_a_job_runs(out: Path, mpirun: Callable[[], Path]) -> None:
    ended = by_nobody("run", out, "--frames", "3", "--mpirun", mpirun())
    assert 0 == ended.code, ended.err


def test_what_needs_no_home_does_without(out: Path) -> None:
    for arguments in (["--version"], ["inspect", out.parent / "model.onnx"]):
        ended = by_nobody(*arguments)
        assert 0 == ended.code, ended.err


@NEEDS_SSH
def test_what_needs_a_home_says_so(out: Path) -> None:
    ended = by_nobody("probe", "pi@192.0.2.77", "--out", out.parent / "platform.yaml")
    assert 1 == ended.code
    assert "192.0.2.77" in ended.err
    ended = by_nobody("deploy", out)
    assert 1 == ended.code
    assert "this account has no home folder there; set HOME" in ended.err
