"""The options of ``rankslice profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    AtMost,
    Boards,
    ImageLayout,
    Json,
    Layout,
    Mean,
    OnnxOrTflite,
    Scale,
    Shape,
    SshConfig,
    parse_preprocessing,
    parse_sizes,
    refuse_shared_files,
    refuse_with,
    refuse_without,
    writes,
)
from rankslice.commands.output import end_interrupted, progress_bars, screen, talk, write_json
from rankslice.framework.files.output_file import PROFILE, STDOUT
from rankslice.framework.specs.keys import split_keys


@command(
    "model.onnx --platform boards.yaml -o profile.json",
    "models/digits.onnx --per-core --alone -o digits.json",
)
def profile(
    context: typer.Context,
    model: OnnxOrTflite,
    platform: Boards = "local",
    out: Annotated[
        Path,
        Option(
            "--out",
            "-o",
            callback=writes(PROFILE, may_be_stream=False),
            readable=False,
            help="Profile to create or to complete: only what is missing is measured.",
        ),
    ] = Path("profile.json"),
    accelerators: Annotated[
        str | None,
        Option(
            metavar="KEY,KEY,...",
            help="Mapping keys to measure (default: all cores of each CPU, each GPU, each NPU).",
        ),
    ] = None,
    per_core: Annotated[
        bool, Option("--per-core", help="Measure single CPU cores instead of all cores together.")
    ] = False,
    alone: Annotated[
        bool,
        Option(
            "--alone",
            help="Keep the board's other accelerators idle (default: they compute, as in a"
            " pipeline).",
        ),
    ] = False,
    fresh: Annotated[bool, Option("--fresh", help="Discard existing measurements.")] = False,
    again: Annotated[
        bool,
        Option(
            "--again",
            help="Repeat all measurements and keep the existing ones, for machines whose speed"
            " varies.",
        ),
    ] = False,
    refine: Annotated[
        bool,
        Option(
            "--refine/--no-refine",
            help="Also measure the slices of the fastest pipeline until prediction and measurement"
            " agree.",
        ),
    ] = True,
    shape: Shape = None,
    at_most: AtMost = None,
    input: Annotated[
        list[str] | None,
        Option(
            help="Representative frames for a model whose sizes change: files or a folder, as for"
            " 'run'. Default: random values of the largest sizes."
        ),
    ] = None,
    layout: ImageLayout = Layout.nchw,
    size: Annotated[
        str | None, Option(help="Resize images of --input to HxW, as 'run' does.")
    ] = None,
    mean: Mean = None,
    scale: Scale = None,
    seconds: Annotated[
        float | None,
        Option(
            min=1, help="Time limit in seconds: the most informative slices are measured first."
        ),
    ] = None,
    venv: Annotated[
        bool, Option("--venv", help="Also create the Python environment on each board.")
    ] = False,
    wheels: Annotated[
        str,
        Option(
            metavar="DIR|download",
            help="Like --venv, for boards without internet access: from a folder of wheels, or from"
            " wheels that this machine downloads.",
        ),
    ] = "",
    ssh_config: SshConfig = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.profile.options import ProfileOptions
    from rankslice.commands.profile.profiler import Profiler, profile_model
    from rankslice.commands.profile.show import (
        ProfileTalk,
        print_left_out,
        print_profile,
        profile_summary,
    )

    if fresh:
        refuse_with("--fresh", again=again)
    if not input:
        refuse_without(context, "--input", "layout", "size", "mean", "scale")
    with progress_bars() as progress:
        profiler = Profiler(
            model,
            platform,
            out,
            ProfileOptions(
                keys=split_keys(accelerators or "", "--accelerators"),
                per_core=per_core,
                sizes=parse_sizes(shape, at_most),
                inputs=tuple(input or ()),
                preprocessing=parse_preprocessing(layout, size, mean, scale),
                alone=alone,
                fresh=fresh,
                again=again,
                venv=venv or bool(wheels),
                wheels=wheels,
                ssh_config=ssh_config,
            ),
            listener=ProfileTalk(talk, progress),
        )
        try:
            with profiler:
                refinement = profile_model(profiler, refined=refine, seconds=seconds)
        except KeyboardInterrupt:
            end_interrupted([out] if out.exists() else [])
    if json_file is not None:
        summary = profile_summary(profiler.profile, refinement)
        left_out = [each.to_json() for each in profiler.left_out()]
        write_json(json_file, {**summary, "left_out": left_out})
    if json_file != STDOUT:
        print_profile(profiler.profile, refinement, out, screen)
        print_left_out(profiler.left_out(), screen)
