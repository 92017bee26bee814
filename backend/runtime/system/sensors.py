"""Sensors of temperature, power and energy, as Linux shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .files import ROOT, number_in, paths_below, text_of

POWERCAP = "powercap"
"""Device of the counters of processors, such as Intel's RAPL."""
_NAME_LETTERS = 48
_MIN_C, _MAX_C = -60.0, 250.0
"""Zones with other values are not connected."""
_CONSTANT_ZONES = {"PMIC", "PMIC-Die"}
"""Of Jetson boards: 100 or 50 degrees at all times, as they only notice overheating."""
_NOT_CONNECTED = "NC"


def plain_name(name: str) -> str:
    return re.sub(r"[^ -~]", "?", name)[:_NAME_LETTERS]


def numbered(names: Iterable[str]) -> Iterator[str]:
    """Number equal names: ``soc``, ``soc 2``."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} {seen[name]}"


def is_measured(zone: str, celsius: float) -> bool:
    """Return whether a thermal zone's value is a temperature."""
    return zone not in _CONSTANT_ZONES and _MIN_C < celsius < _MAX_C


@dataclass(frozen=True)
class ThermalZone:
    path: Path
    kind: str
    """Its type, as the driver calls it; empty: unknown."""

    @property
    def millicelsius_path(self) -> Path:
        return self.path / "temp"


def thermal_zones(root: Path = ROOT) -> list[ThermalZone]:
    paths = paths_below(root, "sys/class/thermal/thermal_zone*")
    return [ThermalZone(path, text_of(path / "type")) for path in paths]


@dataclass(frozen=True)
class Channel:
    """A sensor's files, whose product is what it tells."""

    device: str
    label: str
    paths: tuple[Path, ...]
    unit_w: float | None = None
    """Of power; ``None``: it counts microjoules."""
    is_rail: bool = False
    """Whether the label names a supply."""

    @property
    def name(self) -> str:
        return f"{self.device} {self.label}"

    def value(self) -> int | None:
        """Read it now; ``None``: it cannot be read."""
        numbers = [number for path in self.paths if (number := number_in(path)) is not None]
        return math.prod(numbers) if len(numbers) == len(self.paths) else None


def channels(root: Path = ROOT) -> Iterator[Channel]:
    """Yield all sensors, counters of energy first; this account may be unable to read some."""
    for zone in paths_below(root, "sys/class/powercap/*:*"):
        if zone.name.count(":") == 1:
            yield Channel(POWERCAP, text_of(zone / "name"), (zone / "energy_uj",))
    monitors = root / "sys/class/hwmon"
    for path in paths_below(monitors, "hwmon*/energy*_input"):
        yield _of_monitor((path,), None)
    for kind in ("input", "average"):
        for path in paths_below(monitors, f"hwmon*/power*_{kind}"):
            yield _of_monitor((path,), 1e-6)
    for current in paths_below(monitors, "hwmon*/curr*_input"):  # millivolts and milliamperes
        voltage = current.with_name(current.name.replace("curr", "in"))
        if voltage.exists() and not any(current.parent.glob("power*_input")):
            channel = _of_monitor((voltage, current), 1e-6)
            if channel.label != _NOT_CONNECTED and not _is_of_shunts(channel):
                yield channel
    # INA chips, as the drivers of older Jetson boards show them.
    for path in paths_below(root, "sys/bus/i2c/drivers/ina*/*/iio:device*/in_power*_input"):
        label = path.name.replace("in_power", "rail_name_").replace("_input", "")
        name = text_of(path.with_name(label))
        if name != _NOT_CONNECTED:
            device = path.parents[2].name
            yield Channel(device, name or path.name, (path,), 1e-3, is_rail=bool(name))


def _of_monitor(paths: tuple[Path, ...], unit_w: float | None) -> Channel:
    first = paths[0]
    label = text_of(first.with_name(first.name.rpartition("_")[0] + "_label"))
    if not label and re.search(r"\D1_", first.name):
        label = text_of(first.with_name("label"))  # of a monitor with one channel
    device = f"hwmon {text_of(first.with_name('name'))}"
    of_files = " x ".join(path.name for path in paths)
    is_rail = bool(label) and unit_w is not None
    return Channel(device, label or of_files, paths, unit_w, is_rail)


def _is_of_shunts(channel: Channel) -> bool:
    """Return whether it is one of INA3221's files beyond its channels: sums, and microvolts."""
    return channel.device == "hwmon ina3221" and channel.paths[0].name > "in3_input"
