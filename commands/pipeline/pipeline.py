"""A job that a program feeds with frames."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.keeper.keeper import (
    Keeper,
    Outputs,
    PipelineError,
    QueueFullError,
)
from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.job import TensorSpec, load_job
from rankslice.backend.runtime.options import RunOptions
from rankslice.commands.build_folder import PLAN
from rankslice.commands.pipeline.inputs import Frame, arrays_of
from rankslice.commands.run.prepare import PreparedRun, prepare
from rankslice.commands.run.run import run_kept
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes

__all__ = ["Pipeline", "PipelineError", "QueueFullError", "open_pipeline"]

_SPARE = 2
"""Frames that are sent beyond the window, so that the next one is there when a result comes out."""


def open_pipeline(
    folder: str | Path,
    *,
    window: int | None = None,
    queue: int | None = None,
    exact: bool = False,
    start_timeout_s: float | None = None,
    frame_timeout_s: float | None = None,
    mpirun: str | Path | None = None,
    ssh_config: str | Path | None = None,
    wait: bool = True,
) -> Pipeline:
    """Start the job of a build folder; return it when all ranks are ready for frame 0.

    Example:
        >>> with rankslice.open("out") as pipeline:
        ...     result = pipeline(image)

    Args:
        folder: made by ``build``. Packages are on their boards (``deploy``).
        window: most frames inside the pipeline; by default that of the plan.
        queue: how many frames may wait besides; as many as are inside by default.
        exact: engines run without graph optimisation.
        start_timeout_s: how long the ranks may take to start, in seconds; 120 by default.
        frame_timeout_s: how long a segment may take for a frame, in seconds; by default 30, or 20
            times the slowest one.
        mpirun: path of an mpirun; the one of this environment by default.
        ssh_config: handed to ssh as ``-F``.
        wait: otherwise it is returned at once, and :meth:`Pipeline.wait_until_ready` waits.

    Raises:
        RankSliceError: the folder is no build folder, a board cannot run its package, or the job
            does not start.
    """
    raise_mistakes(
        Mistake(name, f"is {number}", "expected a whole number, 1 or more")
        for name, number in (("window", window), ("queue", queue))
        if number is not None and number < 1
    )
    options = RunOptions(
        inputs=(wire.NAME,),
        window=window,
        exact=exact,
        start_timeout_s=start_timeout_s,
        frame_timeout_s=frame_timeout_s,
    )
    prepared = prepare(
        Path(folder),
        options,
        results=Path("/dev/null"),
        mpirun=None if mpirun is None else Path(mpirun),
        ssh_config=None if ssh_config is None else Path(ssh_config),
    )
    pipeline = Pipeline(prepared, queue)
    if not wait:
        return pipeline
    try:
        pipeline.wait_until_ready()
    except BaseException:
        pipeline.abort()
        raise
    return pipeline


class Pipeline:
    """A running job; frames in, results out, in order. Any thread may call it.

    A frame is an array, if the model has one input, or a dictionary of arrays by the names of the
    inputs. Results are dictionaries of arrays by the names of the outputs.
    """

    def __init__(self, prepared: PreparedRun, queue: int | None = None) -> None:
        """Start a job; it takes frames once :meth:`wait_until_ready` has returned.

        Args:
            prepared: a run whose frames come from the keeper.
            queue: how many frames may wait; as many as are inside by default.
        """
        job = load_job(prepared.folder / PLAN)
        self.folder = prepared.folder
        self.name = Path(job.model).stem
        """Of the model."""
        self.inputs: tuple[TensorSpec, ...] = job.inputs
        self.outputs: tuple[TensorSpec, ...] = job.outputs
        self._prepared = prepared
        self._mpirun: subprocess.Popen[str] | None = None
        self._is_aborted = False
        self._starting = threading.Lock()
        window = prepared.options.window or max(route.window for route in job.routes)
        ahead = window + _SPARE
        ends = job.ranks[job.source_rank].host, job.ranks[job.sink_rank].host
        self._keeper = Keeper(
            job.inputs,
            job.outputs,
            self._run,
            ahead=ahead,
            limit=max(ahead, window + (window if queue is None else queue)),
            hosts=(_address_for(ends[0]), _address_for(ends[1])),
        )
        self._keeper.start()

    @property
    def limit(self) -> int:
        """Most frames without a result: those inside, and those that wait."""
        return self._keeper.limit

    @property
    def kept(self) -> int:
        """How many frames have no result yet."""
        return self._keeper.kept

    @property
    def completed(self) -> int:
        """How many results have come."""
        return self._keeper.completed

    @property
    def error(self) -> RankSliceError | None:
        """Why the job failed."""
        return self._keeper.error

    @property
    def state(self) -> str:
        """One of ``starting``, ``ready``, ``closing``, ``ended`` and ``failed``."""
        state = self._keeper.state
        if state.has_ended:
            return "ended" if self.error is None else "failed"
        if state.is_closing:
            return "closing"
        return "ready" if state.is_ready else "starting"

    def wait_until_ready(self) -> None:
        """Return when all ranks are ready for frames.

        Raises:
            PipelineError: the job did not start; the message says why.
        """
        self._keeper.wait_until_ready()

    def __call__(self, frame: Frame) -> Outputs:
        """Return the results of one frame.

        Raises:
            RankSliceError: it does not fit the model's inputs.
            PipelineError: the job has failed; the message names the rank and says why.
        """
        return self.submit(frame).result()

    def submit(self, frame: Frame, timeout: float | None = None) -> Future[Outputs]:
        """Give a frame; return the future of its results.

        The frame is copied. As long as it waits it can be withdrawn (``future.cancel()``).

        Args:
            frame: its arrays.
            timeout: how long to wait for room, in seconds; ``None``: without bound.

        Raises:
            RankSliceError: it does not fit the model's inputs.
            QueueFullError: :attr:`limit` frames have no result, and none came within that time.
            PipelineError: the job has failed or is closed.
        """
        return self._keeper.submit(arrays_of(frame, self.inputs), timeout)

    async def infer(self, frame: Frame) -> Outputs:
        """Return the results of one frame, without blocking other coroutines.

        Raises:
            RankSliceError: as :meth:`submit`, and as the call.
        """
        try:
            future = self.submit(frame, timeout=0)
        except QueueFullError:
            future = await asyncio.to_thread(self.submit, frame)
        return await asyncio.wrap_future(future)

    def map(self, frames: Iterable[Frame]) -> Iterator[Outputs]:
        """Yield the results of frames, in order; the pipeline is kept full.

        At most :attr:`limit` frames are taken before their results are.

        Raises:
            RankSliceError: as :meth:`submit`, and as the call.
        """
        pending: deque[Future[Outputs]] = deque()
        try:
            for frame in frames:
                pending.append(self.submit(frame))
                while len(pending) >= self.limit or (pending and pending[0].done()):
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def close(self) -> None:
        """Take no more frames; return when all results are there and the job has ended."""
        self._keeper.close()

    def abort(self) -> None:
        """End the job at once; frames without a result get :class:`PipelineError`."""
        with self._starting:
            self._is_aborted = True
            if self._mpirun is not None:
                self._mpirun.terminate()
        self._keeper.close()

    def __enter__(self) -> Pipeline:
        """Return the pipeline."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it; end it at once after an error."""
        if kind is None:
            self.close()
        else:
            self.abort()

    def _run(self, keeper: wire.Keeper) -> None:
        try:
            run_kept(self._prepared, keeper, self._note_start)
        except RankSliceError:
            if self._is_aborted:
                raise PipelineError("the pipeline was ended") from None
            raise

    def _note_start(self, mpirun: subprocess.Popen[str]) -> None:
        with self._starting:
            self._mpirun = mpirun
            if self._is_aborted:
                mpirun.terminate()


def _address_for(host: str) -> str:
    """Return the address of this machine at which a host reaches it."""
    if is_this_machine(host):
        return "127.0.0.1"
    with suppress(OSError):
        kind, *_, there = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        # Nothing is sent: the kernel chooses the way to the host.
        with socket.socket(kind, socket.SOCK_DGRAM) as way:
            way.connect(there)
            return str(way.getsockname()[0])
    raise RankSliceError(Mistake(host, "cannot be reached from this machine"))
