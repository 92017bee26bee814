"""The command line in a mount namespace or a cpuset of its own, where it hurts nobody."""

from __future__ import annotations

import functools
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

import pytest
from command_line import Ended, rankslice


def run_with_mounts(mounts: Sequence[str], *arguments: str | Path) -> Ended:
    """Run a command of the command line where mounts have been made for it alone.

    Args:
        mounts: shell lines that make them.
        arguments: of the command.
    """
    (ended,) = run_all_with_mounts(mounts, [arguments])
    return ended


def run_all_with_mounts(
    mounts: Sequence[str],
    commands: Sequence[Sequence[str | Path]],
    afterwards: Sequence[str] = (),
) -> list[Ended]:
    """Run commands one after the other, in one process, where mounts have been made.

    Args:
        mounts: shell lines that make them.
        commands: of the command line.
        afterwards: shell lines that must succeed.
    """
    if not _can_mount():
        pytest.skip("mount namespaces take root (CAP_SYS_ADMIN)")
    script = "\n".join(["set -e", *mounts, '"$@"', *afterwards])
    lines = json.dumps([[str(word) for word in command] for command in commands])
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", sys.executable, "-W", "error", __file__],
        input=lines,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == ended.returncode, ended.stderr
    return [Ended(*each) for each in json.loads(ended.stdout)]


def read_only(folder: Path) -> list[str]:
    """Return the mounts that make a folder read-only, for root as well."""
    name = shlex.quote(str(folder))
    return [f"mount --bind {name} {name}", f"mount -o remount,bind,ro {name}"]


def small_disk(folder: Path, size: str = "64k") -> list[str]:
    """Return the mount that puts an empty disk of this size in a folder's place."""
    return [f"mount -t tmpfs -o size={size} tmpfs {shlex.quote(str(folder))}"]


def threads_of_one_core(folder: Path, cores: Sequence[int]) -> list[str]:
    """Return the mounts after which the kernel tells that these CPUs are one core's threads.

    Args:
        folder: for what it tells.
        cores: numbers of the CPUs.
    """
    mask, ranges = f"{sum(1 << core for core in cores):x}\n", f"{','.join(map(str, cores))}\n"
    told = {
        **dict.fromkeys(["topology/core_cpus", "topology/thread_siblings"], mask),
        **dict.fromkeys(["topology/core_cpus_list", "topology/thread_siblings_list"], ranges),
        "topology/core_id": "0\n",
        "cache/index[0-2]/shared_cpu_map": mask,
        "cache/index[0-2]/shared_cpu_list": ranges,
    }
    lines = []
    for number, (pattern, text) in enumerate(told.items()):
        (file := folder / f"told.{number}").write_text(text)
        for core in cores:
            for path in Path(f"/sys/devices/system/cpu/cpu{core}").glob(pattern):
                lines.append(f"mount --bind {shlex.quote(str(file))} {path}")
    return lines


@contextmanager
def cpuset(core: int) -> Iterator[list[str]]:
    """Make a cpuset of one CPU, as ``docker run --cpuset-cpus`` does; yield what enters it."""
    old, group = Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup")
    try:
        if old.is_dir():
            group = old
        else:
            (group / "cgroup.subtree_control").write_text("+cpuset")
        memory = (group / "cpuset.mems").read_text() if old.is_dir() else ""
        (group := group / f"rankslice-test-{os.getpid()}").mkdir()
    except OSError as error:
        pytest.skip(f"cpusets take root, and a cgroup file system that it may write: {error}")
    try:
        (group / "cpuset.mems").write_text(memory)
        (group / "cpuset.cpus").write_text(str(core))
        yield [f"echo $$ > {group}/cgroup.procs"]
    finally:
        while (group / "cgroup.procs").read_text():  # mpirun's last processes
            time.sleep(0.05)
        group.rmdir()


@functools.cache
def _can_mount() -> bool:
    line = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return not subprocess.run(line, capture_output=True, check=False).returncode
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps([astuple(rankslice(*line)) for line in json.load(sys.stdin)]))
