"""Who is told how far measuring is."""

from __future__ import annotations

from rankslice.commands.profile.time_limit import Expectation

__all__ = ["Listener"]


class Listener:
    """What is told while something is measured; nothing is done with it here."""

    def step(self, text: str) -> None:
        """Take note of what is being done."""

    def note(self, text: str) -> None:
        """Take note of something that the user should know."""

    def expect(self, what: Expectation) -> None:
        """Take note of how long it will take."""

    def begin(self, key: str, spans: int) -> None:
        """Take note that spans will be measured on an accelerator."""

    def measured(self, key: str) -> None:
        """Take note that one of them has been."""
