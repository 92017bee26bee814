"""A job that a program feeds with frames."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, TypeVar

from rankslice.backend.launch.job import end_job
from rankslice.backend.runtime import keeper as wire
from rankslice.backend.runtime.figures.sampling import Sample, split_name
from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.options import RunOptions
from rankslice.framework.errors import RankSliceError
from rankslice.framework.wording import joined
from rankslice.session.build_folder import read_plan
from rankslice.session.callbacks import NO_CALLBACKS, Callbacks
from rankslice.session.fail_over import Restart, Survivors, accused_boards
from rankslice.session.frame_arrays import Frame, arrays_of, images_of
from rankslice.session.keeper.frame_keeper import (
    HasFailed,
    Keeper,
    Outputs,
    PipelineError,
    QueueFullError,
)
from rankslice.session.keeper.job_connections import start_thread
from rankslice.session.prepare import PreparedRun, absolute, prepare
from rankslice.session.shared_options import DEFAULT_LAUNCHING, NOT_SURVIVING, Launching, Surviving
from rankslice.session.start import own_folder, put_report, run_in

_MAX_FAILED = 3
"""How often a job that waits may fail before it is not loaded any more."""
_SPARE = 2
"""Frames that are sent beyond the window, so that the next one is there when a result comes out."""


OnEnded: TypeAlias = Callable[[PreparedRun, Path], None]
"""Takes the job that had the last frames, and the folder with its report, which is removed then."""


def prepare_fed_job(
    folder: Path,
    options: RunOptions,
    launching: Launching = DEFAULT_LAUNCHING,
    *,
    check_memory: bool = True,
) -> PreparedRun:
    """Prepare a job whose frames come from the keeper; of the options, those of its ranks count."""
    return prepare(
        folder,
        RunOptions(
            inputs=(wire.NAME,),
            skip_failed=True,
            window=options.window,
            exact=options.exact,
            direct=options.direct,
            start_timeout_s=options.start_timeout_s,
            frame_timeout_s=options.frame_timeout_s,
            preprocessing=options.preprocessing,
            record=options.record,
            record_frames=options.record_frames,
        ),
        launching,
        results=Path("/dev/null"),
        check_memory=check_memory,
    )


def open_pipeline(
    folder: Path,
    options: RunOptions,
    launching: Launching = DEFAULT_LAUNCHING,
    surviving: Surviving = NOT_SURVIVING,
    *,
    callbacks: Callbacks = NO_CALLBACKS,
    on_ended: OnEnded = lambda job, folder: None,
    wait: bool = True,
) -> Pipeline:
    """Start the job of a build folder; return it when all ranks are ready for frame 0, if ``wait``.

    ``options.queue`` frames may wait besides those inside. :func:`rankslice.open` describes the
    rest.
    """

    def prepared(folder: Path) -> PreparedRun:
        return prepare_fed_job(folder, options, launching)

    place, lost = absolute(folder), frozenset[str]()
    survivors = None
    if surviving.survive:
        survivors = Survivors(place, prepared, ssh_config=launching.ssh_config)
    try:
        first = prepared(place)
    except RankSliceError as error:
        accused = accused_boards(error, read_plan(place)) if survivors is not None else None
        if survivors is None or not accused:
            raise
        first, lost = survivors.next_run(survivors.losable(accused, error), frozenset())
        callbacks.on_restart(Restart(error, lost, first.folder, 0))
    else:
        if survivors is not None:
            survivors.check()
    pipeline = Pipeline(
        first,
        options.queue,
        survivors,
        lost=lost,
        standby=surviving.standby,
        callbacks=callbacks,
        on_ended=on_ended,
    )
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

    A frame is an array or an image, if the model has one input, or a dictionary of arrays by the
    names of the inputs; :func:`.arrays_of` has what an image may be. Results are dictionaries of
    arrays by the names of the outputs.
    """

    def __init__(
        self,
        prepared: PreparedRun,
        queue: int | None = None,
        survivors: Survivors | None = None,
        *,
        lost: frozenset[str] = frozenset(),
        standby: bool = False,
        callbacks: Callbacks = NO_CALLBACKS,
        on_ended: OnEnded = lambda job, folder: None,
    ) -> None:
        """Start a job; it takes frames once :meth:`wait_until_ready` has returned.

        Its frames come from the keeper. It does without the boards that are ``lost``; without
        ``survivors`` no job follows when another one is. See :func:`open_pipeline` for the rest.
        """
        job = prepared.plan.job
        self.folder = prepared.folder
        self.name = Path(job.model).stem
        """Of the model."""
        self.inputs: tuple[Tensor, ...] = job.inputs
        self.outputs: tuple[Tensor, ...] = job.outputs
        self.images = images_of(job.inputs, prepared.options.preprocessing)
        """What the model takes of images; ``None``: it takes none."""
        self._survivors = survivors
        self._callbacks, self._on_ended = callbacks, on_ended
        self._jobs: dict[int, PreparedRun] = {}
        """By epoch."""
        self._running: dict[int, dict[str, Sample]] = {}
        """By epoch: where the job finds the keeper, and processor times that boards have told."""
        self._is_standby = standby
        self._standby: dict[frozenset[str], int] = {}
        """Epochs by the boards that these jobs do without."""
        self._failed = Counter[frozenset[str]]()
        """How many of these jobs have failed since a job has taken over."""
        self._preparing = threading.Lock()
        self._lost = lost
        self._mpiruns: list[subprocess.Popen[str]] = []
        self._is_aborted = self._is_closing = False
        self._starting = threading.Lock()
        self.window = prepared.options.window or max(route.window for route in job.routes)
        """Most frames inside the job."""
        ahead = self.window + _SPARE
        self._keeper = Keeper(
            job.inputs,
            job.outputs,
            ahead=ahead,
            limit=max(ahead, self.window + (self.window if queue is None else queue)),
            follow=None if survivors is None else self._follow,
            ranks_of=lambda epoch: self._job(epoch).plan.ranks,
        )
        self._start(prepared)
        if survivors is not None:
            start_thread("spares", self._prepare_spares, survivors)

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
    def restarts(self) -> int:
        """How often another job has taken over."""
        return self._keeper.restarts

    @property
    def lost(self) -> frozenset[str]:
        """Names of the boards that the job does without."""
        return self._lost

    @property
    def made(self) -> list[tuple[int, Path]]:
        """Which jobs have made the results: the number of each one's first, and its folder."""
        return [(first, self._job(epoch).folder) for first, epoch in self._keeper.made]

    @property
    def state(self) -> str:
        """One of ``starting``, ``ready``, ``recovering``, ``closing``, ``ended`` and ``failed``."""
        state = self._keeper.state
        if state.has_ended:
            return "ended" if self.error is None else "failed"
        if state.is_closing:
            return "closing"
        if state.is_ready:
            return "ready"
        return "recovering" if state.over else "starting"

    def rank_figures(self) -> dict[int, dict[str, float]]:
        """Return figures of the last second for each rank of the job that has the frames.

        The figures are ``cpu_s``, ``memory_mb``, ``processor_share``, ``frames_per_s``,
        ``compute_share`` and ``wait_share``, as far as they are known.
        """
        epoch = self._keeper.state.epoch
        samples = self._running.get(epoch)
        if samples is None:
            return {}
        figures = {rank: {"cpu_s": 0.0} for rank in range(len(self._job(epoch).plan.ranks))}
        for sample in list(samples.values()):
            for name, value in sample.values.items():
                quantity, rank = split_name(name)
                if isinstance(rank, int):
                    figures[rank][quantity] = value
        return figures

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
        return self._keeper.submit(arrays_of(frame, self.inputs, self.images), timeout)

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
        """Yield the results of frames, in order, each once it is there; the pipeline is kept full.

        A thread reads the frames, at most :attr:`limit` before their results are taken.

        Raises:
            RankSliceError: as :meth:`submit`, and as the call; after the results before.
            BaseException: what the iteration over the frames has raised; likewise.
        """
        return results_in_order(frames, self.submit, self.limit)

    def close(self) -> None:
        """Take no more frames; return when all results are there and the job has ended."""
        if not self._keeper.is_foreign:  # else a thread that is not here may hold the lock
            with self._starting:  # from now on no job is loaded that waits
                self._is_closing = True
        self._keeper.close()

    def abort(self) -> None:
        """End the job at once; frames without a result get :class:`PipelineError`."""
        if self._keeper.is_foreign:
            return
        with self._starting:
            self._is_aborted = True
            for mpirun in self._mpiruns:
                _end(mpirun)
        self._keeper.give_up()
        self._keeper.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _start(self, prepared: PreparedRun) -> int:
        with self._starting:
            if self._is_aborted:
                raise PipelineError("the pipeline was ended")
            return self._begin(prepared)

    def _begin(self, prepared: PreparedRun) -> int:
        run = partial(self._run, prepared)
        epoch = self._keeper.start_job(run, prepared.meeting_points)
        self._jobs[epoch] = prepared
        return epoch

    def _job(self, epoch: int) -> PreparedRun:
        with self._starting:  # it may fail before its start is noted
            return self._jobs[epoch]

    def _run(self, prepared: PreparedRun, keeper: wire.Keeper, has_failed: HasFailed) -> None:
        samples: dict[str, Sample] = {}
        self._running[keeper.epoch] = samples

        def take_sample(board: str, sample: Sample) -> None:
            samples[board] = sample
            if keeper.epoch == self._keeper.state.epoch:
                self._callbacks.on_sample(board, sample)

        callbacks = Callbacks(
            on_start=self._note_start,
            on_failure=None if self._survivors is None else has_failed,
            on_sample=take_sample,
            was_aborted=lambda: self._is_aborted,
        )
        try:
            with own_folder(prepared) as folder:
                run_in(prepared, folder, callbacks, variables={wire.VARIABLE: keeper.to_text()})
                if keeper.epoch == self._keeper.state.epoch:
                    put_report(prepared, folder)
                    self._on_ended(prepared, folder)
        except RankSliceError as error:
            if self._is_aborted:
                raise PipelineError("the pipeline was ended") from None
            self._note_failed_spare(keeper.epoch, error)
            raise
        finally:
            del self._running[keeper.epoch]

    def _follow(self, epoch: int, error: RankSliceError) -> int | None:
        assert self._survivors is not None
        if self._is_aborted:
            return None
        completed = self.completed
        accused = self._survivors.accused(self._job(epoch).plan, error, completed)
        successor, self._lost = self._successor(accused)
        folder = self._job(successor).folder
        self._callbacks.on_restart(Restart(error, self._lost, folder, completed))
        self._failed.clear()
        start_thread("spares", partial(self._prepare_spares, self._survivors, after_loss=True))
        return successor

    def _successor(self, accused: frozenset[str]) -> tuple[int, frozenset[str]]:
        """Return the epoch of a job that does without some boards, and what it does without."""
        assert self._survivors is not None
        for without in (accused, accused | self._lost):
            waiting = self._standby.pop(without, None)
            if waiting is not None and self._keeper.is_alive(waiting):
                return waiting, without
        run, lost = self._survivors.next_run(accused, self._lost)
        return self._start(run), lost

    def _prepare_spares(self, survivors: Survivors, *, after_loss: bool = False) -> None:
        """Prepare the jobs that take over after the next loss; load them, if they are to wait."""
        with suppress(RankSliceError, OSError), self._preparing:
            if after_loss:  # the successor starts first
                self._keeper.wait_until_ready()
            lost = self._lost
            for without in survivors.spares(lost, self._standby.keys()):
                may_load = self._is_standby and self._failed[without] < _MAX_FAILED
                run = survivors.take(without) if may_load else None
                if run is None:
                    continue
                with self._starting:
                    if self._is_over or lost != self._lost:
                        return
                    self._standby[without] = self._begin(run)

    @property
    def _is_over(self) -> bool:
        return self._is_aborted or self._is_closing or self._keeper.state.has_ended

    def _note_failed_spare(self, epoch: int, error: RankSliceError) -> None:
        """Tell that a job which waits has failed, and have it replaced, unless it fails again."""
        plan = self._job(epoch).plan  # from now on it is known to wait, if it does
        without = next((lost for lost, of in [*self._standby.items()] if of == epoch), None)
        if without is None or self._survivors is None or self._is_over:
            return
        self._standby.pop(without, None)
        accused = accused_boards(error, plan)
        if not accused or not accused <= self._lost:  # else it has been told
            self._failed[without] += 1
            then = "is loaded again" if self._failed[without] < _MAX_FAILED else "stays away"
            boards = joined(sorted(without - self._lost))
            self._callbacks.on_warning(
                f"the job that waits for the loss of {boards} {then}: {error}"
            )
        start_thread("spares", self._prepare_spares, self._survivors)

    def _note_start(self, mpirun: subprocess.Popen[str]) -> None:
        with self._starting:
            self._mpiruns = [mpirun for mpirun in self._mpiruns if mpirun.poll() is None]
            self._mpiruns.append(mpirun)
            if self._is_aborted:
                _end(mpirun)


def _end(mpirun: subprocess.Popen[str]) -> None:
    threading.Thread(target=end_job, args=(mpirun,), name="end of a job", daemon=True).start()


F = TypeVar("F")
R = TypeVar("R")


def results_in_order(
    frames: Iterable[F],
    submit: Callable[[F], Future[R]],
    limit: int,
    take: Callable[[Future[R]], Any] = Future.result,
) -> Iterator[Any]:
    """Yield the result of each frame once it is there, whether or not another frame has come.

    A thread reads and submits the frames, at most ``limit`` before their results are taken.
    ``take`` returns what is yielded of a future that is done.

    Raises:
        BaseException: what reading or giving a frame has raised, after the results before it.
    """
    submitted: SimpleQueue[Future[R] | None] = SimpleQueue()
    room = threading.Semaphore(limit)
    is_over = threading.Event()

    def give() -> None:
        try:
            rest = iter(frames)
            while room.acquire() and not is_over.is_set():
                submitted.put(future := submit(next(rest)))
                if is_over.is_set():
                    future.cancel()
        except StopIteration:
            submitted.put(None)
        except BaseException as error:
            failed: Future[R] = Future()
            failed.set_exception(error)
            submitted.put(failed)

    threading.Thread(target=give, name="frames", daemon=True).start()
    try:
        while (future := submitted.get()) is not None:
            yield take(future)
            room.release()
    finally:
        is_over.set()
        room.release()
        while not submitted.empty():
            if (left := submitted.get()) is not None:
                left.cancel()
