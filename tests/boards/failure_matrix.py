"""The failure matrix: how jobs ended that came to harm, as a table after the tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

ENDS = pytest.StashKey[list["End"]]()
"""What the tests of a session have seen."""


@dataclass(frozen=True)
class End:
    """How a job ended that came to harm."""

    fault: str
    place: str
    """Of the board: source, middle, sink, or one of two that take turns."""
    open_mpi: str
    seconds: float
    """From the fault to the launcher's end; before the start: the time of the whole command."""
    clean_s: float
    """From the fault until no process of the job was on any board."""
    left: int
    """Processes of the job on all boards when the bound had passed."""
    kept: int
    """Frames whose results were there afterwards."""
    load: float
    """What there was to compute, in units of what the machine's cores can."""
    message: str


def table(ends: Sequence[End]) -> list[str]:
    """Return the lines of a table in Markdown, in the order in which the tests ran."""
    rows = [
        f"| {end.fault} | {end.place} | {end.open_mpi} | {end.seconds:.1f} | {end.clean_s:.1f} |"
        f" {end.left} | {end.kept} | {end.load:.1f} | {end.message} |"
        for end in ends
    ]
    head = (
        "| fault | board | Open MPI | job over after, s | boards clean after, s |"
        " processes left | frames kept | load | message |"
    )
    return [head, "|---|---|---|---|---|---|---|---|---|", *rows]
