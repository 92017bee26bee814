"""A run whose frames are read on this machine and fed to a job, so that they outlive a board."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from numpy.typing import NDArray

from rankslice.backend.runtime import recording
from rankslice.backend.runtime.keeper import is_streamed
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, open_source
from rankslice.backend.runtime.sources.arrivals import Arrivals, Live, Pulled, Queue, Timed
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.session.build_folder import REPORT, RESULTS, read_plan
from rankslice.session.callbacks import Callbacks
from rankslice.session.connection import drained_by_signals
from rankslice.session.fail_over import Restart
from rankslice.session.fed_frames import FedFrames
from rankslice.session.keeper.frame_keeper import FailedFrameError
from rankslice.session.pipeline import Pipeline, open_pipeline, results_in_order
from rankslice.session.prepare import PreparedRun, absolute, as_user_errors
from rankslice.session.results_files import check_results
from rankslice.session.run import EndedJob
from rankslice.session.shared_options import DEFAULT_LAUNCHING, Launching, Surviving

_Arrays: TypeAlias = "dict[str, NDArray[Any]]"

_LIVE_QUEUE = 300
"""Frames of a camera that may wait: those of ten seconds, within which another job takes over."""
_POLL_S = 0.1


def prepare_fed(
    folder: Path,
    options: RunOptions,
    launching: Launching = DEFAULT_LAUNCHING,
    *,
    results: Path | None = None,
) -> PreparedRun:
    """Check what can be checked before :func:`run_fed`."""
    folder = absolute(folder)
    plan = read_plan(folder)
    with as_user_errors():
        source = open_source(options, plan.job.inputs)
    if options.overflow == "drop" and not source.is_live:
        found = "drop cannot be combined with --survive, but for a camera"
        raise RankSliceError(Mistake("--overflow", found, "frames of other sources wait"))
    if is_streamed(options.inputs):
        found = "standard input can feed only one job, and --survive may start several"
        hint = "give a file, or feed the job from a program"
        raise RankSliceError(Mistake(" ".join(options.inputs), found, hint))
    options = replace(options, results=check_results(results or folder / RESULTS))
    return PreparedRun(folder, plan, options, source, launching=launching)


def run_fed(
    prepared: PreparedRun, folder: Path, callbacks: Callbacks, *, surviving: Surviving
) -> EndedJob:
    """Feed a job with the frames of a source that is read here; write their results to a folder.

    Each frame comes out once, and in order, also if another job takes over. The folder also gets
    report and recorded tensors of the last job.
    """
    job, source, options = prepared.plan.job, prepared.source, prepared.options
    restarts: list[Restart] = []
    ended = [prepared]
    is_over = threading.Event()

    def drain(signal: str) -> None:
        callbacks.on_drain(signal)
        is_over.set()
        source.end()

    def note_restart(restart: Restart) -> None:
        restarts.append(restart)
        callbacks.on_restart(restart)

    def take_files(last: PreparedRun, place: Path) -> None:
        for name in (REPORT, *(f"{recording.NAME}{rank.rank}" for rank in last.plan.job.ranks)):
            if (place / name).is_file():
                shutil.copyfile(place / name, folder / name)
        ended.append(replace(prepared, folder=last.folder, plan=last.plan))

    frames = FedFrames()
    file = options.results if prepared.discards else folder / RESULTS
    with (
        as_user_errors(),
        closing(source) if source.is_live else nullcontext(),  # others are read again
        open_pipeline(
            prepared.folder,
            options,
            prepared.launching,
            surviving,
            callbacks=replace(callbacks, on_restart=note_restart),
            on_ended=take_files,
        ) as pipeline,
        drained_by_signals(drain if prepared.is_endless else None) as signals,
        closing(ResultsWriter(file, job.sha256, job.outputs)) as writer,
    ):
        frames.window = pipeline.window
        for count, outputs in enumerate(_outputs(pipeline, prepared, frames, is_over)):
            if isinstance(outputs, FailedFrameError):
                if not options.skip_failed:
                    raise outputs
                frames.failed[count] = outputs
                result: Sequence[NDArray[Any]] | str = outputs.reason
            else:
                result = [outputs[spec.name] for spec in job.outputs]
                writer.write(count, result)
            if callbacks.on_result is not None:
                callbacks.on_result(count, result)
            callbacks.on_completed(count + 1 - len(frames.failed))
    frames.restarts = frames.with_recovery(restarts)
    names = {}
    if source.names_late:
        names = {number: source.label(at) for number, at in enumerate(frames.arrivals)}
    return EndedJob(ended[-1], "".join(signals), names, frames)


def _outputs(
    pipeline: Pipeline, prepared: PreparedRun, frames: FedFrames, is_over: threading.Event
) -> Iterator[_Arrays | FailedFrameError]:
    """Yield the results of frames, which another thread reads and submits as they arrive."""
    slots = [make_slot(spec) for spec in prepared.plan.job.inputs]
    names = [spec.name for spec in prepared.plan.job.inputs]

    def arrived() -> Iterator[_Arrays]:
        for number, at_s in _frames(prepared, slots, is_over, frames):
            frames.arrivals.append(number)
            frames.arrived_s.append(at_s)
            yield dict(zip(names, map(values_in, slots), strict=True))

    def take(future: Future[_Arrays]) -> _Arrays | FailedFrameError:
        error = future.exception()
        return error if isinstance(error, FailedFrameError) else future.result()

    for outputs in results_in_order(arrived(), pipeline.submit, pipeline.limit, take):
        frames.completed_s.append(time.monotonic())
        yield outputs


def _frames(
    prepared: PreparedRun, slots: Sequence[Slot], is_over: threading.Event, frames: FedFrames
) -> Iterator[tuple[int, float]]:
    """Read each frame into the slots as it arrives; yield its number and when it arrived.

    Frames arrive by themselves (from a camera), by the clock if the source has a rate, or as the
    pipeline takes them.
    """
    source, options = prepared.source, prepared.options
    has_come = threading.Event()
    fps = None if options.pull else options.fps or source.fps
    arrivals: Arrivals = Pulled(source.frames)
    if source.is_live:
        arrivals = Live(source.frames, Queue(options.queue or _LIVE_QUEUE, options.overflow))
        arrivals.on_arrival = has_come.set
        source.start(arrivals)
    elif fps is not None:
        arrivals = Timed(source.frames, fps, Queue(sys.maxsize, "fail"))
    frames.dropped = arrivals.dropped
    taken = 0
    # Whatever is taken enters, so what found no room shows that the pipeline is too slow.
    while not is_over.is_set() and (is_waiting := arrivals.poll(taken, taken)) is not None:
        if is_waiting:
            number, arrival = arrivals.take()
            try:
                source.read(number, slots)
            except EndOfStreamError:
                return
            taken += 1
            frames.more_dropped = arrivals.more_dropped
            yield number, arrival
        else:
            pause_s = arrivals.pause_s()
            has_come.wait(_POLL_S if pause_s is None else min(pause_s, _POLL_S))
            has_come.clear()
