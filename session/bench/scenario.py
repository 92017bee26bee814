"""``rankslice bench --scenario``: a job under one of MLPerf's scenarios."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.temporary import temporary_folder
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.bench.bench_records import Bench, Load
from rankslice.measurement.bench.loadgen_log import LoadgenTest
from rankslice.measurement.bench.quiet import machine_facts
from rankslice.measurement.bench.scenarios import (
    SCENARIOS,
    Scenario,
    ScenarioFigures,
    arrival_times,
    figures_of,
    refuse_too_few,
)
from rankslice.session.bench.starts import Measured, is_live, other_boards, run_start
from rankslice.session.versions import versions

_OFFLINE_FRAMES = 1000


@dataclass(frozen=True, slots=True)
class ScenarioRequest:
    folder: Path
    scenario: Scenario
    options: RunOptions
    """Input, number of frames, window and timeouts."""
    target_fps: float | None = None
    """Of a server: mean rate at which queries come."""
    limit_s: float | None = None
    """Of a server: limit for the latency of 99 % of them."""
    mpirun: Path | None = None
    ssh_config: Path | None = None


def scenario_request(
    folder: Path,
    name: str,
    options: RunOptions,
    *,
    target_fps: float | None = None,
    latency_limit_ms: float | None = None,
    mpirun: Path | None = None,
    ssh_config: Path | None = None,
) -> ScenarioRequest:
    """Return what a user asks for, checked; without a number of frames, as few as will do."""
    scenario = SCENARIOS[name]
    if is_live(options.inputs):
        found = f"cannot be combined with --input {options.inputs[0]}, which sets the pace itself"
        raise RankSliceError(Mistake("--scenario", found, "leave one out"))
    is_server = name == "server"
    for option, value in {
        "--target-fps": target_fps,
        "--latency-limit-ms": latency_limit_ms,
    }.items():
        if is_server and value is None:
            raise RankSliceError(Mistake("--scenario server", f"needs {option}", "give it"))
        if not is_server and value is not None:
            raise RankSliceError(Mistake(option, "needs --scenario server", "leave it out"))
    usual = _OFFLINE_FRAMES if scenario.percentile is None else scenario.least_frames
    options = replace(options, frames=usual if options.frames is None else options.frames)
    refuse_too_few(scenario, options.frames or 0)
    limit_s = None if latency_limit_ms is None else 1e-3 * latency_limit_ms
    return ScenarioRequest(folder, scenario, options, target_fps, limit_s, mpirun, ssh_config)


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    figures: ScenarioFigures
    bench: Bench
    """The raw values: a start under a load that has the scenario's name."""
    loadgen: LoadgenTest | None = None
    """A test by MLPerf's load generator of the same scenario."""


def run_scenario(
    request: ScenarioRequest, on_completed: Callable[[int], None] = lambda count: None
) -> ScenarioRun:
    """Run a job under a scenario; no frame is left out, as engines have run once before."""
    load = Load(f"MLPerf {request.scenario.name}", request.target_fps)
    load_before = os.getloadavg()[0]
    with _options(request) as options:
        measured = Measured(
            str(request.folder), request.folder, options, request.mpirun, request.ssh_config
        )
        subject = measured.subject
        prepared = measured.check()
        start = run_start(
            measured, Load(load.name), subject=0, number=0, turn=0, on_completed=on_completed
        )
    begins_s = 1e-9 * np.array(start.arrived_ns)
    figures = figures_of(
        request.scenario,
        begins_s,
        begins_s + 1e-9 * np.array(start.latency_ns),
        target_fps=request.target_fps,
        limit_s=request.limit_s,
    )
    bench = Bench(
        inputs=request.options.inputs,
        frames=len(begins_s),
        seed=request.options.seed,
        machine=machine_facts(versions().items(), load_before),
        boards=tuple(other_boards(prepared)),
        subjects=(subject,),
        loads=(load,),
        starts=(start,),
    )
    return ScenarioRun(figures, bench)


@contextmanager
def _options(request: ScenarioRequest) -> Iterator[RunOptions]:
    """Yield the options of the run, as long as the file with its arrivals is there."""
    if request.target_fps is None:
        # A rate of the input's own is none of the scenario.
        samples = request.scenario.samples or None
        yield replace(request.options, pull=True, samples_per_query=samples)
        return
    times = arrival_times(request.target_fps, request.options.frames or 0, request.options.seed)
    with temporary_folder() as folder:
        path = folder.path / "arrivals.txt"
        path.write_text("".join(f"{time:.9f}\n" for time in times))
        yield replace(request.options, arrivals=path)
