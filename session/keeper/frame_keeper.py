"""The keeper: hands frames to a job, takes its results, and keeps each frame until its result."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from numpy.typing import NDArray

from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.frame_records import Failure, RecordForm
from rankslice.backend.runtime.job import Rank, Tensor
from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import printable
from rankslice.session.keeper.decisions import (
    NO_JOB,
    Action,
    Closed,
    Deliver,
    Event,
    GiveUp,
    JobEnded,
    Ready,
    Replaced,
    ResultArrived,
    Send,
    SendEnd,
    State,
    Submitted,
    UnexpectedResultError,
    Withdrawn,
    decide,
)
from rankslice.session.keeper.job_connections import JobListener, results, shut, start_thread

Outputs: TypeAlias = "dict[str, NDArray[Any]]"
"""The arrays of a frame's results, by the names of the model's outputs."""

HasFailed: TypeAlias = Callable[[RankSliceError], None]
"""Told that a job has failed and why, as soon as that is known: its end may take longer."""

RunJob: TypeAlias = Callable[[wire.Keeper, HasFailed], None]
"""Runs a job to its end, in the thread that calls it.

Raises:
    RankSliceError: it failed.
"""

Follow: TypeAlias = Callable[[int, RankSliceError], "int | None"]
"""Returns the epoch of the job that takes over from one that failed; ``None``: there is none.

Raises:
    RankSliceError: there is none; the reason is added to that of the failure.
"""

_LAST_RESULTS_S = 1.0
"""How long results may be on their way after the end of their job."""
_LAST_WORDS_S = 15.0
"""How long a job may take to say why its source or sink has gone."""


class PipelineError(RankSliceError):
    """The job has ended, or takes no more frames; the message says why."""


class QueueFullError(RankSliceError):
    """As many frames as may be kept have no result yet."""


class _Result(Future[Outputs]):
    def disown(self, error: RankSliceError) -> None:
        """Have an error at once, in a process that was forked: it has no thread but its own.

        Others may have held the lock. Callbacks and waiting threads are those of the parent.
        """
        self._condition = threading.Condition()
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        if not self.done():
            self.set_exception(error)


class FailedFrameError(RankSliceError):
    """A frame has no results, as an engine has refused its values; the job goes on."""

    def __init__(self, frame: int, failure: Failure, ranks: Sequence[Rank]) -> None:
        """Take what the job says, which may come from a board, and its ranks."""
        self.frame = frame
        """How many frames were submitted before it."""
        self.rank = failure.rank
        self.segment = failure.segment
        """On its rank."""
        self.reason = printable(failure.reason)
        super().__init__(printable(failure.describe(frame, ranks)))


@dataclass(slots=True)
class _Kept:
    arrays: Sequence[NDArray[Any]]
    future: _Result = field(default_factory=_Result)


@dataclass(slots=True)
class _Ends:
    """Source and sink of the job of an epoch."""

    frames: deque[int | None] = field(default_factory=deque)
    """What is to be sent to the source: frames, then ``None`` for the end."""
    is_complete: bool = False
    """Whether the end of the frames was sent to it."""
    connections: dict[str, socket.socket] = field(default_factory=dict)
    """By role; that of the sink is there as long as results may come."""


class Keeper:
    """Frames that a job computes, from any number of threads; results come in order.

    It knows nothing of how a job is run.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        *,
        ahead: int,
        limit: int,
        follow: Follow | None = None,
        ranks_of: Callable[[int], Sequence[Rank]] = lambda epoch: (),
    ) -> None:
        """Keep frames; :meth:`start_job` starts the job that has them.

        At most ``ahead`` frames are sent into the job without a result, at most ``limit`` are kept.
        ``follow`` is called when the job that has the frames has failed, in a thread of its own.
        """
        self.limit = limit
        self._outputs = outputs
        self._inputs, self._results = RecordForm(inputs), RecordForm(outputs)
        self._follow, self._ranks_of = follow, ranks_of
        self._changed = threading.Condition()
        self._state = State(ahead)
        self._frames: dict[int, _Kept] = {}
        self._ends: dict[int, _Ends] = {}
        self._errors: dict[int, RankSliceError] = {}
        self._next = 0
        self._next_epoch = 0
        self.restarts = 0
        """How often another job has taken over."""
        self.completed = 0
        """Frames whose results were delivered."""
        self.made: list[tuple[int, int]] = []
        """Which jobs have made them: the first one's number among the results, and the epoch."""
        self.error: RankSliceError | None = None
        """Why the last job failed."""
        self.is_foreign = False
        """Whether it belongs to the process that forked this one."""
        self._listener = JobListener(self._serve)
        self._threads: list[threading.Thread] = []
        """Those that run jobs."""
        _open.add(self)

    @property
    def kept(self) -> int:
        return len(self._frames)

    @property
    def state(self) -> State:
        """What the next decision depends on."""
        return self._state

    def start_job(
        self, run_job: RunJob, hosts: tuple[str, str] = ("127.0.0.1", "127.0.0.1")
    ) -> int:
        """Run a job in a thread of its own; return its epoch.

        The first one has the frames. Others wait until ``follow`` names them.
        """
        with self._changed:
            keeper = self._listener.keeper(hosts, self._next_epoch)
            self._next_epoch += 1
            self._ends[keeper.epoch] = _Ends()
            self._threads.append(start_thread("job", self._run, run_job, keeper))
        return keeper.epoch

    def is_alive(self, epoch: int) -> bool:
        return epoch not in self._state.over

    def wait_until_ready(self) -> None:
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
            self._happen(Submitted(number))
        kept.future.add_done_callback(lambda future: self._withdraw(number, future))
        return kept.future

    def close(self) -> None:
        """Take no more frames; return when all results are delivered and all jobs have ended."""
        self._happen(Closed())
        with self._changed:
            self._changed.wait_for(lambda: self._state.has_ended)
        for thread in self._threads:  # others may be added meanwhile
            thread.join()
        self._listener.close()

    def give_up(self) -> None:
        """Wait for no job that takes over: if none has the frames, they get no results."""
        with self._changed:
            if self._state.epoch != NO_JOB or self._state.has_ended:
                return
            self.error = RankSliceError("the pipeline was ended")
        self._happen(Replaced(None))

    def disown(self) -> None:
        """Have ended, in a process that was forked; what the parent has is left as it is."""
        self.is_foreign = True
        self._changed = threading.Condition()
        self._threads = []
        self._listener.disown()
        self._state = replace(
            self._state, epoch=NO_JOB, has_ended=True, ready=frozenset(), waiting=(), inside=()
        )
        self.error = RankSliceError(
            "the pipeline belongs to the parent process, which forked this one: open another one"
            " here, or start processes in another way (multiprocessing: spawn)"
        )
        frames, self._frames = self._frames, {}
        for kept in frames.values():
            kept.future.disown(self._why_ended())

    def _takes_none(self) -> bool:
        return self._state.is_closing or self._state.has_ended

    def _why_ended(self) -> PipelineError:
        if self.error is not None:
            return PipelineError(*self.error.mistakes)
        return PipelineError("the pipeline is closed")

    def _withdraw(self, number: int, future: Future[Outputs]) -> None:
        if future.cancelled():
            self._happen(Withdrawn(number))

    def _happen(self, event: Event, result: Outputs | FailedFrameError | None = None) -> None:
        with self._changed:
            before, (self._state, actions) = self._state, decide(self._state, event)
            if isinstance(event, Withdrawn) and event.frame in before.waiting:
                del self._frames[event.frame]
            settled = [done for action in actions if (done := self._do(action)) is not None]
            self._changed.notify_all()
        # Callbacks of futures run here, and may do anything.
        for kept, has_result in settled:
            try:
                if not has_result:
                    kept.future.set_exception(self._why_ended())
                elif isinstance(result, FailedFrameError):
                    kept.future.set_exception(result)
                elif result is not None:
                    kept.future.set_result(result)
            except InvalidStateError:  # cancelled
                pass
            except BaseException as error:  # what callbacks raise; Exceptions are logged
                if isinstance(event, ResultArrived):
                    self._fail(event.epoch, _as_user_error(error, "a callback of a result raised "))

    def _do(self, action: Action) -> tuple[_Kept, bool] | None:
        """Do what was decided; return the frame that is done with, and whether it has a result."""
        if isinstance(action, Deliver | GiveUp):
            has_result = isinstance(action, Deliver)
            if has_result and (not self.made or self.made[-1][1] != self._state.epoch):
                self.made.append((self.completed, self._state.epoch))
            self.completed += has_result
            return self._frames.pop(action.frame), has_result
        if isinstance(action, Send):
            future = self._frames[action.frame].future
            if not future.done() and not future.running():
                future.set_running_or_notify_cancel()
            self._ends[action.epoch].frames.append(action.frame)
        elif isinstance(action, SendEnd):
            if action.epoch in self._ends:
                self._ends[action.epoch].frames.append(None)
        else:
            start_thread("successor", self._find_successor, action.epoch)
        return None

    def _run(self, run_job: RunJob, keeper: wire.Keeper) -> None:
        epoch = keeper.epoch
        error: RankSliceError | None = None
        try:
            run_job(keeper, lambda error: self._fail(epoch, error))
        except BaseException as found:
            error = _as_user_error(found)
        with self._changed:
            # Results that are on their way here still count.
            ends = self._ends[epoch]
            self._changed.wait_for(lambda: wire.ROLE_SINK not in ends.connections, _LAST_RESULTS_S)
            if error is None and (self.kept or not self._takes_none()):
                error = RankSliceError("the job ended unexpectedly")
            if error is not None and self._follow is None:
                self.error = self._errors.get(epoch, error)
        self._fail(epoch, error or RankSliceError("the job has ended"))
        with self._changed:
            connections = [*self._ends.pop(epoch).connections.values()]
        for connection in connections:  # one to a board that is away may never end by itself
            shut(connection)

    def _fail(self, epoch: int, error: RankSliceError) -> None:
        """Note that a job is over, unless it was noted before."""
        with self._changed:
            self._errors.setdefault(epoch, error)
        self._happen(JobEnded(epoch))

    def _find_successor(self, epoch: int) -> None:
        error, successor = self._errors[epoch], None
        try:
            if self._follow is not None:
                successor = self._follow(epoch, error)
        except BaseException as found:
            error = RankSliceError(*error.mistakes, *_as_user_error(found).mistakes)
        with self._changed:
            if successor is not None:
                self.restarts += 1
            elif not self._state.has_ended:  # by give_up
                self.error = error
        self._happen(Replaced(successor))

    def _serve(self, connection: socket.socket, role: str, epoch: int) -> None:
        """Serve source or sink of a job; whatever goes wrong ends the job, and is told."""
        serve = {wire.ROLE_SOURCE: self._feed, wire.ROLE_SINK: self._take_results}.get(role)
        with self._changed:
            ends = self._ends.get(epoch)
            if serve is None or ends is None or role in ends.connections:
                return
            ends.connections[role] = connection
        try:
            serve(connection, epoch, ends)
        except OSError as error:
            with self._changed:  # a job that fails says why
                self._changed.wait_for(lambda: not self.is_alive(epoch), _LAST_WORDS_S)
            text = f"the connection of the {role} ended early: {error.strerror or 'it was closed'}"
            self._fail(epoch, RankSliceError(text))
        except BaseException as error:
            self._fail(epoch, _as_user_error(error, f"the {role}: "))

    def _feed(self, connection: socket.socket, epoch: int, ends: _Ends) -> None:
        self._happen(Ready(epoch))
        start_thread("frames", self._send_frames, connection, epoch, ends)
        wire.receive(connection, bytearray(1))  # until the source closes it
        if self.is_alive(epoch) and not ends.is_complete:
            raise ConnectionError

    def _send_frames(self, connection: socket.socket, epoch: int, ends: _Ends) -> None:
        """Send frames as long as there are some; end the connection if there will be no others."""
        try:
            while (number := self._next_frame(epoch, ends)) is not None:
                arrays = self._frames[number].arrays
                head = self._inputs.head_of(number, 0.0, arrays)
                wire.send(connection, head, arrays)
            if self.is_alive(epoch):
                ends.is_complete = True
                wire.send(connection, self._inputs.head_alone(wire.END))
                return
        except OSError:  # whoever waits for the end of the connection tells that
            pass
        except BaseException as error:
            self._fail(epoch, _as_user_error(error, "the source: "))
        shut(connection)

    def _next_frame(self, epoch: int, ends: _Ends) -> int | None:
        """Wait for a frame to send, and return it; ``None``: no more are sent."""
        with self._changed:
            self._changed.wait_for(lambda: ends.frames or not self.is_alive(epoch))
            return ends.frames.popleft() if self.is_alive(epoch) else None

    def _take_results(self, connection: socket.socket, epoch: int, ends: _Ends) -> None:
        names = [spec.name for spec in self._outputs]
        try:
            for outputs in results(connection, self._results):
                if isinstance(outputs, Failure):
                    oldest = next(iter(self._state.inside), 0)  # none: the job is over
                    error = FailedFrameError(oldest, outputs, self._ranks_of(epoch))
                    self._happen(ResultArrived(epoch), error)
                else:
                    self._happen(ResultArrived(epoch), dict(zip(names, outputs, strict=True)))
        except UnexpectedResultError:
            raise JobError("a result came, and no frame is inside") from None
        finally:
            with self._changed:
                del ends.connections[wire.ROLE_SINK]
                self._changed.notify_all()


def _as_user_error(error: BaseException, where: str = "") -> RankSliceError:
    if isinstance(error, RankSliceError):
        return error
    kind = "" if isinstance(error, JobError) else f"{type(error).__name__}: "
    return RankSliceError(f"{where}{kind}{error}")


_open: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _disown_all() -> None:
    for keeper in tuple(_open):
        keeper.disown()


os.register_at_fork(after_in_child=_disown_all)
