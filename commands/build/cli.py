"""The options of ``rankslice build``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    AtMost,
    Boards,
    Json,
    Layout,
    Mean,
    Scale,
    Shape,
    Surge,
    parse_preprocessing,
    parse_sizes,
    refuse_shared_files,
)
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT

if TYPE_CHECKING:
    from rankslice.commands.planning import MakeMapping
    from rankslice.frontend.formats.given_sizes import GivenSizes


class _Quantize(str, Enum):
    float32 = "float32"
    float16 = "float16"
    dynamic = "dynamic"
    int8 = "int8"


@command(
    "models/digits.onnx --mapping mappings/digits-two-ranks.json --platform local --out out",
    "model.onnx --mapping mapping.json --platform boards.yaml --profile profile.json --survive all",
)
def build(
    context: typer.Context,
    model: Annotated[Path, Argument(readable=False, help="Model: .onnx, .tflite, .keras or .h5.")],
    mapping: Annotated[
        Path | None,
        Option(readable=False, help="Mapping file (JSON): which accelerator runs which layers."),
    ] = None,
    surge: Surge = None,
    profile: Annotated[
        Path | None,
        Option(
            readable=False,
            help="Profile of the model: determines the missing weights of ranks that take turns.",
        ),
    ] = None,
    cuts: Annotated[
        str | None,
        Option(
            metavar="N[,N...]",
            help="Instead of --mapping: numbers of the layers that start a new slice.",
        ),
    ] = None,
    platform: Boards = "local",
    out: Annotated[Path, Option(readable=False, help="Build folder to create.")] = Path("out"),
    shape: Shape = None,
    at_most: AtMost = None,
    share_cores: Annotated[
        bool, Option("--share-cores", help="Allow several ranks on the same cores.")
    ] = False,
    source_board: Annotated[
        str | None, Option(help="Board where frames enter (default: that of the first layer).")
    ] = None,
    video: Annotated[
        bool,
        Option(
            "--video",
            help="Add OpenCV to the requirements of the board where frames enter, for run --input"
            " video.mp4 or camera:0.",
        ),
    ] = False,
    literally: Annotated[
        bool,
        Option(
            "--literally",
            help="Keras: keep normalisations on the ranks of the mapping; do not move them to the"
            " layers they merge into.",
        ),
    ] = False,
    quantize: Annotated[
        _Quantize, Option(help="Keras: number format of the sub-models.")
    ] = _Quantize.float32,
    representative: Annotated[
        Path | None,
        Option(
            readable=False,
            help="File or folder with representative frames: for int8, and for bounds of"
            " data-dependent sizes in an ONNX model.",
        ),
    ] = None,
    size: Annotated[
        str | None, Option(help="Resize images of --representative to HxW, as 'run' does.")
    ] = None,
    mean: Mean = None,
    scale: Scale = None,
    force: Annotated[bool, Option("--force", help="Replace an existing build folder.")] = False,
    archive: Annotated[
        bool, Option("--archive", help="Also write each package as a .tar file.")
    ] = False,
    wheels: Annotated[
        str,
        Option(
            metavar="DIR|download",
            help="Include Python wheels in the packages: from a folder, or downloaded.",
        ),
    ] = "",
    survive: Annotated[
        str | None,
        Option(
            metavar="all|BOARD[,BOARD]",
            help="Boards that 'run --survive' may lose: also plan (with --profile) and build for"
            " the remaining boards.",
        ),
    ] = None,
    standby: Annotated[
        bool,
        Option(
            "--standby",
            help="With --survive: check that the boards' memory suffices for all plans at once.",
        ),
    ] = False,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.build.build import BuildOptions, build as build_folder
    from rankslice.commands.build.build_options import Quantisation
    from rankslice.commands.build.show import print_build
    from rankslice.framework.plan import plan_to_json

    sizes = parse_sizes(shape, at_most)
    preprocessing = parse_preprocessing(Layout.nhwc, size, mean, scale)
    where = _mapping(mapping, cuts, share_cores, lambda: _ask_for_cuts(model, sizes))
    with talk.status("reading") as status:
        result = build_folder(
            model,
            where,
            platform,
            out,
            BuildOptions(
                quantisation=Quantisation(quantize.value, representative, preprocessing),
                sizes=sizes,
                share_cores=share_cores,
                source_board=source_board,
                surge=surge,
                profile=profile,
                video=video,
                literally=literally,
                force=force,
                archive=archive,
                wheels=wheels,
                survive=tuple(filter(None, (survive or "").split(","))),
                standby=standby,
            ),
            on_step=status.update,
        )
    for warning in result.warnings:
        print_line(talk, warning, "warning")
    write_json(json_file, json.loads(plan_to_json(result.plan)))
    if json_file != STDOUT:
        print_build(result, screen)


def _mapping(
    mapping: Path | None, cuts: str | None, share_cores: bool, ask: Callable[[], str]
) -> Path | MakeMapping:
    """Return the mapping that the options of ``build`` mean; ask if there are none."""
    from rankslice.commands.build.cut_mapping import mapping_of_cuts, parse_cuts

    if mapping is not None and cuts is not None:
        found = "assigns layers, and so does --mapping"
        raise RankSliceError(Mistake("--cuts", found, "give one of them"))
    if mapping is not None:
        return mapping
    return mapping_of_cuts(parse_cuts(ask() if cuts is None else cuts), share_cores=share_cores)


def _ask_for_cuts(model: Path, sizes: GivenSizes) -> str:
    """Show where a model can be cut, and return what the person at the terminal types."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "neither this nor --cuts is given: where do the layers go?", param_hint="--mapping"
        )
    from rankslice.commands.inspect.inspect import inspect_model
    from rankslice.commands.inspect.show import print_cuts

    with talk.status("reading"):
        inspection = inspect_model(model, sizes)
    print_cuts(inspection, talk)
    talk.print("Where does each further slice begin? Enter layer numbers, such as those under cut")
    answer: str = typer.prompt("cuts", err=True)
    return answer
