"""What boards tell of their hardware, as folders that look like /sys and /proc have it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from toys import toy_library
from waiting import until

from rankslice.backend.runtime.system.board.hardware import Hardware


def put(folder: Path, **files: str | int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
    return folder


def looked_at(root: Path, *, nvml: str = "none.so", tegrastats: str = "none") -> Hardware:
    return Hardware(root, nvml=nvml, tegrastats=tegrastats)


def rubik_pi(root: Path) -> Path:
    thermal = root / "sys/class/thermal"
    put(thermal / "thermal_zone0", type="aoss0-thermal", temp=48_300)
    put(thermal / "thermal_zone2", type="cpu0-thermal", temp=71_200)
    put(thermal / "thermal_zone10", type="gpuss0-thermal", temp=-274_000)
    put(thermal / "cooling_device0", type="thermal-cpufreq-0", cur_state=2, max_state=15)
    put(thermal / "cooling_device1", type="pwm-fan", cur_state=3, max_state=4)
    clocks = root / "sys/devices/system/cpu/cpufreq"
    for policy, khz in ((0, 1_209_600), (4, 1_900_800), (7, 2_707_200)):
        put(clocks / f"policy{policy}", scaling_cur_freq=khz)
    put(root / "sys/class/kgsl/kgsl-3d0", gpu_busy_percentage="23 %")
    stat = "cpu  100 10 30 5000 20 4 6 50 7 0\ncpu0 1 1"
    put(root / "proc", meminfo="MemTotal: 8000000 kB\nMemAvailable:    5000000 kB", stat=stat)
    return root


def test_a_rubik_pi_tells_temperatures_clocks_brakes_and_memory(tmp_path: Path) -> None:
    hardware = looked_at(rubik_pi(tmp_path))
    assert {
        "temperature_c.aoss0-thermal": 48.3,
        "temperature_c.cpu0-thermal": 71.2,
        "frequency_mhz.policy0": 1209.6,
        "frequency_mhz.policy4": 1900.8,
        "frequency_mhz.policy7": 2707.2,
        "cooling_state.thermal-cpufreq-0": 2.0,
        "memory_available_mb": 5120.0,
        "gpu_utilisation_percent": 23.0,
        "processor_busy_s": 1.5,
        "processor_steal_s": 0.5,
    } == pytest.approx(hardware.values())
    assert ("power",) == hardware.absent


def test_a_zone_that_falls_silent_is_left_out(tmp_path: Path) -> None:
    hardware = looked_at(rubik_pi(tmp_path))
    (tmp_path / "sys/class/thermal/thermal_zone2/temp").unlink()
    put(tmp_path / "sys/class/thermal/thermal_zone0", temp=50_000)
    values = hardware.values()
    assert "temperature_c.cpu0-thermal" not in values
    assert 50.0 == values["temperature_c.aoss0-thermal"]


def test_a_jetson_tells_its_power_and_events_of_overcurrent(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon1", name="ina3221", in1_label="VDD_IN")
    put(chip, in1_input=5000, curr1_input=900)
    put(tmp_path / "sys/class/hwmon/hwmon2", name="soctherm_oc", oc1_event_cnt=3, oc3_event_cnt=4)
    put(tmp_path / "sys/class/devfreq/17000000.gpu/device", load=455)
    hardware = looked_at(tmp_path)
    assert "power_w" not in hardware.values()  # it is a mean since the look before
    values = hardware.values()
    assert 7.0 == values["throttle_count.over_current"]
    assert 4.5 == pytest.approx(values["power_w"])
    assert 45.5 == values["gpu_utilisation_percent"]
    assert {"temperature", "frequency", "processor", "memory"} == {*hardware.absent}


def test_the_rails_of_a_jetson_are_told_without_what_is_no_rail(tmp_path: Path) -> None:
    chip = put(tmp_path / "sys/class/hwmon/hwmon1", name="ina3221", in1_label="VDD_GPU_SOC")
    put(chip, in1_input=19000, curr1_input=150, in2_label="VDD_CPU_CV", in2_input=19000)
    put(chip, curr2_input=80, in3_label="VIN_SYS_5V0", in3_input=5000, curr3_input=900)
    put(chip, in4_input=300, curr4_input=1130, in7_label="sum of shunt voltages", in7_input=500)
    other = put(tmp_path / "sys/class/hwmon/hwmon2", name="ina3221", in1_label="NC")
    put(other, in1_input=0, curr1_input=0, in2_label="VDDQ_VDD2_1V8AO", in2_input=5000)
    put(other, curr2_input=140)
    hardware = looked_at(tmp_path)
    hardware.values()
    assert {
        "power_w": 8.87,
        "rail_power_w.VDD_GPU_SOC": 2.85,
        "rail_power_w.VDD_CPU_CV": 1.52,
        "rail_power_w.VIN_SYS_5V0": 4.5,
        "rail_power_w.VDDQ_VDD2_1V8AO": 0.7,
    } == pytest.approx(hardware.values())


def test_a_monitor_with_one_channel_is_named_by_its_device(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/hwmon/hwmon1", name="ina238", label="VIN", power1_input=25_000_000)
    put(tmp_path / "sys/class/hwmon/hwmon2", name="ina226", label="FAN", power1_input=1_000_000)
    put(tmp_path / "sys/class/hwmon/hwmon3", name="ina226", label="FAN", power1_input=2_000_000)
    hardware = looked_at(tmp_path)
    hardware.values()
    assert {"power_w": 25.0, "rail_power_w.FAN": 1.0, "rail_power_w.FAN 2": 2.0} == pytest.approx(
        hardware.values()
    )


def test_a_zone_counts_while_its_part_of_the_chip_is_on_and_a_constant_never(
    tmp_path: Path,
) -> None:
    thermal = tmp_path / "sys/class/thermal"
    put(thermal / "thermal_zone0", type="cpu-thermal", temp=51_000)
    gpu = put(thermal / "thermal_zone1", type="gpu-thermal", temp="")
    put(thermal / "thermal_zone2", type="PMIC-Die", temp=100_000)
    hardware = looked_at(tmp_path)
    assert {"temperature_c.cpu-thermal": 51.0} == hardware.values()
    put(gpu, temp=47_000)
    assert {"temperature_c.cpu-thermal": 51.0, "temperature_c.gpu-thermal": 47.0} == (
        hardware.values()
    )


@pytest.mark.parametrize(
    ("line", "expected", "absent"),
    [
        (
            "RAM 2448/7620MB CPU [3%@729] GR3D_FREQ 45%@[305] cpu@48.2C cv0@-256C"
            " VDD_IN 4220mW/4200mW VDD_SOC 1044mW/1044mW",
            {
                "gpu_utilisation_percent": 45.0,
                "temperature_c.cpu": 48.2,
                "power_w": 4.22,
                "rail_power_w.VDD_SOC": 1.044,
            },
            set(),
        ),
        ("RAM 1/2MB PLL@41C PMIC@100C", {"temperature_c.PLL": 41.0}, {"GPU", "power"}),
    ],
)
def test_what_only_tegrastats_tells_is_read_from_it(
    line: str, expected: dict[str, float], absent: set[str], tmp_path: Path
) -> None:
    program = tmp_path / "tegrastats"
    program.write_text(
        f"#!{sys.executable}\nimport time\nprint({line!r}, flush=True)\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    hardware = looked_at(tmp_path, tegrastats=str(program))
    until(hardware.values)
    assert expected == pytest.approx(hardware.values())
    assert absent == {"temperature", "GPU", "power"} & {*hardware.absent}
    hardware.close()


@pytest.mark.parametrize(("state", "flag"), [("0", 0.0), ("50000", 0.0), ("50005", 1.0)])
def test_a_raspberry_pi_says_whether_it_is_throttled_now(
    state: str, flag: float, tmp_path: Path
) -> None:
    put(tmp_path / "sys/devices/platform/soc/soc:firmware", get_throttled=state)
    assert {"throttled.firmware": flag} == looked_at(tmp_path).values()


def test_a_server_counts_the_throttling_of_cores_and_packages_once(tmp_path: Path) -> None:
    for core in range(12):
        folder = tmp_path / f"sys/devices/system/cpu/cpu{core}"
        put(folder / "thermal_throttle", core_throttle_count=2, package_throttle_count=5)
        put(folder / "topology", physical_package_id=0)
    for number, kind in enumerate(("x86_pkg_temp", "x86_pkg_temp")):
        put(tmp_path / f"sys/class/thermal/thermal_zone{number}", type=kind, temp=50_000 + number)
    put(tmp_path / "sys/class/thermal/cooling_device0", type="intel_powerclamp", cur_state=-1)
    zone = put(tmp_path / "sys/class/powercap/intel-rapl:0", name="package-0", energy_uj=100)
    hardware = looked_at(tmp_path)
    first = hardware.values()
    begin = time.perf_counter()
    put(zone, energy_uj=3_000_100)
    time.sleep(0.05)
    values = hardware.values()
    passed_s = time.perf_counter() - begin
    assert first.items() <= values.items()
    assert (24.0, 5.0) == (first["throttle_count.core"], first["throttle_count.package"])
    assert {"x86_pkg_temp", "x86_pkg_temp 2"} == {
        name.partition(".")[2] for name in values if name.startswith("temperature_c")
    }
    assert 0.0 == values["cooling_state.intel_powerclamp"]
    assert 3.0 / passed_s == pytest.approx(values["power_w"], rel=0.2)


def test_the_counters_of_many_cores_are_read_in_turn(tmp_path: Path) -> None:
    cores = [tmp_path / f"sys/devices/system/cpu/cpu{n}/thermal_throttle" for n in range(128)]
    for folder in cores:
        put(folder, core_throttle_count=1)
    hardware = looked_at(tmp_path)
    for folder in cores:
        put(folder, core_throttle_count=2)
    counts = [hardware.values()["throttle_count.core"] for _ in range(4)]
    assert sorted(counts) == counts
    assert (160.0, 256.0) == (counts[0], counts[-1])


def test_a_board_without_zones_tells_the_temperatures_of_its_monitors(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/hwmon/hwmon3", name="k10temp", temp1_input=61_500, temp1_label="Tctl")
    assert {"temperature_c.k10temp Tctl": 61.5} == looked_at(tmp_path).values()


def test_names_of_devices_are_plain(tmp_path: Path) -> None:
    put(tmp_path / "sys/class/thermal/thermal_zone0", type="\x1b[31mü" + "x" * 100, temp=1000)
    (name,) = looked_at(tmp_path).values()
    assert f"temperature_c.?[31m?{'x' * 42}" == name


def test_all_gpus_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_NVML", "pu")
    values = looked_at(tmp_path, nvml=toy_library("toy_nvml.c", tmp_path)).values()
    of_gpus = {name: value for name, value in values.items() if name.startswith("gpu")}
    assert {
        "gpu_utilisation_percent": 50.0,
        "gpu_temperature_c": 61.0,
        "gpu_power_w": 30.0,
    } == pytest.approx(of_gpus)
