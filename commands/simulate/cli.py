"""The options of ``rankslice simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankslice.commands.app import command
from rankslice.commands.options import (
    Fps,
    Json,
    Shape,
    Window,
    parse_shapes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import screen, write_json
from rankslice.framework.files.output_file import STDOUT, SVG, write_output


@command(
    "out --profile profile.json --frames 500 --fps 30",
    "model.onnx --mapping mapping.json --profile profile.json --svg timeline.svg",
)
def simulate(
    context: typer.Context,
    target: Annotated[
        Path,
        typer.Argument(readable=False, help="A folder made by 'build', or a model."),
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="Of a model: which layers go to which accelerator."),
    ] = None,
    platform: Annotated[
        str | None,
        typer.Option(help="YAML or .txt: the boards and their links (default: 'local')."),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(readable=False, help="How long layers take: made by 'profile'."),
    ] = None,
    shape: Shape = None,
    frames: Annotated[
        int | None,
        typer.Option(min=1, max=10_000_000, help="How many frames (default: 1000, or the trace)."),
    ] = None,
    fps: Fps = None,
    trace: Annotated[
        Path | None,
        typer.Option(readable=False, help="Instead: a file with each arrival's second, a line."),
    ] = None,
    window: Window = None,
    queue: Annotated[
        int | None,
        typer.Option(min=1, help="Frames that may wait (default: those of a second)."),
    ] = None,
    scatter: Annotated[
        bool,
        typer.Option("--scatter", help="Let times differ from frame to frame as measured ones do."),
    ] = False,
    jitter: Annotated[
        float,
        typer.Option(
            min=0, max=10, help="Instead: standard deviation of times, as a share of the mean."
        ),
    ] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="Of --scatter and --jitter.")] = 0,
    svg: Annotated[
        Path | None,
        typer.Option(
            callback=writes(SVG),
            readable=False,
            help="Draw which rank computes which of the first frames when; '-' for stdout.",
        ),
    ] = None,
    drawn: Annotated[int, typer.Option(min=1, max=1000, help="Frames in the drawing.")] = 12,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.simulate.show import print_simulation
    from rankslice.commands.simulate.simulate import Scatter, SimulationOptions, Traffic, read_trace
    from rankslice.commands.simulate.simulate import simulate as simulate_job
    from rankslice.commands.simulate.timeline import timeline_of

    if trace is not None:
        refuse_with("--trace", fps=fps)
    if scatter:
        refuse_with("--scatter", jitter=jitter)
    simulated = simulate_job(
        target,
        mapping=mapping,
        platform=platform,
        profile=profile,
        shapes=parse_shapes(shape),
        options=SimulationOptions(
            Traffic(frames, fps, None if trace is None else read_trace(trace), window, queue),
            Scatter(scatter, jitter, seed),
            traced=drawn if svg is not None else 0,
        ),
    )
    if svg is not None:
        write_output(svg, timeline_of(simulated), "--svg")
    write_json(json_file, simulated.to_json())
    if STDOUT not in (svg, json_file):
        print_simulation(simulated, screen)
