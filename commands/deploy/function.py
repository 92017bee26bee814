"""``rankslice.deploy``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankslice.backend.boards.board_packages import Deployed
from rankslice.commands.arguments import checked, path_of
from rankslice.session.deployment import deploy as deploy_packages, plan_all_deployments


@checked
def deploy(
    folder: str | Path,
    *,
    boards: Sequence[str] = (),
    venv: bool = False,
    ssh_config: str | Path | None = None,
) -> tuple[Deployed, ...]:
    """Copy the packages of a build folder to their boards; return what was done on each.

    Args:
        folder: made by ``build``.
        boards: names of those that get their package; all by default.
        venv: also make each board's virtual environment, with what its package needs.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: the folder is no build folder, or some boards do not have their package;
            the others do.
    """
    return deploy_packages(
        plan_all_deployments(Path(folder), boards, ssh_config=path_of(ssh_config)), venv=venv
    )
