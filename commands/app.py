"""The program, whose commands are loaded when they are called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any, TypeVar

import typer
import typer.main
from typer import Option
from typer.core import TyperCommand, TyperGroup

COMMANDS = (
    *(
        "inspect",
        "build",
        "run",
        "report",
        "replay",
        "trace",
        "probe",
        "deploy",
        "profile",
        "explore",
        "simulate",
        "bench",
        "serve",
        "demo",
    ),
)
"""In the order of the help. Each is a folder beside this file: its docstring is the line in the
help, and the function of its name in ``cli.py`` takes the options."""

_F = TypeVar("_F", bound=Callable[..., None])

_STYLE: dict[str, Any] = {"rich_markup_mode": "rich", "pretty_exceptions_enable": False}

_loaded: dict[str, typer.Typer] = {}
"""The commands whose modules have been imported, by name."""


def summary(name: str) -> str:
    """Return the line that says what a command does."""
    return import_module(f"rankslice.commands.{name}").__doc__ or ""


@cache
def load_command(name: str) -> Any:
    """Return a command with its options, from the ``cli.py`` of its folder."""
    import_module(f"rankslice.commands.{name}.cli")
    return typer.main.get_command(_loaded[name])


def command(*examples: str, cls: type[TyperCommand] = TyperCommand) -> Callable[[_F], _F]:
    """Return a decorator that makes a function the command of its name.

    Args:
        examples: the arguments of command lines with which its help ends.
        cls: of the command.
    """

    def add(function: _F) -> _F:
        name = function.__name__
        lines = [f"rankslice {name} {example}" for example in examples]
        title = "Example:" if len(lines) == 1 else "Examples:"
        epilog = "\n\n".join([title, *lines])
        _loaded[name] = typer.Typer(add_completion=False, **_STYLE)
        _loaded[name].command(name, cls=cls, help=summary(name), epilog=epilog)(function)
        return function

    return add


class _Program(TyperGroup):
    """The program, which knows the names and summaries of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=summary(name)) for name in COMMANDS}

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that stand before a command."""
        return _without_kinds(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that is called, loaded, and its arguments."""
        if args[0] in COMMANDS:
            loaded = self.commands[args[0]] = load_command(args[0])
            _without_kinds(loaded.get_params(ctx))
        return super().resolve_command(ctx, args)


def _without_kinds(params: list[Any]) -> list[Any]:
    """Return parameters whose switches are shown without the kind of a value: they take none."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


app = typer.Typer(
    name="rankslice",
    cls=_Program,
    help="Run neural networks across the accelerators of several boards, one MPI rank per slice.",
    no_args_is_help=True,
    **_STYLE,
)


def _version(wanted: bool) -> None:
    if wanted:
        from rankslice.session.versions import version_lines

        for line in version_lines():
            print(line)
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Show the versions of RankSlice, Python, Open MPI and the engines.",
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""
