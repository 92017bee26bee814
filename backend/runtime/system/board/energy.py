"""The energy of a board and its rails, counted by its sensors and those of its GPUs."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..files import ROOT, number_in
from ..sensors import POWERCAP, Channel, channels, numbered, plain_name
from .nvml import Nvml, find_nvml
from .tegrastats import PROGRAM, Tegrastats

_PERIOD_S = 0.005
_COUNTER_PERIOD_S = 10.0
"""Counters are read only often enough to notice each restart at zero."""
_TRIES, _PAUSE_S = 3, 0.01
_ANSWER_S = 3.0
_LINES_PERIOD_S = 0.1
"""The least one between two lines of tegrastats, which reads much more than power."""
_MAX_RAILS = 64
_WHOLE_BOARD = {"vin", "vdd_in", "pom_5v_in", "psys", "total"}
"""Labels of channels that measure the whole board, in lower case."""
_PARTS_OF_BOARD = (
    ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V"),
    ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"),
    ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"),
)
"""Labels of channels that measure a whole module together, with none behind another: of Jetson AGX
Xavier, Orin (whose memory, ``VDDQ_VDD2_1V8AO``, is behind ``VIN_SYS_5V0``) and Thor."""


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
    label: str = ""
    is_rail: bool = False
    is_counted: bool = True
    """As part of the board's energy."""

    def read(self) -> int | None:
        """Read it; only meters that are not counted may fail."""
        if not self.is_counted:
            return self.read_once()
        for _ in range(_TRIES):
            value = self.read_once()
            if value is not None:
                return value
            time.sleep(_PAUSE_S)  # a bus may be busy
        raise SensorError("it could no longer be read")

    def joules(self, then: int | None, now: int | None, seconds: float) -> float:
        if then is None or now is None:
            return math.nan
        if self.unit_w is not None:
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

    def __init__(
        self, meters: Sequence[_Meter], period_s: float, tegrastats: Tegrastats | None = None
    ) -> None:
        """``tegrastats``: has the values of the meters; each of its lines is a reading."""
        self.name = " + ".join(meter.name for meter in meters if meter.is_counted)
        """The sensor, by the system's own names."""
        self.seconds = 0.0
        """Between the first and the last reading."""
        self._meters = meters
        self._tegrastats = tegrastats
        are_counters = all(meter.unit_w is None for meter in meters)
        self._period_s = _COUNTER_PERIOD_S if are_counters else period_s
        self._joules = [0.0 for _ in meters]
        self._last: tuple[list[int | None], float] | None = None
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
        self.close()

    def close(self) -> None:
        self._end()
        if self._tegrastats is not None:
            self._tegrastats.close()

    def _end(self) -> None:
        self._stop.set()
        if self._tegrastats is not None:
            self._tegrastats.news.set()

    def joules(self) -> float:
        """Stop, and return the energy since the beginning, above zero.

        Raises:
            SensorError: the sensor could not be read at times, or reports impossible values.
        """
        self._end()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)
            if self._thread.is_alive():
                raise SensorError(f"it has not answered for {_ANSWER_S:g} s")
        if self._reason:
            raise SensorError(self._reason)
        total = self._counted()
        still = any(
            joules <= 0
            for meter, joules in self._by_meter()
            if meter.is_counted and meter.unit_w is None
        )
        if total <= 0 or still:
            raise SensorError(f"it counted nothing in {self.seconds:.3g} s")
        return total

    @property
    def rail_joules(self) -> dict[str, float]:
        """By rail, the energy in the same time; zero where the sensor's error is below zero."""
        return {
            meter.label: max(0.0, joules)
            for meter, joules in self._by_meter()
            if meter.is_rail and math.isfinite(joules)
        }

    def _counted(self) -> float:
        return sum(joules for meter, joules in self._by_meter() if meter.is_counted)

    def _by_meter(self) -> Iterator[tuple[_Meter, float]]:
        return zip(self._meters, self._joules, strict=True)

    def watts(self) -> float | None:
        """Return the mean power since the last call, in watts.

        ``None`` at the first call, and after one at which the sensor could not be read.
        """
        self._begin()
        with suppress(SensorError):
            self._read()
            return self._counted() / self.seconds if self.seconds else None
        return None

    def _begin(self) -> None:
        self._joules, self.seconds = [0.0 for _ in self._meters], 0.0

    def _watch(self) -> None:
        try:
            while not self._pause():
                self._read()
            self._read()
        except SensorError as error:
            self._reason = str(error)

    def _pause(self) -> bool:
        """Wait until the next reading is due; return whether it is the last one."""
        if self._tegrastats is None:
            # Uneven, so that readings do not keep step with frames.
            return self._stop.wait(random.uniform(0.5, 1.5) * self._period_s)
        self._tegrastats.news.wait(_ANSWER_S)
        self._tegrastats.news.clear()
        return self._stop.is_set()

    def _read(self) -> None:
        before, self._last = self._last, None
        self._last = values, now_s = [meter.read() for meter in self._meters], time.perf_counter()
        watts = sum(
            meter.unit_w * value
            for meter, value in zip(self._meters, values, strict=True)
            if meter.is_counted and meter.unit_w is not None and value is not None
        )
        if watts < 0:
            raise SensorError(f"it reported a negative power, {watts:.3g} W")
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
    with_rails: bool = False,
    nvml: Callable[[], Nvml | None] = find_nvml,
    tegrastats: str = PROGRAM,
) -> Sensor | None:
    """Return the board's energy sensor; ``None`` if it has none that may be read.

    Of several channels the one of the whole board is used; otherwise the sum of its known parts, or
    of processor packages and NVIDIA GPUs, or the first channel, counters of energy before power
    sensors, which must be sampled, every ``period_s`` on average. Without a channel tegrastats is
    started, and closed with the sensor.

    Args:
        root: under which Linux shows ``sys``.
        with_rails: whether it counts also what each labelled channel of power measures.
        tegrastats: the program; empty: it is not started.
    """
    readable: list[Channel] = []
    with suppress(OSError):
        readable += (channel for channel in channels(root) if channel.value() is not None)
    processors = [_meter(channel) for channel in readable if channel.device == POWERCAP]
    others = [_meter(channel) for channel in readable if channel.device != POWERCAP]
    # A package may be listed twice: by its registers, and by its memory.
    packages = {one.label: one for one in processors if one.label.startswith("package")}
    counted = _of_board([*processors, *others]) or [*packages.values(), *_gpus(nvml())]
    # Next to such a GPU, a channel of a board may be of anything.
    counted = counted or others[:1]
    if counted:
        return Sensor(_with_rails(counted, others if with_rails else []), period_s)
    if not tegrastats:
        return None
    period_s = max(period_s, _LINES_PERIOD_S)
    with suppress(OSError):
        program = Tegrastats(tegrastats, period_s)
        if program.wait_for_first() and (sensor := sensor_of(program)) is not None:
            return sensor
        program.close()
    return None


def sensor_of(tegrastats: Tegrastats) -> Sensor | None:
    """Return the sensor of a board's power and rails that the program's newest line tells of."""
    line = tegrastats.newest
    meters = [
        _Meter(
            f"tegrastats {rail}", partial(tegrastats.milliwatts, rail), 1e-3, 0, rail, is_rail=True
        )
        for rail in ({} if line is None else line.milliwatts)
    ]
    counted = _of_board(meters) or meters[:1]
    return Sensor(_with_rails(counted, meters), 0.0, tegrastats) if counted else None


def _of_board(meters: Sequence[_Meter]) -> list[_Meter]:
    """Return the meters that measure the whole board together; none if that is not known."""
    for meter in meters:
        if meter.label.lower() in _WHOLE_BOARD:
            return [meter]
    by_label = {meter.label: meter for meter in meters}
    for labels in _PARTS_OF_BOARD:
        if {*labels} <= by_label.keys():
            return [by_label[label] for label in labels]
    return []


def _with_rails(counted: Sequence[_Meter], meters: Sequence[_Meter]) -> list[_Meter]:
    """Add rails, with names of their own; the only meter of a board is none of its rails."""
    rails = [meter for meter in meters if meter.is_rail and meter not in counted][:_MAX_RAILS]
    both = [
        *(replace(meter, is_rail=meter.is_rail and len(counted) > 1) for meter in counted),
        *(replace(meter, is_counted=False) for meter in rails),
    ]
    labels = numbered(plain_name(meter.label) for meter in both)
    return [replace(meter, label=label) for meter, label in zip(both, labels, strict=True)]


def _meter(channel: Channel) -> _Meter:
    limit_uj = number_in(channel.paths[0].with_name("max_energy_range_uj")) or 0
    read = channel.value
    return _Meter(channel.name, read, channel.unit_w, limit_uj, channel.label, channel.is_rail)


def _gpus(nvml: Nvml | None) -> list[_Meter]:
    if nvml is None:
        return []
    name = f"NVML {', '.join(nvml.names)}"
    meters = _Meter(name, nvml.energy_uj, None), _Meter(name, nvml.power_mw, 1e-3)
    return [meter for meter in meters if meter.read_once() is not None][:1]
