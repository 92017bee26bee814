"""The energy of runs under a real mpirun, on a board with sensors of the test's."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from command_line import rankslice, succeed
from real_jobs import (
    chain,
    chain_folder,
    change_plan,
    give_sensors,
    let_ranks_sleep,
    replace_file,
)
from toys import toy_library

from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.plan import Plan
from rankslice.session.building.build import BuildOptions, build
from rankslice.session.run import Callbacks, FinishedRun, prepare, run

pytestmark = pytest.mark.ci

WATTS = 5.0
FRAMES = 30


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """A monitor that tells a power of five watts."""
    chip = tmp_path / "sys" / "class" / "hwmon" / "hwmon0"
    chip.mkdir(parents=True)
    (chip / "name").write_text("ina219\n")
    (chip / "power1_input").write_text(f"{round(WATTS * 1e6)}\n")
    return chip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build folder with two ranks on one board, which sleep for 10 ms."""
    folder = let_ranks_sleep(chain_folder(tmp_path / "job", 2), 10)
    give_sensors(folder, tmp_path / "sys")
    return folder


def give_nvml(folder: Path, library: str) -> None:
    code = folder / "runtime" / "system" / "board" / "nvml.py"
    replace_file(code, code.read_text().replace("none.so", library).encode())


def ran(folder: Path, frames: int = FRAMES) -> FinishedRun:
    return run(prepare(folder, RunOptions(frames=frames)))


def records(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "report.json").read_text())["ranks"]
    return found


@contextmanager
def rising(counter: Path, watts: float) -> Iterator[None]:
    """Let a counter of microjoules rise by the time that goes by."""
    stop, begin = threading.Event(), time.monotonic()

    def rise() -> None:
        while not stop.wait(0.002):
            fresh = counter.with_name("fresh")
            fresh.write_text(f"{round(1e6 * watts * (time.monotonic() - begin))}\n")
            fresh.replace(counter)

    counter.write_text("0\n")
    thread = threading.Thread(target=rise)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_the_first_rank_sums_power_up_while_the_run_lasts(folder: Path, chip: Path) -> None:
    (energy,) = ran(folder).summary.energy
    assert ("local", "measured", "hwmon ina219 power1_input") == (
        energy.board,
        energy.source,
        energy.sensor,
    )
    assert energy.seconds == pytest.approx(records(folder)[0]["wall_s"], rel=0.2)
    assert energy.seconds is not None
    assert energy.seconds > FRAMES * 0.01
    assert energy.mean_w == pytest.approx(WATTS)
    assert energy.joules == pytest.approx(WATTS * energy.seconds)
    assert energy.mj_per_frame == pytest.approx(1e3 * WATTS * energy.seconds / FRAMES)
    assert [True, False] == [bool(record["energy"]) for record in records(folder)]


def test_a_counter_is_read_at_the_beginning_and_the_end(folder: Path, tmp_path: Path) -> None:
    zone = tmp_path / "sys" / "class" / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    with rising(zone / "energy_uj", 20.0):
        (energy,) = ran(folder).summary.energy
    assert ("measured", "powercap package-0") == (energy.source, energy.sensor)
    assert energy.mean_w == pytest.approx(20.0, rel=0.1)


def printed(folder: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return the line on energy that ``run`` prints, and the energies in its JSON."""
    ended = succeed("run", folder, "--frames", f"{FRAMES}", "--json", folder / "figures.json")
    (line,) = (line for line in ended.out.splitlines() if line.startswith("energy"))
    return line, json.loads((folder / "figures.json").read_text())["energy"]


def test_the_energy_of_a_board_is_printed(folder: Path, chip: Path) -> None:
    line, (energy,) = printed(folder)
    assert "measured" == energy["source"]
    assert energy["joules"] == pytest.approx(WATTS * energy["seconds"])
    assert FRAMES * energy["mj_per_frame"] == pytest.approx(1e3 * energy["joules"])
    assert line.startswith("energy of local: ")
    assert f" in {energy['seconds']:.2f} s, 5 W on average, " in line
    assert f", {energy['mj_per_frame']:.3g} mJ per frame; measured by" in line
    assert line.endswith("by hwmon ina219 power1_input, idle power included")


def test_without_a_sensor_energy_is_absent_and_not_zero(folder: Path) -> None:
    line, (energy,) = printed(folder)
    reason = "there is no power sensor that this account may read"
    assert f"energy of local: absent, {reason}" == line
    assert {"board": "local", "source": "absent", "sensor": None, "reason": reason}.items() <= (
        energy.items()
    )
    figures = ("joules", "seconds", "mean_w", "mj_per_frame")
    assert [None] * 4 == [energy[name] for name in figures]


def test_energy_and_hardware_agree_on_what_tegrastats_tells(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "RAM 1/2MB GR3D_FREQ 0% cpu@48.2C VDD_IN 5000mW/1mW VDD_SOC 1000mW/1mW"
    program = tmp_path / "bin" / "tegrastats"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\nwhile echo '{line}'; do sleep 0.1; done\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    ended = rankslice("run", folder, "--frames", "300", "--json", folder / "figures.json")
    assert 0 == ended.code, ended.err
    figures = json.loads((folder / "figures.json").read_text())
    (energy,), (hardware,) = figures["energy"], figures["hardware"]
    assert ("measured", "tegrastats VDD_IN") == (energy["source"], energy["sensor"])
    assert energy["mean_w"] == pytest.approx(5)
    assert 1e3 * energy["joules"] == pytest.approx(300 * energy["mj_per_frame"])
    assert {"VDD_SOC": pytest.approx(energy["joules"] / 5)} == energy["rails"]
    per_frame = f"{energy['mj_per_frame'] / 5:.3g} mJ"
    assert f"energy of local per frame by rail: VDD_SOC {per_frame}" in ended.out
    assert "power" not in hardware["absent"]
    means = {name: values["mean"] for name, values in hardware["series"].items()}
    assert (5, 1) == pytest.approx((means["power_w"], means["rail_power_w.VDD_SOC"]))


@pytest.mark.parametrize(
    ("told", "reason"),
    [(None, "it could no longer be read"), ("-3000000\n", "it reported a negative power, -3 W")],
)
def test_a_sensor_that_goes_wrong_ends_no_run(
    folder: Path, chip: Path, told: str | None, reason: str
) -> None:
    def spoil(count: int) -> None:
        if told is None:
            (chip / "power1_input").unlink(missing_ok=True)
        else:
            (chip / "power1_input").write_text(told)

    options = RunOptions(frames=FRAMES)
    summary = run(prepare(folder, options), Callbacks(spoil)).summary
    assert FRAMES == summary.completed
    (energy,) = summary.energy
    assert ("absent", None, None) == (energy.source, energy.joules, energy.mj_per_frame)
    assert f"hwmon ina219 power1_input: {reason}" == energy.reason


def test_a_rank_on_nvidias_gpu_tells_its_energy_and_memory(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_nvml(folder, toy_library("toy_nvml.c", tmp_path))
    change_plan(folder, on_a_gpu)
    monkeypatch.setenv("TOY_NVML", "cml")
    ended = succeed("run", folder, "--frames", f"{FRAMES}", "--json", folder / "figures.json")
    figures = json.loads((folder / "figures.json").read_text())
    (energy,) = figures["energy"]
    assert ("measured", "NVML Toy one, Toy two") == (energy["source"], energy["sensor"])
    assert energy["mean_w"] == pytest.approx(40, rel=0.1)
    assert [None, 811.0] == [rank["gpu_memory_mb"] for rank in figures["ranks"]]
    assert "of the GPU" in ended.out
    assert ["–", "811"] == [
        line.split("│")[-2].strip() for line in ended.out.splitlines() if "│" in line
    ]


def on_a_gpu(plan: Plan) -> Plan:
    """Return the plan with its second rank on a GPU."""
    first, second = plan.ranks
    return plan.with_ranks([first, replace(second, accelerator="gpu")])


def test_each_board_tells_its_own(tmp_path: Path, chip: Path) -> None:
    onnx.save(chain(3), tmp_path / "model.onnx")
    cores = {"host": "localhost", "cores": [0]}
    (tmp_path / "boards.yaml").write_text(json.dumps({"boards": {"one": cores, "two": cores}}))
    mapping = {"one_cpu0": ["L0"], "one_cpu0.2": ["L1"], "two_cpu0": ["L2"]}
    (tmp_path / "mapping.json").write_text(json.dumps(mapping))
    files = (tmp_path / name for name in ("model.onnx", "mapping.json", "boards.yaml", "out"))
    folder = build(*files, BuildOptions(share_cores=True)).folder
    give_sensors(folder, tmp_path / "sys")
    energies = ran(folder).summary.energy
    assert [("one", "measured"), ("two", "measured")] == [(e.board, e.source) for e in energies]
    assert [True, False, True] == [bool(record["energy"]) for record in records(folder)]
