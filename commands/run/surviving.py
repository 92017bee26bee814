"""``rankslice run --survive``: frames read here, so that they outlive a board."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.boards.login import is_this_machine
from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job, load_job
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sinks.results import Results, results_of
from rankslice.backend.runtime.sinks.results_sink import ResultsWriter
from rankslice.backend.runtime.sizes import make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, Source, open_source
from rankslice.commands.build_folder import PLAN, RESULTS, read_plan
from rankslice.commands.job.job import own_folder
from rankslice.commands.job.prepare import PreparedRun, as_user_errors
from rankslice.commands.job.results_files import check_results, move_results
from rankslice.commands.pipeline.pipeline import Pipeline, Restart, open_pipeline
from rankslice.commands.run.run import keep_finished
from rankslice.framework.errors import InterruptedRunError, Mistake, RankSliceError
from rankslice.measurement.throughput import throughput_fps
from rankslice.measurement.verify import Verification

_PERCENTILES = {"p50": 50, "p90": 90, "p99": 99, "max": 100}


@dataclass(frozen=True, slots=True)
class Survived:
    """A run that came to its end, maybe on other boards than those on which it began."""

    completed: int
    throughput_fps: float
    latency_ms: dict[str, float]
    """``p50``, ``p90``, ``p99`` and ``max``, from arrival at the launcher to the result there."""
    restarts: tuple[Restart, ...]
    recovered_s: tuple[float, ...]
    """For each of them, from the last result before it to the first one after it."""
    verify: Verification | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "completed": self.completed,
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
            "verify": None if self.verify is None else asdict(self.verify),
        }


def run_surviving(
    folder: Path,
    options: RunOptions,
    pipeline_options: Mapping[str, Any],
    *,
    results: Path | None = None,
    verify: bool = False,
    tolerance: float | None = None,
    on_started: Callable[[Source], None] = lambda source: None,
    on_completed: Callable[[int], None] = lambda count: None,
    on_restart: Callable[[Restart], None] = lambda restart: None,
    on_verified: Callable[[int], None] = lambda count: None,
) -> Survived:
    """Run a job that goes on when a board is lost; each frame comes out once, and in order.

    Args:
        folder: made by ``build --survive``.
        options: of the run; its frames are read on this machine.
        pipeline_options: of :func:`.open_pipeline`.
        results: file for the outputs; ``results.bin`` in ``folder`` by default.
        verify: compare all results with the unsliced model's.
        tolerance: by which share of their range results may differ.
        on_started: called with the source once all ranks are ready.
        on_completed: called with the number of frames that have come out.
        on_restart: called when another job takes over.
        on_verified: called from time to time with the number of compared frames.

    Raises:
        RankSliceError: the job failed, and no other one could take over; the results of finished
            frames are kept.
    """
    run = _prepared(folder, options, results)
    reference = None
    if verify:
        from rankslice.commands.run.comparison import find_reference

        reference = find_reference(run)
    job = load_job(run.folder / PLAN)
    restarts: list[Restart] = []

    def note(restart: Restart) -> None:
        restarts.append(restart)
        on_restart(restart)

    with own_folder(run) as place:
        try:
            with open_pipeline(
                run.folder, **pipeline_options, exact=options.exact, survive=True, on_restart=note
            ) as pipeline:
                on_started(run.source)
                writer = ResultsWriter(place / RESULTS, job.sha256, job.outputs)
                arrived = _run(pipeline, _frames(run, job), writer, job, on_completed)
        except JobError as error:
            raise RankSliceError(str(error), *keep_finished(run, place)) from None
        except RankSliceError as error:
            raise RankSliceError(*error.mistakes, *keep_finished(run, place)) from None
        except KeyboardInterrupt:
            raise InterruptedRunError("interrupted", *keep_finished(run, place)) from None
        except BaseException:  # a signal that ends this program
            keep_finished(run, place)
            raise
        with as_user_errors():
            written = results_of(job, place / RESULTS)
        move_results(place / RESULTS, run.options.results)
    summary = _summary(written, arrived, restarts, pipeline.window)
    if reference is None:
        return summary
    from rankslice.commands.run.comparison import verified

    with as_user_errors():
        numbers = range(len(written))
        verdict = verified(run, reference, written, numbers, tolerance, on_verified)
    return replace(summary, verify=verdict)


def _prepared(folder: Path, options: RunOptions, results: Path | None) -> PreparedRun:
    """Return the run as verification and results need it; the job has its frames from here.

    Raises:
        RankSliceError: the source does not fit the model, or is on a board that may be lost.
    """
    folder = folder.resolve()
    plan = read_plan(folder)
    with as_user_errors():
        source = open_source(options, load_job(folder / PLAN).inputs)
    host = plan.ranks[plan.source].host
    if not source.reads_files and not source.can_replay and not is_this_machine(host):
        raise RankSliceError(
            Mistake(
                " ".join(options.inputs),
                f"is read on this machine, not on {host}: a source there would be lost with it",
                "leave out --survive, or feed the job from here with a file or rankslice.open",
            )
        )
    options = replace(options, results=check_results(results or folder / RESULTS))
    return PreparedRun(folder, plan, options, source, ())


def _frames(run: PreparedRun, job: Job) -> Iterator[tuple[float, dict[str, NDArray[Any]]]]:
    """Yield when each frame arrives, and its arrays; by the clock, if there is a rate."""
    slots = [make_slot(spec) for spec in job.inputs]
    begin = time.monotonic()
    number, fps = 0, run.options.fps
    while run.source.frames is None or number < run.source.frames:
        try:
            run.source.read(number, slots)
        except EndOfStreamError:
            return
        arrival = time.monotonic() if fps is None else begin + number / fps
        time.sleep(max(0.0, arrival - time.monotonic()))
        names = (spec.name for spec in job.inputs)
        yield arrival, dict(zip(names, map(values_in, slots), strict=True))
        number += 1


def _run(
    pipeline: Pipeline,
    frames: Iterator[tuple[float, dict[str, NDArray[Any]]]],
    writer: ResultsWriter,
    job: Job,
    on_completed: Callable[[int], None],
) -> array[float]:
    """Write the results of all frames; return when these arrived, in seconds."""
    arrived = array("d")
    pending: Queue[Future[dict[str, NDArray[Any]]] | BaseException | None] = Queue()

    def feed() -> None:
        try:
            for arrival, frame in frames:
                arrived.append(arrival)
                pending.put(pipeline.submit(frame))
            pending.put(None)
        except BaseException as error:
            pending.put(error)

    threading.Thread(target=feed, daemon=True).start()
    count = 0
    try:
        while (found := pending.get()) is not None:
            if isinstance(found, BaseException):
                raise found
            outputs = found.result()
            writer.write(count, [outputs[spec.name] for spec in job.outputs])
            count += 1
            on_completed(count)
    finally:
        writer.close()
    return arrived


def _summary(
    written: Results, arrived: array[float], restarts: list[Restart], window: int
) -> Survived:
    times = np.asarray(written.completed_s)
    latencies = 1e3 * (times - np.asarray(arrived))
    percentiles = {
        name: float(np.percentile(latencies, share)) if len(latencies) else 0.0
        for name, share in _PERCENTILES.items()
    }
    recovered = tuple(_gap_s(times, restart.completed) for restart in restarts)
    rate = throughput_fps(times, window)[0] if len(times) else 0.0
    return Survived(len(times), rate, percentiles, tuple(restarts), recovered)


def _gap_s(times: NDArray[np.float64], number: int) -> float:
    """Return the seconds between the result of this number and the one before."""
    if not 0 < number < len(times):
        return 0.0
    return float(times[number] - times[number - 1])
