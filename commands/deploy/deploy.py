"""``rankslice deploy``: the packages of a build folder to their boards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.boards.deploy import Deployed, Package, deploy_packages, read_package
from rankslice.backend.boards.ssh import BoardShell, write_ssh_config
from rankslice.backend.launch.mpirun import open_mpi_requirements
from rankslice.framework.errors import Mistake, RankSliceError, nearest
from rankslice.framework.plan import Plan, plan_from_json
from rankslice.framework.reach import board_reaches
from rankslice.framework.specs.read_text import read_text
from rankslice.framework.wording import joined, quoted

__all__ = ["SSH_CONFIG", "Deployment", "deploy", "plan_deployment", "read_plan"]

SSH_CONFIG = "ssh_config"
"""Name of the file in a build folder that names accounts for ssh, if the platform does."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which package goes to which board."""

    work: tuple[tuple[BoardShell, Package], ...]
    ssh_config: Path | None = None
    """Configuration for ssh."""


def read_plan(folder: Path) -> Plan:
    """Return the plan of a build folder.

    Raises:
        RankSliceError: the folder is no build folder.
    """
    plan_file = folder / "plan.json"
    if not plan_file.is_file():
        found = "has no plan.json" if folder.is_dir() else "no such folder"
        raise RankSliceError(
            Mistake(str(folder), found, "make a build folder with: rankslice build")
        )
    return plan_from_json(read_text(plan_file, "a plan"), str(plan_file))


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
    if ssh_config is not None and not ssh_config.is_file():
        raise RankSliceError(Mistake(str(ssh_config), "no such file", "another --ssh-config?"))
    reaches = board_reaches(folder, plan)
    known = [reach.board for reach in reaches]
    for board in boards:
        if board not in known:
            hint = nearest(board, known) or f"the boards are {joined(known)}"
            raise RankSliceError(Mistake("--boards", f"no board {quoted(board)}", hint))
    config = write_ssh_config(folder / SSH_CONFIG, reaches, ssh_config)
    return Deployment(
        tuple(
            (BoardShell(reach, config), read_package(folder, reach.board))
            for reach in reaches
            if not boards or reach.board in boards
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
        on_step: told a board's name and what is being done there.

    Raises:
        RankSliceError: some boards do not have their package; the others do.
    """
    also = open_mpi_requirements() if venv else []
    return deploy_packages(deployment.work, environment=venv, also=also, on_step=on_step)
