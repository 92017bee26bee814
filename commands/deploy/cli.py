"""The options of ``rankslice deploy``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import STDOUT, write_json
from rankslice.framework.option_records import about, comma_separated
from rankslice.framework.wording import fixed_text
from rankslice.session.shared_options import BuildFolder, Json, SshConfig
from rankslice.views.content import Table
from rankslice.views.terminal import print_line, screen, show, talk

if TYPE_CHECKING:
    from rankslice.backend.boards.board_packages import Deployed

BoardNames = Annotated[
    tuple[str, ...],
    about("Boards to deploy to (default: all).", comma_separated, metavar="B1,B2"),
]


@function
def deploy(
    folder: BuildFolder,
    *,
    boards: BoardNames = (),
    venv: Annotated[
        bool, about("Also create the Python environment ~/.rankslice/venv on each board.")
    ] = False,
    ssh_config: SshConfig = None,
    on_step: Callable[[str, str], None] = lambda board, step: None,
) -> tuple[Deployed, ...]:
    """Copy the packages of a build folder to their boards; return what was done on each.

    Raises:
        RankSliceError: the folder is no build folder, or some boards do not have their package;
            the others do.
    """
    from rankslice.session.deployment import deploy as deploy_packages, plan_deployment

    deployment = plan_deployment(folder, boards, ssh_config=ssh_config, with_fallbacks=True)
    return deploy_packages(deployment, venv=venv, on_step=on_step)


@command("deploy", "out", "out --boards edge01,edge02 --venv", calls=deploy)
def show_deploy(
    call: Callable[..., tuple[Deployed, ...]],
    folder: BuildFolder,
    boards: BoardNames = (),
    ssh_config: SshConfig = None,
    dry_run: Annotated[bool, about("Show what would be copied without copying it.")] = False,
    json: Json = None,
) -> None:
    from rankslice.session.build_folder import EDITED, is_edited, read_plan
    from rankslice.session.deployment import plan_deployment

    if is_edited(folder, read_plan(folder)):
        print_line(talk, EDITED, "note")
    if dry_run:
        planned = plan_deployment(folder, boards, ssh_config=ssh_config, with_fallbacks=True)
        for shell, package in planned.work:
            way = "this machine" if shell.is_here else "over ssh"
            size = fixed_text(package.nbytes / 1e6, 1)
            text = (
                f"{package.label}: {len(package.files)} files, {size} MB"
                f" to {shell.login.host} ({way}), ~/.rankslice/packages/{package.short_name}"
            )
            print_line(screen, text)
        return
    deployed = call(on_step=lambda board, step: print_line(talk, f"{board}: {step}"))
    write_json(json, {"boards": [board.to_json() for board in deployed]})
    if json != STDOUT:
        show(screen, _table(deployed))


def _table(boards: Sequence[Deployed]) -> Table:
    purposes = ("without",) if any(board.without for board in boards) else ()
    head = ("board", *purposes, "host", "package", "size", "sent", "seconds")
    rows = tuple(
        (
            board.board,
            *((board.without or "-",) if purposes else ()),
            *(board.host, board.state),
            *(fixed_text(n / 1e6, 1) for n in (board.package_bytes, board.bytes_sent)),
            fixed_text(board.seconds, 1),
        )
        for board in boards
    )
    return Table("sizes in MB", head, rows)
