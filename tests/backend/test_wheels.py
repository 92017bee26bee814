"""Wheels for boards: for their architecture and Python, or a message that says what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankslice.backend.wheels import collect_wheels
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
    told = complaint(board(), tmp_path, tmp_path / "wheels")
    assert "board edge01 (Python 3.11 on aarch64)" in told
    assert "numpy" in told
