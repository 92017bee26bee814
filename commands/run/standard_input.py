"""Standard input, sent to the source of a job.

Open MPI 4.1 forwards it, but several versions of Open MPI 5 lose or repeat parts of it, or hang.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from rankslice.backend.boards.login import address_for
from rankslice.backend.runtime.errors import reason_of
from rankslice.backend.runtime.keeper import ROLE_SOURCE, VARIABLE, Keeper, accept, is_streamed
from rankslice.commands.run.prepare import PreparedRun
from rankslice.framework.errors import Mistake, RankSliceError

_STDIN = 0
_CHUNK = 1 << 16
_MOST_STRANGERS = 16
"""Connections that may be about to prove that they belong to the job."""


@contextmanager
def standard_input(prepared: PreparedRun) -> Iterator[Mapping[str, str]]:
    """Send standard input to the source of a job, if its frames come from there.

    Yields:
        Variables for mpirun.

    Raises:
        RankSliceError: standard input cannot be read, or the source's board cannot be reached.
    """
    if not is_streamed(prepared.options.inputs):
        yield {}
        return
    host = address_for(prepared.plan.ranks[prepared.plan.source].host)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        relay = _Relay(listener)
        where = host, listener.getsockname()[1]
        try:
            yield {VARIABLE: Keeper(where, where, relay.secret).to_text()}
        finally:
            with suppress(OSError):  # a close alone would not end an accept that waits
                listener.shutdown(socket.SHUT_RDWR)
    if relay.error is not None:
        found = f"cannot be read: {reason_of(relay.error)}"
        raise RankSliceError(Mistake("standard input", found))


class _Relay:
    """Sends standard input to the first who proves to be the source of the job."""

    def __init__(self, listener: socket.socket) -> None:
        self.secret = secrets.token_hex(32)
        self.error: OSError | None = None
        """Why standard input could not be read to its end."""
        self._listener = listener
        self._strangers = threading.Semaphore(_MOST_STRANGERS)
        self._source = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._strangers.acquire(blocking=False):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                role, _ = accept(connection, self.secret) or ("", 0)
            finally:
                self._strangers.release()
            if role == ROLE_SOURCE and self._source.acquire(blocking=False):
                with suppress(OSError):  # the job has ended, or says why it does
                    self._copy(connection)

    def _copy(self, connection: socket.socket) -> None:
        """Send what comes, as the source takes it, until the end or until the source has enough."""
        waiting = select.poll()
        for descriptor in (_STDIN, connection.fileno()):
            waiting.register(descriptor, select.POLLIN)
        while connection.fileno() not in dict(waiting.poll()):
            try:
                chunk = os.read(_STDIN, _CHUNK)
            except OSError as error:
                self.error = error
                return
            if not chunk:
                return
            connection.sendall(chunk)
