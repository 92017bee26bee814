"""Other programs on the board, asked for an answer within a limited time."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from .. import system

if TYPE_CHECKING:
    from collections.abc import Iterable

ASK_S = 60


def ask(
    command: Iterable[str], variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Return how a command ended, with what it printed; ``None``: it took too long.

    Args:
        command: to run.
        variables: set in its environment besides those of this process.
    """
    try:
        environment = {**os.environ, **(variables or {})}
        return system.run(command, variables=environment, timeout_s=ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
