"""Shell scripts that mpirun starts on the board: they know the paths of this board alone."""

from __future__ import annotations

import sys
from pathlib import Path

from ..system import shell_words
from .folders import write
from .runs import JOB_VARIABLE

FOLDERS = "folders"
"""Written by a run's watch: variables that name the run's private folders."""


def write_scripts(run: Path, package: Path, daemon: Path, library: Path | None) -> None:
    """Write the scripts that start a rank and mpirun's daemon in a run.

    Args:
        run: the run's folder.
        package: its package.
        daemon: mpirun's daemon on this board.
        library: libmpi that mpi4py is to load; ``None``: the one that it finds.
    """
    variables = {JOB_VARIABLE: run.name}
    folders = shell_words(str(run / FOLDERS))
    take_folders = f"[ ! -r {folders} ] || . {folders}"
    if library:
        variables["MPI4PY_LIBMPI"] = str(library)
    start = [
        "#!/bin/sh",
        exports(variables),
        take_folders,
        f"{shell_words('cd', str(run))} || exit 1",
        f'{shell_words("exec", sys.executable, str(package / "driver.py"))} "$@"',
    ]
    prefix = str(daemon.parent.parent)
    if daemon.name == "prted":
        variables |= dict.fromkeys(("PRTE_PREFIX", "PMIX_PREFIX", "OPAL_PREFIX"), prefix)
    serve = ["#!/bin/sh", exports(variables), take_folders]
    if daemon.name == "prted":
        folder = shell_words(f"{prefix}/lib")
        serve += [f'export LD_LIBRARY_PATH={folder}"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"']
    gate = str(package / "runtime" / "faults" / "gate.py")
    guarded = shell_words("exec", sys.executable, "-E", "-S", gate, "0", "0", str(daemon))
    serve += [f'{guarded} "$@"']
    write(run / "start", "\n".join([*start, ""]), 0o755)
    write(run / "daemon", "\n".join([*serve, ""]), 0o755)


def exports(variables: dict[str, str]) -> str:
    return "export " + " ".join(f"{name}={shell_words(value)}" for name, value in variables.items())
