"""Energy sensors of a board, as shown by Linux and GPU drivers."""

from __future__ import annotations

import math
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from ..system.files import number_in, text_of
from .nvml import LIBRARY, find_nvml

_SYSTEM = Path("/sys")
_PERIOD_S = 0.005
_COUNTER_PERIOD_S = 10.0
"""Counters are read only often enough to notice each restart at zero."""
_TRIES, _PAUSE_S = 3, 0.01
_ANSWER_S = 3.0
"""How long the last reading may take."""
_WHOLE_BOARD = ("vdd_in", "pom_5v_in", "psys", "total")
"""Names of channels that measure the whole board."""

_Look = Callable[[], int | None]
"""Returns a sensor's value; ``None`` if it cannot be read."""


class SensorError(Exception):
    """A sensor cannot report the energy; the message says why."""


class Sensor(Protocol):
    """Counts energy while it is entered: a context manager, as a thread looks at the sensor."""

    name: str
    """The sensor, by the system's own names."""

    @property
    def seconds(self) -> float:
        """Time between the first and the last look."""

    def __enter__(self) -> Sensor:
        """Begin to count."""

    def __exit__(self, *ended: object) -> None:
        """Stop."""

    def joules(self) -> float:
        """Stop, and return the energy since the beginning, above zero.

        Raises:
            SensorError: the sensor could not be read at times, or reports impossible values.
        """


def find_sensor(
    system: Path = _SYSTEM, *, period_s: float = _PERIOD_S, nvml: str = LIBRARY
) -> Sensor | None:
    """Return the board's energy sensor; ``None`` if it has none that may be read.

    Energy counters are preferred to power sensors, which must be sampled. Of several channels the
    one of the whole board is used; otherwise the sum of processor packages and NVIDIA GPUs, or the
    first channel.

    Args:
        system: where Linux shows its devices.
        period_s: mean time between two readings of a power sensor.
        nvml: library for NVIDIA's GPUs.
    """
    processor = _processor(system)
    found = processor or _counter(system) or _power(system, period_s)
    if found is not None and found.is_whole:
        return found
    gpus = _gpus(nvml, period_s)
    if processor is not None and gpus is not None:
        return _Together((processor, gpus))
    # A channel of a board with such a GPU may be of anything.
    return processor or gpus or found


def find_power(system: Path = _SYSTEM, *, nvml: str = LIBRARY) -> Power | None:
    """Return what tells a board's power now and then, by the sensor of :func:`find_sensor`."""
    try:
        sensor = find_sensor(system, nvml=nvml)
    except OSError:
        return None
    parts = sensor.parts if isinstance(sensor, _Together) else [sensor]
    found = [part for part in parts if isinstance(part, _Watched)]
    return Power(found) if found else None


class Power:
    """Tells the power whenever it is asked, without a thread."""

    def __init__(self, parts: Sequence[_Watched]) -> None:
        """Take sensors of different parts of a board."""
        self._parts = parts
        self._last: list[tuple[float, list[int]]] = []

    def watts(self) -> float | None:
        """Return the mean power since the last call, in watts; ``None`` if it cannot be told.

        It cannot at the first call, nor after one at which the sensor could not be read.
        """
        before, self._last = self._last, []
        try:
            self._last = [(time.perf_counter(), part.read()) for part in self._parts]
            if not before:
                return None
            pairs = zip(self._parts, before, self._last, strict=True)
            return sum(part.mean_w(then, now) for part, then, now in pairs)
        except SensorError:
            return None


def _processor(system: Path) -> _Watched | None:
    """Return Linux' powercap zones, such as Intel's RAPL: the whole system, or all packages."""
    zones = {
        zone: text_of(zone / "name")
        for zone in sorted((system / "class" / "powercap").glob("*:*"))
        if zone.name.count(":") == 1 and number_in(zone / "energy_uj") is not None
    }
    whole = [zone for zone, name in zones.items() if name.lower() in _WHOLE_BOARD]
    chosen = whole[:1] or [zone for zone, name in zones.items() if name.startswith("package")]
    if not chosen:
        return None
    limits = [number_in(zone / "max_energy_range_uj") or 0 for zone in chosen]
    name = "powercap " + ", ".join(zones[zone] for zone in chosen)
    looks = [partial(number_in, zone / "energy_uj") for zone in chosen]
    return _Counters(name, looks, limits, is_whole=bool(whole))


def _counter(system: Path) -> _Watched | None:
    found = _chosen(_direct(system, "energy"))
    return _Counters(found.name, found.looks, [0], is_whole=found.is_whole) if found else None


def _power(system: Path, period_s: float) -> _Watched | None:
    channels = (*_direct(system, "power"), *_voltages_and_currents(system), *_older_ina(system))
    found = _chosen(channels)
    if found is None:
        return None
    return _Power(found.name, found.looks, found.unit_w, period_s, is_whole=found.is_whole)


def _gpus(library: str, period_s: float) -> _Watched | None:
    """Return NVIDIA's GPUs, summed: counters of energy, or power where they have none."""
    nvml = find_nvml(library)
    if nvml is None:
        return None
    name = f"NVML {', '.join(nvml.names)}"
    if nvml.energy_uj() is not None:
        return _Counters(name, [nvml.energy_uj], [0])
    return _Power(name, [nvml.power_mw], 1e-3, period_s) if nvml.power_mw() is not None else None


@dataclass(frozen=True, slots=True)
class _Channel:
    """Files whose product is what a channel tells."""

    device: str
    label: str
    paths: tuple[Path, ...]
    unit_w: float = 1e-6

    @property
    def name(self) -> str:
        return f"{self.device} {self.label}"

    @property
    def looks(self) -> list[_Look]:
        return [partial(number_in, path) for path in self.paths]

    @property
    def is_whole(self) -> bool:
        """Whether all else on the board is behind it."""
        return self.label.lower() in _WHOLE_BOARD


def _chosen(channels: Iterable[_Channel]) -> _Channel | None:
    """Return the whole board's channel, or the first, of those that may be read."""
    found = [each for each in channels if all(look() is not None for look in each.looks)]
    whole = [each for each in found if each.is_whole]
    return next(iter((*whole, *found)), None)


def _direct(system: Path, quantity: str) -> Iterator[_Channel]:
    """Yield hardware monitors' channels of power or energy."""
    for path in sorted((system / "class" / "hwmon").glob(f"hwmon*/{quantity}*_input")):
        label = text_of(path.with_name(path.name.replace("_input", "_label"))) or path.name
        yield _Channel(f"hwmon {text_of(path.with_name('name'))}", label, (path,))


def _voltages_and_currents(system: Path) -> Iterator[_Channel]:
    """Yield channels of monitors that tell millivolts and milliamperes, as the INA3221 does."""
    for current in sorted((system / "class" / "hwmon").glob("hwmon*/curr*_input")):
        voltage = current.with_name(current.name.replace("curr", "in"))
        label = text_of(current.with_name(voltage.name.replace("_input", "_label")))
        device = f"hwmon {text_of(current.with_name('name'))}"
        yield _Channel(device, label or f"{voltage.name} x {current.name}", (voltage, current))


def _older_ina(system: Path) -> Iterator[_Channel]:
    """Yield INA chips as the drivers of older Jetson boards show them, in milliwatts."""
    drivers = system / "bus" / "i2c" / "drivers"
    for path in sorted(drivers.glob("ina*/*/iio:device*/in_power*_input")):
        label = path.name.replace("in_power", "rail_name_").replace("_input", "")
        name = text_of(path.with_name(label)) or path.name
        yield _Channel(path.parents[2].name, name, (path,), 1e-3)


class _Watched(ABC):
    """Numbers, which a thread looks at now and then and in the end."""

    def __init__(
        self, name: str, looks: Sequence[_Look], period_s: float, *, is_whole: bool = False
    ) -> None:
        self.name = name
        self.seconds = 0.0
        self.is_whole = is_whole
        """Whether it tells of the whole board."""
        self._looks, self._period_s = looks, period_s
        self._joules = 0.0
        self._reason = ""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @abstractmethod
    def _between(self, then: Sequence[int], now: Sequence[int], seconds: float) -> float:
        """Return the energy between two looks in joules.

        Raises:
            SensorError: it cannot be.
        """

    def __enter__(self) -> Sensor:
        self._joules, self.seconds, self._reason = 0.0, 0.0, ""
        self._stop.clear()
        try:
            self._last, self._at_s = self.read(), time.perf_counter()
        except SensorError as error:
            self._reason = str(error)
        else:
            self._thread = threading.Thread(target=self._watch, name="sensor", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._stop.set()

    def joules(self) -> float:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_ANSWER_S)
        if self._thread is not None and self._thread.is_alive():
            raise SensorError(f"it has not answered for {_ANSWER_S:g} s")
        if self._reason:
            raise SensorError(self._reason)
        if self._joules <= 0:
            raise SensorError(f"it counted nothing in {self.seconds:.3g} s")
        return self._joules

    def _watch(self) -> None:
        try:
            # Uneven, so that looks do not keep step with frames.
            while not self._stop.wait(random.uniform(0.5, 1.5) * self._period_s):
                self._look()
            self._look()
        except SensorError as error:
            self._reason = str(error)

    def mean_w(self, then: tuple[float, list[int]], now: tuple[float, list[int]]) -> float:
        """Return the mean power between two looks, each with its time in seconds, in watts.

        Raises:
            SensorError: what they tell cannot be.
        """
        passed_s = max(1e-6, now[0] - then[0])
        return self._between(then[1], now[1], passed_s) / passed_s

    def _look(self) -> None:
        values, now_s = self.read(), time.perf_counter()
        self._joules += self._between(self._last, values, now_s - self._at_s)
        self.seconds += now_s - self._at_s
        self._last, self._at_s = values, now_s

    def read(self) -> list[int]:
        """Return what the numbers are now.

        Raises:
            SensorError: one cannot be read.
        """
        return [self._told(look) for look in self._looks]

    def _told(self, look: _Look) -> int:
        for _ in range(_TRIES):
            value = look()
            if value is not None:
                return value
            time.sleep(_PAUSE_S)  # a bus may be busy
        raise SensorError("it could no longer be read")


class _Counters(_Watched):
    """Counters in microjoules, which may begin again at zero."""

    def __init__(
        self, name: str, looks: Sequence[_Look], limits: Sequence[int], *, is_whole: bool = False
    ) -> None:
        super().__init__(name, looks, _COUNTER_PERIOD_S, is_whole=is_whole)
        self._limits = limits

    def _between(self, then: Sequence[int], now: Sequence[int], seconds: float) -> float:
        return 1e-6 * sum(map(_counted, then, now, self._limits))


def _counted(then: int, now: int, limit: int) -> int:
    if now >= then:
        return now - then
    if not 0 <= now < then <= limit:
        raise SensorError(f"its counter went back, from {then} to {now} uJ")
    return now - then + limit


class _Power(_Watched):
    """Power, the product of some numbers, summed up over time."""

    def __init__(
        self,
        name: str,
        looks: Sequence[_Look],
        unit_w: float,
        period_s: float,
        *,
        is_whole: bool = False,
    ) -> None:
        super().__init__(name, looks, period_s, is_whole=is_whole)
        self._unit_w = unit_w

    def _between(self, then: Sequence[int], now: Sequence[int], seconds: float) -> float:
        begin, end = (self._unit_w * math.prod(values) for values in (then, now))
        if min(begin, end) < 0:
            raise SensorError(f"it reported a negative power, {min(begin, end):.3g} W")
        return seconds * (begin + end) / 2


class _Together:
    """Sensors of different parts of a board, summed."""

    def __init__(self, parts: Sequence[Sensor]) -> None:
        self.name = " + ".join(part.name for part in parts)
        self.parts = parts

    @property
    def seconds(self) -> float:
        return max(part.seconds for part in self.parts)

    def __enter__(self) -> Sensor:
        for part in self.parts:
            part.__enter__()
        return self

    def __exit__(self, *ended: object) -> None:
        for part in self.parts:
            part.__exit__(*ended)

    def joules(self) -> float:
        return sum(part.joules() for part in self.parts)
