"""Commands that end with the process that starts them, and that others cannot connect to."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

from rankslice.backend.runtime.faults import gate
from rankslice.framework.errors import Mistake, RankSliceError


def tethered(command: Sequence[str], reach: str = "all") -> list[str]:
    """Return a command line that ends with this process: with the thread that starts it.

    Args:
        command: to start.
        reach: who may connect to it, as for :mod:`~rankslice.backend.runtime.faults.gate`.

    Raises:
        RankSliceError: this process ignores SIGCHLD, so the system drops the command's exit code.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        found = "is ignored in this program, so it cannot learn how a job has ended"
        remedy = "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before"
        raise RankSliceError(Mistake("SIGCHLD", found, remedy))
    return [sys.executable, "-E", "-S", gate.__file__, str(os.getpid()), reach, *command]
