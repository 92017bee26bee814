"""Sensors of temperature, power and energy, as Linux shows them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .files import ROOT, number_in, paths_below, text_of

POWERCAP = "powercap"
"""Device of the counters of processors, such as Intel's RAPL."""
_WHOLE_BOARD = ("vdd_in", "pom_5v_in", "psys", "total")
"""Labels of channels that measure the whole board."""


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

    @property
    def name(self) -> str:
        return f"{self.device} {self.label}"

    @property
    def is_whole(self) -> bool:
        """Whether all else on the board is behind it."""
        return self.label.lower() in _WHOLE_BOARD

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
            yield _of_monitor((voltage, current), 1e-6)
    # INA chips, as the drivers of older Jetson boards show them.
    for path in paths_below(root, "sys/bus/i2c/drivers/ina*/*/iio:device*/in_power*_input"):
        label = path.name.replace("in_power", "rail_name_").replace("_input", "")
        name = text_of(path.with_name(label)) or path.name
        yield Channel(path.parents[2].name, name, (path,), 1e-3)


def _of_monitor(paths: tuple[Path, ...], unit_w: float | None) -> Channel:
    label = text_of(paths[0].with_name(paths[0].name.rpartition("_")[0] + "_label"))
    device = f"hwmon {text_of(paths[0].with_name('name'))}"
    return Channel(device, label or " x ".join(path.name for path in paths), paths, unit_w)
