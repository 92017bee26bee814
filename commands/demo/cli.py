"""The options of ``rankslice demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankslice.commands.command import command
from rankslice.framework.option_records import about
from rankslice.views.terminal import screen, talk


@command("demo", "")
def demo(
    folder: Annotated[
        Path | None, about("Folder to keep all files in (default: temporary).", Path)
    ] = None,
) -> None:
    from rankslice.commands.demo.demo import demo as show_demo

    show_demo(screen, talk, folder)
