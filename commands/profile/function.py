"""``rankslice.profile``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rankslice.commands.arguments import (
    PIXELS,
    Inputs,
    Numbers,
    Positive,
    Sizes,
    checked,
    inputs_from,
    path_of,
    preprocessing_from,
    sizes_from,
)
from rankslice.commands.options import refuse_with
from rankslice.commands.profile.options import ProfileOptions
from rankslice.commands.profile.profiler import Profiler, profile_model
from rankslice.framework.profile import Profile
from rankslice.framework.specs.read_platform import PlatformSource

_USUAL = ProfileOptions()


@checked
def profile(
    model: str | Path,
    platform: PlatformSource = "local",
    out: str | Path | None = "profile.json",
    *,
    accelerators: Sequence[str] = _USUAL.keys,
    per_core: bool = _USUAL.per_core,
    alone: bool = _USUAL.alone,
    fresh: bool = _USUAL.fresh,
    again: bool = _USUAL.again,
    refine: bool = True,
    shape: Sizes | None = None,
    at_most: Sizes | None = None,
    input: Inputs = (),
    layout: str = PIXELS.layout,
    size: int | tuple[int, int] | None = PIXELS.size,
    mean: Numbers = PIXELS.mean,
    scale: Numbers = PIXELS.scale,
    seconds: Positive | None = None,
    venv: bool = _USUAL.venv,
    wheels: str | Path = _USUAL.wheels,
    ssh_config: str | Path | None = None,
) -> Profile:
    """Measure layers and slices of a model on accelerators; return all measurements.

    Args:
        model: an ``.onnx`` or ``.tflite`` file.
        platform: a platform file, ``local`` for this machine, or a ``Platform``.
        out: the profile to create or to complete; ``None``: no file is read or written.
        accelerators: mapping keys to measure; by default all cores of each CPU, GPUs and NPUs.
        per_core: measure single CPU cores instead of all cores together.
        alone: keep the board's other accelerators idle.
        fresh: discard existing measurements.
        again: repeat all measurements and keep the existing ones.
        refine: also measure the slices of the fastest pipeline.
        shape: sizes of all frames where the model leaves them open.
        at_most: largest sizes of any frame where the model leaves them open.
        input: frames like those of a job, where sizes change; random values by default.
        layout: of images among them, ``nchw`` or ``nhwc``.
        size: height and width of these, in pixels.
        mean: subtracted from their pixels (0 to 255).
        scale: by which pixels are multiplied then.
        seconds: time limit; the most informative slices are measured first.
        venv: also make the Python environment on each board.
        wheels: a folder of wheels to make it from, or ``download``.
        ssh_config: handed to ssh as ``-F``.

    Raises:
        RankSliceError: with all mistakes that were found; what was measured is kept in ``out``.
    """
    if fresh:
        refuse_with("--fresh", again=again)
    profiler = Profiler(
        Path(model),
        platform,
        path_of(out),
        ProfileOptions(
            keys=tuple(accelerators),
            per_core=per_core,
            sizes=sizes_from(shape, at_most),
            inputs=inputs_from(input),
            preprocessing=preprocessing_from(layout, size, mean, scale),
            alone=alone,
            fresh=fresh,
            again=again,
            venv=venv or bool(wheels),
            wheels=str(wheels),
            ssh_config=path_of(ssh_config),
        ),
    )
    with profiler:
        profile_model(profiler, refined=refine, seconds=seconds)
    return profiler.profile
