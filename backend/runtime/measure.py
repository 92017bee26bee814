"""What a rank measures of itself while it runs."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

from .histogram import Histogram

__all__ = [
    "ComputeTimes",
    "count_process",
    "cpu_s",
    "cpu_s_of",
    "forget_process",
    "peak_memory_mb",
    "stat_fields",
]

_helpers: set[int] = set()
"""Processes that work for this one."""


class ComputeTimes:
    """Per frame, the time that all segments of the rank took together."""

    def __init__(self, segments: int) -> None:
        self.histogram = Histogram()
        self._segments = segments
        self._open: dict[int, tuple[int, float]] = {}

    def add(self, frame: int, seconds: float) -> None:
        """Count one segment's run on one frame."""
        runs, total = self._open.pop(frame, (0, 0.0))
        if runs + 1 == self._segments:
            self.histogram.add(total + seconds)
        else:
            self._open[frame] = (runs + 1, total + seconds)


def count_process(process: int) -> None:
    """Count another process's time and memory with this one's from now on."""
    _helpers.add(process)


def forget_process(process: int) -> None:
    """Count a process no longer."""
    _helpers.discard(process)


def cpu_s() -> float:
    """Return the processor time of all threads of this rank so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime + sum(map(cpu_s_of, _helpers))


def cpu_s_of(process: int) -> float:
    """Return the processor time of all threads of a process so far, in seconds; 0 if it ended."""
    with contextlib.suppress(OSError):
        fields = stat_fields(Path(f"/proc/{process}"))
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def stat_fields(folder: Path) -> list[str]:
    """Return what ``stat`` says after the name, in the folder of a process or a thread of /proc.

    Raises:
        OSError: it has ended.
    """
    return (folder / "stat").read_text().rpartition(")")[2].split()


def peak_memory_mb() -> float:
    """Return the peak resident memory in 10^6 bytes; ``ru_maxrss`` would count the launcher's."""
    return sum(_peak_memory_mb_of(process) for process in ("self", *map(str, _helpers)))


def _peak_memory_mb_of(process: str) -> float:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    return 0.0
