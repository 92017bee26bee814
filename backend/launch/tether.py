"""Commands that end with the process that starts them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError

_END_WITH_PARENT = Path(__file__).with_name("end_with_parent.py")


def tethered(command: Sequence[str]) -> list[str]:
    """Return a command line that ends with this process: with the thread that starts it.

    Raises:
        RankSliceError: this process ignores SIGCHLD, so the system drops the command's exit code.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        found = "is ignored in this program, so it cannot learn how a job has ended"
        remedy = "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before"
        raise RankSliceError(Mistake("SIGCHLD", found, remedy))
    return [sys.executable, "-E", "-S", str(_END_WITH_PARENT), str(os.getpid()), *command]
