"""Commands that measure: ``profile`` a model's layers, ``probe`` the boards."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rankslice.commands.app import app
from rankslice.commands.options import (
    Boards,
    Json,
    Shape,
    SshConfig,
    parse_shapes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import end_interrupted, progress_bars, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import (
    PLATFORM,
    PROFILE,
    STDOUT,
    check_output,
    write_output,
)
from rankslice.framework.specs.keys import split_keys


@app.command(
    epilog="Examples: rankslice profile model.onnx --platform boards.yaml -o profile.json"
    " | rankslice profile models/digits.onnx --per-core --alone -o digits.json"
)
def profile(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(readable=False, help="An .onnx or .tflite model.")],
    platform: Boards = "local",
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=writes(PROFILE, may_be_stream=False),
            readable=False,
            help="File to make, or to go on with: only what it lacks is measured.",
        ),
    ] = Path("profile.json"),
    accelerators: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY,...",
            help="Mapping keys to measure, separated by commas (default: each board's CPU with all"
            " its cores, each GPU, each NPU).",
        ),
    ] = None,
    per_core: Annotated[
        bool, typer.Option("--per-core", help="Measure single cores of CPUs instead of all cores.")
    ] = False,
    alone: Annotated[
        bool,
        typer.Option(
            "--alone",
            help="Leave a board's other accelerators idle meanwhile (default: they compute, as in"
            " a pipeline).",
        ),
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Measure everything anew, whatever the file has.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Measure everything once more, beside what the file has: for machines whose speed"
            " changes.",
        ),
    ] = False,
    refine: Annotated[
        bool,
        typer.Option(
            "--refine/--no-refine",
            help="Also measure the slices of the fastest pipeline, until what is expected of them"
            " is what they take.",
        ),
    ] = True,
    shape: Shape = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Begin nothing more after this time: the most telling slices are measured first,"
            " and what was left out is said.",
        ),
    ] = None,
    venv: Annotated[
        bool, typer.Option("--venv", help="Also make each board's Python environment.")
    ] = False,
    wheels: Annotated[
        str,
        typer.Option(
            metavar="DIR|download",
            help="Make it without the board's internet: from a folder of wheels, or from what this"
            " machine downloads.",
        ),
    ] = "",
    ssh_config: SshConfig = None,
    json_file: Json = None,
) -> None:
    """Measure how long layers and slices take on each kind of accelerator of each kind of board."""
    refuse_shared_files(context)
    from rankslice.commands.profile.profile import Measuring, measure_model
    from rankslice.commands.profile.show import (
        ProfileTalk,
        print_left_out,
        print_profile,
        profile_summary,
    )

    if fresh:
        refuse_with("--fresh", again=again)
    with progress_bars() as progress:
        measuring = Measuring(
            model,
            platform,
            out,
            keys=split_keys(accelerators or ""),
            per_core=per_core,
            shapes=parse_shapes(shape),
            alone=alone,
            fresh=fresh,
            again=again,
            venv=venv or bool(wheels),
            wheels=wheels,
            ssh_config=ssh_config,
            listener=ProfileTalk(talk, progress),
        )
        try:
            with measuring:
                refinement = measure_model(measuring, refined=refine, seconds=seconds)
        except KeyboardInterrupt:
            end_interrupted([out] if out.exists() else [])
    if json_file is not None:
        summary = profile_summary(measuring.profile, refinement)
        left_out = [each.to_json() for each in measuring.left_out()]
        write_json(json_file, {**summary, "left_out": left_out})
    if json_file != STDOUT:
        print_profile(measuring.profile, refinement, out, screen)
        print_left_out(measuring.left_out(), screen)


@app.command(
    epilog="Examples: rankslice probe pi@192.168.1.11 pi@192.168.1.12 --out boards.yaml"
    " | rankslice probe --check boards.yaml | rankslice probe --check boards.yaml out"
)
def probe(
    context: typer.Context,
    hosts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HOST...",
            help="Boards as ssh knows them, HOST or USER@HOST; 'local': this machine."
            " With --check: a folder made by 'build', if at all.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            callback=writes(is_checked_later=True),
            readable=False,
            help="Platform file to make; '-' for stdout.",
        ),
    ] = Path("platform.yaml"),
    check: Annotated[
        str | None,
        typer.Option(
            metavar="PLATFORM",
            help="Instead: tell what would keep a job from running on the boards of this file.",
        ),
    ] = None,
    mpirun: Annotated[
        Path | None, typer.Option(readable=False, help="With --check: Open MPI's mpirun to use.")
    ] = None,
    ssh_config: SshConfig = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an older platform file.")] = False,
    json_file: Json = None,
) -> None:
    """Ask boards what they have, measure what connects them, and write it as a platform file."""
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
        raise RankSliceError(Mistake("--mpirun", "means nothing without --check", "leave it out"))
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
            warning = f"[yellow]warning:[/yellow] {escape(complaint)}; is there a firewall?"
            talk.print(warning, soft_wrap=True)
    if json_file is not None:
        write_json(json_file, found.probed.to_json())
    out = check_output(out, "--out", PLATFORM, force=force)  # measuring took its time
    write_output(out, platform_text(found.probed), "--out")
    if STDOUT not in (out, json_file):
        screen.print(f"written to {escape(str(out))}", soft_wrap=True)


def _check_platform(
    platform: str,
    folders: Sequence[str],
    mpirun: Path | None,
    ssh_config: Path | None,
    json_file: Path | None,
) -> None:
    """Show what would keep a job from running on the boards of a platform."""
    from rankslice.commands.probe.check import FAIL, check_platform
    from rankslice.commands.probe.show import print_findings

    if len(folders) > 1:
        found = "with --check there can be one build folder"
        raise typer.BadParameter(f"{found}, not {len(folders)}", param_hint="HOST...")
    out = Path(folders[0]) if folders else None
    with talk.status("reading") as status:
        findings = check_platform(
            platform, out, mpirun=mpirun, ssh_config=ssh_config, on_step=status.update
        )
    if json_file is not None:
        write_json(json_file, {"findings": [finding.to_json() for finding in findings]})
    if json_file != STDOUT:
        print_findings(findings, screen)
    failed = sum(finding.state == FAIL for finding in findings)
    if failed:
        raise RankSliceError(f"{failed} of {len(findings)} checks failed")
