"""Recorded runs without MPI."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from in_process import run_in_process
from jobs import build_folder
from tflite_models import model_file

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.recording import recorded_frames
from rankslice.backend.runtime.sinks.results import Results, read_results
from rankslice.framework.reading.read_driver import read_driver
from rankslice.frontend.formats.tflite.reader import read_tflite
from rankslice.measurement.recorded_tensors import RankTensors, read_tensors
from rankslice.session.recording_folder import keep_recording
from rankslice.session.run import prepare
from rankslice.session.shared_options import Launching
from rankslice.session.verification.first_difference import first_difference


def litert_in_halves(name: str, tmp_path: Path) -> Path:
    """Return a build folder of a LiteRT model, with half of its layers on each of two ranks."""
    pytest.importorskip("ai_edge_litert")
    model = model_file(name)
    layers = [layer.name for layer in read_tflite(model).graph.layers]
    halves = {layer: int(2 * place >= len(layers)) for place, layer in enumerate(layers)}
    return build_folder(tmp_path, model, halves)


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
    job = read_driver(out / "driver.py")
    return results, read_tensors(ran, job, recorded_frames(job, options), len(results))


def recording_of(out: Path, parent: Path, options: RunOptions) -> Path:
    """Return a folder as ``run --record`` makes it."""
    ran, target = parent / "ran", parent / "recorded"
    results = record(out, ran, options)
    keep_recording(prepare(out, replace(options, record=target)), ran, len(results))
    return target


def searched(folder: Path, options: RunOptions, frame: int = 0, change: float = 0.0) -> str:
    """Run a folder in this process, and look for what differs in a frame.

    Args:
        folder: to run; the recording lies beside it.
        options: of the run.
        frame: whose results differ.
        change: added to the results.
    """
    ran = folder.with_name(f"ran-{len([*folder.parent.iterdir()])}")
    found = record(folder, ran, options)
    results = found
    if change:
        changed = [
            [values + np.float32(change) for values in found.frames(output)]
            for output in range(len(found.outputs))
        ]
        results = Results(found.job_sha256, found.outputs, found.records, (*changed,))
    prepared = prepare(folder, replace(options, record=ran))
    prepared = replace(prepared, launching=Launching(Path("no/mpirun")))  # it cannot run again
    return first_difference(prepared, results, frame, range(len(found)), None)
