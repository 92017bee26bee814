"""The options of ``rankslice simulate``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import PAGE, STDOUT, write_json, write_output
from rankslice.framework.option_records import Writes, about, offered, option
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.session.arriving_frames import SWITCHING
from rankslice.session.shared_options import Json, MappingSource, OpenSizes, mapping_from
from rankslice.views.terminal import screen

if TYPE_CHECKING:
    from rankslice.session.exploring.simulate import Simulated


@dataclass(frozen=True, slots=True)
class Variation:
    """How times vary, and what it takes to read a frame."""

    read_ms: float | None = option(
        None,
        "Time to read a frame, as 'run' shows it (default: that of copying it).",
        float,
        least=0,
        most=1e6,
    )
    scatter: bool = option(
        False, "Vary times from frame to frame like the measured ones.", excludes=("jitter",)
    )
    jitter: float = option(
        0.0,
        "Instead of --scatter: standard deviation of times, relative to the mean.",
        float,
        least=0,
        most=10,
    )
    seed: int = option(
        0, "Random seed of --scatter, --jitter and of sizes that change.", int, least=0
    )


OfTheRun = Annotated[
    RunOptions,
    offered(
        *("frames", "fps", "arrivals", *SWITCHING, "window", "queue"),
        frames={
            "help": "Number of frames (default: 1000, or all of --arrivals).",
            "least": 1,
            "most": 10_000_000,
        },
        arrivals={"excludes": ("fps",)},
        fps={"excludes": ()},
    ),
]


@function
def simulate(
    target: Annotated[Path, about("Build folder or model.", Path, is_argument=True)],
    mapping: Annotated[MappingSource | None, about("For a model: mapping file.", Path)] = None,
    platform: Annotated[
        PlatformSource | None,
        about("Platform file with boards and links (default: the folder's; 'local').", str),
    ] = None,
    *,
    profile: Annotated[
        Path | None, about("Profile of the layers, made by 'profile'.", Path)
    ] = None,
    sizes: OpenSizes,
    options: OfTheRun,
    variation: Variation,
    traced: int = 0,
) -> Simulated:
    """Return what a job would show, without its boards.

    ``traced``: for how many frames from the first the events are kept.

    Raises:
        RankSliceError: a file cannot be read, or does not belong to the others; something was not
            profiled. All mistakes at once.
    """
    from rankslice.session.arriving_frames import arrivals_in
    from rankslice.session.exploring.simulate import (
        Scatter,
        SimulationOptions,
        Traffic,
        simulate as simulate_job,
    )

    arrivals, read_ms = options.arrivals, variation.read_ms
    return simulate_job(
        target,
        mapping=None if mapping is None else mapping_from(mapping),
        platform=platform,
        profile=profile,
        sizes=sizes.given,
        options=SimulationOptions(
            Traffic(
                options.frames,
                options.fps,
                None if arrivals is None else arrivals_in(arrivals),
                options.window,
                options.queue,
                None if read_ms is None else 1e-3 * read_ms,
            ),
            Scatter(variation.scatter, variation.jitter, variation.seed),
            traced=traced,
            switching=options,
        ),
    )


@command(
    "simulate",
    "out --profile profile.json --frames 500 --fps 30",
    "model.onnx --mapping mapping.json --profile profile.json --html timeline.html",
    calls=simulate,
)
def show_simulation(
    call: Callable[..., Simulated],
    html: Annotated[
        Path | None,
        about(
            "Write a page with a timeline of the first frames; '-': standard output.",
            Path,
            writes=Writes(PAGE),
        ),
    ] = None,
    drawn: Annotated[int, about("Number of frames on the page.", int, least=2, most=10_000)] = 100,
    json: Json = None,
) -> None:
    from rankslice.commands.simulate.show import print_simulation, simulated_page

    simulated = call(traced=drawn if html is not None else 0)
    if html is not None:
        write_output(html, simulated_page(simulated), "--html")
    write_json(json, simulated.to_json())
    if STDOUT not in (html, json):
        print_simulation(simulated, screen)
