"""Where commands write: the terminal, standard output, and files."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rankslice.framework.output_file import write_output

__all__ = ["end_interrupted", "progress_bars", "screen", "talk", "write_json"]

talk = Console(stderr=True, highlight=False)
"""Standard error: progress, warnings and mistakes."""
screen = Console(highlight=False)
"""Standard output: results."""


def progress_bars() -> Progress:
    """Return bars for long work, which are shown at a terminal alone."""
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
    kept = f"; what was measured is in {names}: the same command goes on there" if files else ""
    talk.print(f"interrupted{escape(kept)}", soft_wrap=True)
    raise typer.Exit(128 + signal.SIGINT)


def write_json(file: Path, record: dict[str, Any]) -> None:
    """Write what ``--json`` asks for; ``-``: to standard output."""
    write_output(file, json.dumps(record, indent=1) + "\n", "--json")
