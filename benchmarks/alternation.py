"""Programs that work in turn, for a fraction of a second each.

A machine that others use, too, changes its speed from second to second. Programs measured one after
the other, each from its start to its end, meet different minutes of it. Here all have been started
and are stopped (SIGSTOP), but for the one whose turn it is; so those of a round meet the same
second, and the ratio of their rates is that of the programs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray
from timing import start_round

_START_TIMEOUT_S = 120.0
_WARM_UP_S = 1.0
_SETTLES = 0.15
"""Share of a turn that is left out: caches are the others', a pipeline has to fill again."""
_FEWEST = 4
"""Frames that a turn must have, for a rate."""

Stamps = NDArray[np.float64]


def read_stamps(path: Path) -> Stamps:
    """Read times of ``time.monotonic`` that a program has written as float64, one per frame."""
    return np.fromfile(path)


class Contestant:
    """A running program that leaves the time of each finished frame in files."""

    def __init__(
        self,
        name: str,
        started: Sequence[psutil.Process],
        workers: Callable[[], Sequence[psutil.Process]],
        stamps: Sequence[Path],
        read: Callable[[Path], Stamps] = read_stamps,
    ) -> None:
        """Take a program that has just been started.

        Args:
            name: what reports call it.
            started: processes to be ended, with all that they have started.
            workers: asked, once frames are finished, which processes work on them.
            stamps: files of its parts; the slowest part's rate is the program's.
            read: returns what one of them says.
        """
        self.name = name
        self._started, self._find_workers = started, workers
        self._stamps, self._read = stamps, read
        self._turns: list[tuple[float, float]] = []

    def __enter__(self) -> Contestant:
        """Let it warm up, then stop it."""
        try:
            self._await_frames()
            self._workers = self._find_workers()
            self._pause()
        except BaseException:
            self._end()
            raise
        self._used_s = [-_used_s(worker) for worker in self._workers]
        return self

    @property
    def workers(self) -> Sequence[psutil.Process]:
        """Those that work on frames."""
        return self._workers

    def _await_frames(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not all(path.exists() and len(self._read(path)) for path in self._stamps):
            runs = all(process.status() != psutil.STATUS_ZOMBIE for process in self._started)
            if not runs or time.monotonic() > deadline:
                sys.exit(f"{self.name}: ended before its first frame, or has none after long")
            time.sleep(0.1)
        time.sleep(_WARM_UP_S)

    def take_turn(self, seconds: float) -> None:
        """Let it work for a while."""
        begin = time.monotonic()
        try:
            for worker in self._workers:
                worker.resume()
            time.sleep(seconds)
            self._pause()
        except psutil.NoSuchProcess as error:
            sys.exit(f"{self.name}: process {error.pid} ended in turn {len(self._turns) + 1}")
        self._turns.append((begin, time.monotonic()))

    def _pause(self) -> None:
        for worker in self._workers:
            worker.suspend()

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Take down what was measured, if nothing failed, and end it."""
        try:
            if failure is None:
                self._take_down()
        finally:
            self._end()

    def _take_down(self) -> None:
        used = [_used_s(worker) for worker in self._workers]
        self._used_s = [after + before for after, before in zip(used, self._used_s, strict=True)]
        self._frames = [self._read(path).copy() for path in self._stamps]

    def _end(self) -> None:
        family = [child for process in self._started for child in process.children(recursive=True)]
        for process in (*family, *self._started):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(self._started)

    def rates(self) -> list[float]:
        """Return the frames per second of each turn; call it after the end."""
        return [min(rates) for rates in zip(*self.rates_of_parts(), strict=True)]

    def rates_of_parts(self) -> list[list[float]]:
        """Return the same for each part."""
        return [[self._rate(part, *turn) for turn in self._turns] for part in self._frames]

    def _rate(self, stamps: Stamps, begin: float, end: float) -> float:
        frames = stamps[(stamps > begin + _SETTLES * (end - begin)) & (stamps < end)]
        if len(frames) < _FEWEST:
            sys.exit(f"{self.name}: {len(frames)} frames in a turn; --turn lengthens turns")
        return float((len(frames) - 1) / (frames[-1] - frames[0]))

    def cpu_ms(self) -> list[float]:
        """Return the processor time per frame of each worker, in milliseconds.

        Workers without a file of their own take part in the frames of the last one.
        """
        counts = [
            sum(int(((part > begin) & (part < end)).sum()) for begin, end in self._turns)
            for part in self._frames
        ]
        counts += counts[-1:] * (len(self._used_s) - len(counts))
        return [1e3 * used / count for used, count in zip(self._used_s, counts, strict=True)]


def _used_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def mpi_job(
    name: str,
    command: Sequence[str],
    stamps: Path,
    read: Callable[[Path], Stamps] = read_stamps,
) -> Contestant:
    """Start an mpirun; its ranks are the workers, and one of them writes the stamps."""
    started = psutil.Popen(command, stdout=subprocess.DEVNULL)

    def ranks() -> list[psutil.Process]:
        processes: dict[int, psutil.Process] = {}
        for process in started.children(recursive=True):
            rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            # A rank comes before what it has started itself.
            if rank is not None:
                processes.setdefault(int(rank), process)
        return [processes[rank] for rank in sorted(processes)]

    return Contestant(name, [started], ranks, [stamps], read)


def take_turns(contestants: Iterable[Contestant], rounds: int, turn_s: float) -> None:
    """Give each a turn per round, in an order that changes; all have been entered."""
    order = list(contestants)
    chance = random.Random(0)
    for number in range(rounds):
        start_round(number + 1, rounds)
        chance.shuffle(order)
        for contestant in order:
            contestant.take_turn(turn_s)
