"""Whether this program can learn how the processes that it starts have ended."""

from __future__ import annotations

import signal

from rankslice.framework.errors import Mistake, RankSliceError


def check_children() -> None:
    """Raise if the system drops the exit codes of this program's children.

    A program inherits that from its parent, or asks for it.

    Raises:
        RankSliceError: that is so.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        found = "is ignored in this program, so nobody can tell how a job has ended"
        remedy = "call signal.signal(signal.SIGCHLD, signal.SIG_DFL) before"
        raise RankSliceError(Mistake("SIGCHLD", found, remedy))
