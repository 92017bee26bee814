"""``rankslice deploy``: the packages of a build folder to their boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.boards.deploy import (
    Deployed,
    Package,
    deploy_packages,
    package_folder,
    read_package,
)
from rankslice.backend.boards.login import board_logins
from rankslice.backend.boards.ssh import BoardShell, write_ssh_config
from rankslice.backend.launch.mpirun import open_mpi_requirements
from rankslice.commands.build_folder import SSH_CONFIG, check_ssh_config, read_plan
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.wording import joined, quoted


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which package goes to which board."""

    work: tuple[tuple[BoardShell, Package], ...]
    ssh_config: Path | None = None
    """Configuration for ssh."""


def plan_deployment(
    folder: Path, boards: Sequence[str] = (), *, ssh_config: Path | None = None
) -> Deployment:
    """Check a build folder; return what goes where.

    Args:
        folder: made by ``build``.
        boards: names of those that get their package; all by default.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: the folder is no build folder or damaged, or has no such board.
    """
    plan = read_plan(folder)
    check_ssh_config(ssh_config)
    logins = board_logins(folder, plan)
    known = [login.board for login in logins]
    for board in boards:
        if board not in known:
            hint = nearest(board, known) or f"the boards are {joined(known)}"
            raise RankSliceError(Mistake("--boards", f"no board {quoted(board)}", hint))
    config = write_ssh_config(folder / SSH_CONFIG, logins, ssh_config)
    return Deployment(
        tuple(
            (
                BoardShell(login, config),
                read_package(package_folder(folder, login.board), login.board),
            )
            for login in logins
            if not boards or login.board in boards
        ),
        config,
    )


def deploy(
    deployment: Deployment,
    *,
    venv: bool = False,
    on_step: Callable[[str, str], None] = lambda board, step: None,
) -> tuple[Deployed, ...]:
    """Bring the packages to their boards; return what was done on each.

    Args:
        deployment: from :func:`plan_deployment`.
        venv: also make each board's virtual environment, with what its package needs.
        on_step: called with a board's name and each step there.

    Raises:
        RankSliceError: some boards do not have their package; the others do.
    """
    also = open_mpi_requirements() if venv else []
    return deploy_packages(deployment.work, environment=venv, also=also, on_step=on_step)
