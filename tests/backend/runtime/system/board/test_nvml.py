"""What NVIDIA's driver tells of GPUs, told by a library of the test's in its place."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from toys import toy_library

from rankslice.backend.runtime.figures import rank_usage
from rankslice.backend.runtime.figures.rank_usage import GpuMemory
from rankslice.backend.runtime.system.board.energy import Sensor, find_sensor
from rankslice.backend.runtime.system.board.nvml import Nvml, find_nvml


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return toy_library("toy_nvml.c", tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def tells(library: str, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(rank_usage, "find_nvml", lambda: find_nvml(library))
    return monkeypatch


def opened(library: str) -> Nvml:
    nvml = find_nvml(library)
    assert nvml is not None
    return nvml


def sensor_of(system: Path, library: str) -> Sensor:
    sensor = find_sensor(system, nvml=lambda: find_nvml(library))
    assert sensor is not None
    return sensor


@pytest.mark.parametrize("library", ["no-such-library.so", "libm.so.6"])
def test_a_board_without_the_driver_has_no_nvml(library: str) -> None:
    assert find_nvml(library) is None


def test_a_driver_without_gpus_is_none(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_NVML", "n")
    assert find_nvml(library) is None


def test_what_the_driver_does_not_tell_is_absent(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_NVML", "")
    nvml = opened(library)
    assert ("Toy one", "Toy two") == nvml.names
    assert [None] * 4 == [
        nvml.energy_uj(),
        nvml.power_mw(),
        nvml.used_bytes(),
        nvml.used_bytes_of({1}),
    ]


@pytest.mark.parametrize(("reported", "watts"), [("c", 40.0), ("p", 30.0), ("cp", 40.0)])
def test_the_energy_of_all_gpus_is_counted_or_summed_up_from_their_power(
    reported: str, watts: float, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_NVML", reported)
    with sensor_of(tmp_path, library) as sensor:
        time.sleep(0.2)
        joules = sensor.joules()
    assert "NVML Toy one, Toy two" == sensor.name
    assert joules == pytest.approx(watts * sensor.seconds, rel=0.05)


def test_a_processors_packages_and_gpus_are_summed(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_NVML", "p")
    zone = tmp_path / "sys" / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0")
    (zone / "energy_uj").write_text("1000000")
    with sensor_of(tmp_path, library) as sensor:
        time.sleep(0.1)
        (zone / "energy_uj").write_text("8000000")
        joules = sensor.joules()
    assert "powercap package-0 + NVML Toy one, Toy two" == sensor.name
    assert joules == pytest.approx(7 + 30 * sensor.seconds, rel=0.05)


@pytest.mark.parametrize(
    "files",
    [
        {
            "sys/class/powercap/intel-rapl:1/name": "psys",
            "sys/class/powercap/intel-rapl:1/energy_uj": "1",
        },
        {
            "sys/class/hwmon/hwmon0/name": "ina3221",
            "sys/class/hwmon/hwmon0/in1_label": "VDD_IN",
            "sys/class/hwmon/hwmon0/in1_input": "19000",
            "sys/class/hwmon/hwmon0/curr1_input": "500",
        },
        {
            "sys/bus/i2c/drivers/ina3221x/1-0040/iio:device0/rail_name_0": "POM_5V_IN",
            "sys/bus/i2c/drivers/ina3221x/1-0040/iio:device0/in_power0_input": "9500",
        },
    ],
    ids=["psys", "INA3221 of a Jetson Orin", "INA3221 of a Jetson Nano"],
)
def test_a_sensor_of_the_whole_board_has_its_gpus_in_it(
    files: dict[str, str], library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_NVML", "cp")
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert "NVML" not in sensor_of(tmp_path, library).name


def test_the_memory_of_a_rank_is_what_the_driver_says_of_its_process(
    tells: pytest.MonkeyPatch,
) -> None:
    tells.setenv("TOY_NVML", "ml")
    assert 811_000_000 == GpuMemory("gpu1").bytes()


def test_where_processes_have_other_numbers_it_is_what_has_come_to_be_in_use(
    tells: pytest.MonkeyPatch,
) -> None:
    tells.setenv("TOY_NVML", "m")
    assert 300_000_000 == GpuMemory("gpu").bytes()  # 150 MB more on each


@pytest.mark.parametrize(("accelerator", "reported"), [("gpu", ""), ("cpu", "ml"), ("npu", "ml")])
def test_memory_that_nobody_tells_is_absent(
    accelerator: str, reported: str, tells: pytest.MonkeyPatch
) -> None:
    tells.setenv("TOY_NVML", reported)
    assert GpuMemory(accelerator).bytes() is None
