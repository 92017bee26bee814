"""Builds, printed."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rankslice.commands.build.build import Build
from rankslice.commands.build.describe_plan import describe_plan
from rankslice.commands.output import print_line


def print_build(build: Build, console: Console) -> None:
    """Print what each rank runs, receives and sends."""
    console.print(escape(describe_plan(build.plan)), end="", soft_wrap=True)
    print_line(console, f"written to {build.folder!s}")
