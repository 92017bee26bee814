"""A replayed rank, printed."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rankslice.backend.runtime.summary.texts import frames_text
from rankslice.commands.output import new_table, print_line, shortened
from rankslice.commands.replay.replay import Replayed
from rankslice.framework.wording import on_one_line
from rankslice.measurement.verify import Difference


def print_replayed(replayed: Replayed, console: Console) -> None:
    table = new_table(
        ("segment", "tensor", "type", "max difference", "of range", "bit-equal"),
        right=range(3, 5),
        caption=f"{frames_text(len(replayed.frames))} of rank {replayed.rank}",
    )
    for tensor in replayed.tensors:
        found = tensor.difference
        table.add_row(
            str(tensor.segment),
            escape(shortened(tensor.name)),
            tensor.dtype,
            f"{found.absolute:.3g}",
            f"{found.relative:.3g}",
            _equality(found),
        )
    console.print(table)
    for segment in replayed.segments:
        times = segment.compute_ms
        first = f"; first frame {segment.first_ms:.2f} ms" if segment.frames > 1 else ""
        text = f"compute p50 {times['p50']:.2f} ms, p99 {times['p99']:.2f} ms{first}"
        print_line(console, f"segment {segment.segment}: {text}")
    print_line(console, _verdict(replayed))
    for note in replayed.notes:
        print_line(console, on_one_line(f"note: {note}"))


def _equality(found: Difference) -> str:
    if found.other_shapes:
        return f"other shape in {frames_text(found.other_shapes)}"
    return "yes" if found.bit_equal else f"no, from frame {found.first} on"


def _verdict(replayed: Replayed) -> str:
    here = f"{replayed.version} here"
    if replayed.engine != replayed.recorded_engine:
        here += f", {replayed.recorded_engine} when it was recorded"
    if replayed.bit_equal:
        return f"bit-equal to what was recorded ({here})"
    first = next(tensor for tensor in replayed.tensors if not tensor.difference.bit_equal)
    name = shortened(first.name)
    return on_one_line(f"not what was recorded, first in {name!r} ({here})")
