"""``rankslice.trace``."""

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
    checked,
    inputs_from,
    path_of,
    preprocessing_from,
)
from rankslice.commands.options import refuse_with
from rankslice.commands.trace.trace import (
    Traced,
    prepare_trace,
    trace_failure,
    trace_run,
    write_page,
    write_perfetto,
)
from rankslice.views.perfetto_file import check_perfetto

_USUAL = RunOptions()


@checked
def trace(
    folder: str | Path,
    *,
    input: Inputs = _USUAL.inputs,
    frames: Count | None = _USUAL.frames,
    seed: Natural = _USUAL.seed,
    fps: Positive | None = _USUAL.fps,
    window: Count | None = _USUAL.window,
    direct: bool = _USUAL.direct,
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    operators: bool = False,
    failure: bool = False,
    html: str | Path | None = None,
    perfetto: str | Path | None = None,
    frame_timeout_s: Positive | None = _USUAL.frame_timeout_s,
    start_timeout_s: Positive | None = _USUAL.start_timeout_s,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
) -> Traced:
    """Run the job of a build folder, and return where the time of each frame goes.

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        input: where frames come from: files, a folder, or ``random``.
        frames: how many; by default all, or 100 random ones.
        seed: of random frames.
        fps: frames that arrive per second; as fast as possible by default.
        window: most frames inside the pipeline; the plan's by default.
        direct: ranks of one board share memory instead of exchanging messages.
        layout: of image inputs, ``nchw`` or ``nhwc``.
        size: height and width to which images are resized, in pixels; the centre is taken.
        mean: subtracted from pixels (0 to 255).
        scale: by which pixels are multiplied then.
        operators: show the operators of each segment, too, where the engine tells.
        failure: run nothing: show what the ranks of the last failed job did.
        html: page with a timeline to write.
        perfetto: trace for Perfetto to write; needs the extra ``perfetto``.
        frame_timeout_s: how long a segment may take for a frame, in seconds; by default 30, or 20
            times the slowest one.
        start_timeout_s: how long the ranks may take to start, in seconds; 120 by default.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: something does not fit, the job failed, or too few frames came out.
    """
    if perfetto is not None:
        check_perfetto("perfetto")
    if failure:
        refuse_with("failure", frames=frames, fps=fps, window=window, operators=operators)
        traced = trace_failure(Path(folder))
    else:
        options = RunOptions(
            inputs=inputs_from(input),
            frames=frames,
            seed=seed,
            fps=fps,
            window=window,
            direct=direct,
            preprocessing=preprocessing_from(layout, size, mean, scale),
            frame_timeout_s=frame_timeout_s,
            start_timeout_s=start_timeout_s,
        )
        traced = trace_run(
            prepare_trace(
                Path(folder),
                options,
                operators=operators,
                mpirun=path_of(mpirun),
                ssh_config=path_of(ssh_config),
            )
        )
    if html is not None:
        write_page(traced, Path(html))
    if perfetto is not None:
        write_perfetto(traced, Path(perfetto))
    return traced
