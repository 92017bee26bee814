"""What an mpirun that was killed leaves behind keeps no later job from its start."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from command_line import rankslice_process
from real_jobs import chain_folder, wheels_mpirun

pytestmark = pytest.mark.ci

NUMBERS = 4000
"""More processes than start before the mpirun whose number is to be met."""


def leave_sessions(place: Path) -> None:
    """Let it look as if every process that comes next had had the number of an mpirun once."""
    with subprocess.Popen(["true"]) as newest:
        first, largest = newest.pid, int(Path("/proc/sys/kernel/pid_max").read_text())
    host = socket.gethostname().partition(".")[0]
    for number in (each % largest for each in range(first, first + NUMBERS)):
        session = place / f"ompi.{number}"
        session.mkdir()
        (session / f"pmix.{host}.tool.{number}").touch()


def test_a_job_does_not_meet_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mpirun, folder = wheels_mpirun(), chain_folder(tmp_path, 2)
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    leave_sessions(place)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    alone = subprocess.run([mpirun, *root, "-n", "1", "true"], capture_output=True, check=False)
    assert alone.returncode, "mpirun does not stumble by itself, so this shows nothing"
    ended = rankslice_process("run", folder, "--mpirun", mpirun, "--frames", "3")
    assert 0 == ended.code, ended.err
    assert not list(place.glob("rankslice-*"))
