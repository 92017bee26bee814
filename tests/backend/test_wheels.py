"""Wheels for boards: for their architecture and Python, or a message that says what is missing."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from rankslice.backend.boards.board_packages import read_package
from rankslice.backend.package import write_profiler_package
from rankslice.backend.runtime.job import Rank
from rankslice.backend.wheels import collect_wheels, wheels_for
from rankslice.framework.errors import RankSliceError
from rankslice.framework.platform import Board


def board(arch: str = "aarch64", python: str = "3.11") -> Board:
    return Board("edge01", "10.0.0.1", arch=arch, python=python)


def complaint(wanted: Board, source: Path, target: Path) -> str:
    """Return what is said of requirements that cannot be met."""
    with pytest.raises(RankSliceError) as error:
        collect_wheels(wanted, ["numpy>=1.26"], source, target)
    return str(error.value)


def test_an_architecture_must_be_known(tmp_path: Path) -> None:
    assert "`arch: aarch64`" in complaint(board(arch=""), tmp_path, tmp_path / "wheels")
    assert "its arch is" in complaint(board(arch="--index-url"), tmp_path, tmp_path / "wheels")


def test_a_python_must_be_known(tmp_path: Path) -> None:
    assert '`python: "3.11"`' in complaint(board(python=""), tmp_path, tmp_path / "wheels")


def test_a_folder_must_be_there(tmp_path: Path) -> None:
    assert "no folder" in complaint(board(), tmp_path / "none", tmp_path / "wheels")


def test_a_wheel_that_is_missing_is_named(tmp_path: Path) -> None:
    message = complaint(board(), tmp_path, tmp_path / "wheels")
    assert "board edge01 (Python 3.11 on aarch64)" in message
    assert "numpy" in message


def fake_wheel(folder: Path, name: str, version: str) -> None:
    """Write a wheel with nothing in it."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


def test_what_measures_on_a_board_brings_its_wheels_along(tmp_path: Path) -> None:
    fake_wheel(tmp_path, "numpy", "9.9")
    rank = Rank(0, "edge01_cpu0", "edge01", "10.0.0.1", "cpu", (0,), "null")
    add_wheels = wheels_for([board()], str(tmp_path))
    write_profiler_package(tmp_path / "package", "edge01", [rank], [], add_wheels)
    package = read_package(tmp_path / "package", "edge01")
    assert "wheels/numpy-9.9-py3-none-any.whl" in package.files


def test_nobody_who_asks_for_no_wheels_gets_any() -> None:
    assert wheels_for([board()], "") is None
