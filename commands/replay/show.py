"""A replayed rank, printed."""

from __future__ import annotations

from rich.console import Console

from rankslice.backend.runtime.summary.rates import frames_text
from rankslice.framework.wording import on_one_line
from rankslice.measurement.verify import Difference
from rankslice.session.verification.replay import Replayed
from rankslice.views.content import Notice, Table
from rankslice.views.terminal import shortened, show


def print_replayed(replayed: Replayed, console: Console) -> None:
    rows = tuple(
        (
            *(str(tensor.segment), tensor.name, tensor.dtype),
            *(f"{tensor.difference.absolute:.3g}", f"{tensor.difference.relative:.3g}"),
            _equality(tensor.difference),
        )
        for tensor in replayed.tensors
    )
    caption = f"{frames_text(len(replayed.frames))} of rank {replayed.rank}"
    head = ("segment", "tensor", "type", "max difference", "of range", "bit-equal")
    show(console, Table(caption, head, rows))
    for segment in replayed.segments:
        times = segment.compute_ms
        first = f"; first frame {segment.first_ms:.2f} ms" if segment.frames > 1 else ""
        text = f"compute p50 {times['p50']:.2f} ms, p99 {times['p99']:.2f} ms{first}"
        show(console, f"segment {segment.segment}: {text}")
    show(console, _verdict(replayed), Notice("Notes", replayed.notes, "note"))


def _equality(difference: Difference) -> str:
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
    name = shortened(first.name)
    return on_one_line(f"not what was recorded, first in {name!r} ({here})")
