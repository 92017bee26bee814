"""Checks before a run or before measurements: package, Python, Open MPI and network."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...runtime.system.cores import governor_of
from ...runtime.system.processes import free_bytes
from ..protocol import Answer, Request
from ..system import BRING_UP, LOOPBACK_DOWN, ipv4_at, loopback_is_up
from .folders import HOME, MAX_BASES, RUN, newest, package_of, run_of
from .open_mpi import open_mpi
from .packages import changes
from .python_packages import python_problems, requirement_problems
from .runs import sweep_runs
from .scripts import write_scripts


def look(request: Request) -> Answer:
    """Check whether the job can run here; if so, prepare the folder of the run."""
    problems = _problems(request)
    daemon, library, problem = open_mpi(request["open_mpi"])
    problems += [problem] if problem else []
    problems += [] if loopback_is_up() else [f"{LOOPBACK_DOWN}; {BRING_UP}"]
    if problems or daemon is None:
        return _looked(problems)
    address = _address(request)
    if ":" in address and not ipv4_at(address):
        found = f"is reached at {address}, and has no IPv4 address there, which Open MPI needs"
        return _looked([f"{found}; give it one"])
    bases = [run.name for run in newest(HOME / "runs") if (run / "input").is_dir()]
    if request["run"]:
        sweep_runs()
        run, package = run_of(request), package_of(request)
        run.mkdir(mode=0o700)
        (run / "package").symlink_to(Path("..") / ".." / "packages" / package.name)
        write_scripts(run, package, daemon, library)
    bases = [name for name in bases if RUN.fullmatch(name)]
    return _looked([], address, bases[:MAX_BASES])


def _looked(problems: list[str], address: str = "", bases: Sequence[str] = ()) -> Answer:
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
    given: str = request.get("address", "")
    return words[2] if request["over_ssh"] and len(words) == 4 else given
