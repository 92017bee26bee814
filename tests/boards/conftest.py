"""Fixtures of the tests in this folder, and what is told after them."""

from __future__ import annotations

import pytest

from boards.failure_matrix import ENDS, table
from boards.fixtures import boards, fresh_boards, rack

__all__ = ["boards", "fresh_boards", "rack"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the failure matrix, as far as its tests ran."""
    ends = terminalreporter.config.stash.get(ENDS, [])
    if ends:
        terminalreporter.section("failure matrix")
        for line in table(ends):
            terminalreporter.write_line(line)
