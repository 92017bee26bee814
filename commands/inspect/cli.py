"""The options of ``rankslice inspect``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import (
    AtMost,
    Json,
    Shape,
    Surge,
    parse_sizes,
    refuse_shared_files,
    refuse_with,
    writes,
)
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, SVG, write_output

if TYPE_CHECKING:
    from rankslice.backend.runtime.engines import EngineSettings
    from rankslice.frontend.formats.given_sizes import GivenSizes


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
    surge: Surge = None,
    platform: Annotated[
        str | None, Option(help="Platform file for --mapping (default: 'local').")
    ] = None,
    profile: Annotated[
        Path | None,
        Option(
            readable=False,
            help="With --mapping: profile that determines the missing weights of ranks that take"
            " turns.",
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
        bool,
        Option(
            "--internals",
            help="Show instead the nodes that LiteRT or onnxruntime runs for a .tflite or .onnx"
            " file, or for the sub-models of a build folder.",
        ),
    ] = False,
    delegate: Annotated[
        str | None,
        Option(metavar="LIB", help="With --internals: delegate library (default: XNNPACK)."),
    ] = None,
    accelerator: Annotated[
        _Accelerator | None, Option(help="With --internals: run it on this accelerator.")
    ] = None,
    option: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=VALUE",
            help="With --internals: option of the delegate or accelerator; for onnxruntime,"
            " provider=NAME and the provider's options.",
        ),
    ] = None,
    rank: Annotated[
        int | None,
        Option(min=0, help="With --internals and a build folder: only this rank's sub-models."),
    ] = None,
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    of_plan = {"mapping": mapping, "surge": surge, "platform": platform, "profile": profile}
    of_model = {"shape": shape, "at_most": at_most, "svg": svg}
    of_engine = {"delegate": delegate, "accelerator": accelerator, "option": option}
    if object:
        refused = {**of_plan, **of_model, **of_engine, "rank": rank is not None}
        refuse_with("--object", internals=internals, summary=summary, **refused)
        _inspect_object(model, json_file)
        return
    if internals:
        refuse_with("--internals", summary=summary, svg=svg, **of_plan)
        settings = _settings(delegate, accelerator, option or [])
        _inspect_internals(model, settings, parse_sizes(shape, at_most), rank, json_file)
        return
    if any(of_engine.values()) or rank is not None:
        raise RankSliceError("--delegate, --accelerator, --option and --rank need --internals")
    from rankslice.commands.inspect.inspect import inspect_model
    from rankslice.commands.inspect.show import print_inspection
    from rankslice.session.build_folder import EDITED, is_build_folder, is_edited, read_plan

    inspection = inspect_model(
        model, parse_sizes(shape, at_most), mapping, platform, surge, profile
    )
    if is_build_folder(model) and is_edited(model, read_plan(model)):
        print_line(talk, EDITED, "note")
    for warning in inspection.graph.warnings:
        print_line(talk, warning, "warning")
    if svg is not None:
        from rankslice.commands.inspect.picture import picture_of

        write_output(svg, picture_of(inspection), "--svg")
    if json_file is not None:
        from rankslice.commands.inspect.to_json import inspection_to_json

        write_json(json_file, inspection_to_json(inspection))
    if STDOUT not in (svg, json_file):
        from rankslice.session.survival import fallback_lines, find_survival

        print_inspection(inspection, screen, cuts, summary=summary)
        survival = find_survival(model)
        for line in fallback_lines(survival) if survival is not None else ():
            print_line(screen, line)


def _inspect_object(model: Path, json_file: Path | None) -> None:
    """Show the tables of a ``.tflite`` file."""
    from rankslice.commands.inspect.show_object import object_to_json, print_object
    from rankslice.frontend.formats import FORMATS
    from rankslice.frontend.formats.tflite.object import read_object

    suffix = model.suffix.lower()
    if suffix.lstrip(".") in FORMATS.keys() - {"tflite"}:
        expected = "--object takes .tflite files"
        raise RankSliceError(Mistake(str(model), f"has the suffix {suffix!r}", expected))
    found = read_object(model)
    write_json(json_file, object_to_json(model, found))
    if json_file != STDOUT:
        print_object(model, found, screen)


def _settings(
    delegate: str | None, accelerator: _Accelerator | None, options: list[str]
) -> EngineSettings:
    """Return how the options want an engine to run a model."""
    from rankslice.backend.runtime.engines import EngineSettings

    if delegate and accelerator:
        refuse_with("--accelerator", delegate=delegate)
    wrong = [text for text in options if "=" not in text]
    if wrong:
        raise RankSliceError(*(Mistake("--option", repr(t), "expected NAME=VALUE") for t in wrong))
    values = {name: value for name, _, value in (text.partition("=") for text in options)}
    return EngineSettings(
        options={**values, "delegate": delegate} if delegate else values,
        accelerator=accelerator.value if accelerator else "cpu",
        allow_fallback=True,
    )


def _inspect_internals(
    model: Path,
    settings: EngineSettings,
    sizes: GivenSizes,
    rank: int | None,
    json_file: Path | None,
) -> None:
    """Show what engines make of a model, or of the sub-models of a build folder."""
    from rankslice.commands.inspect.internals import inspect_internals, internals_to_json
    from rankslice.commands.inspect.show_internals import print_internals

    models = []
    with talk.status("loading") as status:
        for internals in inspect_internals(model, settings, sizes, rank):
            models.append(internals)
            status.update(f"loading ({len(models)} done)")
    write_json(json_file, internals_to_json(models))
    if json_file != STDOUT:
        print_internals(models, screen)
