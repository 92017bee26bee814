"""The command line in a mount namespace of its own, where read-only and full disks hurt nobody."""

from __future__ import annotations

import functools
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
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


@functools.cache
def _can_mount() -> bool:
    line = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    try:
        return not subprocess.run(line, capture_output=True, check=False).returncode
    except OSError:
        return False


if __name__ == "__main__":
    print(json.dumps([astuple(rankslice(*line)) for line in json.load(sys.stdin)]))
