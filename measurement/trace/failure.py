"""What the ranks of a failed job did last, read strictly from a build folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.figures.events import NAME
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import document_fields, read_record
from rankslice.measurement.trace import (
    FAILURE,
    FAILURE_VERSION,
    LAST_FAILURE,
    MAX_BYTES,
)
from rankslice.measurement.trace.clocks import Samples, samples_by_board
from rankslice.measurement.trace.trace_events import (
    EVENTS,
    RankEvents,
    Trace,
    on_one_clock,
    read_events,
)


@dataclass(frozen=True, slots=True)
class _Told:
    time: str
    """When: ISO 8601, UTC."""
    message: tuple[str, ...]
    """Why, in lines."""
    missing: tuple[int, ...]
    """Ranks whose events could not be kept."""
    job_sha256: str


@dataclass(frozen=True, slots=True)
class Failure(_Told):
    """A job that has failed."""

    clocks: dict[str, Samples]
    """Samples of a board's clock and that of the launcher, by board."""


def failure_of(folder: Path) -> Failure:
    """Return when and why the last job of a build folder that failed did so.

    Raises:
        RankSliceError: none has failed, or the file cannot be read, or is something else.
    """
    path = folder / LAST_FAILURE / FAILURE
    if not path.exists():
        found = "no job of this build folder has failed since it was built"
        raise RankSliceError(Mistake(str(folder), found))
    where = str(path)
    content = read_ordinary(path, "expected what a failed job has left", MAX_BYTES)
    text = content.decode(errors="replace")
    remedy = "run the job again"
    record = document_fields(text, where, "failure", FAILURE_VERSION, "rankslice run", remedy)
    clocks = samples_by_board(record.pop("clocks", None))
    if clocks is None:
        raise RankSliceError(Mistake(where, "has invalid samples of clocks"))
    return Failure(**asdict(read_record(_Told, record, where)), clocks=clocks)


def read_failure(folder: Path, plan: Plan) -> Trace:
    """Return what each rank did last in the job that failed last.

    Returns:
        A rank whose events could not be kept has none.

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
    return on_one_clock(plan, ranks, failure.clocks)
