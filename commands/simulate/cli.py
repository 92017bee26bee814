"""The options of ``rankslice simulate``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import PAGE, STDOUT, write_json, write_output
from rankslice.framework.option_records import Writes, about, offered
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.session.arriving_frames import SWITCHING, Variation
from rankslice.session.shared_options import Json, MappingSource, OpenSizes, mapping_from
from rankslice.views.terminal import screen

if TYPE_CHECKING:
    from rankslice.session.exploring.simulate import Simulated


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
    from rankslice.session.exploring.simulate import simulate as simulate_job

    return simulate_job(
        target,
        mapping=None if mapping is None else mapping_from(mapping),
        platform=platform,
        profile=profile,
        sizes=sizes.given,
        options=options,
        variation=variation,
        traced=traced,
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
