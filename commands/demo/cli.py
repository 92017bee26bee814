"""The command that shows it all: ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rankslice.framework.cli.app import app
from rankslice.framework.cli.output import screen, talk


@app.command(epilog="Example: rankslice demo")
def demo(
    folder: Annotated[
        Path | None,
        typer.Option(readable=False, help="Keep everything in this folder (default: temporary)."),
    ] = None,
) -> None:
    """Slice a digit classifier over three ranks and ResNet-50 over two, on this machine."""
    from rankslice.framework.commands.demo import demo as show_demo

    show_demo(screen, talk, folder)
