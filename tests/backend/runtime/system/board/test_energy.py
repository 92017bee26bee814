"""Energy sensors, as a folder that looks like /sys has them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from rankslice.backend.runtime.system.board.energy import Sensor, SensorError, find_sensor


def put(folder: Path, **files: str | int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
    return folder


def sensor_of(system: Path) -> Sensor:
    sensor = find_sensor(system, nvml=lambda: None, tegrastats="")
    assert sensor is not None
    return sensor


def test_a_board_without_sensors_has_none(tmp_path: Path) -> None:
    assert find_sensor(tmp_path, nvml=lambda: None, tegrastats="") is None


def test_the_packages_of_a_processor_are_summed(tmp_path: Path) -> None:
    zones = [
        put(tmp_path / f"sys/class/powercap/intel-rapl:{n}", name=f"package-{n}", energy_uj=100)
        for n in range(2)
    ]
    put(tmp_path / "sys/class/powercap/intel-rapl:0:0", name="core", energy_uj=7)
    with sensor_of(tmp_path) as sensor:
        for zone in zones:
            put(zone, energy_uj=3_000_100)
        assert 6.0 == sensor.joules()
    assert "powercap package-0 + powercap package-1" == sensor.name


def test_a_package_that_is_told_twice_counts_once(tmp_path: Path) -> None:
    zones = [
        put(tmp_path / f"sys/class/powercap/{name}", name="package-0", energy_uj=100)
        for name in ("intel-rapl:0", "intel-rapl-mmio:0")
    ]
    with sensor_of(tmp_path) as sensor:
        for zone in zones:
            put(zone, energy_uj=3_000_100)
        assert 3.0 == sensor.joules()
    assert "powercap package-0" == sensor.name


def test_a_counter_that_begins_again_at_zero_is_followed(tmp_path: Path) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    put(zone, name="package-0", energy_uj=9_000_000, max_energy_range_uj=10_000_000)
    with sensor_of(tmp_path) as sensor:
        put(zone, energy_uj=1_000_000)
        assert 2.0 == sensor.joules()


def test_the_channel_of_the_whole_board_goes_before_others(tmp_path: Path) -> None:
    put(
        tmp_path / "sys/class/hwmon/hwmon0",
        name="ina3221",
        power1_input=1,
        power1_label="VDD_CPU",
        power2_input=5_000_000,
        power2_label="VDD_IN",
    )
    assert "hwmon ina3221 VDD_IN" == sensor_of(tmp_path).name


def test_the_channel_of_the_whole_board_goes_before_the_processor(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/powercap/intel-rapl:0", name="package-0", energy_uj=100)
    put(tmp_path / "sys/class/hwmon/hwmon0", name="ina226", power1_input=5, power1_label="total")
    assert "hwmon ina226 total" == sensor_of(tmp_path).name


def test_a_meter_that_stands_still_makes_a_sum_no_energy(tmp_path: Path) -> None:
    for number in range(2):
        zone = tmp_path / f"sys/class/powercap/intel-rapl:{number}"
        put(zone, name=f"package-{number}", energy_uj=100)
    with sensor_of(tmp_path) as sensor:
        put(zone, energy_uj=3_000_100)
        with pytest.raises(SensorError, match="it counted nothing in"):
            sensor.joules()


def test_power_is_summed_up_over_time(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input=5_000_000)
    begin = time.perf_counter()
    with sensor_of(tmp_path) as sensor:
        time.sleep(0.1)
        joules, seconds = sensor.joules(), sensor.seconds
    assert 0.1 <= seconds <= time.perf_counter() - begin
    assert joules == pytest.approx(5 * seconds)


def test_power_that_changes_counts_as_long_as_it_lasts(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input=0)
    with sensor_of(tmp_path) as sensor:
        time.sleep(0.3)
        put(chip, power1_input=8_000_000)
        begin = time.perf_counter()
        time.sleep(0.3)
        lasted_s = time.perf_counter() - begin
        assert sensor.joules() == pytest.approx(8 * lasted_s, rel=0.15)


def test_a_recording_of_files_gives_the_joules_of_an_integration_by_hand(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon1", name="ina3221", in1_label="VDD_IN")
    put(chip, in1_input=5000, curr1_input=0, in2_label="VDD_SOC", in2_input=5000, curr2_input=0)
    recording = ((0.3, 600, 200), (0.45, 1800, 250), (0.25, 400, 210), (0.4, 1500, 500))
    expected = {"VDD_IN": 0.0, "VDD_SOC": 0.0}
    sensor = find_sensor(tmp_path, with_rails=True, nvml=lambda: None, tegrastats="")
    assert sensor is not None
    with sensor:
        for seconds, total_ma, soc_ma in recording:
            (tmp_path / "fresh").write_text(f"{soc_ma}")
            (tmp_path / "fresh").replace(chip / "curr2_input")
            (tmp_path / "fresh").write_text(f"{total_ma}")
            (tmp_path / "fresh").replace(chip / "curr1_input")
            begin_s = time.perf_counter()
            time.sleep(seconds)
            passed_s = time.perf_counter() - begin_s
            expected["VDD_IN"] += 5e-3 * total_ma * passed_s
            expected["VDD_SOC"] += 5e-3 * soc_ma * passed_s
        assert sensor.joules() == pytest.approx(expected["VDD_IN"], rel=0.15)
    assert sensor.rail_joules == {"VDD_SOC": pytest.approx(expected["VDD_SOC"], rel=0.15)}


def test_a_rail_that_falls_silent_leaves_the_energy_of_the_board(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon0", name="ina226", power1_label="total")
    put(chip, power1_input=5_000_000, power2_label="FAN", power2_input=1_000_000)
    sensor = find_sensor(tmp_path, with_rails=True, nvml=lambda: None, tegrastats="")
    assert sensor is not None
    with sensor:
        (chip / "power2_input").unlink()
        time.sleep(0.02)
        assert sensor.joules() == pytest.approx(5 * sensor.seconds)
    assert {} == sensor.rail_joules


def test_volts_times_amperes_are_power(tmp_path: Path) -> None:
    put(
        tmp_path / "sys/class/hwmon/hwmon1",
        name="ina3221",
        in1_input=5000,
        curr1_input=1200,
        in1_label="VDD_IN",
        in2_input=5000,
        curr2_input=100,
    )
    with sensor_of(tmp_path) as sensor:
        time.sleep(0.02)
        assert sensor.joules() == pytest.approx(6 * sensor.seconds)
    assert "hwmon ina3221 VDD_IN" == sensor.name


def test_older_jetson_boards_tell_milliwatts(tmp_path: Path) -> None:
    chip = tmp_path / "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    put(chip, in_power1_input=700, rail_name_1="POM_5V_CPU")
    put(chip, in_power0_input=3000, rail_name_0="POM_5V_IN")
    with sensor_of(tmp_path) as sensor:
        time.sleep(0.02)
        assert sensor.joules() == pytest.approx(3 * sensor.seconds)
    assert "ina3221x POM_5V_IN" == sensor.name


def test_a_sensor_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input="error")
    assert find_sensor(tmp_path, nvml=lambda: None, tegrastats="") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("error", "it could no longer be read"),
        ("", "it could no longer be read"),
        (-2_500_000, "it reported a negative power, -2.5 W"),
    ],
)
def test_power_that_goes_wrong_is_no_energy(tmp_path: Path, value: str | int, reason: str) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input=5_000_000)
    with sensor_of(tmp_path) as sensor:
        put(chip, power1_input=value)
        with pytest.raises(SensorError, match=reason):
            sensor.joules()


def test_a_sensor_that_vanishes_before_it_begins_is_no_energy(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input=5_000_000)
    sensor = sensor_of(tmp_path)
    (chip / "power1_input").unlink()
    with sensor, pytest.raises(SensorError, match="it could no longer be read"):
        sensor.joules()


@pytest.mark.parametrize(
    ("limit", "now", "reason"),
    [
        (0, 1_000_000, "its counter went back, from 9000000 to 1000000 uJ"),
        (8_000_000, 1_000_000, "its counter went back"),
        (10_000_000, 9_000_000, "it counted nothing in"),
    ],
)
def test_a_counter_that_goes_wrong_is_no_energy(
    tmp_path: Path, limit: int, now: int, reason: str
) -> None:
    zone = tmp_path / "sys/class/powercap/intel-rapl:0"
    put(zone, name="package-0", energy_uj=9_000_000, max_energy_range_uj=limit)
    with sensor_of(tmp_path) as sensor:
        put(zone, energy_uj=now)
        with pytest.raises(SensorError, match=reason):
            sensor.joules()


def test_a_sensor_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankslice.backend.runtime.system.board.energy._ANSWER_S", 0.1)
    chip = put(tmp_path / "sys/class/hwmon/hwmon0", name="ina219", power1_input=5_000_000)
    with sensor_of(tmp_path) as sensor:
        (chip / "power1_input").unlink()
        os.mkfifo(chip / "power1_input")  # to read it waits for somebody who writes
        time.sleep(0.05)
        with pytest.raises(SensorError, match=r"it has not answered for 0\.1 s"):
            sensor.joules()
    (chip / "power1_input").write_text("5000000\n")  # lets the thread end
