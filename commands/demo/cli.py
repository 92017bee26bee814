"""The options of ``rankslice demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from rankslice.commands.app import command
from rankslice.commands.output import screen, talk


@command("")
def demo(
    folder: Annotated[
        Path | None,
        Option(readable=False, help="Folder to keep all files in (default: temporary)."),
    ] = None,
) -> None:
    from rankslice.commands.demo.demo import demo as show_demo

    show_demo(screen, talk, folder)
