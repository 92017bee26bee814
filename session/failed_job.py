"""What each rank of a failed job did last, kept in the build folder until the next job fails."""

from __future__ import annotations

import json
import shlex
import shutil
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rankslice.backend.runtime.figures.events import NAME
from rankslice.framework.errors import RankSliceError
from rankslice.framework.files.new_folder import new_folder
from rankslice.measurement.trace import (
    CLOCKS,
    FAILURE,
    FAILURE_FORMAT,
    FAILURE_VERSION,
    LAST_FAILURE,
)
from rankslice.session.prepare import PreparedRun
from rankslice.session.run_folder import one_at_a_time

if TYPE_CHECKING:
    from rankslice.measurement.trace.trace_events import RankEvents


class FailedJobError(RankSliceError):
    def __init__(self, error: RankSliceError, folder: Path) -> None:
        super().__init__(*error.mistakes)
        self.hint = f"what each rank did last: rankslice trace {shlex.quote(str(folder))} --failure"
        """How to see it."""


def take_events(session: Path, into: Path) -> None:
    """Copy what each rank did last from the folder that the ranks of this machine share."""
    for path in session.glob(f"{NAME}*"):
        with suppress(OSError):
            shutil.copyfile(path, into / path.name, follow_symlinks=False)


def keep_failure(prepared: PreparedRun, folder: Path, error: RankSliceError) -> RankSliceError:
    """Bring what each rank did last, as far as it is in ``folder``, to the build folder.

    Returns a :class:`FailedJobError`; the error itself, if no rank did anything or nothing can be
    written.
    """
    job_sha256 = prepared.plan.job.sha256
    found = _readable(prepared, folder, job_sha256)
    if not any(len(rank.events) for rank in found):
        return error
    present = {rank.rank for rank in found}
    index = {
        "format": FAILURE_FORMAT,
        "version": FAILURE_VERSION,
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "message": str(error).splitlines(),
        "job_sha256": job_sha256,
        "missing": [rank for rank in range(len(prepared.plan.ranks)) if rank not in present],
        "clocks": _clocks_in(folder),
    }
    try:
        with (
            one_at_a_time(prepared.folder),
            new_folder(prepared.folder / LAST_FAILURE, replaces=lambda path: "") as kept,
        ):
            for rank in present:
                shutil.copyfile(folder / f"{NAME}{rank}", kept / f"{NAME}{rank}")
            (kept / FAILURE).write_text(json.dumps(index) + "\n")
    except RankSliceError:
        return error
    return FailedJobError(error, prepared.folder)


def _readable(prepared: PreparedRun, folder: Path, job_sha256: str) -> list[RankEvents]:
    from rankslice.measurement.trace.trace_events import read_events

    found = []
    for rank in range(len(prepared.plan.ranks)):
        with suppress(RankSliceError):
            found.append(read_events(folder / f"{NAME}{rank}", rank, job_sha256))
    return found


def _clocks_in(folder: Path) -> object:
    with suppress(FileNotFoundError):
        return json.loads((folder / CLOCKS).read_text())
    return {}
