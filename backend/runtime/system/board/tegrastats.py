"""NVIDIA's program tegrastats, which reports on Jetson boards what Linux does not."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..sensors import is_measured

PROGRAM = "tegrastats"
_STALE_S = 3.0
"""It has not answered if its newest line is older."""
_MAX_LINE = 4096
_VALUE = re.compile(
    r"(?<!\S)(?:GR3D_FREQ (?P<percent>\d+)%"
    r"|(?P<zone>[\w.-]+)@(?P<celsius>-?\d+(?:\.\d+)?)C(?:/-?[\d.]+C)*(?!\S)"
    r"|(?P<rail>[A-Za-z]\w*) (?P<mw>-?\d+)(?:mW(?:/-?\d+mW)*|(?:/-?\d+)+)(?!\S))"
)
"""The value now, then mean and maximum, of which old versions leave out some, and units."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a line tells; empty, ``None``: nothing."""

    gpu_percent: float | None
    celsius: dict[str, float]
    """By thermal zone."""
    milliwatts: dict[str, int]
    """By rail."""


def read_line(text: str) -> Line:
    """Read a line, of any version from JetPack 3 to 7."""
    gpu_percent, celsius, milliwatts = None, {}, {}
    for match in _VALUE.finditer(text):
        if match["percent"]:
            gpu_percent = float(match["percent"])
        elif match["zone"] and is_measured(match["zone"], float(match["celsius"])):
            celsius[match["zone"]] = float(match["celsius"])
        elif match["rail"] and match["rail"] != "NC":
            milliwatts[match["rail"]] = int(match["mw"])
    return Line(gpu_percent, celsius, milliwatts)


class Tegrastats:
    """The program, and the newest line that it has written."""

    def __init__(self, program: str, period_s: float) -> None:
        """Start the program; it writes a line each ``period_s``.

        Raises:
            OSError: it cannot be started.
        """
        self.news = threading.Event()
        """Set at each line."""
        self._newest: tuple[Line, float] | None = None
        self._has_begun = threading.Event()
        nothing = subprocess.DEVNULL
        self._process = subprocess.Popen(
            [program, "--interval", f"{1e3 * period_s:.0f}"],
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=nothing,
        )
        with contextlib.suppress(OSError):  # a rank is bound to its cores, and starts it
            os.sched_setaffinity(self._process.pid, range(os.cpu_count() or 1))
        threading.Thread(target=self._read, name="tegrastats", daemon=True).start()

    def wait_for_first(self) -> bool:
        """Return whether it has written a line, for which it gets a few seconds."""
        self._has_begun.wait(_STALE_S)
        return self._newest is not None

    @property
    def newest(self) -> Line | None:
        """The newest line; ``None``: it has written none yet, or none for seconds."""
        if self._newest is None or time.monotonic() - self._newest[1] > _STALE_S:
            return None
        return self._newest[0]

    def milliwatts(self, rail: str) -> int | None:
        line = self.newest
        return None if line is None else line.milliwatts.get(rail)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _read(self) -> None:
        for line in self._lines():
            self._newest = read_line(line), time.monotonic()
            self._has_begun.set()
            self.news.set()
        self._newest = None
        self._has_begun.set()
        self.news.set()

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            while line := lines.readline(_MAX_LINE):
                yield line.decode("ascii", "replace")
