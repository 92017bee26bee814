"""The options of ``rankslice profile``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rankslice.backend.runtime.options import Preprocessing
from rankslice.commands.command import command, function
from rankslice.commands.output import end_interrupted, write_json
from rankslice.commands.shared_options import (
    Boards,
    Json,
    OnnxOrTflite,
    OpenSizes,
    SshConfig,
    accelerator_keys,
)
from rankslice.framework.files.output_file import PROFILE, STDOUT
from rankslice.framework.option_records import Writes, about, offered, option
from rankslice.views.terminal import progress_bars, screen, talk

if TYPE_CHECKING:
    from rankslice.commands.profile.profiler import Profiler
    from rankslice.commands.profile.span_bench import Listener
    from rankslice.framework.profile import Profile

ProfileFile = Annotated[
    Path | None,
    about(
        "Profile to create or to complete: only what is missing is measured.",
        Path,
        writes=Writes(PROFILE, may_be_stream=False),
        alias=("-o",),
    ),
]


@dataclass(frozen=True, slots=True)
class Measuring:
    """What is measured, and how long."""

    accelerators: tuple[str, ...] = option(
        (),
        "Mapping keys to measure (default: all cores of each CPU, each GPU, each NPU).",
        accelerator_keys,
        metavar="KEY,KEY,...",
    )
    per_core: bool = option(False, "Measure single CPU cores instead of all cores together.")
    alone: bool = option(
        False,
        "Keep the board's other accelerators idle (default: they compute, as in a pipeline).",
    )
    fresh: bool = option(False, "Discard existing measurements.", excludes=("again",))
    again: bool = option(
        False,
        "Repeat all measurements and keep the existing ones, for machines whose speed varies.",
    )
    refine: bool = option(
        True,
        "Also measure the slices of the fastest pipeline until prediction and measurement agree.",
        has_both=True,
    )
    input: tuple[str, ...] = option(
        (),
        "Representative frames for a model whose sizes change: files or a folder, as for 'run'."
        " Default: random values of the largest sizes.",
        str,
        many=tuple,
    )
    seconds: float | None = option(
        None,
        "Time limit in seconds: the most informative slices are measured first.",
        float,
        least=1,
    )
    venv: bool = option(False, "Also create the Python environment on each board.")
    wheels: str = option(
        "",
        "Like --venv, for boards without internet access: from a folder of wheels, or from wheels"
        " that this machine downloads.",
        str,
        metavar="DIR|download",
    )


_OF_INPUT = {name: {"needs": "input"} for name in ("layout", "size", "mean", "scale")}


@function
def profile(
    model: OnnxOrTflite,
    platform: Boards = "local",
    out: ProfileFile = Path("profile.json"),
    *,
    measuring: Measuring,
    sizes: OpenSizes,
    preprocessing: Annotated[Preprocessing, offered(*_OF_INPUT, **_OF_INPUT)],
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
    from rankslice.commands.profile.options import ProfileOptions
    from rankslice.commands.profile.profiler import Profiler, profile_model

    profiler = Profiler(
        model,
        platform,
        out,
        ProfileOptions(
            keys=measuring.accelerators,
            per_core=measuring.per_core,
            sizes=sizes.given,
            inputs=measuring.input,
            preprocessing=preprocessing,
            alone=measuring.alone,
            fresh=measuring.fresh,
            again=measuring.again,
            venv=measuring.venv or bool(measuring.wheels),
            wheels=measuring.wheels,
            ssh_config=ssh_config,
        ),
        listener=listener,
    )
    with profiler:
        refinement = profile_model(profiler, refined=measuring.refine, seconds=measuring.seconds)
    on_measured(profiler, refinement)
    return profiler.profile


@command(
    "profile",
    "model.onnx --platform boards.yaml -o profile.json",
    "models/digits.onnx --per-core --alone -o digits.json",
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
            write_json(json, {**summary, "left_out": [each.to_json() for each in left_out]})
        if json != STDOUT:
            print_profile(profiler.profile, refinement, out, screen)
            print_left_out(left_out, screen)

    with progress_bars() as progress:
        try:
            call(listener=ProfileTalk(talk, progress), on_measured=show)
        except KeyboardInterrupt:
            end_interrupted([out] if out.exists() else [])
