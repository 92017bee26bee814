"""The program, to which the other modules add their commands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["app"]


class _Program(TyperGroup):
    """The program, whose help shows switches without the kind of a value: they take none."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that stand before a command."""
        return _without_kinds(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; ``None``: there is no such one."""
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            _without_kinds(command.get_params(ctx))
        return command


def _without_kinds(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


app = typer.Typer(
    name="rankslice",
    cls=_Program,
    help="Run neural networks across the accelerators of several boards, one MPI rank per slice.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from rankslice.commands.versions import version_lines

        for line in version_lines():
            print(line)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the versions of RankSlice, Python, Open MPI and the engines.",
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
