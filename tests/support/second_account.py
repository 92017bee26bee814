"""Another user of this machine, who means ill: needs root, which alone can become one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

STRANGER = 65534
"""Number of a user without files."""

AS_STRANGER = f"""
import os, pathlib, signal, socket, sys, time
os.setgroups([])
os.setgid({STRANGER})
os.setuid({STRANGER})
"""
"""The beginning of a program of theirs; it loads first what root alone may read."""


TRIES_EVERYTHING = """
folder = pathlib.Path(sys.argv[1])
def datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(b"rankslice: rank 0: all is lost", str(folder / "messages"))
tries = {
    "list": lambda: list(folder.iterdir()),
    "read": lambda: (folder / "rank-0").read_bytes(),
    "write": lambda: (folder / "rank-0").write_bytes(b"x"),
    "make": lambda: (folder / "rank-1").touch(),
    "remove": lambda: (folder / "rank-0").unlink(),
    "rename": lambda: folder.rename(folder.with_name("other")),
    "remove the folder": lambda: folder.rmdir(),
    "lock": lambda: (folder / sys.argv[2]).open("r+"),
    "send": datagram,
}
for name, attempt in tries.items():
    try:
        attempt()
        print(name)
    except PermissionError:
        pass
"""
"""Print what another user can do in a job's folder, given with the name of its lock."""


def needs_root() -> None:
    """Skip the test if this account cannot become another one."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a second user")


def as_stranger(program: str, *arguments: object) -> str:
    """Return what a Python program printed that another user ran."""
    needs_root()
    return subprocess.run(
        [sys.executable, "-c", AS_STRANGER + program, *map(str, arguments)],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@contextmanager
def process_of_stranger() -> Iterator[subprocess.Popen[str]]:
    """Give a process of another user's that waits."""
    needs_root()
    command = [sys.executable, "-c", AS_STRANGER + "print(flush=True); time.sleep(1000)"]
    with subprocess.Popen(command, cwd="/", stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def process_of_victim() -> Iterator[subprocess.Popen[bytes]]:
    """Give a process of this user's that waits."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def open_place() -> Iterator[Path]:
    """Give a folder in which all users may make files, as in ``/tmp``."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o1777)
        yield place
