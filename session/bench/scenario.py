"""``rankslice bench --scenario``: a job under one of MLPerf's scenarios."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.system.modes import board_mode
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.bench.bench_records import Bench, Load
from rankslice.measurement.bench.quiet import machine_facts
from rankslice.measurement.bench.scenarios import (
    SCENARIOS,
    Scenario,
    ScenarioFigures,
    arrival_times,
    figures_of,
    refuse_too_few,
)
from rankslice.session.bench.bench_options import ScenarioOptions
from rankslice.session.bench.starts import Measured, is_live, other_boards, run_start
from rankslice.session.shared_options import Launching
from rankslice.session.versions import versions

_OFFLINE_FRAMES = 1000


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    figures: ScenarioFigures
    bench: Bench
    """The raw values: a start under a load that has the scenario's name."""


def run_scenario(
    folder: Path,
    scenario: Scenario,
    options: RunOptions,
    under: ScenarioOptions,
    launching: Launching,
    on_prepared: Callable[[int | None], Callable[[int], None]],
) -> ScenarioRun:
    """Run a job under a scenario; no frame is left out, as engines have run once before.

    Args:
        options: input, frames, window and timeouts; by default as few frames as will do.
        on_prepared: called with the number of frames; what it returns, with that of finished ones.

    Raises:
        RankSliceError: something does not fit, or the job failed.
    """
    options = _checked(scenario, options, under)
    on_completed = on_prepared(options.frames)
    load_before, mode = os.getloadavg()[0], board_mode()
    with _with_arrivals(scenario, options, under.target_fps) as taken:
        measured = Measured(str(folder), folder, taken, launching)
        prepared = measured.check()
        name = f"MLPerf {scenario.name}"
        start = run_start(measured, Load(name), on_completed)
    begins_s = 1e-9 * np.array(start.arrived_ns)
    figures = figures_of(
        scenario,
        begins_s,
        begins_s + 1e-9 * np.array(start.latency_ns),
        target_fps=under.target_fps,
        limit_s=None if under.latency_limit_ms is None else 1e-3 * under.latency_limit_ms,
    )
    bench = Bench(
        inputs=options.inputs,
        frames=len(begins_s),
        seed=options.seed,
        machine=machine_facts(versions().items(), load_before, mode),
        boards=tuple(other_boards(prepared)),
        subjects=(measured.subject,),
        loads=(Load(name, under.target_fps),),
        starts=(start,),
    )
    return ScenarioRun(figures, bench)


def _checked(scenario: Scenario, options: RunOptions, under: ScenarioOptions) -> RunOptions:
    if is_live(options.inputs):
        found = f"cannot be combined with --input {options.inputs[0]}, which sets the pace itself"
        raise RankSliceError(Mistake("--scenario", found, "leave one out"))
    is_server = scenario is SCENARIOS["server"]
    for option, value in {
        "--target-fps": under.target_fps,
        "--latency-limit-ms": under.latency_limit_ms,
    }.items():
        if is_server and value is None:
            raise RankSliceError(Mistake("--scenario server", f"needs {option}", "give it"))
        if not is_server and value is not None:
            raise RankSliceError(Mistake(option, "needs --scenario server", "leave it out"))
    usual = _OFFLINE_FRAMES if scenario.percentile is None else scenario.min_frames
    frames = usual if options.frames is None else options.frames
    refuse_too_few(scenario, frames)
    return replace(options, frames=frames)


@contextmanager
def _with_arrivals(
    scenario: Scenario, options: RunOptions, target_fps: float | None
) -> Iterator[RunOptions]:
    """Yield the options of the run, as long as the file with its arrivals is there."""
    if target_fps is None:
        # A rate of the input's own is none of the scenario.
        yield replace(options, pull=True, samples_per_query=scenario.samples or None)
        return
    times = arrival_times(target_fps, options.frames or 0, options.seed)
    with temporary_folder() as folder:
        path = folder.path / "arrivals.txt"
        path.write_text("".join(f"{time:.9f}\n" for time in times))
        yield replace(options, arrivals=path)
