"""``rankslice run --survive``: frames read here, so that they outlive a board."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Job
from rankslice.backend.runtime.keeper import is_streamed
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import results_of
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source, open_source
from rankslice.backend.runtime.sources.arrivals import Live
from rankslice.backend.runtime.summary.throughput import throughput_fps
from rankslice.commands.run.open import open as open_pipeline
from rankslice.commands.run.output import json_lines
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import is_null
from rankslice.measurement.verify import Verification
from rankslice.session.build_folder import RESULTS, read_plan
from rankslice.session.drain import drained_by_signals
from rankslice.session.keeper.frame_keeper import FailedFrameError
from rankslice.session.pipeline import Pipeline, Restart
from rankslice.session.prepare import PreparedRun, absolute, as_user_errors
from rankslice.session.results_files import check_results, move_results
from rankslice.session.results_in_order import results_in_order
from rankslice.session.run import finished_frames_kept
from rankslice.session.start import own_folder

_Arrays: TypeAlias = "dict[str, NDArray[Any]]"

_LIVE_QUEUE = 300
"""Frames of a camera that may wait: those of ten seconds, within which another job takes over."""
_LOOK_S = 0.1

_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


@dataclass(frozen=True, slots=True)
class Survived:
    """A run that came to its end, maybe on other boards than those on which it began."""

    completed: int
    throughput_fps: float
    latency_ms: dict[str, float]
    """``p50``, ``p90``, ``p99`` and ``max``, from arrival at the launcher to the result there."""
    restarts: tuple[Restart, ...]
    recovered_s: tuple[float | None, ...]
    """For each of them, from the last result before it to the first one after it; ``None``: there
    is no such result."""
    drained_by: str = ""
    """Name of the signal that ended the stream; empty: it ended by itself."""
    verify: Verification | None = None
    failures: tuple[str, ...] = ()
    """Of each frame that failed, where and why."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "completed": self.completed,
            "failures": list(self.failures),
            "throughput_fps": self.throughput_fps,
            "latency_ms": self.latency_ms,
            "restarts": [
                {
                    "reason": str(restart.reason),
                    "without": sorted(restart.without),
                    "completed": restart.completed,
                    "recovered_s": seconds,
                }
                for restart, seconds in zip(self.restarts, self.recovered_s, strict=True)
            ],
            "verify": None if self.verify is None else self.verify.to_json(),
        }


def run_surviving(
    folder: Path,
    options: RunOptions,
    pipeline_options: Mapping[str, Any],
    *,
    results: Path | None = None,
    output: Path | None = None,
    verify: bool = False,
    tolerance: float | None = None,
    on_started: Callable[[Source], None] = lambda source: None,
    on_completed: Callable[[int], None] = lambda count: None,
    on_drain: Callable[[str], None] = lambda signal: None,
    on_restart: Callable[[Restart], None] = lambda restart: None,
    on_warning: Callable[[str], None] = lambda text: None,
    on_verified: Callable[[int], None] = lambda count: None,
) -> Survived:
    """Run a job that goes on when a board is lost; each frame comes out once, and in order.

    Args:
        folder: made by ``build --survive``.
        options: of the run; its frames are read on this machine.
        pipeline_options: of :func:`.open_pipeline`.
        results: file for the outputs; ``results.bin`` in ``folder`` by default.
        output: file for a line of JSON for each frame, as it comes.
        verify: compare all results with the unsliced model's.
        tolerance: by which share of their range results may differ.
        on_started: called with the source once all ranks are ready.
        on_completed: called with the number of frames that have come out.
        on_drain: called with the name of the signal at which no further frames enter, where nobody
            knows how many there are.
        on_restart: called when another job takes over.
        on_warning: told, in a thread, which of the jobs that wait has failed, and why.
        on_verified: called from time to time with the number of compared frames.

    Raises:
        RankSliceError: the job failed, and no other one could take over; the results of finished
            frames are kept.
    """
    run = _prepared(folder, options, results)
    reference = None
    discards = is_null(run.options.results)
    if verify:
        if discards:
            raise RankSliceError(Mistake("--verify", "needs results", "leave out --results"))
        from rankslice.session.verification.comparison import find_reference

        reference = find_reference(run)
    job = run.plan.job
    restarts: list[Restart] = []
    is_over = threading.Event()

    def drain(signal: str) -> None:
        on_drain(signal)
        is_over.set()
        run.source.end()

    def note(restart: Restart) -> None:
        restarts.append(restart)
        on_restart(restart)

    times = _Times()
    lines = None if output is None else json_lines(run, output, (), 0, is_told=False)
    with own_folder(run) as place:
        file = run.options.results if discards else place / RESULTS
        with (
            finished_frames_kept(run, place),
            as_user_errors(),
            closing(run.source),
            open_pipeline(
                run.folder,
                **pipeline_options,
                exact=options.exact,
                survive=True,
                on_restart=note,
                on_warning=on_warning,
            ) as pipeline,
            drained_by_signals(drain if run.source.frames is None else None) as told,
            closing(ResultsWriter(file, job.sha256, job.outputs)) as writer,
        ):
            on_started(run.source)
            found = _outputs(pipeline, _frames(run, job, is_over), times)
            for count, outputs in enumerate(found):
                if isinstance(outputs, FailedFrameError):
                    if not options.skip_failed:
                        raise outputs
                    times.failed[count] = outputs
                    if lines is not None:
                        lines.write(count, outputs.reason)
                else:
                    ordered = [outputs[spec.name] for spec in job.outputs]
                    writer.write(count, ordered)
                    if lines is not None:
                        lines.write(count, ordered)
                on_completed(count + 1 - len(times.failed))
        if lines is not None:
            lines.close()
        if not discards:
            with as_user_errors():
                written = results_of(job, file, may_lack=options.skip_failed)
            move_results(file, run.options.results)
    summary = _summary(times, restarts, pipeline.window, "".join(told))
    if reference is None:
        return summary
    from rankslice.session.verification.comparison import verified

    with as_user_errors():
        verdict = verified(run, reference, written, written.numbers, tolerance, on_verified)
    return replace(summary, verify=verdict)


def _prepared(folder: Path, options: RunOptions, results: Path | None) -> PreparedRun:
    """Return the run as verification and results need it; the job has its frames from here.

    Raises:
        RankSliceError: the source does not fit the model, or gives its frames to one job only.
    """
    folder = absolute(folder)
    plan = read_plan(folder)
    with as_user_errors():
        source = open_source(options, plan.job.inputs)
    if options.overflow == "drop" and not source.is_live:
        found = "drop cannot be combined with --survive, but for a camera"
        raise RankSliceError(Mistake("--overflow", found, "frames of other sources wait"))
    name = " ".join(options.inputs)
    if is_streamed(options.inputs):
        found = "standard input can feed only one job, and --survive may start several"
        raise RankSliceError(Mistake(name, found, "give a file, or feed the job from a program"))
    options = replace(options, results=check_results(results or folder / RESULTS))
    return PreparedRun(folder, plan, options, source, ())


@dataclass
class _Times:
    """When frames arrived, and when their results came, in seconds."""

    arrived: array[float] = field(default_factory=lambda: array("d"))
    completed: array[float] = field(default_factory=lambda: array("d"))
    failed: dict[int, FailedFrameError] = field(default_factory=dict)
    """By number, those of the frames that failed; they are among the completed ones."""


def _frames(
    run: PreparedRun, job: Job, is_over: threading.Event
) -> Iterator[tuple[float, _Arrays]]:
    """Yield when each frame arrives, and its arrays."""
    slots = [make_slot(spec) for spec in job.inputs]
    names = [spec.name for spec in job.inputs]
    arriving = _live if run.source.is_live else _read
    for arrival in arriving(run, slots, is_over):
        yield arrival, dict(zip(names, map(values_in, slots), strict=True))


def _read(run: PreparedRun, slots: Sequence[Slot], is_over: threading.Event) -> Iterator[float]:
    """Read each frame into the slots and yield when it arrives: by the clock, if it has a rate."""
    begin = time.monotonic()
    number, most = 0, run.source.frames
    fps = None if run.options.pull else run.options.fps or run.source.fps
    while not is_over.is_set() and (most is None or number < most):
        try:
            run.source.read(number, slots)
        except EndOfStreamError:
            return
        arrival = time.monotonic() if fps is None else begin + number / fps
        if is_over.wait(max(0.0, arrival - time.monotonic())):
            return
        yield arrival
        number += 1


def _live(run: PreparedRun, slots: Sequence[Slot], is_over: threading.Event) -> Iterator[float]:
    """Take the frames of a camera into the slots as they come, and yield when they arrived."""
    arrivals = Live(run.source.frames, run.options.queue or _LIVE_QUEUE, run.options.overflow)
    has_come = threading.Event()
    arrivals.on_arrival = has_come.set
    run.source.start(arrivals)
    taken = 0
    # Whatever is taken enters, so what found no room shows that the pipeline is too slow.
    while not is_over.is_set() and (is_waiting := arrivals.look(taken, taken)) is not None:
        if is_waiting:
            number, arrival = arrivals.take()
            run.source.read(number, slots)
            taken += 1
            yield arrival
        else:
            has_come.wait(_LOOK_S)
            has_come.clear()


def _outputs(
    pipeline: Pipeline, frames: Iterator[tuple[float, _Arrays]], times: _Times
) -> Iterator[_Arrays | FailedFrameError]:
    """Yield the results of frames, which another thread gives as they arrive."""

    def arriving() -> Iterator[_Arrays]:
        for arrival, frame in frames:
            times.arrived.append(arrival)
            yield frame

    def take(future: Future[_Arrays]) -> _Arrays | FailedFrameError:
        error = future.exception()
        return error if isinstance(error, FailedFrameError) else future.result()

    for outputs in results_in_order(arriving(), pipeline.submit, pipeline.limit, take):
        times.completed.append(time.monotonic())
        yield outputs


def _summary(times: _Times, restarts: list[Restart], window: int, drained_by: str) -> Survived:
    came_out, failed = np.asarray(times.completed), list(times.failed)
    completed = np.delete(came_out, failed)
    latencies = 1e3 * np.delete(came_out - np.asarray(times.arrived)[: len(came_out)], failed)
    percentiles = {
        name: float(np.percentile(latencies, share)) if len(latencies) else 0.0
        for name, share in _PERCENTILES.items()
    }
    recovered = tuple(_gap_s(came_out, restart.completed) for restart in restarts)
    rate = throughput_fps(completed, window)[0] if len(completed) else 0.0
    return Survived(
        *(len(completed), rate, percentiles, tuple(restarts), recovered, drained_by),
        failures=tuple(map(str, times.failed.values())),
    )


def _gap_s(times: NDArray[np.float64], number: int) -> float | None:
    """Return the seconds from the result before this number to its own, if there are both."""
    if not 0 < number < len(times):
        return None
    return float(times[number] - times[number - 1])
