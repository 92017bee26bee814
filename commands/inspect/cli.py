"""The options of ``rankslice inspect``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, SVG, write_json, write_output
from rankslice.framework.option_records import Writes, about, offered, option
from rankslice.framework.specs.read_platform import PlatformSource
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.shared_options import Json, MappingSource, OpenSizes, mapping_from
from rankslice.views.terminal import print_line, screen, show, talk

if TYPE_CHECKING:
    from rankslice.backend.runtime.engines import EngineSettings
    from rankslice.session.inspecting.inspect import Inspection

_OF_PLAN = ("mapping", "horizontal", "surge", "platform", "profile")
_OF_ENGINE = ("delegate", "accelerator", "option", "rank")


def _named_values(texts: Sequence[str]) -> dict[str, str]:
    wrong = [text for text in texts if "=" not in text]
    if wrong:
        raise RankSliceError(*(Mistake("--option", repr(t), "expected NAME=VALUE") for t in wrong))
    return {name: value for name, _, value in (text.partition("=") for text in texts)}


@function
def inspect(
    model: Annotated[
        Path,
        about(
            "Model (.onnx, .tflite, .keras, .h5, a SavedModel folder, or a parts file, .yaml) or"
            " build folder.",
            Path,
            is_argument=True,
        ),
    ],
    mapping: Annotated[
        MappingSource | None, about("Mapping file: also show the work of each rank.", Path)
    ] = None,
    platform: Annotated[
        PlatformSource | None, about("Platform file for --mapping (default: 'local').", str)
    ] = None,
    *,
    options: Annotated[
        BuildOptions,
        offered(
            "horizontal",
            "surge",
            "profile",
            profile={
                "help": "With --mapping: profile that determines the missing weights of ranks that"
                " take turns."
            },
        ),
    ],
    sizes: OpenSizes,
) -> Inspection:
    """Return the layers of a model, their costs, the cuts, and the plan of a mapping.

    Raises:
        RankSliceError: the file is no model, or one that cannot be sliced; or there are mistakes
            in the mapping or the platform.
    """
    from rankslice.session.inspecting.inspect import inspect_model

    layers = None if mapping is None else mapping_from(mapping)
    return inspect_model(model, layers, platform, replace(options, sizes=sizes.given))


@dataclass(frozen=True, slots=True)
class Shown:
    """What is shown of a model, and where."""

    cuts: int = option(9, "Maximum number of cuts to show, spread over the model.", int, least=0)
    summary: bool | None = option(
        None,
        "Hide or show the table of layers (default: hidden on a terminal if over 100).",
        has_both=True,
    )
    svg: Path | None = option(
        None,
        "Draw the model as SVG, coloured by rank; '-': standard output.",
        Path,
        writes=Writes(SVG),
    )
    against: Path | None = option(
        None,
        "Show the figures of the model beside those of this one, with a mark where they differ.",
        Path,
        excludes=("object", "summary", "svg", "rank", *_OF_PLAN),
    )
    object: bool = option(
        False,
        "Show the raw tables of a .tflite file instead.",
        excludes=(*("internals", "summary", *_OF_PLAN, "shape", "at_most", "svg", *_OF_ENGINE),),
    )


@dataclass(frozen=True, slots=True)
class Internals:
    """What an engine makes of a model, and how the engine is run."""

    internals: bool = option(
        False,
        "Show instead the nodes that LiteRT or onnxruntime runs for a .tflite or .onnx file, or"
        " for the sub-models of a build folder.",
        excludes=("summary", "svg", *_OF_PLAN),
    )
    delegate: str | None = option(
        None,
        "With --internals: delegate library (default: XNNPACK).",
        str,
        metavar="LIB",
        needs="internals",
        is_executed=True,
    )
    accelerator: str | None = option(
        None,
        "With --internals: run it on this accelerator.",
        ("gpu", "npu"),
        needs="internals",
        excludes=("delegate",),
    )
    rank: int | None = option(
        None,
        "With --internals and a build folder: only this rank's sub-models.",
        int,
        least=0,
        needs="internals",
    )
    option: dict[str, str] | None = option(
        None,
        "With --internals: option of the delegate or accelerator; for onnxruntime, provider=NAME"
        " and the provider's options.",
        many=_named_values,
        metavar="NAME=VALUE",
        is_executed=True,
        needs="internals",
    )

    @property
    def settings(self) -> EngineSettings:
        """How an engine is to run the model."""
        from rankslice.backend.runtime.engines import EngineSettings

        delegate = {"delegate": self.delegate} if self.delegate else {}
        return EngineSettings(
            options={**(self.option or {}), **delegate},
            accelerator=self.accelerator or "cpu",
            allow_fallback=True,
        )


@command(
    "inspect",
    "models/digits.onnx --cuts 20",
    "models/digits.onnx --mapping mappings/digits-two-ranks.json --svg digits.svg",
    "out --svg out.svg",
    calls=inspect,
)
def show_inspection(
    call: Callable[..., Inspection],
    model: Path,
    sizes: OpenSizes,
    shown: Shown,
    internals: Internals,
    json: Json = None,
) -> None:
    if shown.against is not None:
        _show_both(call, (model, shown.against), internals, sizes, json)
    elif shown.object:
        _show_object(model, json)
    elif internals.internals:
        _show_internals(model, internals, sizes, json)
    else:
        _show_model(call(), model, shown, json)


def _show_model(inspection: Inspection, model: Path, shown: Shown, json: Path | None) -> None:
    from rankslice.session.build_folder import EDITED, is_build_folder, is_edited, read_plan

    if is_build_folder(model) and is_edited(model, read_plan(model)):
        print_line(talk, EDITED, "note")
    for warning in inspection.graph.warnings:
        print_line(talk, warning, "warning")
    if shown.svg is not None:
        from rankslice.views.model_picture import picture_of

        write_output(shown.svg, picture_of(inspection), "--svg")
    if json is not None:
        from rankslice.views.inspection_json import inspection_to_json

        write_json(json, inspection_to_json(inspection))
    if STDOUT in (shown.svg, json):
        return
    from rankslice.session.survival import fallback_lines, find_survival
    from rankslice.views.inspection import inspection_parts

    parts = inspection_parts(inspection, screen, shown.cuts, summary=shown.summary)
    show(screen, *parts, max_cell=None)
    survival = find_survival(model)
    for line in fallback_lines(survival) if survival is not None else ():
        print_line(screen, line)


def _show_both(
    call: Callable[..., Inspection],
    models: Sequence[Path],
    internals: Internals,
    sizes: OpenSizes,
    json: Path | None,
) -> None:
    """Show two models side by side, and with ``--internals`` what engines make of them."""
    from rankslice.session.build_folder import is_build_folder
    from rankslice.session.internals import inspect_internals
    from rankslice.views.models_side_by_side import (
        engine_figures,
        model_figures,
        models_table,
        models_to_json,
    )

    if folders := [path for path in models if is_build_folder(path)]:
        raise RankSliceError(Mistake("--against", f"{folders[0]} is a build folder", "give models"))
    both = [model_figures(call(model=path)) for path in models]
    for path, figures in zip(models, both, strict=True):
        if internals.internals:
            (of_engine,) = inspect_internals(path, internals.settings, sizes.given)
            figures |= engine_figures(of_engine)
    names = [str(path) for path in models]
    write_json(json, models_to_json(names, both))
    if json != STDOUT:
        show(screen, models_table(names, both), max_cell=None)


def _show_object(model: Path, json: Path | None) -> None:
    """Show the tables of a ``.tflite`` file."""
    from rankslice.frontend.formats import FORMATS
    from rankslice.frontend.formats.tflite.object import read_object
    from rankslice.views.tflite_object import object_parts, object_to_json

    suffix = model.suffix.lower()
    if suffix.lstrip(".") in FORMATS.keys() - {"tflite"}:
        expected = "--object takes .tflite files"
        raise RankSliceError(Mistake(str(model), f"has the suffix {suffix!r}", expected))
    tables = read_object(model)
    write_json(json, object_to_json(model, tables))
    if json != STDOUT:
        show(screen, *object_parts(model, tables), max_cell=None)


def _show_internals(model: Path, internals: Internals, sizes: OpenSizes, json: Path | None) -> None:
    """Show what engines make of a model, or of the sub-models of a build folder."""
    from rankslice.session.internals import inspect_internals, internals_to_json
    from rankslice.views.engine_internals import internals_parts

    models = []
    with talk.status("loading") as status:
        for model_internals in inspect_internals(
            model, internals.settings, sizes.given, internals.rank
        ):
            models.append(model_internals)
            status.update(f"loading ({len(models)} done)")
    write_json(json, internals_to_json(models))
    if json != STDOUT:
        for number, model_internals in enumerate(models):
            if number:
                screen.print()
            show(screen, *internals_parts(model_internals), max_cell=None)
