"""The options of ``rankslice trace``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rankslice.backend.runtime.sources import usage
from rankslice.commands.app import command
from rankslice.commands.options import (
    BuildFolder,
    Fps,
    FrameTimeout,
    ImageLayout,
    Json,
    Layout,
    Mean,
    Mpirun,
    NoDirect,
    Scale,
    Size,
    SshConfig,
    StartTimeout,
    Window,
    parse_preprocessing,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import print_line, progress_bars, screen, write_json
from rankslice.framework.files.output_file import PAGE, PERFETTO, STDOUT
from rankslice.framework.wording import on_one_line


@command(
    "out --frames 200",
    "out --input photos/ --perfetto trace.perfetto-trace",
    "out --failure",
)
def trace(
    context: typer.Context,
    folder: BuildFolder,
    input: Annotated[list[str] | None, Option(help=f"Where frames come from: {usage()}.")] = None,
    frames: Annotated[
        int | None,
        Option(min=2, help="Number of frames (default: all; 100 for random input)."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Random seed.")] = 0,
    fps: Fps = None,
    window: Window = None,
    no_direct: NoDirect = False,
    operators: Annotated[
        bool,
        Option(
            "--operators",
            help="Also show the operators of each segment, and when the accelerator ran them"
            " (onnxruntime).",
        ),
    ] = False,
    layout: ImageLayout = Layout.nchw,
    size: Size = None,
    mean: Mean = None,
    scale: Scale = None,
    failure: Annotated[
        bool,
        Option(
            "--failure",
            help="Show what the ranks of the last failed job did, without running anything.",
        ),
    ] = False,
    html: Annotated[
        Path | None,
        Option(
            callback=writes(PAGE),
            readable=False,
            help="Write a page with a timeline (default: OUT/trace.html); '-': standard output.",
        ),
    ] = None,
    perfetto: Annotated[
        Path | None,
        Option(
            callback=writes(PERFETTO),
            readable=False,
            help="Write a trace that Perfetto opens; needs the extra 'perfetto'.",
        ),
    ] = None,
    frame_timeout: FrameTimeout = None,
    start_timeout: StartTimeout = None,
    mpirun: Mpirun = None,
    ssh_config: SshConfig = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.backend.runtime.options import RunOptions
    from rankslice.commands.trace.show import print_traced
    from rankslice.commands.trace.trace import (
        page_of,
        prepare_trace,
        trace_failure,
        trace_run,
        write_page,
        write_perfetto,
    )
    from rankslice.views.perfetto_file import check_perfetto

    if perfetto is not None:
        check_perfetto("--perfetto")
    page = html or page_of(folder)
    if failure:
        refuse_with("--failure", **{name: context.params[name] for name in _OF_A_RUN})
        traced = trace_failure(folder)
    else:
        options = RunOptions(
            inputs=tuple(input or ("random",)),
            frames=frames,
            seed=seed,
            fps=fps,
            window=window,
            direct=not no_direct,
            frame_timeout_s=frame_timeout,
            start_timeout_s=start_timeout,
            preprocessing=parse_preprocessing(layout, size, mean, scale),
        )
        prepared = prepare_trace(
            folder, options, operators=operators, mpirun=mpirun, ssh_config=ssh_config
        )
        with progress_bars() as bars:
            task = bars.add_task("running", total=prepared.source.frames)
            traced = trace_run(
                prepared,
                lambda count: bars.update(task, completed=count),
                command=("rankslice", *sys.argv[1:]),
            )
    is_told = STDOUT not in (page, perfetto, json_file)
    if is_told:  # even if there is no room to write it
        print_traced(traced, screen)
    write_page(traced, page)
    if perfetto is not None:
        write_perfetto(traced, perfetto)
    write_json(json_file, traced.to_json())
    if is_told:
        print_line(screen, on_one_line(f"timeline: {page}"))
        if perfetto is not None:
            print_line(screen, on_one_line(f"for Perfetto: {perfetto}"))


_OF_A_RUN = (
    *("input", "frames", "fps", "window", "no_direct", "operators", "size"),
    *("frame_timeout", "start_timeout", "mpirun", "ssh_config"),
)
"""Options that mean nothing with ``--failure``."""
