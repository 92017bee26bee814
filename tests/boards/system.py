"""Commands, processes and mounts of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

NAMESPACES = Path("/run/netns")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": SYSTEM_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"}


class BoardsError(Exception):
    """Boards cannot be made, reached or removed; the text says why."""


def command(arguments: Sequence[str | Path], *, text: str = "", timeout: float = 60) -> str:
    """Return what a command of the system prints.

    Raises:
        BoardsError: the command failed, with what it said.
    """
    done = subprocess.run(
        [str(argument) for argument in arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env=ENVIRONMENT,
    )
    if done.returncode:
        line = " ".join(str(argument) for argument in arguments)
        script = f" < {text!r}" if text else ""
        raise BoardsError(f"{line}{script} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def batch(program: Sequence[str], lines: Iterable[str]) -> None:
    """Run lines of ``ip`` or ``tc`` in one process."""
    command([*program, "-batch", "-"], text="\n".join(lines) + "\n")


def processes_in(namespace: str) -> list[int]:
    """Return the processes in a network namespace, zombies aside."""
    try:
        wanted = (NAMESPACES / namespace).stat()
    except FileNotFoundError:
        return []
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            own = (folder / "ns" / "net").stat()
        except OSError:  # it has ended
            continue
        if (own.st_dev, own.st_ino) == (wanted.st_dev, wanted.st_ino):
            found.append(int(folder.name))
    return found


def status_field(process: int, field: str) -> str:
    """Return a field of ``/proc/<process>/status``, empty if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return ""
    values = [line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:")]
    return values[0] if values else ""


def is_running(process: int) -> bool:
    """Tell whether a process has not ended yet."""
    return status_field(process, "State")[:1] not in {"", "Z", "X"}


def first_process_of(namespace: str) -> int | None:
    """Return the process that is number 1 on the board with this namespace."""
    for process in processes_in(namespace):
        numbers = status_field(process, "NSpid").split()
        if len(numbers) > 1 and numbers[-1] == "1":
            return process
    return None


def mounts_below(folder: Path) -> list[Path]:
    """Return the mount points in a folder, itself included, the deepest first."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = [Path(line.split()[4].replace("\\040", " ")) for line in lines]
    below = [point for point in points if point == folder or folder in point.parents]
    return sorted(below, key=lambda point: len(point.parts), reverse=True)
