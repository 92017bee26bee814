"""The mode of a board, on folders that look like /sys has them, and a program like NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import pytest
from clock_trees import put_policy

from rankslice.backend.runtime.system.modes import BoardMode, ClockMode, board_mode
from rankslice.measurement.board_history import mode_differences, mode_texts


def program(folder: Path, prints: str) -> str:
    path = folder / "nvpmodel"
    path.write_text(f"#!/bin/sh\n[ \"$1\" = -q ] && printf '{prints}'\n")
    path.chmod(0o755)
    return str(path)


def jetson(root: Path, *, khz: int = 1_497_600, power: str = "15W\\n2\\n") -> BoardMode:
    put_policy(root, (0, 1), (115_200, khz))
    put_policy(root, (4,), (115_200, 729_600))
    for name, governor in (("17000000.gpu", "nvhost_podgov"), ("soc:dmc", "userspace")):
        device = root / "sys/class/devfreq" / name
        device.mkdir(parents=True)
        for file, content in {"governor": governor, "min_freq": 306000000}.items():
            (device / file).write_text(f"{content}\n")
    return board_mode(root, nvpmodel=program(root, f"NV Power Mode: {power}"))


def test_a_jetson_tells_its_power_mode_and_its_clocks(tmp_path: Path) -> None:
    assert jetson(tmp_path) == BoardMode(
        "15W",
        2,
        (
            ClockMode("policy0", "schedutil", pytest.approx(115.2), pytest.approx(1497.6)),
            ClockMode("policy4", "schedutil", pytest.approx(115.2), pytest.approx(729.6)),
            ClockMode("17000000.gpu", "nvhost_podgov", pytest.approx(306), None),
        ),
    )


@pytest.mark.parametrize(
    ("prints", "mode"),
    [
        ("NVPM WARN: fan mode is not set!\\nNV Power Mode: MAXN\\n0\\n", ("MAXN", 0)),
        ("NV Power Mode: MODE_10W\\nNV Fan Mode: quiet\\n1\\n", ("MODE_10W", 1)),
        ("NVPM ERROR: Error opening /var/lib/nvpmodel/status\\n", ("", None)),
        ("", ("", None)),
    ],
)
def test_what_nvpmodel_prints_is_understood_or_absent(
    prints: str, mode: tuple[str, int | None], tmp_path: Path
) -> None:
    assert BoardMode(*mode) == board_mode(tmp_path, nvpmodel=program(tmp_path, prints))


def test_a_machine_without_clocks_and_power_modes_tells_none(tmp_path: Path) -> None:
    assert BoardMode() == board_mode(tmp_path, nvpmodel=str(tmp_path / "none"))
    assert {} == mode_texts(BoardMode())


def test_runs_of_a_board_in_different_modes_are_told(tmp_path: Path) -> None:
    usual = jetson(tmp_path / "a")
    slow = jetson(tmp_path / "b", khz=918_000, power="10W\\n1\\n")
    other = BoardMode("30W", 0)
    assert [
        "board nx01 ran with power mode 15W (2), policy0 schedutil from 115.2 to 1497.6 MHz in a"
        " and with power mode 10W (1), policy0 schedutil from 115.2 to 918 MHz in b"
    ] == [*mode_differences({"a": {"nx01": usual, "nx02": other}, "b": {"nx01": slow}})]
    assert [] == [*mode_differences({"a": {"nx01": usual}, "b": {"nx01": usual}})]
