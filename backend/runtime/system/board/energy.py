"""The energy of a board, counted by its sensors and those of its GPUs."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..files import ROOT, number_in
from ..sensors import POWERCAP, Channel, channels
from .nvml import Nvml, find_nvml

_PERIOD_S = 0.005
_COUNTER_PERIOD_S = 10.0
"""Counters are read only often enough to notice each restart at zero."""
_TRIES, _PAUSE_S = 3, 0.01
_ANSWER_S = 3.0


class SensorError(Exception):
    """A sensor cannot report the energy; the message says why."""


@dataclass(frozen=True, slots=True)
class _Meter:
    name: str
    read_once: Callable[[], int | None]
    """Returns the value; ``None``: it cannot be read."""
    unit_w: float | None
    """Of power; ``None``: it counts microjoules."""
    limit_uj: int = 0
    """From which it begins again at zero."""

    def read(self) -> int:
        for _ in range(_TRIES):
            value = self.read_once()
            if value is not None:
                return value
            time.sleep(_PAUSE_S)  # a bus may be busy
        raise SensorError("it could no longer be read")

    def joules(self, then: int, now: int, seconds: float) -> float:
        if self.unit_w is not None:
            if min(then, now) < 0:
                watts = self.unit_w * min(then, now)
                raise SensorError(f"it reported a negative power, {watts:.3g} W")
            return self.unit_w * seconds * (then + now) / 2
        if now >= then:
            return (now - then) / 1e6
        if not 0 <= now < then <= self.limit_uj:
            raise SensorError(f"its counter went back, from {then} to {now} uJ")
        return (now - then + self.limit_uj) / 1e6


class Sensor:
    """Counts energy while it is entered: a context manager, with a thread that reads the meters.

    Otherwise :meth:`watts` returns the power.
    """

    def __init__(self, meters: Sequence[_Meter], period_s: float) -> None:
        self.name = " + ".join(meter.name for meter in meters)
        """The sensor, by the system's own names."""
        self.seconds = 0.0
        """Between the first and the last reading."""
        self._meters = meters
        are_counters = all(meter.unit_w is None for meter in meters)
        self._period_s = _COUNTER_PERIOD_S if are_counters else period_s
        self._joules = [0.0 for _ in meters]
        self._last: tuple[list[int], float] | None = None
        self._reason = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Sensor:
        self._last, self._reason = None, ""
        self._stop.clear()
        try:
            self._begin()
            self._read()
        except SensorError as error:
            self._reason = str(error)
        else:
            self._thread = threading.Thread(target=self._watch, name="sensor", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._stop.set()

    def joules(self) -> float:
        """Stop, and return the energy since the beginning, above zero.

        Raises:
            SensorError: the sensor could not be read at times, or reports impossible values.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)
            if self._thread.is_alive():
                raise SensorError(f"it has not answered for {_ANSWER_S:g} s")
        if self._reason:
            raise SensorError(self._reason)
        if min(self._joules) <= 0:
            raise SensorError(f"it counted nothing in {self.seconds:.3g} s")
        return sum(self._joules)

    def watts(self) -> float | None:
        """Return the mean power since the last call, in watts.

        ``None`` at the first call, and after one at which the sensor could not be read.
        """
        self._begin()
        with suppress(SensorError):
            self._read()
            return sum(self._joules) / self.seconds if self.seconds else None
        return None

    def _begin(self) -> None:
        self._joules, self.seconds = [0.0 for _ in self._meters], 0.0

    def _watch(self) -> None:
        try:
            # Uneven, so that readings do not keep step with frames.
            while not self._stop.wait(random.uniform(0.5, 1.5) * self._period_s):
                self._read()
            self._read()
        except SensorError as error:
            self._reason = str(error)

    def _read(self) -> None:
        before, self._last = self._last, None
        self._last = values, now_s = [meter.read() for meter in self._meters], time.perf_counter()
        if before is None:
            return
        passed_s = now_s - before[1]
        for place, meter in enumerate(self._meters):
            self._joules[place] += meter.joules(before[0][place], values[place], passed_s)
        self.seconds += passed_s


def find_sensor(
    root: Path = ROOT,
    *,
    period_s: float = _PERIOD_S,
    nvml: Callable[[], Nvml | None] = find_nvml,
) -> Sensor | None:
    """Return the board's energy sensor; ``None`` if it has none that may be read.

    Of several channels the one of the whole board is used; otherwise the sum of processor packages
    and NVIDIA GPUs, or the first channel, counters of energy before power sensors, which must be
    sampled, every ``period_s`` on average. ``root``: under which Linux shows ``sys``.
    """
    readable: list[Channel] = []
    with suppress(OSError):
        readable += (channel for channel in channels(root) if channel.value() is not None)
    processors = [channel for channel in readable if channel.device == POWERCAP]
    # A package may be listed twice: by its registers, and by its memory.
    packages = {one.label: one for one in processors if one.label.startswith("package")}
    whole = [channel for channel in readable if channel.is_whole][:1]
    gpus = [] if whole else _gpus(nvml())
    chosen = whole or [*packages.values()]
    if not chosen and not gpus:  # a channel of a board with such a GPU may be of anything
        chosen = [channel for channel in readable if channel not in processors][:1]
    meters = [*map(_meter, chosen), *gpus]
    return Sensor(meters, period_s) if meters else None


def _meter(channel: Channel) -> _Meter:
    limit_uj = number_in(channel.paths[0].with_name("max_energy_range_uj")) or 0
    return _Meter(channel.name, channel.value, channel.unit_w, limit_uj)


def _gpus(nvml: Nvml | None) -> list[_Meter]:
    if nvml is None:
        return []
    name = f"NVML {', '.join(nvml.names)}"
    meters = _Meter(name, nvml.energy_uj, None), _Meter(name, nvml.power_mw, 1e-3)
    return [meter for meter in meters if meter.read_once() is not None][:1]
