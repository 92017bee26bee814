"""Open MPI on the board: mpirun's daemon, and the library that mpi4py loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import system

ASK_LIBRARY = """
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
print(MPI.Get_library_version())
"""


def open_mpi(series: Sequence[int]) -> tuple[Path | None, Path | None, str]:
    """Return mpirun's daemon on this board, the libmpi for mpi4py if it needs one, and a problem.

    Args:
        series: first two numbers of the version of the launcher's mpirun; the daemon and the
            library must be of the same.
    """
    wanted = ".".join(map(str, series))
    daemon = _find_daemon(is_five=series[0] >= 5)
    if daemon is None:
        return None, None, _no_daemon(wanted, is_five=series[0] >= 5)
    asked = [str(daemon.with_name("mpirun")), "--version"]
    version = system.open_mpi_version(system.run(asked).stdout)
    if version[:2] != series:
        found = ".".join(map(str, version)) or "an unknown version"
        return (
            daemon,
            None,
            f"{daemon} is of Open MPI {found}, mpirun here of {wanted}: all must be of one"
            " series; install the same there, or name another mpirun with --mpirun",
        )
    library = None if daemon.parent == Path(sys.executable).parent else system.libmpi_of(daemon)
    loaded = _loaded_version(library)
    if loaded[:2] != series:
        found = ".".join(map(str, loaded)) or "none"
        found = f"the MPI library of {sys.executable} is {found}, mpirun here is of {wanted}"
        return daemon, library, found
    return daemon, library, ""


def _find_daemon(*, is_five: bool) -> Path | None:
    name = "prted" if is_five else "orted"
    beside = Path(sys.executable).with_name(name)
    path = str(beside) if beside.exists() else shutil.which(name)
    return Path(path) if path else None


def _no_daemon(wanted: str, *, is_five: bool) -> str:
    other = _find_daemon(is_five=not is_five)
    has = f"it has {other} of another series" if other else "it has none"
    remedy = "rankslice deploy OUT --venv" if is_five else "apt-get install openmpi-bin there"
    return f"mpirun here is of Open MPI {wanted}, and {has}: all must be of one series; {remedy}"


def _loaded_version(library: Path | None) -> list[int]:
    variables = {**os.environ, **({"MPI4PY_LIBMPI": str(library)} if library else {})}
    asked = [sys.executable, "-c", ASK_LIBRARY]
    printed = system.run(asked, variables=variables, stderr=subprocess.DEVNULL).stdout
    return system.open_mpi_version(printed)
