"""Options that several commands have, and what their texts mean."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rankslice.framework.errors import Mistake, RankSliceError

if TYPE_CHECKING:
    from rankslice.backend.runtime.images import Preprocessing

__all__ = [
    "UNIT_SCALE",
    "Boards",
    "Fps",
    "Json",
    "Layout",
    "Scale",
    "Shape",
    "SshConfig",
    "Window",
    "parse_preprocessing",
    "parse_shapes",
    "refuse_both_on_stdout",
    "refuse_with",
    "writable",
]

_MOST_DIGITS = 18
"""Of a size: model files hold 64-bit integers."""


def writable(file: Path | None) -> Path | None:
    """Refuse a file that cannot be written before the work is done, and not after it."""
    if file is None or file == Path("-"):
        return file
    if file.is_dir():
        raise RankSliceError(Mistake(str(file), "is a folder", "expected a file to write"))
    if not file.absolute().parent.is_dir():
        raise RankSliceError(Mistake(str(file.parent), "no such folder", "make it first"))
    return file


# readable=False, here and below: what cannot be read is told like any other mistake, not by typer.
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        help="Write the result as JSON; '-' for stdout.",
        callback=writable,
        readable=False,
    ),
]
SshConfig = Annotated[
    Path | None,
    typer.Option(readable=False, help="Configuration for ssh (default: ssh's own)."),
]
Boards = Annotated[str, typer.Option(help="YAML or .txt: the boards; 'local': this machine.")]
Shape = Annotated[list[str] | None, typer.Option(help="Size of an open input: IN=1,3,224,224.")]


Fps = Annotated[
    float | None,
    typer.Option(min=1e-3, max=1e9, help="Frames arrive at this rate (default: as fast as taken)."),
]
Window = Annotated[
    int | None,
    typer.Option(min=1, max=4096, help="Most frames inside (default: longest path + 1)."),
]
Scale = Annotated[str, typer.Option(help="Multiplies the difference: S or R,G,B.")]
UNIT_SCALE = str(1 / 255)
"""Brings pixels into 0 to 1."""


class Layout(str, Enum):
    """Order of an image's axes."""

    nchw = "nchw"
    nhwc = "nhwc"


def refuse_with(option: str, /, **others: Any) -> None:
    """Raise if options are given that mean nothing beside another one."""
    given = [name for name, value in others.items() if value]
    if given:
        found = f"means nothing together with {option}"
        raise RankSliceError(
            *(Mistake(f"--{name.replace('_', '-')}", found, "leave out one") for name in given)
        )


def refuse_both_on_stdout(option: str, file: Path | None, json_file: Path | None) -> None:
    """Raise if what an option names and ``--json`` are both to go to standard output."""
    if file == json_file == Path("-"):
        found = f"one of {option} and --json can go to stdout"
        raise typer.BadParameter(found, param_hint=option)


def parse_shapes(texts: list[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the shapes that ``--shape`` gives to inputs, by name."""
    shapes = {}
    for text in texts or ():
        name, _, sizes = text.rpartition("=")
        if not name or not all(_is_number(size) for size in sizes.split(",")):
            raise typer.BadParameter(
                f"{text!r} is not of the form IN=1,3,224,224", param_hint="--shape"
            )
        shapes[name] = tuple(int(size) for size in sizes.split(","))
    return shapes


def parse_preprocessing(layout: Layout, size: str | None, mean: str, scale: str) -> Preprocessing:
    """Return what ``--size``, ``--mean`` and ``--scale`` say of images."""
    from rankslice.backend.runtime.images import Preprocessing

    return Preprocessing(
        layout.value, _size(size), _numbers("--mean", mean), _numbers("--scale", scale)
    )


def _size(text: str | None) -> tuple[int, int] | None:
    """Return the height and width of ``--size``, in pixels; one number stands for both."""
    if text is None:
        return None
    height, _, width = text.partition("x")
    sides = (height, width or height)
    if not all(_is_number(side) and int(side) for side in sides):
        raise typer.BadParameter(f"{text!r} is not of the form HxW", param_hint="--size")
    return int(sides[0]), int(sides[1])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def _numbers(option: str, text: str) -> tuple[float, ...]:
    """Return the numbers of an option, which commas separate."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint=option) from None
