"""What the ranks of a failed job did last, read strictly from a build folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from rankslice.backend.runtime.figures.events import NAME
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import Only, read_document
from rankslice.measurement.trace import (
    FAILURE,
    FAILURE_VERSION,
    LAST_FAILURE,
    MAX_BYTES,
)
from rankslice.measurement.trace.clocks import samples_by_board
from rankslice.measurement.trace.trace_events import (
    EVENTS,
    RankEvents,
    Trace,
    on_one_clock,
    read_events,
)


def _are_samples(by_board: object) -> bool:
    return samples_by_board(by_board) is not None


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that has failed."""

    time: str
    """When: ISO 8601, UTC."""
    message: tuple[str, ...]
    """Why, in lines."""
    missing: tuple[int, ...]
    """Ranks whose events could not be kept."""
    job_sha256: str
    clocks: Annotated[
        dict[str, tuple[tuple[int, ...], ...]], Only(_are_samples, "samples of clocks")
    ]
    """Samples of a board's clock and that of the launcher, by board."""


def failure_of(folder: Path) -> Failure:
    """Read when and why the job that failed last in a build folder did so.

    Raises:
        RankSliceError: none has failed, or the file cannot be read, or is something else.
    """
    path = folder / LAST_FAILURE / FAILURE
    if not path.exists():
        found = "no job of this build folder has failed since it was built"
        raise RankSliceError(Mistake(str(folder), found))
    content = read_ordinary(path, "expected what a failed job has left", MAX_BYTES)
    text, remedy = content.decode(errors="replace"), "run the job again"
    head = ("failure", FAILURE_VERSION, "rankslice run", remedy)
    return read_document(Failure, text, str(path), *head)


def read_failure(folder: Path, plan: Plan) -> Trace:
    """Read the last events of each rank in the job that failed last; some may have none.

    Raises:
        RankSliceError: no job has failed, or a file cannot be read, or is something else.
    """
    failure = failure_of(folder)
    ranks = [
        RankEvents(rank, np.empty(0, EVENTS), None, {})
        if rank in failure.missing
        else read_events(folder / LAST_FAILURE / f"{NAME}{rank}", rank, failure.job_sha256)
        for rank in range(len(plan.ranks))
    ]
    return on_one_clock(plan, ranks, samples_by_board(failure.clocks) or {})
