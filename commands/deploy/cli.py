"""The options of ``rankslice deploy``."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from rankslice.commands.app import command
from rankslice.commands.options import BuildFolder, Json, SshConfig, refuse_shared_files
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.files.output_file import STDOUT


@command("out", "out --boards edge01,edge02 --venv")
def deploy(
    context: typer.Context,
    folder: BuildFolder,
    boards: Annotated[
        str | None, Option(metavar="B1,B2", help="Boards to deploy to (default: all).")
    ] = None,
    venv: Annotated[
        bool,
        Option(
            "--venv", help="Also create the Python environment ~/.rankslice/venv on each board."
        ),
    ] = False,
    ssh_config: SshConfig = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Show what would be copied without copying it.")
    ] = False,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.deploy.show import print_deployed, print_deployment
    from rankslice.session.build_folder import EDITED, is_edited, read_plan
    from rankslice.session.deployment import deploy as deploy_folder, plan_all_deployments

    if is_edited(folder, read_plan(folder)):
        print_line(talk, EDITED, "note")
    names = [name for name in (boards or "").split(",") if name]
    deployment = plan_all_deployments(folder, names, ssh_config=ssh_config)
    if dry_run:
        print_deployment(deployment, screen)
        return
    deployed = deploy_folder(
        deployment, venv=venv, on_step=lambda board, step: print_line(talk, f"{board}: {step}")
    )
    write_json(json_file, {"boards": [board.to_json() for board in deployed]})
    if json_file != STDOUT:
        print_deployed(deployed, screen)
