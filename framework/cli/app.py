"""The program, to which the other modules add their commands."""

from __future__ import annotations

from typing import Annotated

import typer

from rankslice import __version__

__all__ = ["app"]

app = typer.Typer(
    name="rankslice",
    help="Run neural networks across the accelerators of several boards, one MPI rank per slice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""
