"""What a run exchanges with its job: standard input, results as they come, the request to drain."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from types import FrameType

from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError, reason_of
from rankslice.backend.runtime.frame_records import Failure, RecordForm
from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.callbacks import OnEnter, OnResult
from rankslice.session.keeper.job_connections import JobListener, results, shut

_MAX_LINE = 1 << 16
_LAST_RESULTS_S = 1.0


class Connection:
    """The launcher's end: a context manager around a job."""

    def __init__(
        self,
        outputs: Sequence[Tensor],
        hosts: tuple[str, str],
        on_result: OnResult | None = None,
        feed: Callable[[socket.socket], None] | None = None,
        on_enter: OnEnter = lambda entered: None,
    ) -> None:
        """Listen for the job.

        Args:
            outputs: of the model.
            hosts: addresses of this machine at which source and sink reach it.
            on_result: called in order for each frame, in a thread; ``None``: none is received.
            feed: sends frames to the source, in a thread, and closes its end; ``None``: the source
                asks for none.
            on_enter: called for each frame that enters, and with ``None`` at the end, in a thread.

        Raises:
            OSError: an address is not of this machine.
        """
        self._form = RecordForm(outputs)
        self._on_result = on_result
        self._feed = feed
        self._on_enter = on_enter
        self._draining = threading.Lock()
        self._is_draining = False
        self._source: socket.socket | None = None
        self._sink: socket.socket | None = None
        self._has_all = Future[bool]()
        """Done when no further result comes: whether the last one came; or why one could not be
        taken."""
        self._listener = JobListener(self._serve)
        self.variables = {wire.VARIABLE: self._listener.keeper(hosts).to_text()}
        """For the environment of the job."""

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def drain(self) -> None:
        """Have the source let in what has arrived, and nothing else."""
        with self._draining:
            self._is_draining = True
            self._tell_source()

    def wait_for_results(self, *, has_failed: bool) -> None:
        """Return when all results of a job that has ended are taken.

        Args:
            has_failed: some may never come.

        Raises:
            RankSliceError: results are missing, or could not be taken.
        """
        if self._on_result is None:
            return
        if has_failed and wait([self._has_all], _LAST_RESULTS_S).not_done:
            if self._sink is None:
                return
            shut(self._sink)  # what has been received is still read
        if not self._has_all.result() and not has_failed:
            raise RankSliceError("the job ended before its last result arrived")

    def _tell_source(self) -> None:
        if self._is_draining and self._source is not None:
            with suppress(OSError):
                self._source.sendall(b"\n")

    def _serve(self, connection: socket.socket, role: str, epoch: int) -> None:
        if role == wire.ROLE_DRAIN:
            with self._draining:
                self._source = connection
                self._tell_source()
            with suppress(OSError, ValueError, RecursionError), connection.makefile("rb") as lines:
                while line := lines.readline(_MAX_LINE):  # until the source closes it
                    self._on_enter(wire.Entered.of_line(line))
            self._on_enter(None)
        elif role == wire.ROLE_SOURCE and self._feed is not None:
            feed, self._feed = self._feed, None
            feed(connection)
        elif role == wire.ROLE_SINK and self._on_result is not None and self._sink is None:
            self._sink = connection
            self._take_results(connection, self._on_result)

    def _take_results(self, connection: socket.socket, on_result: OnResult) -> None:
        try:
            for number, outputs in enumerate(results(connection, self._form)):
                on_result(number, outputs.reason if isinstance(outputs, Failure) else outputs)
        except (OSError, JobError):  # the job has failed, and says why
            self._has_all.set_result(False)
        except BaseException as error:
            self._has_all.set_exception(error)
        else:
            self._has_all.set_result(True)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def drained_by_signals(drain: Callable[[str], None] | None) -> Iterator[list[str]]:
    """Call ``drain`` with the name of the first SIGINT or SIGTERM; the next one acts as before.

    Without ``drain`` so does the first one.

    Yields:
        A list that gets that name. In a thread other than the main one no signal comes here.
    """
    signals: list[str] = []
    acts = drain is not None and threading.current_thread() is threading.main_thread()
    before = {
        number: handler
        for number in (_SIGNALS if acts else ())
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def begin(number: int, frame: FrameType | None) -> None:
        restore()
        signals.append(signal.Signals(number).name)
        # Not here: this may have interrupted whoever holds a lock that drain takes.
        threading.Thread(target=drain, args=signals, daemon=True).start()

    for number in before:
        signal.signal(number, begin)
    try:
        yield signals
    finally:
        restore()


_STDIN = 0
_CHUNK = 1 << 16


class StandardInput:
    """Sends standard input to the source of a job.

    Open MPI 4.1 forwards it, but several versions of 5 lose or repeat parts of it, or hang.
    """

    def __init__(self) -> None:
        self._error: OSError | None = None

    def check(self) -> None:
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
