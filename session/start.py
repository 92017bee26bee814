"""A job from its start to its end, in a folder of its own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from rankslice.backend.launch.job import run_job
from rankslice.backend.runtime.figures.events import NAME
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.new_folder import new_folder
from rankslice.framework.files.output_file import STDOUT, is_null, whole_file
from rankslice.measurement.trace import (
    CLOCKS,
    FAILURE,
    FAILURE_FORMAT,
    FAILURE_VERSION,
    LAST_FAILURE,
)
from rankslice.session.build_folder import REPORT
from rankslice.session.callbacks import NO_CALLBACKS, Callbacks
from rankslice.session.prepare import PreparedRun
from rankslice.session.run_folder import one_at_a_time, run_folder

if TYPE_CHECKING:
    from rankslice.measurement.trace.trace_events import RankEvents


def run_in(
    prepared: PreparedRun,
    folder: Path,
    callbacks: Callbacks = NO_CALLBACKS,
    *,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a job to its end, and have its results and report in a folder."""
    try:
        if prepared.boards is None:
            run_job(
                prepared.command_in(folder),
                callbacks.on_completed,
                variables=variables,
                on_start=callbacks.on_start,
                on_sample=partial(callbacks.on_sample, prepared.own_board),
                events=folder if prepared.options.events is not None else None,
                on_failed=partial(take_events, into=folder),
            )
            return
        from rankslice.session.across_boards import run_across

        run_across(prepared, prepared.boards, folder, callbacks, variables)
    except RankSliceError as error:
        if callbacks.was_aborted():
            raise
        raise keep_failure(prepared, folder, error) from None


@contextmanager
def own_folder(prepared: PreparedRun) -> Iterator[Path]:
    """Yield a folder for the files of this run, on the file system where its results go."""
    results = prepared.options.results
    parent = results.parent
    if results == STDOUT or is_null(results):
        writable = os.access(prepared.folder, os.W_OK)
        parent = prepared.folder if writable else Path(tempfile.gettempdir())
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(run_folder(parent))
        except OSError as error:
            found = f"cannot be written: {error.strerror}"
            hint = "choose a file elsewhere with --results"
            raise RankSliceError(Mistake(str(parent), found, hint)) from None
        yield folder


def put_report(prepared: PreparedRun, folder: Path) -> None:
    """Bring a report to the build folder, if it can be written."""
    with suppress(OSError), whole_file(prepared.folder / REPORT) as file:
        file.write((folder / REPORT).read_bytes())


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
    readable = _readable(prepared, folder, job_sha256)
    if not any(len(rank.events) for rank in readable):
        return error
    present = {rank.rank for rank in readable}
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

    ranks = []
    for rank in range(len(prepared.plan.ranks)):
        with suppress(RankSliceError):
            ranks.append(read_events(folder / f"{NAME}{rank}", rank, job_sha256))
    return ranks


def _clocks_in(folder: Path) -> object:
    with suppress(FileNotFoundError):
        return json.loads((folder / CLOCKS).read_text())
    return {}
