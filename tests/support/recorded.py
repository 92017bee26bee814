"""Recorded runs without MPI."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from in_process import run_in_process

from rankslice.backend.runtime.job import load_job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.recording import recorded_frames
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.commands.build_folder import read_plan
from rankslice.commands.recording_folder import write_recording
from rankslice.measurement.recording import RankTensors, read_tensors


def record(
    out: Path,
    ran: Path,
    options: RunOptions,
    direct: Collection[tuple[int, int]] | None = None,
) -> Results:
    """Run a build folder in this process, with the ranks' files in the new folder ``ran``."""
    ran.mkdir()
    run_in_process(out, replace(options, results=ran / "results.bin", record=ran), direct=direct)
    return read_results(ran / "results.bin")


def recorded(out: Path, ran: Path, options: RunOptions) -> tuple[Results, tuple[RankTensors, ...]]:
    """Return the results of a run, and what its ranks have recorded."""
    results = record(out, ran, options)
    job = load_job(out / "plan.json")
    return results, read_tensors(ran, job, recorded_frames(job, options), len(results))


def recording_of(out: Path, parent: Path, options: RunOptions) -> Path:
    """Return a folder as ``run --record`` makes it."""
    results = record(out, parent / "ran", options)
    frames = recorded_frames(load_job(out / "plan.json"), options)
    target, plan = parent / "recorded", read_plan(out)
    ran = parent / "ran"
    write_recording(target, out, ran, plan, frames, len(results), exact=options.exact)
    return target
