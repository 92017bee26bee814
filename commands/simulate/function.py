"""``rankslice.simulate``."""

from __future__ import annotations

from pathlib import Path

from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.arguments import (
    Count,
    MappingSource,
    Natural,
    Positive,
    Sizes,
    check_choice,
    checked,
    mapping_from,
    path_of,
    sizes_from,
)
from rankslice.commands.options import refuse_with
from rankslice.commands.simulate.simulate import (
    Scatter,
    Simulated,
    SimulationOptions,
    Traffic,
    simulate as simulate_plan,
)
from rankslice.commands.switching import Switch
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.session.arrival_times import USUAL, check_switching, read_arrival_times

_TRAFFIC, _SCATTER = Traffic(), Scatter()


@checked
def simulate(
    target: str | Path,
    mapping: MappingSource | None = None,
    platform: PlatformSource | None = None,
    *,
    profile: str | Path | None = None,
    shape: Sizes | None = None,
    at_most: Sizes | None = None,
    frames: Count | None = _TRAFFIC.frames,
    fps: Positive | None = _TRAFFIC.fps,
    arrivals: str | Path | None = None,
    switch: str = USUAL.switch,
    normal_fps: float | None = USUAL.normal_fps,
    surge_queue: int | None = USUAL.surge_queue,
    surge_above: float = USUAL.surge_above,
    normal_below: float = USUAL.normal_below,
    normal_after_s: float = USUAL.normal_after_s,
    window: Count | None = _TRAFFIC.window,
    queue: Count | None = _TRAFFIC.queue,
    scatter: bool = _SCATTER.measured,
    jitter: float = _SCATTER.jitter,
    seed: Natural = _SCATTER.seed,
) -> Simulated:
    """Return what a job would show, without its boards.

    Args:
        target: a folder made by ``build``, or a model file.
        mapping: of a model: a mapping file, or a dictionary.
        platform: boards and links; this machine by default.
        profile: how long layers take, made by ``profile``.
        shape: sizes of all frames where the model leaves them open.
        at_most: largest sizes of any frame where the model leaves them open.
        frames: how many; 1000 by default, or all of ``arrivals``.
        fps: frames that arrive per second; as fast as possible by default.
        arrivals: instead: a file with one arrival time in seconds per line.
        switch: ``auto``, ``normal`` or ``surge``: which route frames take, of two.
        normal_fps: frames per second that the normal route can handle.
        surge_queue: number of waiting frames that begins a surge.
        surge_above: share of the normal route's rate above which a surge begins.
        normal_below: share below which it ends,
        normal_after_s: after so many seconds.
        window: most frames inside the pipeline; the plan's by default.
        queue: most waiting frames; those of a second by default.
        scatter: vary times from frame to frame like the measured ones.
        jitter: instead: standard deviation of times, relative to the mean.
        seed: random seed.

    Raises:
        RankSliceError: a file cannot be read, or does not belong to the others; something was not
            profiled. All mistakes at once.
    """
    check_choice("switch", switch, [each.value for each in Switch])
    if arrivals is not None:
        refuse_with("--arrivals", fps=fps)
    if scatter:
        refuse_with("--scatter", jitter=jitter)
    switching = RunOptions(
        queue=queue,
        switch=switch,
        normal_fps=normal_fps,
        surge_queue=surge_queue,
        surge_above=surge_above,
        normal_below=normal_below,
        normal_after_s=normal_after_s,
    )
    check_switching(switching)
    times = None if arrivals is None else read_arrival_times(Path(arrivals))
    return simulate_plan(
        Path(target),
        mapping=None if mapping is None else mapping_from(mapping),
        platform=platform,
        profile=path_of(profile),
        sizes=sizes_from(shape, at_most),
        options=SimulationOptions(
            Traffic(frames, fps, times, window, queue),
            Scatter(scatter, jitter, seed),
            switching=switching,
        ),
    )
