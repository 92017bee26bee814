"""What a rank measures while it runs: time, processor time, memory, energy."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..job import ALL, Turns
from ..system.board.energy import SensorError, find_sensor
from ..system.board.nvml import find_nvml
from ..system.processes import cpu_s_of, memory_of
from .histogram import SORTED_AT_ONCE, Histogram
from .rank_figures import EnergyFigures

_T = TypeVar("_T")
_RUN_PERIOD_S = 0.1
"""Between two readings of a power sensor: enough for a run, and little processor time."""
_NO_SENSOR = "there is no power sensor that this account may read"

helper_processes: set[int] = set()
"""Numbers of the processes that work for this one; their time and memory count as its own."""

MIN_WARM_UP = 10
"""The steady state begins after as many frames as the window holds, but at least after these; on a
rank that takes turns, after those of them that it handles."""

NOT_COMPUTED = -math.inf
"""The time of a segment on a frame that has failed there, or before."""


class StepTimes:
    """The time that the segments, the source or the sink take, by frame and in the steady state."""

    def __init__(
        self,
        segments: int,
        window: int,
        turns: Turns = ALL,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.histogram = Histogram()
        """Per frame that it handles, all segments together."""
        self.count = 0
        self._segments = segments
        # The first frame of its own is not in its steady state in any case.
        self._left_out = max(1, turns.count_in(max(window, MIN_WARM_UP)))
        self._clock = clock
        self._open: dict[int, tuple[int, float]] = {}
        self._begin_s = self._end_s = self._begin_cpu_s = self._busy_s = self._waited_s = 0.0

    def add(self, frame: int, seconds: float, waited_s: float = 0.0) -> None:
        """Count one run on one frame, which has just ended; no frame that failed.

        ``waited_s``: for how long it waited for the world outside besides.
        """
        if self.count >= self._left_out and seconds > NOT_COMPUTED:
            self._busy_s += seconds
            self._waited_s += waited_s
            self._end_s = self._clock()
        if self._segments > 1:
            runs, total = self._open.pop(frame, (0, 0.0))
            seconds += total
            if runs + 1 < self._segments:
                self._open[frame] = (runs + 1, seconds)
                return
        if seconds > NOT_COMPUTED:
            self.histogram.add(seconds)
            self.count += 1
            if self.count == self._left_out:
                self._begin_s, self._begin_cpu_s = self._clock(), cpu_s()
            if not self.count % SORTED_AT_ONCE:
                self.histogram.sort()

    def shares(self) -> tuple[float, float]:
        """Return the shares of the steady state in which it worked, and waited for the world."""
        passed_s = self._end_s - self._begin_s
        return (self._busy_s / passed_s, self._waited_s / passed_s) if passed_s > 0 else (0.0, 0.0)

    def steady(self) -> dict[str, float] | None:
        """Return the figures of the steady state; ``None`` if there was none.

        Called at the end of the run. ``compute_share`` is the share of time in which a segment ran;
        ``cpu_share`` is the processor time of all threads over the time until now, above 1 if
        several cores worked.
        """
        now_s = self._clock()
        if self._end_s <= self._begin_s:
            return None
        return {
            "frames": self.count - self._left_out,
            "compute_share": self.shares()[0],
            "cpu_share": (cpu_s() - self._begin_cpu_s) / (now_s - self._begin_s),
        }


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime + sum(map(cpu_s_of, helper_processes))


def peak_memory_mb() -> float:
    """Return the peak resident memory in 10^6 bytes; ``ru_maxrss`` would count the launcher's."""
    own = memory_of("self", "VmHWM")
    return (own + sum(memory_of(process, "VmHWM") for process in helper_processes)) / 1e6


class GpuMemory:
    """The memory that this rank uses on the board's NVIDIA GPUs; make it before engines load.

    Engines keep their memory, so their final use is the peak.
    """

    def __init__(self, accelerator: str) -> None:
        self._nvml = find_nvml() if accelerator.startswith("gpu") else None
        self._before = self._nvml.used_bytes() if self._nvml is not None else None

    def bytes(self) -> int | None:
        """Return the memory of this process and its helpers; ``None`` if unknown.

        If the driver numbers processes otherwise, as in containers, it is the growth of all use
        since the start.
        """
        if self._nvml is None:
            return None
        own = self._nvml.used_bytes_of({os.getpid(), *helper_processes})
        now = self._nvml.used_bytes()
        if own is not None or now is None or self._before is None:
            return own
        return max(0, now - self._before) or None


class BoardEnergy:
    """Counts a board's energy during a run, on the board's first rank; on others nothing.

    It covers all that the sensor sees, as a rule the whole board, including idle power and other
    programs.
    """

    def __init__(self, boards: Sequence[str], rank: int) -> None:
        self._board = boards[rank]
        self._is_first = boards.index(self._board) == rank
        self._sensor = (
            find_sensor(period_s=_RUN_PERIOD_S, with_rails=True) if self._is_first else None
        )

    def during(self, run: Callable[[], _T]) -> tuple[_T, EnergyFigures | None]:
        if not self._is_first:
            return run(), None
        if self._sensor is None:
            return run(), EnergyFigures(self._board, "absent", None, reason=_NO_SENSOR)
        with self._sensor as sensor:
            result = run()
            try:
                joules, seconds = sensor.joules(), sensor.seconds
            except SensorError as error:
                reason = f"{sensor.name}: {error}"
                return result, EnergyFigures(self._board, "absent", sensor.name, reason=reason)
        return result, EnergyFigures(
            self._board,
            "measured",
            sensor.name,
            joules,
            seconds,
            mean_w=joules / seconds,
            rails=sensor.rail_joules,
        )
