"""The options of ``rankslice simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    Arrivals,
    AtMost,
    Fps,
    Json,
    Shape,
    Window,
    parse_sizes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import screen, write_json
from rankslice.commands.switching import (
    NormalAfter,
    NormalBelow,
    NormalFps,
    SurgeAbove,
    SurgeQueue,
    Switch,
    SwitchTo,
)
from rankslice.framework.files.output_file import STDOUT, SVG, write_output
from rankslice.session.arrival_times import USUAL, check_switching


@command(
    "out --profile profile.json --frames 500 --fps 30",
    "model.onnx --mapping mapping.json --profile profile.json --svg timeline.svg",
)
def simulate(
    context: typer.Context,
    target: Annotated[Path, Argument(readable=False, help="Build folder or model.")],
    mapping: Annotated[
        Path | None, Option(readable=False, help="For a model: mapping file.")
    ] = None,
    platform: Annotated[
        str | None,
        Option(help="Platform file with boards and links (default: the folder's; 'local')."),
    ] = None,
    profile: Annotated[
        Path | None, Option(readable=False, help="Profile of the layers, made by 'profile'.")
    ] = None,
    shape: Shape = None,
    at_most: AtMost = None,
    frames: Annotated[
        int | None,
        Option(
            min=1, max=10_000_000, help="Number of frames (default: 1000, or all of --arrivals)."
        ),
    ] = None,
    fps: Fps = None,
    arrivals: Arrivals = None,
    switch: SwitchTo = Switch.auto,
    normal_fps: NormalFps = None,
    surge_queue: SurgeQueue = None,
    surge_above: SurgeAbove = USUAL.surge_above,
    normal_below: NormalBelow = USUAL.normal_below,
    normal_after: NormalAfter = USUAL.normal_after_s,
    window: Window = None,
    queue: Annotated[
        int | None,
        Option(min=1, help="Maximum number of waiting frames (default: those of one second)."),
    ] = None,
    read_ms: Annotated[
        float | None,
        Option(
            min=0,
            max=1e6,
            help="Time to read a frame, as 'run' shows it (default: that of copying it).",
        ),
    ] = None,
    scatter: Annotated[
        bool, Option("--scatter", help="Vary times from frame to frame like the measured ones.")
    ] = False,
    jitter: Annotated[
        float,
        Option(
            min=0,
            max=10,
            help="Instead of --scatter: standard deviation of times, relative to the mean.",
        ),
    ] = 0.0,
    seed: Annotated[
        int, Option(min=0, help="Random seed of --scatter, --jitter and of sizes that change.")
    ] = 0,
    svg: Annotated[
        Path | None,
        Option(
            callback=writes(SVG),
            readable=False,
            help="Draw a timeline of the first frames as SVG; '-': standard output.",
        ),
    ] = None,
    drawn: Annotated[int, Option(min=1, max=1000, help="Number of frames in the drawing.")] = 12,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.backend.runtime.options import RunOptions
    from rankslice.commands.simulate.show import print_simulation
    from rankslice.commands.simulate.simulate import (
        Scatter,
        SimulationOptions,
        Traffic,
        simulate as simulate_job,
    )
    from rankslice.session.arrival_times import read_arrival_times
    from rankslice.views.simulated_timeline import simulated_timeline

    if arrivals is not None:
        refuse_with("--arrivals", fps=fps)
    if scatter:
        refuse_with("--scatter", jitter=jitter)
    switching = RunOptions(
        queue=queue,
        switch=switch.value,
        normal_fps=normal_fps,
        surge_queue=surge_queue,
        surge_above=surge_above,
        normal_below=normal_below,
        normal_after_s=normal_after,
    )
    check_switching(switching)
    simulated = simulate_job(
        target,
        mapping=mapping,
        platform=platform,
        profile=profile,
        sizes=parse_sizes(shape, at_most),
        options=SimulationOptions(
            Traffic(
                frames,
                fps,
                None if arrivals is None else read_arrival_times(arrivals),
                window,
                queue,
                None if read_ms is None else 1e-3 * read_ms,
            ),
            Scatter(scatter, jitter, seed),
            traced=drawn if svg is not None else 0,
            switching=switching,
        ),
    )
    if svg is not None:
        write_output(svg, simulated_timeline(simulated.plan, simulated.simulation), "--svg")
    write_json(json_file, simulated.to_json())
    if STDOUT not in (svg, json_file):
        print_simulation(simulated, screen)
