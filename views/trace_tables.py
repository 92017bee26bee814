"""Figures of a trace as texts, for terminal and page alike."""

from __future__ import annotations

from collections.abc import Iterator

from rankslice.framework.wording import digits
from rankslice.measurement.trace.journeys import Why
from rankslice.measurement.trace.path import Part
from rankslice.measurement.trace.words import Findings, part_name

RANK_HEAD = ("rank", "accelerator", "compute", "I/O", "input", "room", "frames", "rest", "send")
RANK_RIGHT = tuple(range(2, 9))
RANK_CAPTION = (
    "shares of the time: computing; reading frames and writing results; waiting for a tensor, for"
    " room, for frames from the source; the rest. Sending overlaps these"
)
PATH_HEAD = ("on the critical path", "of the time", "ms per frame")
_LEAST = 0.005
"""Of the critical path, that is worth a row."""


def rank_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    """Yield what each rank did with its time."""
    inputs = found.journeys.plan.inputs
    for use, rank in zip(found.ranks, found.journeys.plan.ranks, strict=True):
        from_source = sum(
            wait.share
            for wait in use.waits
            if wait.why is Why.frame or (wait.why is Why.input and wait.tensor in inputs)
        )
        shares = (
            use.compute,
            use.ends,
            use.waits_for(Why.input, Why.frame) - from_source,
            use.waits_for(Why.room, Why.window),
            from_source,
            use.rest,
            use.send,
        )
        yield str(use.rank), rank.key, *(f"{100 * max(0, s):.0f} %" for s in shares)


def path_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    """Yield what the critical path consists of, the largest first."""
    parts: list[tuple[Part, float]] = sorted(found.path.shares.items(), key=lambda each: -each[1])
    for part, share in parts:
        if share >= _LEAST:
            name = part_name(found.journeys.plan, part)
            yield name, f"{100 * share:.0f} %", digits(share * found.span.period_ms)
