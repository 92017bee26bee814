"""Checks of the boards before a job, and what the job needs there."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.agent.jobs.folders import MAX_BASES, SHORT
from rankslice.backend.agent.system import shell_words
from rankslice.backend.boards.answers import BoardCheck, naming_folder
from rankslice.backend.boards.board_packages import Package
from rankslice.backend.boards.login import address_for
from rankslice.backend.boards.ssh import FOLDER, BoardShell, below_home, on_all, ssh_options
from rankslice.backend.launch.mpirun import MpiRun
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.file_names import safe_file_name


@dataclass(frozen=True, slots=True)
class CheckedBoards:
    checked: tuple[tuple[BoardShell, BoardCheck], ...]
    run: str
    """Name of this run on all boards: a hash of their packages, and a random number."""
    config: Path | None

    @property
    def networks(self) -> tuple[str, ...]:
        """The networks that connect the boards, as CIDR."""
        return tuple(dict.fromkeys(check.network for _, check in self.checked if check.network))

    def of(self, board: str) -> tuple[BoardShell, BoardCheck]:
        return next(pair for pair in self.checked if pair[0].login.board == board)

    def address_for(self, board: str) -> str:
        """Return the address of this machine at which a board reaches it.

        Raises:
            RankSliceError: there is no way to the board.
        """
        shell, check = self.of(board)
        return address_for(shell.login.host if shell.is_here else check.address or shell.login.host)

    def file(self, name: str) -> str:
        return f"~/{FOLDER}/runs/{self.run}/{name}"

    def mpirun_options(self, mpirun: MpiRun) -> list[str]:
        # Not ~, for which mpirun would put this machine's home folder; and it takes no quotes.
        daemon = f"$HOME/{shell_words(f'{FOLDER}/runs/{self.run}/daemon')}"
        options = mpirun.parameter("prte_launch_agent", daemon)
        ssh = ssh_options(self.config)
        if any(" " in word for word in ssh):
            raise RankSliceError(
                Mistake(str(self.config), "has a blank in its path", "mpirun would split it there")
            )
        options += mpirun.parameter("plm_ssh_args", " ".join(ssh))
        # All connections start here: boards may have no keys for each other.
        options += mpirun.parameter("plm_ssh_no_tree_spawn", "1")
        if self.networks:
            include = ",".join(self.networks)
            options += mpirun.parameter("prte_if_include", include)
            options += ["--mca", "btl_tcp_if_include", include]
        return options

    @property
    def program(self) -> list[str]:
        """The command that mpirun starts on each board, without the driver's arguments."""
        start = below_home(FOLDER, "runs", self.run, "start")
        return ["sh", "-c", f'exec {start} "$@"', "rankslice"]


def check_board(shell: BoardShell, package: Package, mpirun: MpiRun, run: str = "") -> BoardCheck:
    """Ask a board whether it can run its package, and prepare a run there if one is named."""
    details = {**package.needs(), **package.identity()}
    return shell.ask(BoardCheck, "check", run=run, open_mpi=list(mpirun.version[:2]), **details)


def check_boards(
    work: Sequence[tuple[BoardShell, Package]], config: Path | None, mpirun: MpiRun, folder: Path
) -> CheckedBoards:
    """Ask each board whether it can run its package, and prepare a run there.

    Messages name the build folder as it is given.

    Raises:
        RankSliceError: some boards cannot; with the reasons of all of them.
    """
    deployed = "\n".join(sorted(package.manifest_sha256 for _, package in work))
    job = hashlib.sha256(deployed.encode()).hexdigest()[:SHORT]
    run = f"{job}-{secrets.token_hex(8)}"

    if not mpirun.is_five:
        raise_mistakes(
            Mistake(
                shell.login.full_name,
                "Open MPI 4.1 cannot use IPv6 addresses",
                "use a name of your ssh configuration as its host, or Open MPI 5",
            )
            for shell, _ in work
            if ":" in shell.login.host
        )
    checked = on_all(lambda item: (item[0], check_board(*item, mpirun, run)), work)
    raise_mistakes(
        Mistake(shell.login.full_name, naming_folder(problem, folder))
        for shell, check in checked
        for problem in check.problems
    )
    return CheckedBoards(checked, run, config)


def remote_inputs(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the paths of inputs on the source's board, relative to the run's folder."""
    return tuple(
        f"input/{number}/{safe_file_name(Path(name).name)}" for number, name in enumerate(inputs)
    )


def copy_inputs(boards: CheckedBoards, board: str, inputs: Sequence[str]) -> None:
    """Copy input files and folders to the source's board, unless an earlier run has them.

    Raises:
        RankSliceError: they could not be copied.
    """
    shell, check = boards.of(board)
    with temporary_folder() as folder:
        for name, here in zip(remote_inputs(inputs), inputs, strict=True):
            link = folder.path / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(here)
        bases = [f"runs/{run}/input" for run in check.bases[:MAX_BASES]]
        target = f"runs/{boards.run}/input"
        shell.put(folder.path / "input", target, bases=bases, follow_links=True)
