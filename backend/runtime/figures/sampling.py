"""Samples of a board and its ranks once a second: from their files, so nothing of it is in a rank.

It needs only the standard library and its neighbours, as boards load it without the other parts.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..system.board.hardware import Hardware
from ..system.board.nvml import LIBRARY
from ..system.files import ROOT
from ..system.processes import stat_of
from .events import NAME
from .last_second import EventReader, LastSecond

PERIOD_S = 1.0
_END_S = 2.0
"""A sensor may take long to answer."""


@dataclass(frozen=True)
class Sample:
    time_ns: int
    """Of CLOCK_MONOTONIC of the board."""
    values: dict[str, float]
    """By name: ``quantity_unit``, or ``quantity_unit.part``. Those of a rank end in ``.rank0``."""
    absent: tuple[str, ...] = ()


OnSample = Callable[[str, Sample], None]
"""Told the name of a board, and what it and its ranks are like now; in threads, once a second."""


def split_name(name: str) -> tuple[str, int | str]:
    """Return the quantity that a name of a value has, and the number of the rank, or the part."""
    quantity, _, part = name.partition(".")
    rank = re.fullmatch(r"rank(\d{1,9})", part)
    return quantity, int(rank[1]) if rank else part


class Sampler:
    def __init__(self, folder: Path, root: Path = ROOT, *, nvml: str = LIBRARY) -> None:
        """``folder``: that with the ranks' rings. ``root``: of sys and proc."""
        self._folder = folder
        self._root = root
        self._hardware = Hardware(root, nvml=nvml)
        self._ranks: dict[int, _Rank] = {}

    def sample(self) -> Sample:
        values = self._hardware.values()
        self._find_ranks()
        for number, rank in sorted(self._ranks.items()):
            for name, value in rank.values(self._root, time.monotonic_ns()).items():
                values[name if name in OF_THE_JOB else f"{name}.rank{number}"] = value
        return Sample(time.monotonic_ns(), values, self._hardware.absent)

    def _find_ranks(self) -> None:
        names = [entry.name for entry in os.scandir(self._folder)]
        numbers = (name[len(NAME) :] for name in names if name.startswith(NAME))
        for number in {
            int(number) for number in numbers if number.isdecimal()
        } - self._ranks.keys():
            with contextlib.suppress(OSError):  # its ring is being made
                self._ranks[number] = _Rank(EventReader(self._folder, number))

    def close(self) -> None:
        self._hardware.close()
        for rank in self._ranks.values():
            rank.reader.close()


OF_THE_JOB = {
    *("completed", "rate_fps", "latency_p50_ms", "latency_p99_ms"),
    *("frames_inside", "frames_waiting"),
}
"""Values that the source has of the whole job."""


class _Rank:
    def __init__(self, reader: EventReader) -> None:
        self.reader = reader
        self._events = LastSecond(reader)
        self._before: tuple[int, float] | None = None

    def values(self, root: Path, now_ns: int) -> dict[str, float]:
        """Return its figures; none before it has begun, nor after its end."""
        head = self.reader.head()
        helpers = head.get("helpers")
        processes = [head.get("process"), *(helpers if isinstance(helpers, list) else ())]
        if "events" in head or not all(type(number) is int for number in processes):
            return {}
        stats = [stat_of(number, root) for number in processes]
        if stats[0] is None or stats[0].has_ended:
            return {}
        running = [stat for stat in stats if stat is not None and not stat.has_ended]
        cpu_s = sum(stat.cpu_s for stat in running)
        values = {"cpu_s": cpu_s, "memory_mb": sum(stat.resident_bytes for stat in running) / 1e6}
        if self._before is not None:
            passed_s = max(1, now_ns - self._before[0]) / 1e9
            values["processor_share"] = max(0.0, cpu_s - self._before[1]) / passed_s
        self._before = now_ns, cpu_s
        return {**values, **self._events.values(now_ns)}


class Sampling:
    """Samples in a thread while it is entered: a context manager."""

    def __init__(self, folder: Path, on_sample: Callable[[Sample], None]) -> None:
        self._folder = folder
        self._on_sample = on_sample
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampling", daemon=True)

    def __enter__(self) -> Sampling:
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._end.set()
        self._thread.join(_END_S)

    def _run(self) -> None:
        with contextlib.suppress(OSError), contextlib.closing(Sampler(self._folder)) as sampler:
            due_s = time.monotonic()
            while not self._end.is_set():
                self._on_sample(sampler.sample())
                due_s = max(due_s + PERIOD_S, time.monotonic())
                self._end.wait(due_s - time.monotonic())
