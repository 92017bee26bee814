"""Checks before a run or before measurements, and the scripts that mpirun starts in a run."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...runtime.system.cores import governor_of
from ...runtime.system.modes import board_mode
from ...runtime.system.processes import free_bytes
from ..protocol import Answer, Request
from ..system import (
    BRING_UP,
    LOOPBACK_DOWN,
    ipv4_at,
    libmpi_of,
    loopback_is_up,
    open_mpi_version,
    run as run_program,
    shell_words,
)
from .folders import HOME, MAX_BASES, RUN, newest, package_of, run_of, write
from .packages import changes
from .python_packages import python_problems, requirement_problems
from .runs import JOB_VARIABLE, sweep_runs


def check(request: Request) -> Answer:
    """Check whether the job can run here; if so, prepare the folder of the run."""
    problems = _problems(request)
    daemon, library, problem = open_mpi(request["open_mpi"])
    problems += [problem] if problem else []
    problems += [] if loopback_is_up() else [f"{LOOPBACK_DOWN}; {BRING_UP}"]
    if problems or daemon is None:
        return _check_answer(problems)
    address = _address(request)
    if ":" in address and not ipv4_at(address):
        found = f"is reached at {address}, and has no IPv4 address there, which Open MPI needs"
        return _check_answer([f"{found}; give it one"])
    bases = [run.name for run in newest(HOME / "runs") if (run / "input").is_dir()]
    if request["run"]:
        sweep_runs()
        run, package = run_of(request), package_of(request)
        run.mkdir(mode=0o700)
        (run / "package").symlink_to(Path("..") / ".." / "packages" / package.name)
        write_scripts(run, package, daemon, library)
    bases = [name for name in bases if RUN.fullmatch(name)]
    return _check_answer([], address, bases[:MAX_BASES])


def _check_answer(problems: list[str], address: str = "", bases: Sequence[str] = ()) -> Answer:
    own = ipv4_at(address)
    is_ipv4 = address.replace(".", "").isdigit()
    return {
        "problems": problems,
        "network": str(ipaddress.ip_interface(f"{own[0]}/{own[1]}").network) if own else "",
        "address": own[0] if own else address if is_ipv4 else "",
        "hostname": socket.gethostname(),
        "bases": list(bases),
        "free_bytes": free_bytes(),
        "cores": os.cpu_count() or 1,
        "governor": governor_of(0),
        "mode": dataclasses.asdict(board_mode()),
        "load": os.getloadavg()[0],
    }


def _problems(request: Request) -> list[str]:
    return [*_package_problems(request), *python_problems(), *requirement_problems(request)]


def _package_problems(request: Request) -> Iterator[str]:
    package = package_of(request)
    if not package.is_dir():
        yield "does not have this package; deploy it: rankslice deploy OUT"
    elif wrong := changes(package, request):
        yield f"its package is damaged ({wrong}); deploy it again: rankslice deploy OUT"


def measure(request: Request) -> Answer:
    """Become the package's profiling program; return problems if it cannot run here."""
    problems = _problems(request)
    if not problems:
        os.chdir(package_of(request))
        os.execv(sys.executable, [sys.executable, "-m", "runtime.profiling", request["what"]])
    return {"problems": problems}


def _address(request: Request) -> str:
    words = os.environ.get("SSH_CONNECTION", "").split()
    address: str = request["address"]
    return words[2] if request["over_ssh"] and len(words) == 4 else address


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
    version = open_mpi_version(run_program(asked).stdout)
    if version[:2] != series:
        found = ".".join(map(str, version)) or "an unknown version"
        return (
            daemon,
            None,
            f"{daemon} is of Open MPI {found}, mpirun here of {wanted}: all must be of one"
            " series; install the same there, or name another mpirun with --mpirun",
        )
    library = None if daemon.parent == Path(sys.executable).parent else libmpi_of(daemon)
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
    printed = run_program(asked, variables=variables, stderr=subprocess.DEVNULL).stdout
    return open_mpi_version(printed)


FOLDERS = "folders"
"""Written by a run's watch: variables that name the run's private folders."""


def write_scripts(run: Path, package: Path, daemon: Path, library: Path | None) -> None:
    """Write the scripts that start a rank and mpirun's daemon in a run.

    Args:
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
    code = str(package / "runtime" / "faults" / "connection_filter.py")
    filtered = shell_words("exec", sys.executable, "-E", "-S", code, "0", "0", str(daemon))
    serve += [f'{filtered} "$@"']
    write(run / "start", "\n".join([*start, ""]), 0o755)
    write(run / "daemon", "\n".join([*serve, ""]), 0o755)


def exports(variables: dict[str, str]) -> str:
    return "export " + " ".join(f"{name}={shell_words(value)}" for name, value in variables.items())
