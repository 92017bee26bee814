"""Jobs where the place for shared memory is full: a container's may have a few kilobytes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import COMMAND
from real_jobs import chain, chain_folder, debians_mpirun, let_ranks_sleep, wheels_mpirun

pytestmark = pytest.mark.ci

NO_NAMESPACE = 77

SMALL = f"""
mount -t tmpfs -o "mode=1777,$1" tmpfs /dev/shm || exit {NO_NAMESPACE}
shift
"$@" && test -z "$(ls -A /dev/shm)"
"""


@pytest.mark.parametrize(
    ("room", "mpirun"),
    [("size=64k", wheels_mpirun), ("nr_inodes=3", debians_mpirun)],
)
def test_a_job_does_without_shared_memory_that_is_full(
    tmp_path: Path, room: str, mpirun: Callable[[], Path]
) -> None:
    folder = chain_folder(tmp_path, 2, chain(2, 40_000))
    let_ranks_sleep(folder, 1)
    job = [*COMMAND, "run", folder, "--frames", "20", "--mpirun", mpirun()]
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SMALL, "sh", room, *job],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if ended.returncode == NO_NAMESPACE or "unshare failed" in ended.stderr:
        pytest.skip(f"needs root, for a mount namespace of its own: {ended.stderr}")
    assert 0 == ended.returncode, ended.stderr
