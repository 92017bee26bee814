"""The record of a run: what its page shows, and what the build folder keeps of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from rankslice.backend.runtime.options import Preprocessing
from rankslice.framework.files.hashing import file_sha256
from rankslice.framework.files.output_file import whole_file
from rankslice.framework.plan import Plan
from rankslice.measurement.runs.record import RunRecord, run_text
from rankslice.measurement.summary import RunSummary
from rankslice.session.build_folder import REPORT, RUN
from rankslice.session.prepare import PreparedRun
from rankslice.session.run_notes import rank_notes, verdict_text
from rankslice.session.versions import versions


def keep_record(prepared: PreparedRun, summary: RunSummary, command: Sequence[str]) -> None:
    """Write the record of a run into its build folder, if it can be written."""
    record = run_record(prepared, summary, command)
    with suppress(OSError), whole_file(prepared.folder / RUN) as file:
        file.write(run_text(record).encode())


def run_record(prepared: PreparedRun, summary: RunSummary, command: Sequence[str]) -> RunRecord:
    """Return the record of a run that has just ended."""
    folder = prepared.folder
    return record_of(
        folder,
        prepared.plan,
        summary,
        ended=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        command=tuple(command),
        versions=tuple(versions().items()),
        conditions=tuple(_conditions(prepared)),
    )


def record_of(
    folder: Path,
    plan: Plan,
    summary: RunSummary,
    *,
    ended: str = "",
    command: tuple[str, ...] = (),
    versions: tuple[tuple[str, str], ...] = (),
    conditions: tuple[tuple[str, str], ...] = (),
) -> RunRecord:
    """Return the record of a run of a build folder, whose report is there."""
    verdict = summary.verify
    return RunRecord(
        ended=ended,
        model=plan.model.name,
        model_sha256=plan.model.sha256,
        job_sha256=plan.job.sha256,
        report_sha256=report_sha256(folder),
        command=command,
        versions=versions,
        conditions=conditions,
        summary=summary,
        verify="" if verdict is None else verdict_text(verdict),
        notes=tuple(rank_notes(summary.ranks)),
    )


def report_sha256(folder: Path) -> str:
    """Return the hash of the report in a build folder; empty: there is none."""
    report = folder / REPORT
    return file_sha256(report) if report.is_file() else ""


def _conditions(prepared: PreparedRun) -> Iterator[tuple[str, str]]:
    """Yield what has to be equal for two runs to be compared, and is no part of the plan."""
    options, source = prepared.options, prepared.source
    frames = " ".join(options.inputs)
    yield "frames from", f"{frames}, seed {options.seed}" if frames == "random" else frames
    yield "number of frames", "no end" if source.frames is None else str(source.frames)
    rate = None if options.pull else options.fps or source.fps
    timed = "as fast as they are taken" if rate is None else f"{rate:g} frames/s"
    yield "arrival", f"at the times in {options.arrivals}" if options.arrivals else timed
    yield "when the queue is full", options.overflow
    yield "window", "the plan's" if options.window is None else str(options.window)
    yield "engine optimisation", "off" if options.exact else "on"
    yield "ranks of one board", "share memory" if options.direct else "exchange messages"
    yield "wake before frames are due", "yes" if options.latency else "no"
    if options.preprocessing != Preprocessing():
        yield "images", str(options.preprocessing)
