"""Start a command that ends with its parent: ``python end_with_parent.py PARENT COMMAND...``.

By itself mpirun goes on when the launcher is killed. Started this way, the job ends as on Ctrl-C.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main(parent: int, command: list[str]) -> None:
    # The setting outlives exec. It holds for the thread that started this process.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
