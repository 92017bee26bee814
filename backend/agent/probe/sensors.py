"""Thermal zones and power sensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...runtime.system.files import number_in, paths_below, text_of
from ..protocol import Answer
from .files import shown


def thermal_zones(root: Path) -> list[Answer]:
    """Return the thermal zones: number, type, and thousandths of a degree."""
    return [
        {
            "path": shown(zone, root),
            "kind": text_of(zone / "type"),
            "millicelsius": number_in(zone / "temp"),
        }
        for zone in paths_below(root, "sys/class/thermal/thermal_zone*")
    ]


def power_sensors(root: Path) -> list[Answer]:
    """Return what can tell power or energy, with what it says now in microwatts."""
    return [*hwmon_sensors(root), *old_ina_sensors(root), *rapl_counters(root)]


def hwmon_sensors(root: Path) -> Iterator[Answer]:
    """Yield the sensors of the kernel's hardware monitoring that tell power, or what makes it."""
    for chip in paths_below(root, "sys/class/hwmon/hwmon*"):
        name = text_of(chip / "name")
        direct = [*paths_below(chip, "power*_input"), *paths_below(chip, "power*_average")]
        for path in direct:
            label = text_of(chip / path.name.replace("_input", "_label"))
            yield sensor(path, root, name + (" " + label if label else ""), number_in(path))
        for path in [] if direct else paths_below(chip, "curr*_input"):
            number = path.name[len("curr") : -len("_input")]
            volts, amperes = number_in(chip / f"in{number}_input"), number_in(path)
            if volts is not None:
                label = text_of(chip / f"in{number}_label")
                told = None if amperes is None else volts * amperes  # mV x mA
                yield sensor(path, root, name + (" " + label if label else ""), told)


def old_ina_sensors(root: Path) -> Iterator[Answer]:
    """Yield INA chips as the older drivers of Jetson boards show them."""
    for path in paths_below(root, "sys/bus/i2c/drivers/ina*/*/iio:device*/in_power*_input"):
        told = number_in(path)
        name = text_of(
            path.with_name(path.name.replace("in_power", "rail_name_")[: -len("_input")])
        )
        yield sensor(path, root, name or "INA", None if told is None else told * 1000)


def rapl_counters(root: Path) -> Iterator[Answer]:
    """Yield the energy counters of x86 processors; root alone may read them as a rule."""
    for path in paths_below(root, "sys/class/powercap/intel-rapl*/energy_uj"):
        yield sensor(path, root, "RAPL " + text_of(path.parent / "name"), None)


def sensor(path: Path, root: Path, name: str, microwatts: int | None) -> Answer:
    """Return the entry of a sensor."""
    return {
        "path": shown(path, root),
        "name": name,
        "microwatts": microwatts,
        "may_read": text_of(path) != "",
    }
