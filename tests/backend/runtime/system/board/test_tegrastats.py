"""What NVIDIA's tegrastats tells: its lines on several boards, and recordings of them played."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from rankslice.backend.runtime.system.board.energy import Sensor, SensorError, find_sensor
from rankslice.backend.runtime.system.board.tegrastats import Line, Tegrastats, read_line

NANO = (
    "RAM 613/3964MB (lfb 634x4MB) SWAP 0/1982MB (cached 0MB) CPU [2%@102,1%@102,0%@102,0%@102]"
    " EMC_FREQ 0% GR3D_FREQ 7% PLL@39C CPU@40.5C PMIC@100C GPU@41C AO@46C thermal@41C"
    " POM_5V_IN 900/943 POM_5V_GPU 0/0 POM_5V_CPU 123/123"
)
TX2 = (
    "RAM 4181/7771MB (lfb 8x4MB) SWAP 0/3885MB (cached 0MB) CPU [10%@1190,off,off,0%@1190]"
    " EMC_FREQ 15%@1600 GR3D_FREQ 0%@114 APE 150 MTS fg 0% bg 0% PLL@42.906C MCPU@47.5C"
    " PMIC@50C VDD_SYS_GPU 47mW/0mW VDD_SYS_SOC 813mW/207mW VDD_4V0_WIFI 495mW/0mW"
    " VDD_IN 3539mW/1422mW VDD_SYS_CPU 125mW/104mW"
)
AGX_XAVIER = (
    "RAM 1903/15692MB (lfb 3251x4MB) IRAM 0/252kB(lfb 252kB) CPU [1%@1190,1%@1190]"
    " EMC_FREQ 0%@1331 GR3D_FREQ 0%@114 VIC_FREQ 115 APE 150 AUX@36C CPU@36.5C thermal@35.7C"
    " Tboard@37C PMIC@50C GPU 467mW/467mW CPU 467mW/467mW SOC 1245mW/1245mW CV 0mW/0mW"
    " VDDRQ 311mW/311mW SYS5V 2768mW/2768mW"
)
AGX_ORIN = (
    "10-16-2023 10:59:22 RAM 1205/30623MB (lfb 6429x4MB) SWAP 0/15311MB (cached 0MB)"
    " CPU [0%@729,1%@729] EMC_FREQ 0%@204 GR3D_FREQ 14%@[407,407] NVDLA0_FREQ @1600 VIC_FREQ 729"
    " APE 233 CV0@-256C CPU@43.5C SOC2@40.062C GPU@-256C VDD_GPU_SOC 4788mW/4788mW"
    " VDD_CPU_CV 798mW/798mW VIN_SYS_5V0 3842mW/3842mW NC 0mW/0mW"
    " VDDQ_VDD2_1V8AO 707mW/707mW NC 0mW/0mW"
)
ORIN_NANO = (
    "09-19-2026 13:33:03 RAM 2845/7486MB (lfb 33x4MB) CPU [1%@729,0%@729] EMC_FREQ 3%@665"
    " GR3D_FREQ 0%@[305] NVDEC0 off APE 200 cpu@45.375C/45.812C tj@46.562C/46.843C"
    " VDD_IN 3462mW/3522mW/3582mW VDD_CPU_GPU_CV 442mW/483mW/523mW VDD_SOC 1044mW/1085mW/1127mW"
)
AGX_THOR = (
    "RAM 9101/125811MB (lfb 19x4MB) CPU [39%@2160,20%@2160] GR3D_FREQ @[314,314,314] VIC 59%@423"
    " PVA0_FREQ off cpu@34.843C/34.843C soc012@34.437C/34.437C VDD_GPU -392mW/-392mW"
    " VDD_CPU_SOC_MSS 7148mW/7148mW VIN_SYS_5V0 6807mW/6807mW VIN 25530mW/12765mW"
)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            NANO,
            Line(
                7,
                {"PLL": 39, "CPU": 40.5, "GPU": 41, "AO": 46, "thermal": 41},
                {"POM_5V_IN": 900, "POM_5V_GPU": 0, "POM_5V_CPU": 123},
            ),
        ),
        (
            TX2,
            Line(
                0,
                {"PLL": 42.906, "MCPU": 47.5},
                {
                    "VDD_SYS_GPU": 47,
                    "VDD_SYS_SOC": 813,
                    "VDD_4V0_WIFI": 495,
                    "VDD_IN": 3539,
                    "VDD_SYS_CPU": 125,
                },
            ),
        ),
        (
            AGX_XAVIER,
            Line(
                0,
                {"AUX": 36, "CPU": 36.5, "thermal": 35.7, "Tboard": 37},
                {"GPU": 467, "CPU": 467, "SOC": 1245, "CV": 0, "VDDRQ": 311, "SYS5V": 2768},
            ),
        ),
        (
            AGX_ORIN,
            Line(
                14,
                {"CPU": 43.5, "SOC2": 40.062},
                {
                    "VDD_GPU_SOC": 4788,
                    "VDD_CPU_CV": 798,
                    "VIN_SYS_5V0": 3842,
                    "VDDQ_VDD2_1V8AO": 707,
                },
            ),
        ),
        (
            ORIN_NANO,
            Line(
                0,
                {"cpu": 45.375, "tj": 46.562},
                {"VDD_IN": 3462, "VDD_CPU_GPU_CV": 442, "VDD_SOC": 1044},
            ),
        ),
        (
            AGX_THOR,
            Line(
                None,
                {"cpu": 34.843, "soc012": 34.437},
                {"VDD_GPU": -392, "VDD_CPU_SOC_MSS": 7148, "VIN_SYS_5V0": 6807, "VIN": 25530},
            ),
        ),
        ("tegrastats: cannot open /sys/kernel/debug", Line(None, {}, {})),
    ],
    ids=["Nano", "TX2", "AGX Xavier", "AGX Orin", "Orin Nano", "AGX Thor", "no line"],
)
def test_a_line_of_each_board_is_read(text: str, line: Line) -> None:
    assert line == read_line(text)


Player = Callable[[Sequence[tuple[float, str]]], str]


@pytest.fixture
def play(tmp_path: Path) -> Player:
    """Make a program that writes lines, each after a pause; the times of ``played`` are its own."""

    def make(lines: Sequence[tuple[float, str]]) -> str:
        program = tmp_path / "tegrastats"
        program.write_text(
            f"#!{sys.executable}\n"
            "import json, sys, time\n"
            f"with open({str(tmp_path / 'interval')!r}, 'w') as file:\n"
            "    file.write(' '.join(sys.argv[1:]))\n"
            f"with open({str(tmp_path / 'played')!r}, 'w') as played:\n"
            f"    for pause, line in {[*lines]!r}:\n"
            "        time.sleep(pause)\n"
            "        played.write(json.dumps(time.perf_counter()) + '\\n')\n"
            "        played.flush()\n"
            "        print(line, flush=True)\n"
            "time.sleep(60)\n"
        )
        program.chmod(0o755)
        return str(program)

    return make


def sensor_on(root: Path, program: str) -> Sensor:
    sensor = find_sensor(root, with_rails=True, nvml=lambda: None, tegrastats=program)
    assert sensor is not None
    return sensor


def by_hand(times_s: Sequence[float], watts: Sequence[float]) -> float:
    """Return the area below straight lines between points."""
    points = [*zip(times_s, watts, strict=True)]
    return sum((t1 - t0) * (w0 + w1) / 2 for (t0, w0), (t1, w1) in pairwise(points))


def test_a_recording_gives_the_joules_of_an_integration_by_hand(
    tmp_path: Path, play: Player
) -> None:
    total_mw = (3000, 5200, 2100, 7400, 6900, 1500, 4000, 9000)
    pauses = (0.0, 0.4, 0.11, 0.05, 0.13, 0.09, 0.1, 0.12)
    program = play(
        [
            (pause, f"RAM 1/2MB cpu@45C VDD_IN {mw}mW/1mW VDD_SOC {mw // 4}mW/1mW")
            for pause, mw in zip(pauses, total_mw, strict=True)
        ]
    )
    played = tmp_path / "played"
    with sensor_on(tmp_path, program) as sensor:
        begin_s = time.perf_counter()
        while len(played.read_text().splitlines()) < len(total_mw):
            time.sleep(0.05)
        time.sleep(0.1)
        joules, end_s = sensor.joules(), time.perf_counter()
    times_s = [*map(json.loads, played.read_text().splitlines())]
    assert times_s[0] < begin_s < times_s[1]
    # Before the second line the first one holds, and after the last one the last.
    expected = by_hand(
        (begin_s, *times_s[1:], end_s), [mw / 1e3 for mw in (*total_mw, total_mw[-1])]
    )
    assert joules == pytest.approx(expected, rel=0.15)
    assert sensor.seconds == pytest.approx(end_s - begin_s, abs=0.1)
    assert sensor.rail_joules == {"VDD_SOC": pytest.approx(expected / 4, rel=0.15)}
    assert "tegrastats VDD_IN" == sensor.name
    assert "--interval 100" == (tmp_path / "interval").read_text()


@pytest.mark.parametrize(
    ("line", "name", "watts", "rails"),
    [
        (
            AGX_XAVIER,
            " + ".join(f"tegrastats {x}" for x in ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")),
            5.258,
            {"GPU": 0.467, "CPU": 0.467, "SOC": 1.245, "CV": 0, "VDDRQ": 0.311, "SYS5V": 2.768},
        ),
        (
            AGX_ORIN,
            "tegrastats VDD_GPU_SOC + tegrastats VDD_CPU_CV + tegrastats VIN_SYS_5V0",
            9.428,
            {
                "VDD_GPU_SOC": 4.788,
                "VDD_CPU_CV": 0.798,
                "VIN_SYS_5V0": 3.842,
                "VDDQ_VDD2_1V8AO": 0.707,
            },
        ),
        (
            AGX_THOR,
            "tegrastats VIN",
            25.53,
            {"VDD_GPU": 0, "VDD_CPU_SOC_MSS": 7.148, "VIN_SYS_5V0": 6.807},
        ),
    ],
    ids=["a rail of zero", "one rail behind another", "a rail below zero"],
)
def test_the_power_of_a_board_is_its_input_or_the_sum_of_its_parts(
    tmp_path: Path,
    play: Player,
    line: str,
    name: str,
    watts: float,
    rails: dict[str, float],
) -> None:
    with sensor_on(tmp_path, play([(0, line)])) as sensor:
        time.sleep(0.05)
        assert sensor.joules() == pytest.approx(watts * sensor.seconds)
    assert name == sensor.name
    of_rails = {rail: joules / sensor.seconds for rail, joules in sensor.rail_joules.items()}
    assert rails == pytest.approx(of_rails)


def test_it_is_not_started_if_files_have_the_power(tmp_path: Path, play: Player) -> None:
    chip = tmp_path / "sys/class/hwmon/hwmon1"
    chip.mkdir(parents=True)
    for name, value in {"name": "ina3221", "in1_label": "VDD_IN"}.items():
        (chip / name).write_text(value)
    (chip / "in1_input").write_text("5000")
    (chip / "curr1_input").write_text("900")
    assert "hwmon ina3221 VDD_IN" == sensor_on(tmp_path, play([(0, ORIN_NANO)])).name
    assert not (tmp_path / "interval").exists()


def test_without_rails_it_is_no_sensor_and_ends(tmp_path: Path, play: Player) -> None:
    program = play([(0, "RAM 1/2MB CPU [0%@1479] PLL@41C")])
    assert find_sensor(tmp_path, nvml=lambda: None, tegrastats=program) is None


def test_a_program_that_ends_is_no_energy(tmp_path: Path, play: Player) -> None:
    program = Path(play([(0, NANO), (0.2, NANO)]))
    program.write_text(program.read_text().replace("time.sleep(60)", ""))
    with sensor_on(tmp_path, str(program)) as sensor:
        time.sleep(0.5)
        with pytest.raises(SensorError, match="it could no longer be read"):
            sensor.joules()


def test_a_line_that_is_seconds_old_tells_nothing(
    play: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Tegrastats(play([(0, NANO)]), 1.0)
    assert program.wait_for_first()
    assert 900 == program.milliwatts("POM_5V_IN")
    monkeypatch.setattr("rankslice.backend.runtime.system.board.tegrastats._STALE_S", 0.1)
    time.sleep(0.2)
    assert program.milliwatts("POM_5V_IN") is None
    program.close()
