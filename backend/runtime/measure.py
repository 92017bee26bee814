"""What a rank measures of itself while it runs."""

from __future__ import annotations

import resource
from pathlib import Path

from .histogram import Histogram

__all__ = ["ComputeTimes", "cpu_s", "peak_memory_mb"]


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


def cpu_s() -> float:
    """Return the processor time of all threads of this process so far, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_memory_mb() -> float:
    """Return the peak resident memory in 10^6 bytes; ``ru_maxrss`` would count the launcher's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
