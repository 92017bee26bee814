"""A job from its start to its end, in a folder of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rankslice.backend.launch.job import run_job
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null, whole_file
from rankslice.session.build_folder import REPORT
from rankslice.session.callbacks import NO_CALLBACKS, Callbacks
from rankslice.session.failed_job import keep_failure, take_events
from rankslice.session.prepare import PreparedRun
from rankslice.session.run_folder import run_folder


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
