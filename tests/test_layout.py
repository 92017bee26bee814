"""The top-level folders, the links in ``src/rankslice`` and ``pyproject.toml`` tell one story."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rooms import ROOMS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "rankslice"
DATA = ("mappings", "models", "platforms", "templates")
FOLDERS = sorted((*ROOMS, *DATA))


def build_target(name: str) -> dict[str, Any]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    target: dict[str, Any] = settings["tool"]["hatch"]["build"]["targets"][name]
    return target


def python_folders(room: str) -> list[Path]:
    return sorted({file.parent for file in (ROOT / room).rglob("*.py")})


def test_the_package_holds_a_link_per_folder_and_two_files() -> None:
    expected = sorted([*FOLDERS, "__init__.py", "py.typed"])
    assert expected == sorted(path.name for path in PACKAGE.iterdir() if path.name != "__pycache__")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_link_leads_to_its_folder(folder: str) -> None:
    link = PACKAGE / folder
    assert f"../../{folder}" == str(link.readlink())
    assert (ROOT / folder).resolve() == link.resolve()
    assert link.is_dir()


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_wheel_has_each_folder_inside_the_package(folder: str) -> None:
    wheel = build_target("wheel")
    assert folder in wheel["only-include"]
    assert f"rankslice/{folder}" == wheel["sources"][folder]


def test_the_wheel_has_the_package_itself() -> None:
    wheel = build_target("wheel")
    assert {"src/rankslice/__init__.py", "src/rankslice/py.typed"} <= set(wheel["only-include"])
    assert "rankslice" == wheel["sources"]["src/rankslice"]


def test_the_wheel_maps_nothing_else() -> None:
    assert sorted([*FOLDERS, "src/rankslice"]) == sorted(build_target("wheel")["sources"])


@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "docs", "examples"])
def test_the_source_distribution_has_each_folder(folder: str) -> None:
    assert folder in build_target("sdist")["only-include"]


def test_the_wheel_names_only_what_exists() -> None:
    listed = build_target("wheel")["only-include"]
    assert [] == [name for name in listed if not (ROOT / name).exists()]


@pytest.mark.parametrize("folder", DATA)
def test_a_data_folder_is_no_package(folder: str) -> None:
    assert [] == list((ROOT / folder).rglob("__init__.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_every_folder_of_python_files_is_a_package(room: str) -> None:
    assert python_folders(room)
    assert [] == [
        folder for folder in python_folders(room) if not (folder / "__init__.py").is_file()
    ]


def test_make_asks_what_virtual_boards_need_before_anything_is_installed(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make on this machine")
    dry = [make, "--dry-run", "boards", f"VENV={tmp_path / 'venv'}"]
    lines = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 0 <= lines.index("tests/boards needs") < lines.index("-m venv")
    assert not (tmp_path / "venv").exists()
