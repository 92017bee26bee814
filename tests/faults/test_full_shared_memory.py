"""Jobs where the place for shared memory is full or missing; a container may have kilobytes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import COMMAND
from real_jobs import chain, chain_folder, debians_mpirun, let_ranks_sleep, wheels_mpirun

pytestmark = pytest.mark.ci

NO_NAMESPACE = 77

IN_A_NAMESPACE = """
mounts=$1
shift
set -e
eval "$mounts" || exit 77
set +e
"$@" && test -z "$(ls -A /dev/shm 2>/dev/null)"
"""

SMALL = "mount -t tmpfs -o mode=1777,size=64k tmpfs /dev/shm"
FEW_NAMES = "mount -t tmpfs -o mode=1777,nr_inodes=3 tmpfs /dev/shm"
READ_ONLY = "mount -t tmpfs -o ro tmpfs /dev/shm"
MISSING = """
mount -t tmpfs tmpfs /mnt
for device in null zero full random urandom tty ptmx pts; do
    test -d /dev/$device && mkdir /mnt/$device || touch /mnt/$device
    mount --bind /dev/$device /mnt/$device
done
mount --rbind /mnt /dev
"""
NOWHERE = SMALL + "; mount -t tmpfs -o mode=1777,size=1m tmpfs /mnt; export TMPDIR=/mnt"


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return let_ranks_sleep(chain_folder(tmp_path_factory.mktemp("job"), 2, chain(2, 40_000)), 1)


def ended_where(
    mounts: str, out: Path, mpirun: Callable[[], Path], *arguments: str
) -> subprocess.CompletedProcess[str]:
    job = [*COMMAND, "run", out, "--frames", "20", "--mpirun", mpirun(), *arguments]
    return ended_in(mounts, job)


def ended_in(mounts: str, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a command in a mount namespace of its own, made by shell lines."""
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", mounts, *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if ended.returncode == NO_NAMESPACE or "unshare failed" in ended.stderr:
        pytest.skip(f"needs root, for a mount namespace of its own: {ended.stderr}")
    return ended


@pytest.mark.parametrize(
    ("mounts", "mpirun", "arguments"),
    [
        (SMALL, wheels_mpirun, ()),
        (SMALL, debians_mpirun, ("--no-direct",)),
        (FEW_NAMES, debians_mpirun, ()),
        (READ_ONLY, wheels_mpirun, ()),
        (MISSING, wheels_mpirun, ()),
    ],
    ids=["small", "small, by messages", "few names", "read-only", "missing"],
)
def test_a_job_does_without_the_place_for_shared_memory(
    out: Path, mounts: str, mpirun: Callable[[], Path], arguments: tuple[str, ...]
) -> None:
    ended = ended_where(mounts, out, mpirun, *arguments)
    assert 0 == ended.returncode, ended.stderr
    is_told = "ranks of one board exchange messages: --no-direct" in ended.stdout
    assert bool(arguments) == is_told


@pytest.mark.parametrize("mpirun", [wheels_mpirun, debians_mpirun])
def test_a_job_without_any_room_for_files_says_what_helps(
    out: Path, mpirun: Callable[[], Path]
) -> None:
    ended = ended_where(NOWHERE, out, mpirun)
    assert 1 == ended.returncode, ended.stderr
    assert "error: rank 0 (" in ended.stderr
    assert "and MPI's shared memory needs" in ended.stderr
    assert "make room in /dev/shm (--shm-size of a container), or name another" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_trace_says_that_there_is_no_room_for_events(out: Path) -> None:
    small = f"mount -t tmpfs -o size=6m tmpfs /mnt; cp -r {out} /mnt/out; export TMPDIR=/mnt"
    trace = [*COMMAND, "trace", "/mnt/out", "--frames", "100000"]
    ended = ended_in(small, trace)
    assert 1 == ended.returncode, ended.stderr
    assert ": file of events in /mnt/" in ended.stderr
    assert "No space left on device; make room there" in ended.stderr
