"""The options of ``rankslice probe``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rankslice.commands.command import command
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import (
    PLATFORM,
    STDOUT,
    check_output,
    write_json,
    write_output,
)
from rankslice.framework.option_records import MisuseError, Writes, about, option
from rankslice.session.shared_options import Json, SshConfig
from rankslice.views.terminal import print_line, screen, talk


@dataclass(frozen=True, slots=True)
class Checking:
    """Which platform is checked, instead of measuring boards."""

    check: str | None = option(
        None,
        "Check the boards of this platform file for problems instead.",
        str,
        metavar="PLATFORM",
    )
    mpirun: Path | None = option(
        None, "With --check: path of Open MPI's mpirun.", Path, needs="check", is_executed=True
    )


@command(
    "probe",
    "pi@192.168.1.11 pi@192.168.1.12 --out boards.yaml",
    "--check boards.yaml",
    "--check boards.yaml out",
)
def probe(
    hosts: Annotated[
        tuple[str, ...],
        about(
            "Boards: HOST or USER@HOST as for ssh, or 'local' for this machine. With --check:"
            " optionally a build folder.",
            many=tuple,
            is_argument=True,
            metavar="HOST",
        ),
    ] = (),
    *,
    out: Annotated[
        Path,
        about(
            "Platform file to create; '-': standard output.",
            Path,
            writes=Writes(is_checked=False),
            alias=("-o",),
        ),
    ] = Path("platform.yaml"),
    checking: Checking,
    ssh_config: SshConfig = None,
    force: Annotated[bool, about("Replace an existing platform file.")] = False,
    json: Json = None,
) -> None:
    if checking.check is not None:
        _check_platform(checking.check, hosts, checking.mpirun, ssh_config, json)
        return
    from rankslice.commands.probe.show import print_probed
    from rankslice.session.probing.platform_file import measured_pairs, platform_text
    from rankslice.session.probing.probe import probe as probe_boards

    if not hosts:
        raise MisuseError(Mistake("HOST", "none is given", "name boards, or 'local'"))
    out = check_output(out, "--out", PLATFORM, force=force)
    with talk.status("asking boards") as status:
        probing = probe_boards(hosts, ssh_config=ssh_config, on_step=status.update)
    if STDOUT not in (out, json):
        print_probed(probing.probed, screen)
    if probing.errors:
        mistakes = [mistake for error in probing.errors for mistake in error.mistakes]
        raise RankSliceError(*mistakes)
    for pair in measured_pairs(probing.probed.routes):
        for complaint in pair.complaints:
            print_line(talk, f"{complaint}; is there a firewall?", "warning")
    write_json(json, probing.probed.to_json())
    out = check_output(out, "--out", PLATFORM, force=force)  # measuring took its time
    write_output(out, platform_text(probing.probed), "--out")
    if STDOUT not in (out, json):
        print_line(screen, f"written to {out!s}")


def _check_platform(
    platform: str,
    folders: Sequence[str],
    mpirun: Path | None,
    ssh_config: Path | None,
    json: Path | None,
) -> None:
    """Show what would keep a job from running on the boards of a platform."""
    from rankslice.commands.probe.show import print_findings
    from rankslice.session.probing.check_platform import FAIL, check_platform

    if len(folders) > 1:
        found = f"{len(folders)} are given"
        raise MisuseError(Mistake("HOST", found, "--check takes at most one build folder"))
    out = Path(folders[0]) if folders else None
    with talk.status("reading") as status:
        findings = check_platform(
            platform, out, mpirun=mpirun, ssh_config=ssh_config, on_step=status.update
        )
    write_json(json, {"findings": [finding.to_json() for finding in findings]})
    if json != STDOUT:
        print_findings(findings, screen)
    failed = sum(finding.state == FAIL for finding in findings)
    if failed:
        raise RankSliceError(f"{failed} of {len(findings)} checks failed")
