"""The command that shows it all: ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankslice.commands.app import app
from rankslice.commands.output import screen, talk


@app.command(epilog="Example: rankslice demo")
def demo(
    folder: Annotated[
        Path | None,
        typer.Option(readable=False, help="Keep everything in this folder (default: temporary)."),
    ] = None,
) -> None:
    """Slice a digit classifier over three ranks and ResNet-50 over two, on this machine."""
    from rankslice.commands.demo.demo import demo as show_demo

    show_demo(screen, talk, folder)
