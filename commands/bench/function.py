"""``rankslice.bench``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rankslice.commands.arguments import (
    PIXELS,
    Inputs,
    Numbers,
    check_natural,
    check_positive,
    inputs_from,
    path_of,
    preprocessing_from,
)
from rankslice.commands.bench.bench import BenchOptions
from rankslice.commands.bench.bench import bench as bench_folder
from rankslice.framework.errors import Mistake, raise_mistakes
from rankslice.measurement.bench.records import Bench

_USUAL = BenchOptions()


def bench(
    folder: str | Path,
    against: str | Path | None = None,
    *,
    starts: int = _USUAL.starts,
    frames: int = _USUAL.frames,
    fps: float | None = _USUAL.fps,
    load_levels: Sequence[float] = _USUAL.levels,
    input: Inputs = _USUAL.inputs,
    seed: int = _USUAL.seed,
    window: int | None = _USUAL.window,
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    frame_timeout_s: float | None = _USUAL.frame_timeout_s,
    start_timeout_s: float | None = _USUAL.start_timeout_s,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
    on_progress: Callable[[str, int, int], None] = lambda step, done, total: None,
) -> Bench:
    """Measure a job, and another one in turns with it; return the raw values.

    ``rankslice.measurement.bench.figures`` computes figures of them: ``all_series``,
    ``own_ratios``. ``records.write_bench`` keeps them.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        against: another build folder, or ``unsliced``: the model as one rank.
        starts: of each job under each load.
        frames: of each start.
        fps: frames that arrive per second in the open loop, instead of ``load_levels``.
        load_levels: shares of the saturation throughput, above 0 and at most 1.
        input: where frames come from: files, a folder, or ``random``.
        seed: of random frames, and of the order of the starts.
        window: most frames inside the pipeline; the plan's by default.
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
    timeouts = {"frame_timeout_s": frame_timeout_s, "start_timeout_s": start_timeout_s}
    counts = {"starts": starts, "frames": frames, "window": window}
    check_positive({**counts, "fps": fps, **timeouts}.items())
    check_natural([("seed", seed)])
    raise_mistakes(
        Mistake("load_levels", f"is {level}", "expected shares above 0, up to 1")
        for level in load_levels
        if not 0 < level <= 1
    )
    options = BenchOptions(
        starts=starts,
        frames=frames,
        fps=fps,
        levels=tuple(dict.fromkeys(load_levels)),
        seed=seed,
        inputs=inputs_from(input),
        window=window,
        preprocessing=preprocessing_from(layout, size, mean, scale),
        frame_timeout_s=frame_timeout_s,
        start_timeout_s=start_timeout_s,
        mpirun=path_of(mpirun),
        ssh_config=path_of(ssh_config),
    )
    return bench_folder(Path(folder), against, options, on_progress=on_progress)
