"""The options of ``rankslice report``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankslice.commands.command import command, function
from rankslice.framework.files.output_file import PAGE, STDOUT, write_json, write_output
from rankslice.framework.option_records import Writes, about
from rankslice.framework.wording import on_one_line
from rankslice.session.shared_options import Json
from rankslice.views.content import Notice
from rankslice.views.terminal import print_line, screen, show, talk

if TYPE_CHECKING:
    from rankslice.commands.report.report import Report


@function
def report(
    *targets: Annotated[
        Path,
        about(
            "Build folders, files that bench wrote, and tables of operators (.csv of trace or"
            " profile); ratios are to the first one.",
            Path,
            is_argument=True,
            many=lambda texts: tuple(map(Path, texts)),
            metavar="OUT",
        ),
    ],
    beside: Path = Path(),
) -> Report:
    """Return the last runs of build folders, and benchmarks, with ratios to the first.

    ``to_html()`` of what it returns is the page, ``to_json()`` its figures, and ``differences``
    says in what the runs differ besides the mapping. Links in the page are relative to ``beside``.

    Raises:
        RankSliceError: a folder is no build folder or was not run, a file is no benchmark or cannot
            be compared with the first one, or something is given twice.
    """
    from rankslice.commands.report.report import make_report

    return make_report(targets, beside)


@command(
    "report",
    "one-board two-boards",
    "out-a out-b out-c --html report.html",
    "before.json after.json",
    "rubikpi.csv nano.csv",
    calls=report,
)
def show_report(
    call: Callable[..., Report],
    html: Annotated[
        Path, about("The page, in one file; '-': standard output.", Path, writes=Writes(PAGE))
    ] = Path("report.html"),
    json: Json = None,
) -> None:
    made = call(beside=Path() if html == STDOUT else html.parent)
    show(talk, Notice("Not comparable", tuple(made.differences), "warning"))
    if STDOUT not in (html, json):
        show(screen, *made.parts)
    write_json(json, made.to_json())
    write_output(html, made.to_html(), "--html")
    if STDOUT not in (html, json):
        print_line(screen, on_one_line(f"written to {html}"))
