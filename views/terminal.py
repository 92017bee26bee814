"""The terminal: results, messages and progress."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from rich.box import SIMPLE_HEAD
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
from rich.table import Column, Table as RichTable
from rich.text import Text

from rankslice.framework.wording import harmless, on_one_line, printable
from rankslice.views.content import Notice, Part, Section, Table

if TYPE_CHECKING:
    from rich.progress import Progress

_COLOURS = {"error": "red", "warning": "yellow", "note": "yellow"}
MAX_CELL = 32
"""Columns of a name in tables that are not for copying from."""
_UNBOUNDED = 1_000_000
MAX_LINE = 500
"""Columns of a cell that lists names."""


class _Sanitised:
    """Something to print, without control characters in texts from files and boards."""

    def __init__(self, renderable: RenderableType) -> None:
        self._renderable = renderable

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))


class _Sanitiser(RenderHook):
    """Sanitises all that is printed; the console's own colours stay."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Sanitised(renderable) for renderable in renderables]


def new_console(*, stderr: bool = False, file: TextIO | None = None) -> Console:
    """Return a console on which no text steers the terminal, and names stay as they are."""
    console = Console(stderr=stderr, file=file, highlight=False, emoji=False)
    console.push_render_hook(_Sanitiser())
    return console


talk = new_console(stderr=True)
"""Standard error: progress, warnings and mistakes."""
screen = new_console()
"""Standard output: results."""


def show(console: Console, *parts: Part | Section | str, max_cell: int | None = MAX_CELL) -> None:
    """Print tables, notices and lines of text; sections without their titles.

    Figures, code and markup are for pages. Cells of more than ``max_cell`` columns are shortened.
    ``None``: they are whole, wrapped to the width of a terminal; elsewhere tables are as wide as
    they need to be.
    """
    width = console.width
    if max_cell is None and not console.is_terminal:
        console.width = _UNBOUNDED
    for number, part in enumerate(parts):
        if isinstance(part, Section):
            show(console, *part.parts, *part.text, max_cell=max_cell)
        elif isinstance(part, Notice):
            for text in part.texts:
                print_line(console, on_one_line(text), part.level)
        elif isinstance(part, Table) and part.rows:
            if number and part.caption and max_cell is None:
                console.print()
            console.print(rich_table(part, max_cell))
        elif isinstance(part, str):
            print_line(console, part)
    console.width = width


def rich_table(table: Table, max_cell: int | None = MAX_CELL) -> RichTable:
    if max_cell is None:
        columns = [Column(Text(name), overflow="fold") for name in table.head]
        caption = Text(table.caption)
        shown = RichTable(*columns, title=caption, title_justify="left", box=SIMPLE_HEAD)
        shown.padding = (0, 1, 0, 0)
    else:
        head = (escape(shortened(name)) for name in table.head)
        shown = RichTable(*head, caption=escape(table.caption))
    for number in table.right:
        shown.columns[number].justify = "right"
        shown.columns[number].no_wrap = max_cell is None
    for row in table.rows:
        shown.add_row(
            *(Text(cell if max_cell is None else shortened(cell, max_cell)) for cell in row)
        )
    return shown


def shortened(text: str, most: int = MAX_CELL) -> str:
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

    ``label``: ``error``, ``warning`` or ``note``, which comes before it in its colour.
    """
    before = f"[{_COLOURS[label]}]{label}:[/] " if label else ""
    console.print(f"{before}{escape(text)}", soft_wrap=True)


def end_interrupted(files: Sequence[Path]) -> NoReturn:
    """End a command that was interrupted, and tell which files have what was measured."""
    names = " and ".join(map(str, files))
    kept = f"; the measurements so far are in {names}: run the same command to continue"
    print_line(talk, f"interrupted{kept if files else ''}")
    sys.exit(128 + signal.SIGINT)


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


class Bars:
    """A progress bar for each piece of work, one after the other: a context manager."""

    def __init__(self) -> None:
        self._shown = ExitStack()
        self._progress: Progress | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def begin(self, work: str, total: int | None) -> None:
        """Show the bar of a piece of work in place of the one before; ``None``: no known total."""
        self.end()
        self._progress = self._shown.enter_context(progress_bars())
        self._progress.add_task(work, total=total)

    def counting(self, work: str, total: int | None) -> Callable[[int], None]:
        """Begin a bar, and return what sets its count."""
        self.begin(work, total)
        return self.update

    def show(self, view: AbstractContextManager[object]) -> None:
        self._shown.enter_context(view)

    def update(self, count: int) -> None:
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=count)

    def end(self) -> None:
        """Take the bar away; what is printed afterwards stays."""
        self._shown.close()
