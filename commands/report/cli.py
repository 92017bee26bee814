"""The options of ``rankslice report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from rankslice.commands.app import command
from rankslice.commands.options import Json, refuse_shared_files, writes
from rankslice.commands.output import print_line, screen, talk, write_json
from rankslice.framework.files.output_file import PAGE, STDOUT, write_output
from rankslice.framework.wording import on_one_line


@command("one-board two-boards", "out-a out-b out-c --html report.html")
def report(
    context: typer.Context,
    folders: Annotated[
        list[Path],
        Argument(
            metavar="OUT...", readable=False, help="Build folders; ratios are to the first one."
        ),
    ],
    html: Annotated[
        Path,
        Option(
            "--html",
            help="The page, in one file; '-': standard output.",
            callback=writes(PAGE),
            readable=False,
        ),
    ] = Path("report.html"),
    json_file: Json = None,
) -> None:
    refuse_shared_files(context)
    from rankslice.commands.report.report import make_report
    from rankslice.commands.report.show import print_differences, print_report

    found = make_report(folders, Path() if html == STDOUT else html.parent)
    print_differences(found, talk)
    if STDOUT not in (html, json_file):
        print_report(found, screen)
    write_json(json_file, found.to_json())
    write_output(html, found.to_html(), "--html")
    if STDOUT not in (html, json_file):
        print_line(screen, on_one_line(f"written to {html}"))
