"""``rankslice bench --scenario``: a job under one of MLPerf's scenarios."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.events import FRAME
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.temporary import temporary_folder
from rankslice.commands.build_folder import read_plan
from rankslice.commands.run.run import prepare, run
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.measurement.bench.scenarios import (
    SCENARIOS,
    Scenario,
    ScenarioFigures,
    arrival_times,
    figures_of,
    refuse_too_few,
)
from rankslice.measurement.trace.events import MOST_EVENTS, Trace, events_needed

_OFFLINE_FRAMES = 1000
_NULL = Path("/dev/null")


@dataclass(frozen=True, slots=True)
class ScenarioRequest:
    """A job, and the scenario that it is to go through."""

    folder: Path
    scenario: Scenario
    options: RunOptions
    """Input, window and timeouts; frames as many as :func:`frames_for` says."""
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
    """Return what a user asks for, checked.

    Args:
        folder: made by ``build``.
        name: of the scenario.
        options: input, frames (``None``: as few as prove the percentile), window, timeouts.
        target_fps: of a server.
        latency_limit_ms: of a server.
        mpirun: path of an mpirun.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: the scenario needs another option, or more frames.
    """
    scenario = SCENARIOS[name]
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


def run_scenario(
    request: ScenarioRequest, on_completed: Callable[[int], None] = lambda count: None
) -> ScenarioFigures:
    """Run a job under a scenario; return its figures.

    No frame is left out: engines have run once before the first one.

    Args:
        request: from :func:`scenario_request`.
        on_completed: called now and then with the number of frames that are out.

    Raises:
        RankSliceError: the job failed, or there are too few frames.
    """
    with _options(request) as options:
        prepared = prepare(
            request.folder,
            options,
            results=_NULL,
            mpirun=request.mpirun,
            ssh_config=request.ssh_config,
        )
        if prepared.source.is_live:
            found = "has frames at times of its own, which no scenario has"
            raise RankSliceError(Mistake("--input", found, "give files, or 'random'"))
        trace = run(prepared, on_completed=on_completed).trace
    assert trace is not None
    begins_s, ends_s = _times(trace)
    return figures_of(
        request.scenario,
        begins_s,
        ends_s,
        target_fps=request.target_fps,
        limit_s=request.limit_s,
    )


@contextmanager
def _options(request: ScenarioRequest) -> Iterator[RunOptions]:
    """Yield the options of the run, as long as the file with its arrivals is there.

    Raises:
        RankSliceError: there are more frames than events are kept for.
    """
    frames = request.options.frames or 0
    kept = events_needed(read_plan(request.folder), frames)
    if kept >= MOST_EVENTS:
        found = f"{frames} leave more events than are kept"
        raise RankSliceError(Mistake("--frames", found, "give fewer"))
    options = replace(request.options, events=Path("events"), events_kept=kept)
    if request.target_fps is None:
        # A rate of the input's own is none of the scenario.
        samples = request.scenario.samples or None
        yield replace(options, pull=True, samples_per_query=samples)
        return
    times = arrival_times(request.target_fps, frames, options.seed)
    with temporary_folder() as folder:
        path = folder.path / "arrivals.txt"
        path.write_text("".join(f"{time:.9f}\n" for time in times))
        yield replace(options, arrivals=path, queue=frames)


def _times(trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return when frames arrived and when they were out, in seconds, by frame."""
    source = trace.ranks[trace.plan.source]
    found = np.sort(source.of(FRAME), order="frame")
    begin = found["begin_ns"].min()
    return 1e-9 * (found["begin_ns"] - begin), 1e-9 * (found["end_ns"] - begin)
