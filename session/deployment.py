"""``rankslice deploy``: the packages of a build folder to their boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rankslice.backend.boards.answers import naming_folder
from rankslice.backend.boards.board_packages import (
    Deployed,
    Package,
    deploy_packages,
    package_folder,
    read_package,
)
from rankslice.backend.boards.login import board_logins
from rankslice.backend.boards.ssh import BoardShell, write_ssh_config
from rankslice.backend.launch.mpirun import open_mpi_requirements
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.wording import joined, quoted
from rankslice.session.build_folder import SSH_CONFIG, check_ssh_config, read_plan, renew
from rankslice.session.survival import find_survival


@dataclass(frozen=True, slots=True)
class Deployment:
    folder: Path
    work: tuple[tuple[BoardShell, Package], ...]
    ssh_config: Path | None = None


def plan_deployment(
    folder: Path,
    boards: Sequence[str] = (),
    *,
    ssh_config: Path | None = None,
    with_fallbacks: bool = False,
) -> Deployment:
    """Check a build folder; return what goes to all boards, or to those that are named.

    ``with_fallbacks``: with the packages for the loss of boards.
    """
    survival = find_survival(folder) if with_fallbacks else None
    folders = {"": folder}  # by the board for whose loss it is
    if survival is not None:
        folders |= survival.folders
    check_ssh_config(ssh_config)
    work, configs = [], []
    known: dict[str, None] = {}
    for without, build in folders.items():
        plan = read_plan(build)
        renew(build, plan, packages=True)
        logins = board_logins(build, plan)
        configs.append(write_ssh_config(build / SSH_CONFIG, logins, ssh_config))
        known |= dict.fromkeys(login.board for login in logins)
        for login in logins:
            if not boards or login.board in boards:
                package = read_package(package_folder(build, login.board), login.board, without)
                work.append((BoardShell(login, configs[-1]), package))
    for board in boards:
        if board not in known:
            hint = nearest(board, known) or f"the boards are {joined([*known])}"
            raise RankSliceError(Mistake("--boards", f"no board {quoted(board)}", hint))
    return Deployment(folder, tuple(work), configs[0])


def deploy(
    deployment: Deployment,
    *,
    venv: bool = False,
    beside: int = 0,
    on_step: Callable[[str, str], None] = lambda board, step: None,
) -> tuple[Deployed, ...]:
    """Bring the packages to their boards; return what was done, board by board.

    ``venv``: also make each board's virtual environment; ``beside``: how many further packages of
    the same job each board keeps; ``on_step`` gets the label of a package and each step.

    Raises:
        RankSliceError: some boards do not have their package; the others do.
    """
    also = open_mpi_requirements() if venv else []
    try:
        return deploy_packages(
            deployment.work, environment=venv, also=also, beside=beside, on_step=on_step
        )
    except RankSliceError as error:
        raise RankSliceError(
            *(
                replace(mistake, found=naming_folder(mistake.found, deployment.folder))
                if isinstance(mistake, Mistake)
                else mistake
                for mistake in error.mistakes
            )
        ) from None
