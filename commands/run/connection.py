"""What a job and its launcher tell each other: the word to end, and results as they come."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import TensorSpec, typed_view
from rankslice.backend.runtime.records import RecordForm
from rankslice.framework.errors import RankSliceError

OnResult: TypeAlias = Callable[[int, Sequence[NDArray[Any]]], None]
"""Takes the number of a frame and its outputs. While it works, no further result is received, so
that the job waits for it.

Raises:
    RankSliceError: it cannot take them; the job ends.
"""

_LAST_RESULTS_S = 1.0
"""How long results may be on their way after a failed job has ended."""
_MOST_STRANGERS = 16
"""Connections that may be about to prove that they belong to the job."""


class Connection:
    """The launcher's end: a context manager around a job."""

    def __init__(
        self,
        outputs: Sequence[TensorSpec],
        hosts: tuple[str, str],
        on_result: OnResult | None = None,
        feed: Callable[[socket.socket], None] | None = None,
    ) -> None:
        """Listen for the job.

        Args:
            outputs: of the model.
            hosts: addresses of this machine at which source and sink reach it.
            on_result: called in order for each frame, in a thread; ``None``: none is received.
            feed: sends frames to the source, in a thread, and closes its end; ``None``: the source
                asks for none.

        Raises:
            OSError: an address is not of this machine.
        """
        self._form = RecordForm(outputs)
        self._on_result = on_result
        self._feed = feed
        self._changed = threading.Condition()
        self._is_draining = False
        self._source: socket.socket | None = None
        self._sink: socket.socket | None = None
        self._is_over = on_result is None
        """Whether no further result comes."""
        self._has_ended = on_result is None
        """Whether the last one came."""
        self.error: BaseException | None = None
        """Why a result could not be taken."""
        self._secret = secrets.token_hex(32)
        self._strangers = threading.Semaphore(_MOST_STRANGERS)
        self._listeners = {host: _listen_at(host) for host in dict.fromkeys(hosts)}
        source, sink = ((host, self._listeners[host].getsockname()[1]) for host in hosts)
        self.variables = {wire.VARIABLE: wire.Keeper(source, sink, self._secret).to_text()}
        """For the environment of the job."""

    def __enter__(self) -> Connection:
        """Take connections."""
        for listener in self._listeners.values():
            _start(self._accept, listener)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections."""
        for listener in self._listeners.values():
            _shut(listener)
            listener.close()
        if self._source is not None:
            self._source.close()
        if self._sink is not None:
            _shut(self._sink)  # whoever reads it closes it

    def drain(self) -> None:
        """Have the source let in what has arrived, and nothing else."""
        with self._changed:
            self._is_draining = True
            self._tell_source()

    def wait_for_results(self, *, has_failed: bool) -> None:
        """Return when all results of a job that has ended are taken.

        Args:
            has_failed: some may never come.

        Raises:
            RankSliceError: results are missing, or could not be taken.
        """
        with self._changed:
            if has_failed and not self._changed.wait_for(lambda: self._is_over, _LAST_RESULTS_S):
                if self._sink is None:
                    return
                _shut(self._sink)  # what has been received is still read
            self._changed.wait_for(lambda: self._is_over)
        if self.error is not None:
            raise self.error
        if not self._has_ended and not has_failed:
            raise RankSliceError("the job ended before its last result came")

    def _tell_source(self) -> None:
        if self._is_draining and self._source is not None:
            with suppress(OSError):
                self._source.sendall(b"\n")

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if self._strangers.acquire(blocking=False):
                _start(self._serve, connection)
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            role, _ = wire.accept(connection, self._secret) or ("", 0)
        finally:
            self._strangers.release()
        if role == wire.ROLE_DRAIN:
            with self._changed:
                self._source = connection
                self._tell_source()
        elif role == wire.ROLE_SOURCE and self._feed is not None:
            feed, self._feed = self._feed, None
            feed(connection)
        elif role == wire.ROLE_SINK and self._on_result is not None and self._sink is None:
            self._sink = connection
            self._take_results(connection, self._on_result)
        else:
            connection.close()

    def _take_results(self, connection: socket.socket, on_result: OnResult) -> None:
        has_ended = False
        try:
            with connection:
                has_ended = self._receive(connection, on_result)
        except (OSError, JobError):
            pass  # the job has failed, and says why
        except BaseException as error:
            self.error = error
        with self._changed:
            self._has_ended, self._is_over = has_ended, True
            self._changed.notify_all()

    def _receive(self, connection: socket.socket, on_result: OnResult) -> bool:
        """Take results in order; return whether the last one came."""
        expected = 0
        while (head := wire.receive_head(connection, self._form)) is not None:
            number, sizes = head
            if number == wire.END:
                return True
            if number != expected:
                return False
            expected += 1
            outputs = []
            for spec in self._form.outputs_of(sizes):
                buffer = np.empty(spec.nbytes, np.uint8)
                if not wire.receive(connection, wire.bytes_of(buffer)):
                    return False
                outputs.append(typed_view(spec, buffer))
            on_result(number, outputs)
        return False


def _listen_at(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


def _start(work: Callable[..., None], *arguments: Any) -> None:
    threading.Thread(target=work, args=arguments, name="connection", daemon=True).start()
