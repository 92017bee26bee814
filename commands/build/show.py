"""Builds, printed for people."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rankslice.commands.build.build import Build
from rankslice.commands.build.describe_plan import describe_plan

__all__ = ["print_build"]


def print_build(build: Build, console: Console) -> None:
    """Print what each rank runs, receives and sends."""
    console.print(escape(describe_plan(build.plan)), end="", soft_wrap=True)
    console.print(f"written to {escape(str(build.folder))}", soft_wrap=True)
