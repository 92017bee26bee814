"""Listens for source and sink of a job outside of MPI, and reads what the sink sends."""

from __future__ import annotations

import hmac
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.frame_records import RECORD_BYTES, Failure, RecordForm
from rankslice.backend.runtime.job import typed_view

ServeConnection: TypeAlias = Callable[[socket.socket, str, int], None]
"""Serves a connection to its end, given its role and epoch; then it is closed.

Raises:
    OSError: the connection is broken.
    JobError: what came does not fit the job, which finds its connection closed and says why.
"""

_PAUSE_S = 0.1
"""After a connection could not be accepted: descriptors or threads may be free later."""
_MAX_UNPROVEN = 64
"""Connections that may be about to prove that they belong to the job."""


class JobListener:
    """Listens, and accepts who knows the secret of a job; each connection is served in a thread."""

    def __init__(self, serve_connection: ServeConnection) -> None:
        """Take what serves connections. It listens once :meth:`keeper` has named an address."""
        self._serve_connection = serve_connection
        self._root = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._unproven: dict[socket.socket, None] = {}
        """Connections that have proven nothing yet, the oldest first."""
        self._connections: set[socket.socket] = set()
        self._listeners: dict[str, socket.socket] = {}

    def keeper(self, hosts: tuple[str, str], epoch: int = 0) -> wire.Keeper:
        with self._lock:
            source, sink = ((host, self._listener(host).getsockname()[1]) for host in hosts)
        return wire.Keeper(source, sink, self.secret_of(epoch), epoch)

    def secret_of(self, epoch: int) -> str:
        """Return the secret of a job, which does not tell that of another one."""
        return hmac.digest(self._root, epoch.to_bytes(8, "little"), "sha256").hex()

    def close(self) -> None:
        """Close all connections, and let nobody in."""
        self._is_closed.set()
        with self._lock:
            listeners = list(self._listeners.values())
            connections = list(self._connections)
        for end in (*listeners, *connections):
            shut(end)  # a close alone would not end an accept that waits
        for listener in listeners:
            listener.close()

    def disown(self) -> None:
        """Let go of all sockets, in a process that was forked: they are those of the parent."""
        self._lock = threading.Lock()  # a thread of the parent may have held this one
        for end in (*self._listeners.values(), *self._connections):
            end.close()
        self._listeners.clear()
        self._connections.clear()

    def _listener(self, host: str) -> socket.socket:
        if host not in self._listeners:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listeners[host] = socket.create_server((host, 0), family=family)
            start_thread("listener", self._listen, self._listeners[host])
        return self._listeners[host]

    def _listen(self, listener: socket.socket) -> None:
        while not self._is_closed.is_set():
            try:
                self._take(listener.accept()[0])
            except (OSError, RuntimeError):
                self._is_closed.wait(_PAUSE_S)

    def _take(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
            self._unproven[connection] = None
            if len(self._unproven) > _MAX_UNPROVEN:
                oldest = next(iter(self._unproven))
                del self._unproven[oldest]
                shut(oldest)
        try:
            start_thread("connection", self._serve, connection)
        except RuntimeError:
            self._forget(connection)
            connection.close()
            raise

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                try:
                    known = wire.accept(connection, self.secret_of)
                finally:
                    with self._lock:
                        self._unproven.pop(connection, None)
                if known is not None:
                    self._serve_connection(connection, *known)
        except (OSError, JobError):
            pass
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._unproven.pop(connection, None)
            self._connections.discard(connection)


def results(connection: socket.socket, form: RecordForm) -> Iterator[list[NDArray[Any]] | Failure]:
    """Yield the outputs of each frame that a sink sends, in order, until it says that all came.

    Of a frame that has failed it yields why.

    Raises:
        OSError: the connection is broken, or ends before.
        JobError: what came is no result of the job.
    """
    expected = 0
    while (head := wire.receive_head(connection, form)) is not None:
        number, sizes = head
        if number == wire.END:
            return
        if number & ~wire.FAILED != expected:
            raise JobError(f"result {number} came where {expected} was due")
        expected += 1
        if number & wire.FAILED:
            record = bytearray(RECORD_BYTES)
            if not wire.receive(connection, record):
                raise ConnectionError
            yield Failure.from_bytes(record)
            continue
        outputs = []
        for spec in form.outputs_of(sizes):
            buffer = np.empty(spec.nbytes, np.uint8)
            if not wire.receive(connection, wire.bytes_of(buffer)):
                raise ConnectionError
            outputs.append(typed_view(spec, buffer))
        yield outputs
    raise ConnectionError


def shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def start_thread(name: str, work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, name=f"keeper: {name}", daemon=True)
    thread.start()
    return thread
