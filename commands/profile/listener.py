"""The progress of measuring, reported."""

from __future__ import annotations

from rankslice.commands.profile.time_limit import Expectation


class Listener:
    """Receives the progress of measuring; this one ignores it."""

    def step(self, text: str) -> None:
        """Receive the current step."""

    def note(self, text: str) -> None:
        """Receive something that the user should know."""

    def expect(self, what: Expectation) -> None:
        """Receive the expected duration."""

    def begin(self, key: str, spans: int) -> None:
        """Receive how many spans will be measured on an accelerator."""

    def measured(self, key: str) -> None:
        """Receive that one more of them has been measured."""
