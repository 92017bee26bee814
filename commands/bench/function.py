"""``rankslice.bench`` and ``rankslice.bench_scenario``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.arguments import (
    PIXELS,
    Count,
    Inputs,
    Natural,
    Numbers,
    Positive,
    check_choice,
    checked,
    inputs_from,
    path_of,
    preprocessing_from,
)
from rankslice.commands.bench.bench import BenchOptions, bench as bench_folder
from rankslice.commands.bench.loadgen import check_loadgen, run_loadgen
from rankslice.commands.bench.scenario import ScenarioRun, run_scenario, scenario_request
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.measurement.bench.records import Bench
from rankslice.measurement.bench.scenarios import SCENARIOS
from rankslice.session.bench.co_runner import KINDS

_USUAL = BenchOptions()


@checked
def bench(
    folder: str | Path,
    against: str | Path | None = None,
    *,
    starts: Count = _USUAL.starts,
    frames: Count = _USUAL.frames,
    fps: Positive | None = _USUAL.fps,
    load_levels: Sequence[float] = _USUAL.levels,
    input: Inputs = _USUAL.inputs,
    seed: Natural = _USUAL.seed,
    window: Count | None = _USUAL.window,
    load: str | None = _USUAL.load,
    busy: Sequence[float] = _USUAL.busy,
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    frame_timeout_s: Positive | None = _USUAL.frame_timeout_s,
    start_timeout_s: Positive | None = _USUAL.start_timeout_s,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Bench:
    """Measure a job, and another one in turns with it; return the raw values.

    ``rankslice.measurement.bench.figures`` computes figures of them: ``all_series``,
    ``own_ratios``, and ``views.beside`` those beside a co-runner.
    ``records.write_bench`` keeps them.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        against: another build folder, or ``unsliced``: the model as one rank.
        starts: of each job under each load.
        frames: of each start.
        fps: frames that arrive per second in the open loop, instead of ``load_levels``.
        load_levels: shares of the saturation throughput, above 0 and at most 1.
        input: where frames come from: files, a folder, a camera, or ``random``.
        seed: of random frames, and of the order of the starts.
        window: most frames inside the pipeline; the plan's by default.
        load: what a co-runner uses beside the job, in place of ``against`` and ``load_levels``:
            ``cpu``, ``memory`` or ``network``.
        busy: shares of the time for which it works, above 0 and at most 1.
        layout: of image inputs, ``nchw`` or ``nhwc``.
        size: height and width to which images are resized, in pixels; the centre is taken.
        mean: subtracted from pixels (0 to 255).
        scale: by which pixels are multiplied then.
        frame_timeout_s: how long a segment may take for a frame, in seconds.
        start_timeout_s: how long the ranks may take to start, in seconds.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.
        on_progress: called with what is measured, how many starts are done, and the total.

    Raises:
        RankSliceError: something does not fit, or a job failed.
    """
    if load is not None:
        check_choice("load", load, list(KINDS))
    _check_shares("load_levels", load_levels)
    _check_shares("busy", busy)
    options = BenchOptions(
        starts=starts,
        frames=frames,
        fps=fps,
        levels=tuple(dict.fromkeys(load_levels)),
        seed=seed,
        inputs=inputs_from(input),
        window=window,
        load=load,
        busy=tuple(busy),
        preprocessing=preprocessing_from(layout, size, mean, scale),
        frame_timeout_s=frame_timeout_s,
        start_timeout_s=start_timeout_s,
        mpirun=path_of(mpirun),
        ssh_config=path_of(ssh_config),
    )
    return bench_folder(Path(folder), against, options, on_progress=on_progress)


@checked
def bench_scenario(
    folder: str | Path,
    scenario: str,
    *,
    target_fps: Positive | None = None,
    latency_limit_ms: Positive | None = None,
    loadgen: bool = False,
    loadgen_logs: str | Path | None = None,
    frames: Natural | None = None,
    input: Inputs = _USUAL.inputs,
    seed: Natural = _USUAL.seed,
    window: Count | None = _USUAL.window,
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    frame_timeout_s: Positive | None = _USUAL.frame_timeout_s,
    start_timeout_s: Positive | None = _USUAL.start_timeout_s,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
) -> ScenarioRun:
    """Measure one start of a job under a scenario of MLPerf.

    Arguments that are not listed are those of :func:`bench`.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        scenario: ``single``, ``multi``, ``server`` or ``offline``.
        target_fps: of a server: mean rate of queries.
        latency_limit_ms: of a server: limit for the latency of 99 % of them.
        loadgen: MLPerf's load generator drives the job, too.
        loadgen_logs: folder to make for its logs.
        frames: how many; by default as few as tell the scenario's percentile.

    Raises:
        RankSliceError: something does not fit, or the job failed.
    """
    check_choice("scenario", scenario, list(SCENARIOS))
    options = RunOptions(
        inputs=inputs_from(input),
        frames=frames,
        seed=seed,
        window=window,
        preprocessing=preprocessing_from(layout, size, mean, scale),
        frame_timeout_s=frame_timeout_s,
        start_timeout_s=start_timeout_s,
    )
    request = scenario_request(
        Path(folder),
        scenario,
        options,
        target_fps=target_fps,
        latency_limit_ms=latency_limit_ms,
        mpirun=path_of(mpirun),
        ssh_config=path_of(ssh_config),
    )
    if not loadgen:
        return run_scenario(request)
    logs = path_of(loadgen_logs)
    check_loadgen(logs)
    return replace(run_scenario(request), loadgen=run_loadgen(request, logs))


def _check_shares(name: str, shares: Sequence[float]) -> None:
    raise_mistakes(
        Mistake(name, f"is {share}", "expected shares above 0, up to 1")
        for share in shares
        if not 0 < share <= 1
    )
