"""The options of ``rankslice profile``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.backend.runtime.options import IMAGE_OPTIONS
from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import (
    OPERATORS,
    PROFILE,
    STDOUT,
    write_json,
    write_output,
)
from rankslice.framework.option_records import Writes, about, offered
from rankslice.session.profiling.profile_options import ProfileOptions
from rankslice.session.shared_options import (
    Boards,
    Json,
    OnnxOrTflite,
    SshConfig,
)
from rankslice.views.terminal import end_interrupted, progress_bars, screen, talk

if TYPE_CHECKING:
    from rankslice.framework.profile import Profile
    from rankslice.session.profiling.profiler import Profiler
    from rankslice.session.profiling.span_bench import Listener

ProfileFile = Annotated[
    Path | None,
    about(
        "Profile to create or to complete: only what is missing is measured.",
        Path,
        writes=Writes(PROFILE, may_be_stream=False),
        alias=("-o",),
    ),
]
OperatorsFile = Annotated[
    Path | None,
    about(
        "Also measure each operator of the whole model, and write a table: .csv or .json.",
        Path,
        writes=Writes(OPERATORS, may_be_stream=False),
    ),
]

_OF_INPUT = {name: {"needs": "input"} for name in IMAGE_OPTIONS}


@function
def profile(
    model: OnnxOrTflite,
    platform: Boards = "local",
    out: ProfileFile = Path("profile.json"),
    *,
    options: Annotated[ProfileOptions, offered(**_OF_INPUT)],
    operators: OperatorsFile = None,
    ssh_config: SshConfig = None,
    listener: Listener | None = None,
    on_measured: Callable[..., Any] = lambda profiler, refinement: None,
) -> Profile:
    """Measure layers and slices of a model on accelerators; return all measurements.

    ``out`` may be ``None``: no file is read or written. ``listener`` receives the progress, and
    ``on_measured`` what measured, with what was found of predictions.

    Raises:
        RankSliceError: with all mistakes that were found; what was measured is kept in ``out``.
    """
    from rankslice.measurement.trace.traced_operators import operators_text
    from rankslice.session.profiling.profiler import Profiler, profile_model

    profiler = Profiler(model, platform, out, replace(options, ssh_config=ssh_config), listener)
    with profiler:
        if operators is not None:
            write_output(operators, operators_text(operators, profiler.operators()), "--operators")
        refinement = profile_model(profiler, refined=options.refine, seconds=options.seconds)
    on_measured(profiler, refinement)
    return profiler.profile


@command(
    "profile",
    "model.onnx --platform boards.yaml -o profile.json",
    "models/digits.onnx --per-core --alone -o digits.json",
    "model.tflite --alone --operators operators.csv",
    calls=profile,
)
def show_profile(
    call: Callable[..., Profile], out: ProfileFile = Path("profile.json"), json: Json = None
) -> None:
    from rankslice.commands.profile.show import (
        ProfileTalk,
        print_left_out,
        print_profile,
        profile_summary,
    )

    assert out is not None

    def show(profiler: Profiler, refinement: Any) -> None:
        progress.stop()
        left_out = profiler.left_out()
        if json is not None:
            summary = profile_summary(profiler.profile, refinement)
            write_json(json, {**summary, "left_out": [kind.to_json() for kind in left_out]})
        if json != STDOUT:
            print_profile(profiler.profile, refinement, out, screen)
            print_left_out(left_out, screen)

    with progress_bars() as progress:
        try:
            call(listener=ProfileTalk(talk, progress), on_measured=show)
        except KeyboardInterrupt:
            end_interrupted([out] if out.exists() else [])
