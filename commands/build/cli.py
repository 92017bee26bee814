"""The options of ``rankslice build``."""

from __future__ import annotations

import json as json_format
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.errors import Mistake
from rankslice.framework.files.output_file import STDOUT, write_json
from rankslice.framework.option_records import MisuseError, about, offered
from rankslice.session.building.build_options import BuildOptions
from rankslice.session.building.cut_mapping import mapping_of_cuts, parse_cuts
from rankslice.session.shared_options import (
    Boards,
    Json,
    MappingSource,
    OpenSizes,
    mapping_from,
)
from rankslice.views.terminal import print_line, screen, show, talk

if TYPE_CHECKING:
    from rankslice.session.building.build import Build
    from rankslice.session.building.planning import MakeMapping


@function
def build(
    model: Annotated[
        Path,
        about(
            "Model: .onnx, .tflite, .keras, .h5, a SavedModel folder, or a parts file (.yaml).",
            Path,
            is_argument=True,
        ),
    ],
    mapping: Annotated[
        MappingSource | None,
        about(
            "Mapping file (JSON): which accelerator runs which layers.", Path, excludes=("cuts",)
        ),
    ] = None,
    platform: Boards = "local",
    out: Annotated[Path, about("Build folder to create.", Path)] = Path("out"),
    *,
    cuts: Annotated[
        tuple[int, ...] | None,
        about(
            "Instead of --mapping: numbers of the layers that start a new slice.",
            parse_cuts,
            metavar="N[,N...]",
        ),
    ] = None,
    options: Annotated[BuildOptions, offered(without=("keep_size",))],
    sizes: OpenSizes,
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
    from rankslice.session.building.build import build as build_folder

    options = replace(options, sizes=sizes.given)
    if mapping is not None:
        layers: Path | MakeMapping = mapping_from(mapping)
    elif cuts is None and ask is None:
        raise MisuseError(Mistake("mapping", "is missing", "give either a mapping or cuts"))
    else:
        numbers = parse_cuts(ask()) if cuts is None and ask is not None else cuts or ()
        layers = mapping_of_cuts(numbers, share_cores=options.share_cores)
    return build_folder(model, layers, platform, out, options, on_step=on_step)


@command(
    "build",
    "models/digits.onnx --mapping mappings/digits-two-ranks.json --platform local --out out",
    "model.onnx --mapping mapping.json --platform boards.yaml --profile profile.json --survive all",
    calls=build,
)
def show_build(
    call: Callable[..., Build], model: Path, sizes: OpenSizes, json: Json = None
) -> None:
    from rankslice.framework.plan import plan_to_json
    from rankslice.views.plan_text import build_parts

    with talk.status("reading") as status:

        def ask() -> str:
            status.stop()
            return _ask_for_cuts(model, sizes)

        result = call(ask=ask, on_step=status.update)
    for warning in result.warnings:
        print_line(talk, warning, "warning")
    write_json(json, json_format.loads(plan_to_json(result.plan)))
    if json != STDOUT:
        show(screen, *build_parts(result), max_cell=None)


def _ask_for_cuts(model: Path, sizes: OpenSizes) -> str:
    """Show where a model can be cut, and return what the person at the terminal types."""
    if not sys.stdin.isatty():
        problem = "neither this nor --cuts is given"
        raise MisuseError(Mistake("--mapping", problem, "where do the layers go?"))
    from rankslice.session.inspecting.inspect import inspect_model
    from rankslice.views.inspection import cut_parts

    with talk.status("reading"):
        inspection = inspect_model(model, options=BuildOptions(sizes=sizes.given))
    show(talk, *cut_parts(inspection), max_cell=None)
    talk.print("Where does each further slice begin? Enter layer numbers, such as those under cut")
    talk.print("cuts: ", end="")
    return input()
