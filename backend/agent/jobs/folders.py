"""What an account keeps for RankSlice on the board, in ``~/.rankslice``.

``packages/<manifest>/``  checked packages, named by the hash of their manifest
``runs/<job>-<number>/``  the working folder of a run: inputs, results, and its start scripts
``checked/<manifest>``    sizes and times of a package's files when they were checked
``staging/``              packages that are being copied
``venv/``                 the environment that ``deploy --venv`` makes
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from pathlib import Path

from ..protocol import Request

try:
    HOME = Path.home() / ".rankslice"
except RuntimeError:  # an account without a name, and no HOME; main() refuses it
    HOME = Path()


SHORT = 12


class RefusedError(Exception):
    """The board cannot do what was asked; the text says why, and what to do."""


DISK_FULL = "its disk is full; make room there, ~/.rankslice/packages has older packages"
KEPT_PACKAGES = 7
KEPT_RUNS = 3
MAX_BASES = 15
RUN = re.compile(r"[0-9a-f]{12}-[0-9a-f]{16}")
PACKAGE = re.compile(r"[0-9a-f]{12}(\.[0-9a-f]+)?")


def package_of(request: Request) -> Path:
    return HOME / "packages" / str(request["manifest_sha256"])[:SHORT]


def run_of(request: Request) -> Path:
    return HOME / "runs" / str(request["run"])


def make_folders() -> None:
    HOME.mkdir(mode=0o700, exist_ok=True)
    for name in ("packages", "runs", "staging", "checked"):
        (HOME / name).mkdir(exist_ok=True)


def newest(folder: Path) -> list[Path]:
    times = {}
    for entry in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            times[entry] = entry.lstat().st_mtime_ns
    return sorted(times, key=lambda entry: -times[entry])


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file in one step: readers see the old text or the new one."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(text)
    new.chmod(mode)
    new.replace(path)


def age_s(path: Path) -> float:
    """Return the seconds since a file was changed; infinite if it does not exist."""
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return math.inf
