"""The command line in a mount namespace of its own, where read-only and full disks hurt nobody."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import COMMAND, Ended


def run_with_mounts(mounts: Sequence[str], *arguments: str | Path, shell: str = "") -> Ended:
    """Run a command of the command line where mounts have been made for it alone.

    Args:
        mounts: shell lines that make them.
        arguments: of the command.
        shell: what the shell adds to the line: redirections.
    """
    if not _can_mount():
        pytest.skip("mount namespaces take root (CAP_SYS_ADMIN)")
    command = shlex.join([*COMMAND, *map(str, arguments)])
    script = "\n".join(["set -e", *mounts, f"exec {command} {shell}"])
    ended = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


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
