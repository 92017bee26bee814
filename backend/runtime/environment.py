"""Environment variables that a process must have when it starts."""

from __future__ import annotations

import os
import sys


def start_again_with(variables: dict[str, str]) -> None:
    """Restart this program if variables are missing: the system reads some at its start only."""
    wanted = {name: _value(name, value) for name, value in variables.items()}
    if wanted.items() <= os.environ.items():
        return
    os.environ.update(wanted)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _value(name: str, value: str) -> str:
    """Return what a variable is set to: its value, in front of other folders with libraries."""
    found = os.environ.get(name, "")
    if name != "LD_LIBRARY_PATH" or not found or found == value:
        return value
    # The present value may lead to the MPI library.
    return found if found.startswith(f"{value}:") else f"{value}:{found}"
