"""Wheels in packages, from which boards install without internet access."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.agent.system import run
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.platform import Board
from rankslice.framework.wording import quoted

DOWNLOAD = "download"
"""Stands for pip's usual index instead of a folder of wheels."""

AddWheels: TypeAlias = Callable[[str, Sequence[str], Path], None]
"""Takes a board's name, what pip installs there, and a folder to make and fill with wheels."""

_SYSTEMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014")
_PYTHON = re.compile(r"3\.\d{1,2}")
_ARCHITECTURE = re.compile(r"[a-z0-9_]{1,32}")
_ARCHITECTURES = {"arm64": "aarch64", "amd64": "x86_64", "x86-64": "x86_64"}
_TIMEOUT_S = 900


def wheels_for(boards: Sequence[Board], source: str, also: Sequence[str] = ()) -> AddWheels | None:
    """Return a function that puts wheels into packages; ``None``: no wheels wanted.

    ``source``: a folder of wheels, or :data:`DOWNLOAD`; empty: none. ``also``: what boards need
    besides a package's requirements.
    """
    by_name = {board.name: board for board in boards}

    def add(board: str, requirements: Sequence[str], target: Path) -> None:
        collect_wheels(by_name[board], [*requirements, *also], source, target)

    return add if source else None


def collect_wheels(
    board: Board, requirements: Sequence[str], source: str | Path, target: Path
) -> None:
    """Put the wheels for a board's architecture and Python into a new folder.

    ``source``: a folder of wheels, or :data:`DOWNLOAD`. What requirements depend on is included.

    Raises:
        RankSliceError: the board's architecture or Python is not known, or there is no wheel.
    """
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    command += [*kind_options(board), "--only-binary=:all:", "--dest", str(target)]
    if source != DOWNLOAD:
        folder = Path(source)
        if not folder.is_dir():
            raise RankSliceError(
                Mistake("--wheels", f"no folder {quoted(str(source))}", f"or say {DOWNLOAD}")
            )
        command += ["--no-index", "--find-links", str(folder)]
    target.mkdir(parents=True)
    try:
        ended = run([*command, "--", *requirements], stderr=subprocess.PIPE, timeout_s=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise _mistake(board, f"pip did not end within {_TIMEOUT_S} s") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
        last = (errors or ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise _mistake(board, last.removeprefix("ERROR: "))


def _mistake(board: Board, found: str) -> RankSliceError:
    kind = f"Python {board.python} on {board.arch}"
    return RankSliceError(Mistake(f"--wheels, board {board.name} ({kind})", found))


def machine_of(arch: str) -> str:
    """Return the name that Linux and wheels have for an architecture."""
    return _ARCHITECTURES.get(arch.lower(), arch.lower())


def kind_options(board: Board) -> list[str]:
    place = f"board {board.name}"
    arch = machine_of(board.arch)
    if not _ARCHITECTURE.fullmatch(arch):
        found = f"its arch is {quoted(board.arch)}" if board.arch else "its arch is not known"
        raise RankSliceError(Mistake(place, found, "--wheels needs `arch: aarch64`, say"))
    if not _PYTHON.fullmatch(board.python):
        found = f"its python is {quoted(board.python)}" if board.python else "its Python is unknown"
        raise RankSliceError(Mistake(place, found, '--wheels needs `python: "3.11"`, say'))
    systems = [word for system in _SYSTEMS for word in ("--platform", f"{system}_{arch}")]
    return [*systems, "--python-version", board.python, "--implementation", "cp"]
