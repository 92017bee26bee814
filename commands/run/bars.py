"""Bars that show how far a run has come."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rankslice.commands.output import progress_bars

if TYPE_CHECKING:
    from rich.progress import Progress

    from rankslice.commands.run.live import LiveView


class Bars:
    """A bar for each piece of work, one after the other: a context manager."""

    def __init__(self) -> None:
        """Show nothing so far."""
        self._shown = ExitStack()
        self._progress: Progress | None = None

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def begin(self, work: str, total: int | None) -> None:
        """Show the bar of a piece of work in place of the one before.

        Args:
            work: what it is.
            total: ``None`` if the amount is unknown.
        """
        self.end()
        self._progress = self._shown.enter_context(progress_bars())
        self._progress.add_task(work, total=total)

    def show(self, view: LiveView) -> None:
        """Show a view instead of a bar."""
        self._shown.enter_context(view)

    def update(self, count: int) -> None:
        """Tell how much of it is done."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=count)

    def end(self) -> None:
        """Take the bar away; what is printed afterwards stays."""
        self._shown.close()
