"""The options of ``rankslice replay``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import STDOUT, write_json
from rankslice.framework.option_records import about
from rankslice.framework.wording import on_one_line, time_text
from rankslice.session.shared_options import Json
from rankslice.views.content import Notice, Part, Table
from rankslice.views.terminal import Bars, screen, shortened, show

if TYPE_CHECKING:
    from rankslice.measurement.verify import Difference
    from rankslice.session.verification.replay import Replayed

_MAX_FRAMES = 1_000_000


def _numbers(text: str) -> tuple[int, ...]:
    numbers: set[int] = set()
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
        numbers.update(range(begin, end + 1))
    return tuple(sorted(numbers))


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
    with Bars() as bars:
        replayed = call(
            on_frame=bars.counting("replaying", None if frames is None else len(frames))
        )
    if json is not None:
        write_json(json, replayed.to_json())
    if json != STDOUT:
        show(screen, *_parts(replayed))


def _parts(replayed: Replayed) -> Iterator[Part | str]:
    from rankslice.backend.runtime.summary.rates import frames_text

    rows = tuple(
        (
            *(str(tensor.segment), tensor.name, tensor.dtype),
            *(f"{tensor.difference.absolute:.3g}", f"{tensor.difference.relative:.3g}"),
            _equality(tensor.difference),
        )
        for tensor in replayed.tensors
    )
    head = ("segment", "tensor", "type", "max difference", "of range", "bit-equal")
    yield Table(f"{frames_text(len(replayed.frames))} of rank {replayed.rank}", head, rows)
    for segment in replayed.segments:
        times = segment.compute_ms
        first = f"; first frame {time_text(segment.first_ms)}" if segment.frames > 1 else ""
        text = f"compute p50 {time_text(times['p50'])}, p99 {time_text(times['p99'])}{first}"
        yield f"segment {segment.segment}: {text}"
    yield _verdict(replayed)
    yield Notice("Notes", replayed.notes, "note")


def _equality(difference: Difference) -> str:
    from rankslice.backend.runtime.summary.rates import frames_text

    if difference.other_shapes:
        return f"other shape in {frames_text(difference.other_shapes)}"
    return "yes" if difference.bit_equal else f"no, from frame {difference.first} on"


def _verdict(replayed: Replayed) -> str:
    here = f"{replayed.version} here"
    if replayed.engine != replayed.recorded_engine:
        here += f", {replayed.recorded_engine} when it was recorded"
    if replayed.bit_equal:
        return f"bit-equal to what was recorded ({here})"
    first = next(tensor for tensor in replayed.tensors if not tensor.difference.bit_equal)
    return on_one_line(f"not what was recorded, first in {shortened(first.name)!r} ({here})")
