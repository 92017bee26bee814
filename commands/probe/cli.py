"""The options of ``rankslice probe``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import Json, SshConfig, refuse_shared_files, writes
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import PLATFORM, STDOUT, check_output, write_output


@command(
    "pi@192.168.1.11 pi@192.168.1.12 --out boards.yaml",
    "--check boards.yaml",
    "--check boards.yaml out",
)
def probe(
    context: typer.Context,
    hosts: Annotated[
        list[str] | None,
        Argument(
            metavar="HOST...",
            help="Boards: HOST or USER@HOST as for ssh, or 'local' for this machine. With --check:"
            " optionally a build folder.",
        ),
    ] = None,
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            callback=writes(is_checked_later=True),
            readable=False,
            help="Platform file to create; '-': standard output.",
        ),
    ] = Path("platform.yaml"),
    check: Annotated[
        str | None,
        Option(
            metavar="PLATFORM", help="Check the boards of this platform file for problems instead."
        ),
    ] = None,
    mpirun: Annotated[
        Path | None, Option(readable=False, help="With --check: path of Open MPI's mpirun.")
    ] = None,
    ssh_config: SshConfig = None,
    force: Annotated[bool, Option("--force", help="Replace an existing platform file.")] = False,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    if check is not None:
        _check_platform(check, hosts or [], mpirun, ssh_config, json_file)
        return
    from rankslice.commands.probe.platform_file import measured_pairs, platform_text
    from rankslice.commands.probe.probe import probe as probe_boards
    from rankslice.commands.probe.show import print_probed

    if not hosts:
        raise typer.BadParameter("which boards? Name them, or 'local'", param_hint="HOST...")
    if mpirun is not None:
        raise RankSliceError(Mistake("--mpirun", "needs --check", "leave it out"))
    out = check_output(out, "--out", PLATFORM, force=force)
    with talk.status("asking boards") as status:
        found = probe_boards(hosts, ssh_config=ssh_config, on_step=status.update)
    if STDOUT not in (out, json_file):
        print_probed(found.probed, screen)
    if found.errors:
        mistakes = [mistake for error in found.errors for mistake in error.mistakes]
        raise RankSliceError(*mistakes)
    for pair in measured_pairs(found.probed.routes):
        for complaint in pair.complaints:
            print_line(talk, f"{complaint}; is there a firewall?", "warning")
    write_json(json_file, found.probed.to_json())
    out = check_output(out, "--out", PLATFORM, force=force)  # measuring took its time
    write_output(out, platform_text(found.probed), "--out")
    if STDOUT not in (out, json_file):
        print_line(screen, f"written to {out!s}")


def _check_platform(
    platform: str,
    folders: Sequence[str],
    mpirun: Path | None,
    ssh_config: Path | None,
    json_file: Path | None,
) -> None:
    """Show what would keep a job from running on the boards of a platform."""
    from rankslice.commands.probe.check_platform import check_platform
    from rankslice.commands.probe.findings import FAIL
    from rankslice.commands.probe.show import print_findings

    if len(folders) > 1:
        found = "--check takes at most one build folder"
        raise typer.BadParameter(f"{found}, not {len(folders)}", param_hint="HOST...")
    out = Path(folders[0]) if folders else None
    with talk.status("reading") as status:
        findings = check_platform(
            platform, out, mpirun=mpirun, ssh_config=ssh_config, on_step=status.update
        )
    write_json(json_file, {"findings": [finding.to_json() for finding in findings]})
    if json_file != STDOUT:
        print_findings(findings, screen)
    failed = sum(finding.state == FAIL for finding in findings)
    if failed:
        raise RankSliceError(f"{failed} of {len(findings)} checks failed")
