"""Commands that end with the process that starts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rankslice.backend.children import check_children

_END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")


def tethered(command: Sequence[str]) -> list[str]:
    """Return a command line that ends with this process: with the thread that starts it.

    Raises:
        RankSliceError: this program could not learn how it has ended.
    """
    check_children()
    return [sys.executable, "-E", "-S", str(_END_WITH_PARENT), str(os.getpid()), *command]
