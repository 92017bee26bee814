"""``rankslice.run``."""

from __future__ import annotations

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
from rankslice.commands.options import refuse_with
from rankslice.commands.switching import Switch
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.arrival_times import check_switching
from rankslice.session.recording_folder import prepare_recording
from rankslice.session.run import FinishedRun, prepare, run as run_prepared

_USUAL = RunOptions()


@checked
def run(
    folder: str | Path,
    *,
    input: Inputs = _USUAL.inputs,
    frames: Natural | None = _USUAL.frames,
    seed: Natural = _USUAL.seed,
    fps: Positive | None = _USUAL.fps,
    arrivals: str | Path | None = None,
    overflow: str = _USUAL.overflow,
    queue: Count | None = _USUAL.queue,
    window: Count | None = _USUAL.window,
    switch: str = _USUAL.switch,
    normal_fps: float | None = _USUAL.normal_fps,
    surge_queue: int | None = _USUAL.surge_queue,
    surge_above: float = _USUAL.surge_above,
    normal_below: float = _USUAL.normal_below,
    normal_after_s: float = _USUAL.normal_after_s,
    latency: bool = _USUAL.latency,
    direct: bool = _USUAL.direct,
    skip_failed: bool = _USUAL.skip_failed,
    frame_timeout_s: Positive | None = _USUAL.frame_timeout_s,
    start_timeout_s: Positive | None = _USUAL.start_timeout_s,
    verify: bool = False,
    exact: bool = _USUAL.exact,
    tolerance: float | None = None,
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    keep_size: bool = PIXELS.keep_size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    results: str | Path | None = None,
    record: str | Path | None = None,
    record_frames: Count = _USUAL.record_frames,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
) -> FinishedRun:
    """Run the job of a build folder on frames from files; return its figures and results.

    A program that has the frames itself uses :func:`rankslice.open`.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        input: where frames come from: files, a folder, or ``random``.
        frames: how many; by default all, or 100 random ones.
        seed: of random frames.
        fps: frames that arrive per second; as fast as possible by default.
        arrivals: instead: a file with one arrival time in seconds per line.
        overflow: ``fail`` or ``drop``: what happens when a frame finds the queue full.
        queue: most waiting frames; those of a second by default.
        window: most frames inside the pipeline; the plan's by default.
        switch: ``auto``, ``normal`` or ``surge``: which route frames take, of two.
        normal_fps: frames per second that the normal route can handle.
        surge_queue: number of waiting frames that begins a surge.
        surge_above: share of the normal route's rate above which a surge begins.
        normal_below: share below which it ends,
        normal_after_s: after so many seconds.
        latency: wake before frames are due: lower latency, more CPU time.
        direct: ranks of one board share memory instead of exchanging messages.
        skip_failed: leave out frames on which an engine fails or which cannot be read;
            ``summary.failed`` counts them. By default, such a frame ends the run.
        frame_timeout_s: how long a segment may take for a frame, in seconds; by default 30, or 20
            times the slowest one.
        start_timeout_s: how long the ranks may take to start, in seconds; 120 by default.
        verify: compare the results with the unsliced model's; ``summary.verify`` has the verdict.
        exact: engines run without graph optimisation, so that they compare bit by bit.
        tolerance: with ``verify``: allowed difference as a share of the output's range.
        layout: of image inputs, ``nchw`` or ``nhwc``.
        size: height and width to which images are resized, in pixels; the centre is taken.
        keep_size: images keep their sizes, for models that leave them open.
        mean: subtracted from pixels (0 to 255).
        scale: by which pixels are multiplied then.
        results: file for the outputs, ``.bin`` or ``.npz``; ``results.bin`` in ``folder`` by
            default.
        record: folder to make, with the tensors that cross cuts in the first frames.
        record_frames: how many these are.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: something does not fit, or the job failed; the results of finished frames
            are kept.
    """
    check_choice("switch", switch, [each.value for each in Switch])
    check_choice("overflow", overflow, ("fail", "drop"))
    if arrivals is not None:
        refuse_with("--arrivals", fps=fps)
    if record is not None:
        refuse_with("record", skip_failed=skip_failed)
    if tolerance is not None and (exact or not verify):
        raise RankSliceError(Mistake("tolerance", "needs verify without exact", "leave it out"))
    options = RunOptions(
        inputs=inputs_from(input),
        frames=frames,
        seed=seed,
        fps=fps,
        arrivals=path_of(arrivals),
        overflow=overflow,
        queue=queue,
        window=window,
        switch=switch,
        normal_fps=normal_fps,
        surge_queue=surge_queue,
        surge_above=surge_above,
        normal_below=normal_below,
        normal_after_s=normal_after_s,
        exact=exact,
        preprocessing=preprocessing_from(layout, size, mean, scale, keep_size=keep_size),
        latency=latency,
        start_timeout_s=start_timeout_s,
        frame_timeout_s=frame_timeout_s,
        direct=direct,
        skip_failed=skip_failed,
        record=path_of(record),
        record_frames=record_frames,
    )
    check_switching(options)
    prepared = prepare(
        Path(folder),
        options,
        results=path_of(results),
        mpirun=path_of(mpirun),
        ssh_config=path_of(ssh_config),
    )
    if record is not None:
        prepared, _ = prepare_recording(prepared)
    return run_prepared(prepared, verify=verify, tolerance=tolerance)
