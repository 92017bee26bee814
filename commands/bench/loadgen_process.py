"""The process in which MLPerf's load generator drives a job: ``SETTINGS FOUND``.

It is a process of its own, as a test of the generator cannot be ended before its time. What it
measured, or why it measured nothing, goes to the file ``FOUND`` as JSON.
"""

from __future__ import annotations

import _thread
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import mlperf_loadgen
import numpy as np

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, open_source
from rankslice.commands.bench.loadgen import SCENARIO_NAMES, LoadgenSettings
from rankslice.framework.errors import RankSliceError
from rankslice.framework.reading.records import as_record
from rankslice.session.frame_arrays import Frame
from rankslice.session.pipeline import Pipeline
from rankslice.session.prepare import as_user_errors

_MOST_LOADED = 64
"""Different frames in memory, which queries draw from."""
_MOST_LOADED_BYTES = 1 << 28
_QUEUE = 1024
_WARM_UP_FRAMES = 8


class _System:
    """The system under test: a job that is fed through a program's pipeline."""

    def __init__(self, pipeline: Pipeline, frames: Sequence[Frame]) -> None:
        self._pipeline = pipeline
        self._frames = frames
        self._changed = threading.Lock()
        self.error: BaseException | None = None
        self.begins_s: list[float] = []
        """When each frame was given, in their order; those of a query have the same."""
        self.ends_s: list[float] = []
        """When its results were there."""

    def issue(self, samples: Sequence[Any]) -> None:
        """Give frames to the job. An exception here would leave the generator half ended."""
        first, now_s = len(self.begins_s), time.monotonic()
        self.begins_s.extend(now_s for _ in samples)
        self.ends_s.extend(now_s for _ in samples)
        for place, sample in enumerate(samples, first):
            try:
                future = self._pipeline.submit(self._frames[sample.index % len(self._frames)])
            except RankSliceError as error:
                self._complete(sample.id, place, error)
            else:
                future.add_done_callback(partial(self._take, sample.id, place))

    def _take(self, id: int, place: int, done: Future[Any]) -> None:
        self._complete(id, place, done.exception())

    def _complete(self, id: int, place: int, error: BaseException | None) -> None:
        self.ends_s[place] = time.monotonic()
        with self._changed:
            self.error = self.error or error
        mlperf_loadgen.QuerySamplesComplete([mlperf_loadgen.QuerySampleResponse(id, 0, 0)])


def _nothing(*given: Any) -> None:
    """All frames are in memory, and nothing is held back."""


def _main(settings: str, found: str) -> None:
    pipelines: list[Pipeline] = []
    _end_on_sigterm(pipelines)
    try:
        system = _drive(as_record(LoadgenSettings, json.loads(settings)), pipelines)
        record: dict[str, Any] = {"begins_s": system.begins_s, "ends_s": system.ends_s}
    except RankSliceError as error:
        record = {
            "mistakes": [each if isinstance(each, str) else asdict(each) for each in error.mistakes]
        }
    Path(found).write_text(json.dumps(record))


def _end_on_sigterm(pipelines: Sequence[Pipeline]) -> None:
    """Have SIGTERM end the job, too. While the generator works, no handler in Python would run."""
    told, telling = os.pipe()
    os.set_blocking(telling, False)

    def end() -> None:
        os.read(told, 1)
        if not pipelines:
            _thread.interrupt_main()
            return
        pipelines[0].abort()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=end, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.set_wakeup_fd(telling)


def _drive(settings: LoadgenSettings, pipelines: list[Pipeline]) -> _System:
    with rankslice.open(
        settings.folder,
        window=settings.window,
        exact=settings.exact,
        queue=_QUEUE,
        start_timeout_s=settings.start_timeout_s,
        frame_timeout_s=settings.frame_timeout_s,
        mpirun=settings.mpirun or None,
        ssh_config=settings.ssh_config or None,
    ) as pipeline:
        pipelines.append(pipeline)
        frames = _frames(pipeline, settings)
        for number in range(_WARM_UP_FRAMES):
            pipeline(frames[number % len(frames)])
        system = _System(pipeline, frames)
        _test(settings, system, len(frames))
        if system.error is not None:
            raise system.error
        return system


def _frames(pipeline: Pipeline, settings: LoadgenSettings) -> list[Frame]:
    """Return the first frames of the input, as many as the memory may take."""
    options = RunOptions(
        inputs=settings.inputs,
        frames=_MOST_LOADED,
        seed=settings.seed,
        preprocessing=settings.preprocessing,
    )
    loaded: list[Frame] = []
    nbytes = 0
    with as_user_errors():
        source = open_source(options, pipeline.inputs)
        try:
            for number in range(_MOST_LOADED):
                slots: list[Slot] = [make_slot(spec) for spec in pipeline.inputs]
                source.read(number, slots)
                values = [np.array(values_in(slot)) for slot in slots]
                loaded.append(
                    {spec.name: each for spec, each in zip(pipeline.inputs, values, strict=True)}
                )
                nbytes += sum(each.nbytes for each in values)
                if nbytes > _MOST_LOADED_BYTES:
                    break
        except EndOfStreamError:
            pass
        finally:
            source.close()
    if not loaded:
        raise RankSliceError("--input has no frames")
    return loaded


def _test(settings: LoadgenSettings, system: _System, frames: int) -> None:
    """Have the generator do its test, and write its log."""
    test = mlperf_loadgen.TestSettings()
    test.scenario = getattr(mlperf_loadgen.TestScenario, SCENARIO_NAMES[settings.scenario])
    test.mode = mlperf_loadgen.TestMode.PerformanceOnly
    test.min_duration_ms = 0
    test.schedule_rng_seed = test.sample_index_rng_seed = test.qsl_rng_seed = settings.seed
    test.multi_stream_samples_per_query = settings.samples
    test.min_query_count = settings.queries
    if settings.target_fps is not None and settings.limit_s is not None:
        test.server_target_qps = settings.target_fps
        test.server_target_latency_ns = round(1e9 * settings.limit_s)
        test.server_target_latency_percentile = 0.99
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = settings.logs
    output.copy_summary_to_stdout = False
    log = mlperf_loadgen.LogSettings()
    log.log_output = output
    log.enable_trace = False
    system_id = mlperf_loadgen.ConstructSUT(system.issue, _nothing)
    library_id = mlperf_loadgen.ConstructQSL(frames, frames, _nothing, _nothing)
    try:
        mlperf_loadgen.StartTestWithLogSettings(system_id, library_id, test, log, "")
    finally:
        mlperf_loadgen.DestroyQSL(library_id)
        mlperf_loadgen.DestroySUT(system_id)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
