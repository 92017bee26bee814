"""A board's hardware: temperatures, clocks, throttling, memory, power, GPUs.

It needs only the standard library and its neighbours, as boards load it without the other parts.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..cores import CORES, processor_times, throttle_counters
from ..files import ROOT, beginning_of, number_in, paths_below, text_of
from ..processes import meminfo
from ..sensors import is_measured, numbered, plain_name, thermal_zones
from .energy import find_sensor, sensor_of
from .nvml import LIBRARY, Nvml, find_nvml
from .tegrastats import PROGRAM, Tegrastats

_Read = Callable[[], "float | None"]
"""Returns a value; ``None`` if there is none now."""

_MAX_SERIES = 64
"""Series of one kind that are read."""
_AT_ONCE = 32
"""Counters that are summed."""
_BRAKES = ("cpufreq", "devfreq", "processor", "cpu", "gpu", "tcc", "powerclamp")
"""Parts of the names of cooling devices that cool by slowing something down; a fan does not."""
_PI_STATES = 0b1111
"""Bits of a Raspberry Pi: its voltage is low, its clock is capped, it is slowed down, it is hot."""

_POWER_DIGITS = 6
"""Sensors tell no less than a microwatt."""
_TEGRASTATS_PERIOD_S = 1.0
_OF_TEGRASTATS = ("temperature", "power", "GPU")
"""Kinds of values that it may have."""


class Hardware:
    """Reads a board's hardware now and then.

    Names of values are ``quantity_unit``, or ``quantity_unit.part`` for one of several parts.
    """

    def __init__(
        self, root: Path = ROOT, *, nvml: str = LIBRARY, tegrastats: str = PROGRAM
    ) -> None:
        """``root``: under which Linux shows ``sys`` and ``proc``."""
        gpus = find_nvml(nvml)
        kinds: dict[str, Iterator[tuple[str, _Read]]] = {
            "temperature": _temperatures(root),
            "frequency": _frequencies(root),
            "throttling": _throttling(root),
            "processor": (
                (name, partial(_processor_s, root, place))
                for place, name in enumerate(("processor_busy_s", "processor_steal_s"))
            ),
            "memory": iter([("memory_available_mb", partial(_memory_mb, root))]),
            "GPU": _gpus(root, gpus),
        }
        self._reads: dict[str, _Read] = {}
        absent = []
        for kind, series in kinds.items():
            listed = [*itertools.islice(series, _MAX_SERIES)]
            readable = [(name, read) for name, read in listed if read() is not None]
            if not readable:
                absent.append(kind)
            elif kind == "temperature":  # a zone is silent while its part of the chip is off
                readable = listed
            names = numbered(name for name, _ in readable)
            self._reads.update(zip(names, (read for _, read in readable), strict=True))
        self._power = find_sensor(root, with_rails=True, nvml=lambda: gpus, tegrastats="")
        if self._power is None:
            absent.append("power")
        self._absent = tuple(absent)
        self._tegrastats: Tegrastats | None = None
        if {*_OF_TEGRASTATS} & {*absent}:
            with contextlib.suppress(OSError):
                self._tegrastats = Tegrastats(tegrastats, _TEGRASTATS_PERIOD_S)

    @property
    def absent(self) -> tuple[str, ...]:
        """Kinds of values of which this account can read none."""
        told = {*_OF_TEGRASTATS} if self._tegrastats is not None else set()
        if self._tegrastats is not None and (line := self._tegrastats.newest) is not None:
            values = line.celsius, line.milliwatts, line.gpu_percent is not None
            told = {kind for kind, value in zip(_OF_TEGRASTATS, values, strict=True) if value}
        return tuple(kind for kind in self._absent if kind not in told)

    def values(self) -> dict[str, float]:
        values = self._values_of_tegrastats() if self._tegrastats is not None else {}
        for name, read in self._reads.items():
            if (value := read()) is not None:
                values[name] = value
        if self._power is not None and (watts := self._power.watts()) is not None:
            values["power_w"] = round(watts, _POWER_DIGITS)
            for rail, joules in self._power.rail_joules.items():
                watts = joules / self._power.seconds
                values[f"rail_power_w.{rail}"] = round(watts, _POWER_DIGITS)
        return values

    def close(self) -> None:
        if self._tegrastats is not None:
            self._tegrastats.close()

    def _values_of_tegrastats(self) -> dict[str, float]:
        """Return temperatures and use of the GPU, if nothing else has them; begin with power."""
        assert self._tegrastats is not None
        if (line := self._tegrastats.newest) is None:
            return {}
        values = {}
        if "temperature" in self._absent:
            zones = [*line.celsius.items()][:_MAX_SERIES]
            values = {f"temperature_c.{plain_name(zone)}": value for zone, value in zones}
        if "GPU" in self._absent and line.gpu_percent is not None:
            values["gpu_utilisation_percent"] = line.gpu_percent
        if self._power is None:
            self._power = sensor_of(self._tegrastats)
        return values


def _temperatures(root: Path) -> Iterator[tuple[str, _Read]]:
    zones = thermal_zones(root)
    for zone in zones:
        name = plain_name(zone.kind or zone.path.name)
        yield f"temperature_c.{name}", partial(_celsius, zone.kind, str(zone.millicelsius_path))
    if zones:
        return
    for path in paths_below(root, "sys/class/hwmon/hwmon*/temp*_input"):
        label = text_of(path.with_name(path.name.replace("_input", "_label"))) or path.name
        name = plain_name(f"{text_of(path.with_name('name'))} {label}")
        yield f"temperature_c.{name}", partial(_celsius, label, str(path))


def _frequencies(root: Path) -> Iterator[tuple[str, _Read]]:
    for policy in paths_below(root, f"{CORES}/cpufreq/policy*"):
        path = policy / "scaling_cur_freq"
        yield f"frequency_mhz.{policy.name}", partial(_scaled, str(path), 1e-3)


def _throttling(root: Path) -> Iterator[tuple[str, _Read]]:
    """Yield counters of throttling, states of brakes, and what a Raspberry Pi's firmware says."""
    counters = {kind: throttle_counters(kind, root) for kind in ("core", "package")}
    counters["over_current"] = paths_below(root, "sys/class/hwmon/hwmon*/oc*_event_cnt")
    for kind, paths in counters.items():
        yield f"throttle_count.{kind}", _Counters([*map(str, paths)])
    by_kind: dict[str, list[str]] = {}
    for device in paths_below(root, "sys/class/thermal/cooling_device*"):
        kind = text_of(device / "type")
        if "fan" not in kind.lower() and any(part in kind.lower() for part in _BRAKES):
            by_kind.setdefault(plain_name(kind), []).append(str(device / "cur_state"))
    for kind, states in by_kind.items():
        yield f"cooling_state.{kind}", partial(_largest, states)
    for path in paths_below(root, "sys/devices/platform/soc*/*firmware/get_throttled"):
        yield "throttled.firmware", partial(_parsed, str(path), _is_throttled)


def _processor_s(root: Path, place: int) -> float | None:
    times = processor_times(root)
    return None if times is None else times[place]


def _memory_mb(root: Path) -> float | None:
    return _times(meminfo(root).get("MemAvailable"), 1e-6)


def _gpus(root: Path, nvml: Nvml | None) -> Iterator[tuple[str, _Read]]:
    """Yield what Linux tells of a GPU of the chip, or NVIDIA's driver of all GPUs together."""
    for path in paths_below(root, "sys/class/devfreq/*/device/load"):  # of Jetson boards
        yield "gpu_utilisation_percent", partial(_scaled, str(path), 0.1)
    for path in paths_below(root, "sys/class/kgsl/kgsl-3d0/gpu_busy_percentage"):  # Adreno
        yield "gpu_utilisation_percent", partial(_parsed, str(path), _percentage)
    if nvml is not None:
        yield "gpu_utilisation_percent", nvml.utilisation_percent
        yield "gpu_temperature_c", nvml.temperature_c
        yield "gpu_power_w", lambda: _times(nvml.power_mw(), 1e-3)


class _Counters:
    """Sums counters. Of many it reads a part each time, in turn; all of them at first."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._counts: dict[str, int] = {}
        self._turn = 0

    def __call__(self) -> float | None:
        parts = max(1, -(-len(self._paths) // _AT_ONCE)) if self._counts else 1
        for path in self._paths[self._turn % parts :: parts]:
            value = number_in(path)
            if value is not None:
                self._counts[path] = value
        self._turn += 1
        return float(sum(self._counts.values())) if self._counts else None


def _times(value: int | None, unit: float) -> float | None:
    return None if value is None else value * unit


def _scaled(path: str, unit: float) -> float | None:
    return _times(number_in(path), unit)


def _celsius(zone: str, path: str) -> float | None:
    degrees = _scaled(path, 1e-3)
    return degrees if degrees is not None and is_measured(zone, degrees) else None


def _largest(paths: list[str]) -> float | None:
    # intel_powerclamp reports -1 while it does nothing.
    values = [max(0, value) for value in map(number_in, paths) if value is not None]
    return float(max(values)) if values else None


def _parsed(path: str, parse: Callable[[bytes], float]) -> float | None:
    with contextlib.suppress(OSError, ValueError):
        return parse(beginning_of(path, 64))
    return None


def _percentage(text: bytes) -> float:
    return float(text.rstrip(b" %\n"))


def _is_throttled(text: bytes) -> float:
    return float(int(text, 16) & _PI_STATES != 0)
