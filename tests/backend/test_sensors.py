"""Energy sensors, as a folder that looks like /sys has them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rankslice.backend.runtime.sensors import Sensor, find_sensor


def put(folder: Path, **files: str | int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
    return folder


def found(system: Path) -> Sensor:
    sensor = find_sensor(system)
    assert sensor is not None
    return sensor


def test_a_board_without_sensors_has_none(tmp_path: Path) -> None:
    assert find_sensor(tmp_path) is None


def test_the_packages_of_a_processor_are_summed(tmp_path: Path) -> None:
    zones = [
        put(tmp_path / f"class/powercap/intel-rapl:{n}", name=f"package-{n}", energy_uj=100)
        for n in range(2)
    ]
    put(tmp_path / "class/powercap/intel-rapl:0:0", name="core", energy_uj=7)
    with found(tmp_path) as sensor:
        for zone in zones:
            put(zone, energy_uj=3_000_100)
        assert 6.0 == sensor.joules()
    assert "powercap package-0, package-1" == sensor.name


def test_a_counter_that_begins_again_at_zero_is_followed(tmp_path: Path) -> None:
    zone = tmp_path / "class/powercap/intel-rapl:0"
    put(zone, name="package-0", energy_uj=9_000_000, max_energy_range_uj=10_000_000)
    with found(tmp_path) as sensor:
        put(zone, energy_uj=1_000_000)
        assert 2.0 == sensor.joules()


def test_the_channel_of_the_whole_board_goes_before_others(tmp_path: Path) -> None:
    put(
        tmp_path / "class/hwmon/hwmon0",
        name="ina3221",
        power1_input=1,
        power1_label="VDD_CPU",
        power2_input=5_000_000,
        power2_label="VDD_IN",
    )
    assert "hwmon ina3221 VDD_IN" == found(tmp_path).name


def test_power_is_summed_up_over_time(tmp_path: Path) -> None:
    put(tmp_path / "class/hwmon/hwmon0", name="ina219", power1_input=5_000_000)
    with found(tmp_path) as sensor:
        begin = time.perf_counter()
        time.sleep(0.2)
        joules, seconds = sensor.joules(), time.perf_counter() - begin
    assert joules == pytest.approx(5 * seconds, rel=0.5)


def test_a_sensor_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    put(tmp_path / "class/hwmon/hwmon0", name="ina219", power1_input="error")
    assert find_sensor(tmp_path) is None
