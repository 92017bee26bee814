"""The keeper: hands frames to a job, takes its results, and keeps each frame until its result."""

from __future__ import annotations

import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.keeper.state import (
    Action,
    CameOut,
    Closed,
    Deliver,
    Event,
    Given,
    GiveUp,
    JobEnded,
    Ready,
    Send,
    SendEnd,
    Start,
    State,
    UnexpectedResultError,
    Withdrawn,
    decide,
)
from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import TensorSpec, typed_view
from rankslice.backend.runtime.records import RecordForm
from rankslice.framework.errors import RankSliceError

Outputs: TypeAlias = "dict[str, NDArray[Any]]"
"""The arrays of a frame's results, by the names of the model's outputs."""

RunJob: TypeAlias = Callable[[wire.Keeper], None]
"""Runs a job to its end, in the thread that calls it.

Raises:
    RankSliceError: it failed.
"""

_LAST_RESULTS_S = 1.0
"""How long results may be on their way after the end of their job."""
_MOST_STRANGERS = 16
"""Connections that may be about to prove that they belong to the job."""


class PipelineError(RankSliceError):
    """The job has ended, or takes no more frames; the message says why."""


class QueueFullError(RankSliceError):
    """As many frames as may be kept have no result yet."""


@dataclass(slots=True)
class _Kept:
    """A frame without a result."""

    arrays: Sequence[NDArray[Any]]
    future: Future[Outputs] = field(default_factory=Future)


@dataclass(slots=True)
class _Ends:
    """Source and sink of the job of an epoch."""

    frames: deque[int | None] = field(default_factory=deque)
    """What is to be sent to the source: frames, then ``None`` for the end."""
    is_fed: bool = False
    """Whether the source has connected."""
    has_results: bool = False
    """Whether the sink is connected, so that results may come."""


class Keeper:
    """Frames that a job computes, from any number of threads; results come in order.

    It listens on one port for the source of the job and on one for the sink, and knows nothing of
    how a job is run.
    """

    def __init__(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        run_job: RunJob,
        *,
        ahead: int,
        limit: int,
        hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1"),
        restarts: int = 0,
    ) -> None:
        """Listen; :meth:`start` runs the first job.

        Args:
            inputs: of the model.
            outputs: of the model.
            run_job: called in a thread of its own for each job.
            ahead: most frames that are sent into the job without a result.
            limit: most frames that are kept, at least ``ahead``.
            hosts: addresses of this machine at which source and sink reach it.
            restarts: how many jobs may follow one that failed.

        Raises:
            OSError: an address is not of this machine.
        """
        self.limit = limit
        self._inputs, self._results = RecordForm(inputs), RecordForm(outputs)
        self._run_job = run_job
        self._changed = threading.Condition()
        self._state = State(ahead, restarts=restarts)
        self._frames: dict[int, _Kept] = {}
        self._ends: dict[int, _Ends] = {}
        self._next = 0
        self.completed = 0
        """Frames whose results were delivered."""
        self.error: RankSliceError | None = None
        """Why the last job failed."""
        self._secret = secrets.token_hex(32)
        self._strangers = threading.Semaphore(_MOST_STRANGERS)
        self._connections: set[socket.socket] = set()
        self._listeners = [_listener(host) for host in hosts]
        self._ports = [listener.getsockname()[1] for listener in self._listeners]
        self._hosts = hosts
        self._jobs: list[threading.Thread] = []

    @property
    def kept(self) -> int:
        """How many frames have no result yet."""
        return len(self._frames)

    @property
    def state(self) -> State:
        """What the next decision depends on."""
        return self._state

    def start(self) -> None:
        """Run the first job."""
        for listener in self._listeners:
            _thread("listener", self._listen, listener)
        self._start_job(0)

    def wait_until_ready(self) -> None:
        """Return when the job takes frames.

        Raises:
            PipelineError: it has ended before.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._state.is_ready or self._state.has_ended)
            if self._state.has_ended:
                raise self._why_ended()

    def submit(
        self, arrays: Sequence[NDArray[Any]], timeout: float | None = None
    ) -> Future[Outputs]:
        """Give a frame; return the future of its results.

        Args:
            arrays: by input, contiguous and of the types and shapes of the model; nobody may
                change them until the result is there.
            timeout: how long to wait for room, in seconds; ``None``: without bound.

        Raises:
            QueueFullError: there was no room within that time.
            PipelineError: the job has ended, or the keeper is closed.
        """
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: len(self._frames) < self.limit or self._takes_none(), timeout
            )
            if self._takes_none():
                raise self._why_ended()
            if not has_room:
                raise QueueFullError(f"{self.limit} frames have no result yet")
            kept, number = _Kept(arrays), self._next
            self._next += 1
            self._frames[number] = kept
            self._happen(Given(number))
        kept.future.add_done_callback(lambda future: self._withdraw(number, future))
        return kept.future

    def close(self) -> None:
        """Take no more frames; return when all results are delivered and the job has ended."""
        self._happen(Closed())
        for job in self._jobs:  # another one may be added meanwhile
            job.join()
        for end in (*self._listeners, *self._connections):
            with suppress(OSError):  # a close alone would not end an accept that waits
                end.shutdown(socket.SHUT_RDWR)
        for listener in self._listeners:
            listener.close()

    def _takes_none(self) -> bool:
        return self._state.is_closing or self._state.has_ended

    def _why_ended(self) -> PipelineError:
        if self.error is not None:
            return PipelineError(*self.error.mistakes)
        return PipelineError("the pipeline is closed")

    def _withdraw(self, number: int, future: Future[Outputs]) -> None:
        if future.cancelled():
            self._happen(Withdrawn(number))

    def _happen(self, event: Event, outputs: Outputs | None = None) -> None:
        """Decide what follows from an event, and do it."""
        with self._changed:
            before, (self._state, actions) = self._state, decide(self._state, event)
            if isinstance(event, Withdrawn) and event.frame in before.waiting:
                del self._frames[event.frame]
            settled = [done for action in actions if (done := self._do(action)) is not None]
            self._changed.notify_all()
        # Callbacks of futures run here, and may do anything.
        for kept, has_result in settled:
            with suppress(InvalidStateError):  # cancelled
                if has_result and outputs is not None:
                    kept.future.set_result(outputs)
                else:
                    kept.future.set_exception(self._why_ended())

    def _do(self, action: Action) -> tuple[_Kept, bool] | None:
        """Do what was decided; return the frame that is done with, and whether it has a result."""
        if isinstance(action, Deliver | GiveUp):
            has_result = isinstance(action, Deliver)
            self.completed += has_result
            return self._frames.pop(action.frame), has_result
        if isinstance(action, Send):
            future = self._frames[action.frame].future
            if not future.done() and not future.running():
                future.set_running_or_notify_cancel()
            self._ends[action.epoch].frames.append(action.frame)
        elif isinstance(action, SendEnd):
            self._ends[action.epoch].frames.append(None)
        elif isinstance(action, Start):
            self._start_job(action.epoch)
        return None

    def _start_job(self, epoch: int) -> None:
        self._ends = {epoch: _Ends()}
        source, sink = zip(self._hosts, self._ports, strict=True)
        keeper = wire.Keeper(source, sink, self._secret, epoch)
        self._jobs.append(_thread("job", self._run, keeper))

    def _run(self, keeper: wire.Keeper) -> None:
        """Run a job to its end."""
        error: RankSliceError | None = None
        try:
            self._run_job(keeper)
        except RankSliceError as found:
            error = found
        except BaseException as found:
            error = RankSliceError(f"{type(found).__name__}: {found}")
        with self._changed:
            # Results that are on their way here still count.
            ends = self._ends.get(keeper.epoch)
            self._changed.wait_for(lambda: ends is None or not ends.has_results, _LAST_RESULTS_S)
            if error is None and (self.kept or not self._state.is_closing):
                error = RankSliceError("the job ended before it was told to")
            if keeper.epoch == self._state.epoch:
                self.error = error
        self._happen(JobEnded(keeper.epoch))

    def _listen(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            if self._strangers.acquire(blocking=False):
                _thread("connection", self._serve, connection)
            else:
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        """Serve one connection to its end."""
        self._connections.add(connection)
        try:
            with connection:
                try:
                    role, epoch = wire.accept(connection, self._secret) or ("", 0)
                finally:
                    self._strangers.release()
                if role == wire.ROLE_SOURCE:
                    self._feed(connection, epoch)
                elif role == wire.ROLE_SINK:
                    self._take_results(connection, epoch)
        except (OSError, JobError, UnexpectedResultError):
            pass  # the job finds its connection closed, ends, and says why
        finally:
            self._connections.discard(connection)

    def _feed(self, connection: socket.socket, epoch: int) -> None:
        """Send frames to the source of a job."""
        with self._changed:
            ends = self._ends.get(epoch)
            if ends is None or ends.is_fed:
                return
            ends.is_fed = True
            self._happen(Ready(epoch))
        while True:
            with self._changed:
                self._changed.wait_for(lambda: ends.frames or self._is_over(epoch))
                if self._is_over(epoch):
                    return
                number = ends.frames.popleft()
                arrays = () if number is None else self._frames[number].arrays
            if number is None:
                wire.send(connection, wire.end_of(self._inputs))
                wire.receive(connection, bytearray(1))  # until the source closes it
                return
            sizes = self._inputs.sizes_of(arrays)
            wire.send(connection, self._inputs.head.pack(number, 0.0, *sizes), arrays)

    def _is_over(self, epoch: int) -> bool:
        return self._state.has_ended or self._state.epoch != epoch

    def _take_results(self, connection: socket.socket, epoch: int) -> None:
        """Take the results of a job's sink."""
        with self._changed:
            ends = self._ends.get(epoch)
            if ends is None or ends.has_results:
                return
            ends.has_results = True
        try:
            self._take_all(connection, epoch)
        finally:
            with self._changed:
                ends.has_results = False
                self._changed.notify_all()

    def _take_all(self, connection: socket.socket, epoch: int) -> None:
        expected = 0
        while head := wire.receive_head(connection, self._results):
            number, sizes = head
            if number == wire.END:
                return
            if number != expected:
                raise UnexpectedResultError
            expected += 1
            outputs: Outputs = {}
            for spec in self._results.outputs_of(sizes):
                buffer = np.empty(spec.nbytes, np.uint8)
                if not wire.receive(connection, wire.bytes_of(buffer)):
                    return
                outputs[spec.name] = typed_view(spec, buffer)
            self._happen(CameOut(epoch), outputs)


def _listener(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family)


def _thread(name: str, work: Callable[..., None], *arguments: Any) -> threading.Thread:
    """Start a thread that ends with the program."""
    thread = threading.Thread(target=work, args=arguments, name=f"keeper: {name}", daemon=True)
    thread.start()
    return thread
