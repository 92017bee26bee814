"""Processes and their threads, by their numbers, and the memory that they share."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from .files import ROOT, beginning_of, text_of

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """What the system tells of a process or a thread."""

    state: str
    """``R`` if it could run."""
    cpu_s: float
    """Processor time so far, of a process that of all its threads."""
    started: int
    """In clock ticks since boot."""
    resident_bytes: int

    @property
    def has_ended(self) -> bool:
        return self.state in "ZX"


def stat_of(process: int | str, root: Path = ROOT) -> Stat | None:
    """Read the state of a process, or a thread (``12/task/13``); ``None``: there is none."""
    try:
        text = beginning_of(root / f"proc/{process}/stat")
        fields = text.rpartition(b")")[2].decode("ascii").split()
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
        return Stat(fields[0], cpu_s, int(fields[19]), int(fields[21]) * _PAGE_BYTES)
    except (OSError, ValueError, IndexError):
        return None


def cpu_s_of(process: int) -> float:
    """Processor time of all threads so far, in seconds; 0 if the process has ended."""
    stat = stat_of(process)
    return stat.cpu_s if stat is not None else 0.0


def status_of(process: int | str, name: str, root: Path = ROOT) -> str:
    """Read a value of a process's status (``Uid``, ``VmHWM``); empty if it ended, or has none."""
    with contextlib.suppress(OSError):
        text = (root / f"proc/{process}/status").read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith(f"{name}:"):
                return line[len(name) + 1 :].strip()
    return ""


def memory_of(process: int | str, name: str) -> int:
    """Memory of a process in bytes, ``VmRSS`` or at its peak ``VmHWM``; 0 if it ended."""
    value = status_of(process, name)
    return int(value.split()[0]) << 10 if value else 0


def threads_of(process: int | str) -> list[int]:
    """Numbers of a process's threads.

    Raises:
        OSError: it has ended.
    """
    return [int(folder.name) for folder in Path(f"/proc/{process}/task").iterdir()]


def all_processes() -> list[int]:
    """Numbers of all processes that this account may see."""
    return [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]


def bytes_of(process: int | str, name: str) -> bytes:
    """Read a file of a process: ``cmdline``, ``environ``.

    Raises:
        OSError: it has ended, or is not this account's.
    """
    return Path(f"/proc/{process}/{name}").read_bytes()


def meminfo(root: Path = ROOT) -> dict[str, int]:
    """Amounts in bytes, by the system's names: ``MemAvailable``."""
    amounts = re.findall(r"(?m)^(\w+):\s+(\d{1,15}) kB", text_of(root / "proc/meminfo"))
    return {name: int(amount) << 10 for name, amount in amounts}


def free_bytes(root: Path = ROOT) -> int | None:
    """Bytes that programs can get, of memory and of swap; ``None``: the system does not tell."""
    amounts = meminfo(root)
    if "MemAvailable" not in amounts:
        return None
    return amounts["MemAvailable"] + amounts.get("SwapFree", 0)


def kills_for_memory() -> int:
    """Count the processes that the kernel has killed since boot because memory ran out."""
    match = re.search(r"(?m)^oom_kill (\d+)", text_of(ROOT / "proc/vmstat"))
    return int(match.group(1)) if match else 0
