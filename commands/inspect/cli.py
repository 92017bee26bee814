"""The options of ``rankslice inspect``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    AtMost,
    Json,
    Shape,
    parse_sizes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, SVG, write_output


class _Accelerator(str, Enum):
    gpu = "gpu"
    npu = "npu"


@command(
    "models/digits.onnx --cuts 20",
    "models/digits.onnx --mapping mappings/digits-two-ranks.json --svg digits.svg",
    "out --svg out.svg",
)
def inspect(
    context: typer.Context,
    model: Annotated[
        Path,
        Argument(readable=False, help="Model (.onnx, .tflite, .keras or .h5) or build folder."),
    ],
    shape: Shape = None,
    at_most: AtMost = None,
    mapping: Annotated[
        Path | None, Option(readable=False, help="Mapping file: also show the work of each rank.")
    ] = None,
    surge: Annotated[
        Path | None,
        Option(
            readable=False,
            help="A second mapping file: where frames go while more come than the ranks of"
            " --mapping can handle.",
        ),
    ] = None,
    platform: Annotated[
        str | None, Option(help="Platform file for --mapping (default: 'local').")
    ] = None,
    profile: Annotated[
        Path | None,
        Option(
            readable=False,
            help="For --mapping: profile that decides the weights of ranks in turn without any.",
        ),
    ] = None,
    cuts: Annotated[
        int, Option(min=0, help="Maximum number of cuts to show, spread over the model.")
    ] = 9,
    summary: Annotated[
        bool | None,
        Option(
            "--summary/--no-summary",
            show_default=False,
            help="Hide or show the table of layers (default: hidden on a terminal if over 100).",
        ),
    ] = None,
    svg: Annotated[
        Path | None,
        Option(
            callback=writes(SVG),
            readable=False,
            help="Draw the model as SVG, coloured by rank; '-': standard output.",
        ),
    ] = None,
    object: Annotated[
        bool, Option("--object", help="Show the raw tables of a .tflite file instead.")
    ] = False,
    internals: Annotated[
        bool, Option("--internals", help="Show how LiteRT loads a .tflite file instead.")
    ] = False,
    delegate: Annotated[
        str | None,
        Option(metavar="LIB", help="With --internals: delegate library (default: XNNPACK)."),
    ] = None,
    accelerator: Annotated[
        _Accelerator | None, Option(help="With --internals: compile for this LiteRT accelerator.")
    ] = None,
    option: Annotated[
        list[str] | None,
        Option(metavar="NAME=VALUE", help="Option of the delegate or accelerator."),
    ] = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    others = {
        "shape": shape,
        "at_most": at_most,
        "mapping": mapping,
        "surge": surge,
        "platform": platform,
        "profile": profile,
        "svg": svg,
    }
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
    from rankslice.commands.inspect.show import print_inspection

    inspection = inspect_model(
        model, parse_sizes(shape, at_most), mapping, platform, surge, profile
    )
    if svg is not None:
        from rankslice.commands.inspect.picture import picture_of

        write_output(svg, picture_of(inspection), "--svg")
    if json_file is not None:
        from rankslice.commands.inspect.to_json import inspection_to_json

        write_json(json_file, inspection_to_json(inspection))
    if STDOUT not in (svg, json_file):
        from rankslice.commands.survival import fallback_lines, find_survival

        print_inspection(inspection, screen, cuts, summary=summary)
        survival = find_survival(model)
        for line in fallback_lines(survival) if survival is not None else ():
            print_line(screen, line)


def _inspect_object(model: Path, json_file: Path | None) -> None:
    """Show the tables of a ``.tflite`` file."""
    from rankslice.commands.inspect.object_to_json import object_to_json
    from rankslice.commands.inspect.show_object import print_object
    from rankslice.frontend.formats.tflite.object import read_object

    _refuse_other_formats(model, "--object")
    found = read_object(model)
    write_json(json_file, object_to_json(found))
    if json_file != STDOUT:
        print_object(found, screen)


def _refuse_other_formats(model: Path, option: str) -> None:
    """Refuse a file of a model in another format than ``.tflite``, by its suffix."""
    from rankslice.frontend.formats import FORMATS

    suffix = model.suffix.lower()
    if suffix.lstrip(".") in FORMATS.keys() - {"tflite"}:
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
    write_json(json_file, internals_to_json(found))
    if json_file != STDOUT:
        print_internals(found, screen)
