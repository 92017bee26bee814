"""The options of ``rankslice build``."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.backend.runtime.options import Preprocessing
from rankslice.commands.command import command, function
from rankslice.commands.output import write_json
from rankslice.commands.shared_options import (
    Boards,
    Json,
    MappingSource,
    OpenSizes,
    comma_separated,
    mapping_from,
)
from rankslice.framework.errors import Mistake
from rankslice.framework.files.output_file import STDOUT
from rankslice.framework.option_records import MisuseError, about, offered, option
from rankslice.views.terminal import print_line, screen, talk

if TYPE_CHECKING:
    from rankslice.commands.build.build import Build
    from rankslice.commands.planning import MakeMapping


def _layer_numbers(text: str) -> tuple[int, ...]:
    from rankslice.commands.build.cut_mapping import parse_cuts

    return parse_cuts(text)


@dataclass(frozen=True, slots=True)
class Planning:
    """What else the plan depends on."""

    surge: Path | None = option(
        None,
        "Second mapping file: the route of frames while they arrive faster than the ranks of"
        " --mapping can handle.",
        Path,
    )
    profile: Path | None = option(
        None,
        "Profile of the model: determines the missing weights of ranks that take turns.",
        Path,
    )
    cuts: tuple[int, ...] | None = option(
        None,
        "Instead of --mapping: numbers of the layers that start a new slice.",
        _layer_numbers,
        metavar="N[,N...]",
    )
    share_cores: bool = option(False, "Allow several ranks on the same cores.")
    source_board: str | None = option(
        None, "Board where frames enter (default: that of the first layer).", str
    )
    survive: tuple[str, ...] = option(
        (),
        "Boards that 'run --survive' may lose: also plan (with --profile) and build for the"
        " remaining boards.",
        comma_separated,
        metavar="all|BOARD[,BOARD]",
    )
    standby: bool = option(
        False,
        "With --survive: check that the boards' memory suffices for all plans at once.",
    )


@dataclass(frozen=True, slots=True)
class Conversions:
    """How a Keras model is converted."""

    literally: bool = option(
        False,
        "Keras: keep normalisations on the ranks of the mapping; do not move them to the layers"
        " they merge into.",
    )
    quantize: str = option(
        "float32",
        "Keras: number format of the sub-models.",
        ("float32", "float16", "dynamic", "int8"),
    )
    representative: Path | None = option(
        None,
        "File or folder with representative frames: for int8, and for bounds of data-dependent"
        " sizes in an ONNX model.",
        Path,
    )


@dataclass(frozen=True, slots=True)
class Writing:
    """What is written into the build folder."""

    video: bool = option(
        False,
        "Add OpenCV to the requirements of the board where frames enter, for run --input"
        " video.mp4 or camera:0.",
    )
    force: bool = option(False, "Replace an existing build folder.")
    archive: bool = option(False, "Also write each package as a .tar file.")
    wheels: str = option(
        "",
        "Include Python wheels in the packages: from a folder, or downloaded.",
        str,
        metavar="DIR|download",
    )


@function
def build(
    model: Annotated[Path, about("Model: .onnx, .tflite, .keras or .h5.", Path, is_argument=True)],
    mapping: Annotated[
        MappingSource | None,
        about(
            "Mapping file (JSON): which accelerator runs which layers.", Path, excludes=("cuts",)
        ),
    ] = None,
    platform: Boards = "local",
    out: Annotated[Path, about("Build folder to create.", Path)] = Path("out"),
    *,
    planning: Planning,
    sizes: OpenSizes,
    conversions: Conversions,
    preprocessing: Annotated[Preprocessing, offered("size", "mean", "scale")],
    writing: Writing,
    ask: Callable[[], str] | None = None,
    on_step: Callable[[str], None] = lambda step: None,
) -> Build:
    """Slice a model and write everything that its ranks need; return what was written.

    ``ask`` returns cuts as the command line has them, if neither they nor a mapping are given.

    Example:
        >>> rankslice.build("model.onnx", {"local_cpu0": ["conv1..pool5"], "local_cpu1": ["fc6"]})

    Raises:
        RankSliceError: with all mistakes that were found.
    """
    from rankslice.commands.build.build import BuildOptions, build as build_folder
    from rankslice.commands.build.build_options import Quantisation

    images = replace(preprocessing, layout="nhwc")
    quantisation = Quantisation(conversions.quantize, conversions.representative, images)
    options = BuildOptions(
        quantisation=quantisation,
        sizes=sizes.given,
        share_cores=planning.share_cores,
        source_board=planning.source_board,
        surge=planning.surge,
        profile=planning.profile,
        video=writing.video,
        literally=conversions.literally,
        force=writing.force,
        archive=writing.archive,
        wheels=writing.wheels,
        survive=planning.survive,
        standby=planning.standby,
    )
    layers = _layers(mapping, planning, ask)
    return build_folder(model, layers, platform, out, options, on_step=on_step)


def _layers(
    mapping: MappingSource | None, planning: Planning, ask: Callable[[], str] | None
) -> Path | MakeMapping:
    """Return the mapping that the options mean; ask if there are none."""
    from rankslice.commands.build.cut_mapping import mapping_of_cuts

    if mapping is not None:
        return mapping_from(mapping)
    cuts = planning.cuts
    if cuts is None:
        if ask is None:
            raise MisuseError(Mistake("mapping", "is missing", "give either a mapping or cuts"))
        cuts = _layer_numbers(ask())
    return mapping_of_cuts(cuts, share_cores=planning.share_cores)


@command(
    "build",
    "models/digits.onnx --mapping mappings/digits-two-ranks.json --platform local --out out",
    "model.onnx --mapping mapping.json --platform boards.yaml --profile profile.json --survive all",
    calls=build,
)
def show_build(
    call: Callable[..., Build], model: Path, sizes: OpenSizes, json: Json = None
) -> None:
    from rankslice.commands.build.show import print_build
    from rankslice.framework.plan import plan_to_json

    with talk.status("reading") as status:

        def ask() -> str:
            status.stop()
            return _ask_for_cuts(model, sizes)

        result = call(ask=ask, on_step=status.update)
    for warning in result.warnings:
        print_line(talk, warning, "warning")
    write_json(json, json_format.loads(plan_to_json(result.plan)))
    if json != STDOUT:
        print_build(result, screen)


def _ask_for_cuts(model: Path, sizes: OpenSizes) -> str:
    """Show where a model can be cut, and return what the person at the terminal types."""
    if not sys.stdin.isatty():
        found = "neither this nor --cuts is given"
        raise MisuseError(Mistake("--mapping", found, "where do the layers go?"))
    from rankslice.commands.inspect.inspect import inspect_model
    from rankslice.commands.inspect.show import print_cuts

    with talk.status("reading"):
        inspection = inspect_model(model, sizes.given)
    print_cuts(inspection, talk)
    talk.print("Where does each further slice begin? Enter layer numbers, such as those under cut")
    talk.print("cuts: ", end="")
    return input()
