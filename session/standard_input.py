"""Standard input, sent to the source of a job.

Open MPI 4.1 forwards it, but several versions of Open MPI 5 lose or repeat parts of it, or hang.
"""

from __future__ import annotations

import os
import select
import socket
from contextlib import suppress

from rankslice.backend.runtime.errors import reason_of
from rankslice.framework.errors import Mistake, RankSliceError

_STDIN = 0
_CHUNK = 1 << 16


class StandardInput:
    """Sends standard input to a source."""

    def __init__(self) -> None:
        self._error: OSError | None = None

    def check(self) -> None:
        """Raise if it could not be read to its end.

        Raises:
            RankSliceError: that is so.
        """
        if self._error is not None:
            found = f"cannot be read: {reason_of(self._error)}"
            raise RankSliceError(Mistake("standard input", found))

    def send_to(self, connection: socket.socket) -> None:
        """Send what comes, as the source takes it, until the end or until the source has enough."""
        waiting = select.poll()
        for descriptor in (_STDIN, connection.fileno()):
            waiting.register(descriptor, select.POLLIN)
        with connection, suppress(OSError):  # the job has ended, or says why it does
            while connection.fileno() not in dict(waiting.poll()):
                try:
                    chunk = os.read(_STDIN, _CHUNK)
                except OSError as error:
                    self._error = error
                    return
                if not chunk:
                    return
                connection.sendall(chunk)
