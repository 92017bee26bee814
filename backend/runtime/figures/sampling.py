"""Samples of a board and its ranks once a second: from their files, so nothing of it is in a rank.

What a rank has done in the last second is in its ring of events.

It needs only the standard library and its neighbours, as boards load it without the other parts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ..system.board.hardware import Hardware
from ..system.board.nvml import LIBRARY
from ..system.files import ROOT, open_own_file
from ..system.processes import stat_of
from .events import COMPUTE, EVENT, FRAME, HEAD_BYTES, NAME, READ, WAIT, WRITE

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


_BLOCK = 256
"""Events that are read at once. Ends are in order but for neighbours."""
_MAX_USED = 1024
"""Of the events since the last call, those that are used: the newest."""
_COMPUTES = 0
_STEPS = frozenset((COMPUTE, READ, WRITE, WAIT))
_READS_KEPT = 4096


class _Event(NamedTuple):
    begin_ns: int
    end_ns: int
    frame: int
    kind: int
    route: int
    thread: int
    number: int


class EventReader:
    def __init__(self, folder: Path, rank: int) -> None:
        """Open a rank's file in a folder.

        Raises:
            OSError: there is none, or it is no file of this user, or is being made.
        """
        self._file = open_own_file(folder / f"{NAME}{rank}")
        self._capacity = (os.fstat(self._file).st_size - HEAD_BYTES) // EVENT.size
        if self._capacity < 1:
            self.close()
            raise FileNotFoundError
        self._place = 0
        self._newest_ns = 0

    def head(self) -> dict[str, Any]:
        """Return the head of the file; empty: it is being written."""
        try:
            head = json.loads(os.pread(self._file, HEAD_BYTES, 0).rstrip(b"\0"))
        except (ValueError, RecursionError):
            return {}
        return head if isinstance(head, dict) else {}

    def take(self) -> tuple[list[_Event], bool]:
        """Return the events since the last call, by their ends, and whether older ones are left."""
        blocks: list[bytes] = []
        taken = 0
        while taken < self._capacity:
            block = self._block(min(_BLOCK, self._capacity - taken))
            ends = _ends(block)
            new = [place for place, end in enumerate(ends) if end > self._newest_ns]
            if not new:
                break
            count = new[-1] + 1
            blocks.append(block[: count * EVENT.size])
            taken += count
            self._place = (self._place + count) % self._capacity
            if count < len(ends):
                break
        content = b"".join(blocks)
        if taken >= self._capacity:  # the newest one may be anywhere
            ends = _ends(content)
            newest = ends.index(max(ends)) + 1
            self._place = (self._place + newest) % self._capacity
            content = content[newest * EVENT.size :] + content[: newest * EVENT.size]
        used = [_Event(*fields) for fields in EVENT.iter_unpack(content[-_MAX_USED * EVENT.size :])]
        events = [
            event
            for event in used
            if self._newest_ns < event.end_ns and 0 < event.begin_ns <= event.end_ns
        ]
        events.sort(key=lambda event: event.end_ns)
        if events:
            self._newest_ns = events[-1].end_ns
        return events, taken > _MAX_USED or taken >= self._capacity

    def _block(self, count: int) -> bytes:
        count = min(count, self._capacity - self._place)
        offset = HEAD_BYTES + self._place * EVENT.size
        block = os.pread(self._file, count * EVENT.size, offset)
        return block[: len(block) // EVENT.size * EVENT.size]

    def close(self) -> None:
        os.close(self._file)


def _ends(events: bytes) -> list[int]:
    return memoryview(events).cast("q")[1 :: EVENT.size // 8].tolist()


class LastSecond:
    """Makes figures of a rank's events, from one call to the next, about a second later."""

    def __init__(self, reader: EventReader) -> None:
        """Take the events; those that are there count, too."""
        self._reader = reader
        self._last_ns = 0
        self._until_ns = 0
        """End of the last event of the thread that computes."""
        self._read_at: dict[int, int] = {}
        """Frames that the source has let in, and when."""
        self._entered = self._left = 0

    def values(self, now_ns: int) -> dict[str, float]:
        """Return the figures since the last call; without events, only what is known.

        ``frames_per_s``, ``compute_share`` and ``wait_share`` are the rank's; the source's has
        those of the job besides: ``completed``, ``rate_fps``, ``latency_p50_ms``,
        ``latency_p99_ms``, ``frames_inside`` and ``frames_waiting`` (their mean number).
        """
        events, is_cut = self._reader.take()
        if not events and not self._last_ns:
            return {}
        since_ns = events[0].end_ns if is_cut else self._last_ns or events[0].begin_ns
        until_ns = events[-1].end_ns if is_cut else now_ns
        self._last_ns = now_ns
        span_s = max(1, until_ns - since_ns) / 1e9
        values = {"frames_per_s": _frames(events) / span_s, **self._shares(events, is_cut)}
        return {**values, **self._of_the_job(events, span_s)}

    def _shares(self, events: list[_Event], is_cut: bool) -> dict[str, float]:
        """Return which share of the time the thread that computes did so, and waited.

        The time is that between the ends of events: what has not ended counts next time.
        """
        own = [event for event in events if event.thread == _COMPUTES and event.kind in _STEPS]
        if not own:
            return {}
        begin_ns = own[0].begin_ns if is_cut or not self._until_ns else self._until_ns
        self._until_ns = own[-1].end_ns
        passed = max(1, self._until_ns - begin_ns)
        kinds = {"compute_share": COMPUTE, "wait_share": WAIT}
        spent = {name: _spent_ns(own, kind, begin_ns) for name, kind in kinds.items()}
        return {name: min(1.0, ns / passed) for name, ns in spent.items()}

    def _of_the_job(self, events: list[_Event], span_s: float) -> dict[str, float]:
        waited_ns = 0
        latencies = []
        for event in events:
            if event.kind == READ:
                self._read_at[event.frame] = event.begin_ns
                self._entered = max(self._entered, event.frame + 1)
        for event in events:
            if event.kind == FRAME:
                latencies.append((event.end_ns - event.begin_ns) / 1e6)
                self._left = max(self._left, event.frame + 1)
                read_ns = self._read_at.pop(event.frame, event.begin_ns)
                waited_ns += max(0, read_ns - event.begin_ns)
        if len(self._read_at) > _READS_KEPT:
            self._read_at.clear()
        if not self._entered:
            return {}
        values = {
            "completed": float(self._left),
            "rate_fps": len(latencies) / span_s,
            "frames_inside": float(max(0, self._entered - self._left)),
        }
        if latencies:
            latencies.sort()
            values["latency_p50_ms"] = _percentile(latencies, 50)
            values["latency_p99_ms"] = _percentile(latencies, 99)
            # Little's law: the mean number is the sum of the times over the time.
            values["frames_waiting"] = waited_ns / 1e9 / span_s
        return values


def _frames(events: Iterable[_Event]) -> int:
    """Return how many frames a rank has computed: on each route, runs of its busiest segment."""
    runs = Counter((event.route, event.number) for event in events if event.kind == COMPUTE)
    routes = {route for route, _ in runs}
    return sum(max(runs[run] for run in runs if run[0] == route) for route in routes)


def _spent_ns(events: Iterable[_Event], kind: int, since_ns: int) -> int:
    return sum(e.end_ns - max(e.begin_ns, since_ns) for e in events if e.kind == kind)


def _percentile(ordered: list[float], percent: int) -> float:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
