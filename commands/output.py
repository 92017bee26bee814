"""Where commands write: the terminal, standard output, and files."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer
from rich.cells import cell_len
from rich.console import (
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderHook,
    RenderResult,
)
from rich.markup import escape
from rich.table import Table

from rankslice.framework.files.output_file import write_output
from rankslice.framework.wording import harmless, printable

if TYPE_CHECKING:
    from rich.progress import Progress

_COLOURS = {"error": "red", "warning": "yellow", "note": "yellow"}
_LONGEST_CELL = 32
"""Of a name in tables that are not for copying from, in columns of a terminal."""


class _Harmless:
    """Something to print whose texts, from whatever file or board, steer no terminal."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


class _Harmlessly(RenderHook):
    """Has all that is printed made harmless; the console's own colours are none of it."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Return what to print instead."""
        return [_Harmless(renderable) for renderable in renderables]


def new_console(*, stderr: bool = False, file: TextIO | None = None) -> Console:
    """Return a console on which no text steers the terminal, and names stay as they are."""
    console = Console(stderr=stderr, file=file, highlight=False, emoji=False)
    console.push_render_hook(_Harmlessly())
    return console


talk = new_console(stderr=True)
"""Standard error: progress, warnings and mistakes."""
screen = new_console()
"""Standard output: results."""


def shortened(text: str, most: int = _LONGEST_CELL) -> str:
    """Return a name on one line, printable, its middle left out if it is long."""
    shown = printable(text[: 2 * most] if len(text) <= 2 * most else f"{text[:most]}{text[-most:]}")
    if len(text) <= 2 * most and cell_len(shown) <= most:
        return shown
    head, tail = shown, shown
    # Names that differ do so at the end more often than at the beginning.
    while cell_len(head) > most // 3:
        head = head[:-1]
    while cell_len(tail) > most - most // 3 - 1:
        tail = tail[1:]
    return f"{head}…{tail}"


def print_line(console: Console, text: str, label: str = "") -> None:
    """Print a text as it stands, on one line however long it is.

    Args:
        console: where.
        text: what.
        label: ``error``, ``warning`` or ``note``, which comes before it in its colour.
    """
    before = f"[{_COLOURS[label]}]{label}:[/] " if label else ""
    console.print(f"{before}{escape(text)}", soft_wrap=True)


def new_table(
    headings: Sequence[str], right: Iterable[int] = (), caption: str | None = None
) -> Table:
    """Return a table without rows; the columns of these numbers are set to the right."""
    table = Table(*headings, caption=caption)
    for number in right:
        table.columns[number].justify = "right"
    return table


def progress_bars() -> Progress:
    """Return bars for long work, which are shown at a terminal alone."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=talk,
        transient=True,
        disable=not talk.is_terminal,
    )


def end_interrupted(files: Sequence[Path]) -> NoReturn:
    """End a command that was interrupted, and tell which files have what was measured."""
    names = " and ".join(map(str, files))
    kept = (
        f"; the measurements so far are in {names}: run the same command to continue"
        if files
        else ""
    )
    print_line(talk, f"interrupted{kept}")
    raise typer.Exit(128 + signal.SIGINT)


def write_json(file: Path | None, record: dict[str, Any]) -> None:
    """Write what ``--json`` asks for; ``-``: to standard output; ``None``: nowhere."""
    if file is not None:
        write_output(file, json.dumps(record, indent=1) + "\n", "--json")
