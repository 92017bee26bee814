"""The options of ``rankslice replay``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import STDOUT, write_json
from rankslice.framework.option_records import about
from rankslice.session.shared_options import Json
from rankslice.views.terminal import progress_bars, screen

if TYPE_CHECKING:
    from rankslice.session.verification.replay import Replayed

_MAX_FRAMES = 1_000_000


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of frames in a text such as ``0-4,7``."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends):
            raise ValueError(f"{text!r} is not of the form 0-4,7")
        begin, end = map(int, ends)
        if end < begin:
            raise ValueError(f"{text!r} has a range that ends before it begins")
        if end - begin >= _MAX_FRAMES:
            raise ValueError(f"{text!r} has more than {_MAX_FRAMES} frames")
        found.update(range(begin, end + 1))
    return tuple(sorted(found))


Frames = Annotated[
    tuple[int, ...] | None,
    about("Numbers of frames (default: all recorded ones).", _numbers, metavar="A-B,C", least=0),
]


@function
def replay(
    folder: Annotated[
        Path,
        about("Folder made by 'rankslice run --record'.", Path, is_argument=True, metavar="DIR"),
    ],
    rank: Annotated[int, about("Number of the rank to run.", int, least=0)],
    *,
    engine: Annotated[
        str | None,
        about("Engine to run on CPU cores, such as onnxruntime (default: the rank's own).", str),
    ] = None,
    frames: Frames = None,
    build: Annotated[
        Path | None,
        about(
            "Build folder whose sub-models to run instead of the recorded ones; it must have the"
            " same cuts.",
            Path,
        ),
    ] = None,
    on_frame: Callable[[int], None] = lambda count: None,
) -> Replayed:
    """Run one rank alone on the tensors of a recorded run, and compare what it makes.

    Raises:
        RankSliceError: the folder is no recording, or the rank cannot be run here.
    """
    from rankslice.session.verification.replay import replay as replay_recorded

    return replay_recorded(
        folder, rank, engine=engine, frames=frames, build=build, on_frame=on_frame
    )


@command(
    "replay",
    "recorded --rank 1",
    "recorded --rank 1 --frames 0-4,7 --build other-build",
    calls=replay,
)
def show_replay(call: Callable[..., Replayed], frames: Frames = None, json: Json = None) -> None:
    from rankslice.commands.replay.show import print_replayed

    with progress_bars() as bars:
        work = bars.add_task("replaying", total=None if frames is None else len(frames))
        replayed = call(on_frame=lambda count: bars.update(work, completed=count))
    if json is not None:
        write_json(json, replayed.to_json())
    if json != STDOUT:
        print_replayed(replayed, screen)
