"""Commands that look at a model and slice it: ``inspect`` and ``build``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rankslice.commands.app import app
from rankslice.commands.options import (
    UNIT_SCALE,
    Boards,
    Json,
    Layout,
    Scale,
    Shape,
    parse_preprocessing,
    parse_shapes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, SVG, write_output

if TYPE_CHECKING:
    from rankslice.commands.planning import MakeMapping


class _Quantize(str, Enum):
    float32 = "float32"
    float16 = "float16"
    dynamic = "dynamic"
    int8 = "int8"


class _Accelerator(str, Enum):
    gpu = "gpu"
    npu = "npu"


@app.command(
    epilog="Examples: rankslice inspect models/digits.onnx --cuts 20"
    " | rankslice inspect models/digits.onnx --mapping mappings/digits-two-ranks.json"
    " --svg digits.svg | rankslice inspect out --svg out.svg"
)
def inspect(
    context: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(
            readable=False,
            help="An .onnx, .tflite, .keras or .h5 model, or a folder made by 'build'.",
        ),
    ],
    shape: Shape = None,
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="Also show what each rank of this mapping would do."),
    ] = None,
    platform: Annotated[
        str | None, typer.Option(help="The mapping's boards, as for 'build' (default: 'local').")
    ] = None,
    cuts: Annotated[int, typer.Option(min=0, help="Most cuts shown, spread over the model.")] = 9,
    summary: Annotated[
        bool | None,
        typer.Option(
            "--summary/--no-summary",
            show_default=False,
            help="Leave the layers out, or show them (default: out if a terminal would show more"
            " than 100).",
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(
            callback=writes(SVG),
            readable=False,
            help="Draw the model, by rank if there is a plan; '-' for stdout.",
        ),
    ] = None,
    object: Annotated[
        bool,
        typer.Option(
            "--object", help="Instead: the tables of a .tflite file, as they stand there."
        ),
    ] = False,
    internals: Annotated[
        bool,
        typer.Option(
            "--internals", help="Instead: what LiteRT makes of a .tflite file, step by step."
        ),
    ] = False,
    delegate: Annotated[
        str | None,
        typer.Option(
            metavar="LIB", help="With --internals: a delegate library (default: XNNPACK)."
        ),
    ] = None,
    accelerator: Annotated[
        _Accelerator | None,
        typer.Option(help="With --internals: compile for LiteRT's GPU or NPU accelerator."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Of the delegate or accelerator."),
    ] = None,
    json_file: Json = None,
) -> None:
    """Show a model's layers, what they cost, where it can be cut, and what a mapping gives."""
    refuse_shared_files(context)
    others = {"shape": shape, "mapping": mapping, "platform": platform, "svg": svg}
    refused = {**others, "summary": summary}
    of_internals = {"delegate": delegate, "accelerator": accelerator, "option": option}
    if object:
        refuse_with("--object", internals=internals, **refused, **of_internals)
        _inspect_object(model, json_file)
        return
    if internals:
        refuse_with("--internals", **refused)
        _inspect_internals(model, delegate, accelerator, option or [], json_file)
        return
    if any(of_internals.values()):
        raise RankSliceError("--delegate, --accelerator and --option need --internals")
    from rankslice.commands.inspect.inspect import inspect_model
    from rankslice.commands.inspect.picture import picture_of
    from rankslice.commands.inspect.show import print_inspection
    from rankslice.commands.inspect.to_json import inspection_to_json

    inspection = inspect_model(model, parse_shapes(shape), mapping, platform)
    if svg is not None:
        write_output(svg, picture_of(inspection), "--svg")
    if json_file is not None:
        write_json(json_file, inspection_to_json(inspection))
    if STDOUT not in (svg, json_file):
        print_inspection(inspection, screen, cuts, summary=summary)


def _inspect_object(model: Path, json_file: Path | None) -> None:
    """Show the tables of a ``.tflite`` file."""
    from rankslice.commands.inspect.object_to_json import object_to_json
    from rankslice.commands.inspect.show_object import print_object
    from rankslice.frontend.formats.tflite.object import read_object

    _refuse_other_formats(model, "--object")
    found = read_object(model)
    if json_file is not None:
        write_json(json_file, object_to_json(found))
    if json_file != STDOUT:
        print_object(found, screen)


def _refuse_other_formats(model: Path, option: str) -> None:
    """Refuse a file of a model in another format than ``.tflite``, by its suffix."""
    from rankslice.frontend.formats.registry import SUFFIXES

    suffix = model.suffix.lower()
    if suffix.lstrip(".") in {*SUFFIXES} - {"tflite"}:
        found = f"has the suffix {suffix!r}"
        raise RankSliceError(Mistake(str(model), found, f"{option} takes .tflite files"))


def _inspect_internals(
    model: Path,
    delegate: str | None,
    accelerator: _Accelerator | None,
    options: list[str],
    json_file: Path | None,
) -> None:
    """Show what LiteRT makes of a ``.tflite`` file."""
    from rankslice.commands.inspect.internals import Wanted, internals_to_json, look_inside
    from rankslice.commands.inspect.show_internals import print_internals

    _refuse_other_formats(model, "--internals")
    if delegate and accelerator:
        refuse_with("--accelerator", delegate=delegate)
    wrong = [text for text in options if "=" not in text]
    if wrong:
        raise RankSliceError(*(Mistake("--option", repr(t), "expected NAME=VALUE") for t in wrong))
    wanted = Wanted(
        delegate or "",
        accelerator.value if accelerator else "",
        {name: value for name, _, value in (text.partition("=") for text in options)},
    )
    with talk.status("loading"):
        found = look_inside(model, wanted)
    if json_file is not None:
        write_json(json_file, internals_to_json(found))
    if json_file != STDOUT:
        print_internals(found, screen)


@app.command(
    epilog="Example: rankslice build models/digits.onnx --mapping mappings/digits-two-ranks.json"
    " --platform local --out out"
)
def build(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(readable=False, help="An .onnx, .tflite, .keras or .h5 model.")
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(readable=False, help="JSON: which layers go to which accelerator."),
    ] = None,
    cuts: Annotated[
        str | None,
        typer.Option(
            metavar="N[,N...]",
            help="Instead of a mapping: numbers of the layers with which further slices begin.",
        ),
    ] = None,
    platform: Boards = "local",
    out: Annotated[Path, typer.Option(readable=False, help="Folder to make.")] = Path("out"),
    shape: Shape = None,
    share_cores: Annotated[
        bool, typer.Option("--share-cores", help="Let several ranks have the same cores.")
    ] = False,
    source_board: Annotated[
        str | None, typer.Option(help="Board where frames enter (default: the first layer's).")
    ] = None,
    literally: Annotated[
        bool,
        typer.Option(
            "--literally",
            help="Keras: leave normalisations where the mapping says, apart from the layers into"
            " which converting would merge them.",
        ),
    ] = False,
    quantize: Annotated[
        _Quantize, typer.Option(help="Types of numbers in a Keras model's sub-models.")
    ] = _Quantize.float32,
    representative: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="For int8: .npz, .npy or a folder of images like those to come."
        ),
    ] = None,
    size: Annotated[
        str | None, typer.Option(help="HxW: resize images of --representative, as 'run' does.")
    ] = None,
    mean: Annotated[str, typer.Option(help="Subtracted from their pixels: M or R,G,B.")] = "0",
    scale: Scale = UNIT_SCALE,
    force: Annotated[bool, typer.Option("--force", help="Replace an older build folder.")] = False,
    archive: Annotated[
        bool, typer.Option("--archive", help="Also write each package as a .tar.")
    ] = False,
    wheels: Annotated[
        str,
        typer.Option(
            metavar="DIR|download",
            help="Put what boards install into their packages, from a folder or an index.",
        ),
    ] = "",
    json_file: Json = None,
) -> None:
    """Slice a model: sub-models, tables, rankfile, driver and a package per board."""
    refuse_shared_files(context)
    from rankslice.commands.build.build import build as build_folder
    from rankslice.commands.build.conversion import Quantisation
    from rankslice.commands.run.show import print_build
    from rankslice.framework.plan import plan_to_json

    shapes = parse_shapes(shape)
    preprocessing = parse_preprocessing(Layout.nhwc, size, mean, scale)
    where = _mapping(mapping, cuts, share_cores, lambda: _ask_for_cuts(model, shapes))
    with talk.status("reading") as status:
        result = build_folder(
            model,
            where,
            platform,
            out,
            quantisation=Quantisation(quantize.value, representative, preprocessing),
            shapes=shapes,
            share_cores=share_cores,
            source_board=source_board,
            literally=literally,
            force=force,
            archive=archive,
            wheels=wheels,
            on_step=status.update,
        )
    for warning in result.warnings:
        talk.print(f"[yellow]warning:[/yellow] {escape(warning)}", soft_wrap=True)
    if json_file is not None:
        write_json(json_file, json.loads(plan_to_json(result.plan)))
    if json_file != STDOUT:
        print_build(result, screen)


def _mapping(
    mapping: Path | None, cuts: str | None, share_cores: bool, ask: Callable[[], str]
) -> Path | MakeMapping:
    """Return the mapping that the options of ``build`` mean; ask if there are none."""
    from rankslice.commands.build.cuts import mapping_of_cuts, parse_cuts

    if mapping is not None and cuts is not None:
        found = "says where layers go, and so does --mapping"
        raise RankSliceError(Mistake("--cuts", found, "give one of them"))
    if mapping is not None:
        return mapping
    return mapping_of_cuts(parse_cuts(ask() if cuts is None else cuts), share_cores=share_cores)


def _ask_for_cuts(model: Path, shapes: dict[str, tuple[int, ...]]) -> str:
    """Show where a model can be cut, and return what the person at the terminal types."""
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "neither this nor --cuts is given: where do the layers go?", param_hint="--mapping"
        )
    from rankslice.commands.inspect.inspect import inspect_model
    from rankslice.commands.inspect.show import print_cuts

    with talk.status("reading"):
        inspection = inspect_model(model, shapes)
    print_cuts(inspection, talk)
    talk.print("Where does each further slice begin? One or more numbers, such as those under cut")
    answer: str = typer.prompt("cuts", err=True)
    return answer
