"""The options of ``rankslice replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import Json, refuse_shared_files
from rankslice.commands.output import progress_bars, screen, write_json
from rankslice.framework.files.output_file import STDOUT

_MOST_FRAMES = 1_000_000


@command(
    "recorded --rank 1",
    "recorded --rank 1 --frames 0-4,7 --build other-build",
)
def replay(
    context: typer.Context,
    folder: Annotated[
        Path,
        Argument(metavar="DIR", readable=False, help="Folder made by 'rankslice run --record'."),
    ],
    rank: Annotated[int, Option(min=0, help="Number of the rank to run.")],
    engine: Annotated[
        str | None,
        Option(help="Engine to run on CPU cores, such as onnxruntime (default: the rank's own)."),
    ] = None,
    frames: Annotated[
        str | None,
        Option(metavar="A-B,C", help="Numbers of frames (default: all recorded ones)."),
    ] = None,
    build: Annotated[
        Path | None,
        Option(
            readable=False,
            help="Build folder whose sub-models to run instead of the recorded ones; it must have"
            " the same cuts.",
        ),
    ] = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    numbers = None if frames is None else _numbers(frames)
    from rankslice.commands.replay.replay import replay as replay_recorded
    from rankslice.commands.replay.show import print_replayed

    with progress_bars() as bars:
        work = bars.add_task("replaying", total=None if numbers is None else len(numbers))
        replayed = replay_recorded(
            folder,
            rank,
            engine=engine,
            frames=numbers,
            build=build,
            on_frame=lambda count: bars.update(work, completed=count),
        )
    if json_file is not None:
        write_json(json_file, replayed.to_json())
    if json_file != STDOUT:
        print_replayed(replayed, screen)


def _numbers(text: str) -> list[int]:
    """Return the numbers of frames in a text such as ``0-4,7``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends):
            raise typer.BadParameter(f"{text!r} is not of the form 0-4,7", param_hint="--frames")
        begin, end = map(int, ends)
        if end < begin:
            backwards = f"{text!r} has a range that ends before it begins"
            raise typer.BadParameter(backwards, param_hint="--frames")
        if end - begin >= _MOST_FRAMES:
            most = f"{text!r} has more than {_MOST_FRAMES} frames"
            raise typer.BadParameter(most, param_hint="--frames")
        found.update(range(begin, end + 1))
    return sorted(found)
