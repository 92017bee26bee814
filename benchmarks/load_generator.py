"""MLPerf's load generator drives the job of a build folder.

First ``rankslice bench --scenario`` measures the job under a scenario, with frames of the job's own
source. Then the load generator submits the queries of the same scenario, through a connection as
programs have it (``rankslice.open``), from frames in memory. The table has three rows: the run
without the generator, the generator's own figures, and those of RankSlice's clock for the
generator's queries. Run it as ``python benchmarks/load_generator.py OUT --scenario single``, with
the build folder OUT. It needs ``pip install mlcommons-loadgen scipy``; the wheels of the generator
are for x86-64 only, and pip compiles it elsewhere, with g++ and the headers of Python.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from timing import console, print_table

import rankslice
from rankslice.backend.runtime.options import RunOptions
from rankslice.backend.runtime.sizes import Slot, make_slot, values_in
from rankslice.backend.runtime.sources import EndOfStreamError, open_source
from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.scenarios import ScenarioFigures, figures_of
from rankslice.session.frame_arrays import Frame
from rankslice.session.pipeline import Pipeline
from rankslice.session.prepare import as_user_errors

NAMES = {
    "single": "SingleStream",
    "multi": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}
"""The generator's names of scenarios."""
MAX_LOADED = 64
"""Different frames in memory, which queries draw from."""
MAX_LOADED_BYTES = 1 << 28
QUEUE = 1024
WARM_UP_FRAMES = 8
END_S = 10.0


@dataclass(frozen=True)
class GeneratorFigures:
    """Figures that the generator reports; times are seconds."""

    version: str
    queries: int
    is_valid: bool
    """As the generator has it; for a server also: within the limit for the latency."""
    reason: str
    """Why it is not valid."""
    mean_s: float
    percentile_s: float | None
    """Of the latencies, the scenario's."""
    proven_s: float | None
    """Its estimate by early stopping; ``None`` for a server."""
    throughput_fps: float | None
    """Frames per second; ``None``: the generator reports none in the scenario."""
    overruns: int
    """Queries above the limit of a server."""


def figures_of_log(scenario: str, log: str) -> GeneratorFigures:
    """Return the figures in ``mlperf_log_detail.txt`` of version 6 of the generator."""
    marker = ":::MLLOG "
    lines = (line.removeprefix(marker) for line in log.splitlines() if line.startswith(marker))
    values: dict[str, Any] = {entry["key"]: entry["value"] for entry in map(json.loads, lines)}
    throughput = {
        "single": "result_qps_with_loadgen_overhead",
        "server": "result_completed_samples_per_sec",
        "offline": "result_samples_per_second",
    }
    percentile = {
        "single": "result_90.00_percentile_latency_ns",
        "multi": "result_99.00_percentile_per_query_latency_ns",
        "server": "result_99.00_percentile_latency_ns",
    }
    proven = {"single": "early_stopping_latency_ss", "multi": "early_stopping_latency_ms"}

    def value(names: Mapping[str, str], unit: float = 1e-9) -> float | None:
        return unit * values[names[scenario]] if scenario in names else None

    is_valid = values["result_validity"] == "VALID"
    reasons = (values.get(key) for key in ("result_invalid_reason", "early_stopping_result"))
    reason = " ".join(str(text or "").replace("*", " ") for text in reasons).strip()
    mean = "result_mean_query_latency_ns" if scenario == "multi" else "result_mean_latency_ns"
    return GeneratorFigures(
        version=str(values["loadgen_version"]).partition(" ")[0],
        queries=values["result_query_count"],
        is_valid=is_valid,
        reason="" if is_valid else reason.rstrip("."),
        mean_s=1e-9 * values[mean],
        percentile_s=value(percentile),
        proven_s=value(proven),
        throughput_fps=value(throughput, 1.0),
        overruns=values.get("result_overlatency_query_count") or 0,
    )


class System:
    """The system under test: a job that is fed by this program."""

    def __init__(self, pipeline: Pipeline, frames: Sequence[Frame]) -> None:
        self._pipeline, self._frames = pipeline, frames
        self._changed = threading.Lock()
        self.error: BaseException | None = None
        self.begins_s: list[float] = []
        """When each frame was submitted, in their order; those of a query have the same time."""
        self.ends_s: list[float] = []
        """When its results were there."""

    def issue(self, samples: Sequence[Any]) -> None:
        """Submit frames. An exception here would leave the generator half ended."""
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
        import mlperf_loadgen

        self.ends_s[place] = time.monotonic()
        with self._changed:
            self.error = self.error or error
        mlperf_loadgen.QuerySamplesComplete([mlperf_loadgen.QuerySampleResponse(id, 0, 0)])


def end_with_signals(pipeline: Pipeline, folder: Path) -> None:
    """Have SIGINT and SIGTERM end the job. While the generator works, no Python handler runs."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def end() -> None:
        number = os.read(read, 1)[0]
        pipeline.abort()
        ends_s = time.monotonic() + END_S
        # Another thread removes the folder of the run once its processes have ended.
        while any(folder.glob(".rankslice-run-*")) and time.monotonic() < ends_s:
            time.sleep(0.05)
        os._exit(128 + number)

    threading.Thread(target=end, daemon=True).start()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: None)
    signal.set_wakeup_fd(write)


def first_frames(pipeline: Pipeline, inputs: tuple[str, ...], seed: int) -> list[Frame]:
    """Return the first frames of the input, as many as the memory may take."""
    loaded: list[Frame] = []
    nbytes = 0
    with as_user_errors():
        source = open_source(
            RunOptions(inputs=inputs, frames=MAX_LOADED, seed=seed), pipeline.inputs
        )
        try:
            while len(loaded) < MAX_LOADED and nbytes <= MAX_LOADED_BYTES:
                slots: list[Slot] = [make_slot(spec) for spec in pipeline.inputs]
                source.read(len(loaded), slots)
                values = [np.array(values_in(slot)) for slot in slots]
                names = (spec.name for spec in pipeline.inputs)
                loaded.append(dict(zip(names, values, strict=True)))
                nbytes += sum(array.nbytes for array in values)
        except EndOfStreamError:
            pass
        finally:
            source.close()
    if not loaded:
        raise RankSliceError("--input has no frames")
    return loaded


def run_generator(
    figures: ScenarioFigures, system: System, frames: int, seed: int, logs: Path
) -> None:
    """Run a test of the scenario with as many queries as were measured before."""
    import mlperf_loadgen

    scenario = figures.scenario
    test = mlperf_loadgen.TestSettings()
    test.scenario = getattr(mlperf_loadgen.TestScenario, NAMES[scenario.name])
    test.mode = mlperf_loadgen.TestMode.PerformanceOnly
    test.min_duration_ms = 0
    test.schedule_rng_seed = test.sample_index_rng_seed = test.qsl_rng_seed = seed
    test.multi_stream_samples_per_query = scenario.samples or figures.frames
    test.min_query_count = figures.queries if scenario.samples else figures.frames
    if figures.target_fps is not None and figures.limit_s is not None:
        test.server_target_qps = figures.target_fps
        test.server_target_latency_ns = round(1e9 * figures.limit_s)
        test.server_target_latency_percentile = scenario.percentile
    output = mlperf_loadgen.LogOutputSettings()
    output.outdir = str(logs)
    output.copy_summary_to_stdout = False
    log = mlperf_loadgen.LogSettings()
    log.log_output = output
    log.enable_trace = False

    def nothing(*arguments: Any) -> None:
        """All frames are in memory, and nothing is held back."""

    system_id = mlperf_loadgen.ConstructSUT(system.issue, nothing)
    library_id = mlperf_loadgen.ConstructQSL(frames, frames, nothing, nothing)
    try:
        mlperf_loadgen.StartTestWithLogSettings(system_id, library_id, test, log, "")
    finally:
        mlperf_loadgen.DestroyQSL(library_id)
        mlperf_loadgen.DestroySUT(system_id)


def drive(
    folder: Path, figures: ScenarioFigures, inputs: tuple[str, ...], seed: int, logs: Path
) -> tuple[GeneratorFigures, ScenarioFigures]:
    """Return the generator's figures, and those of our clock for the same queries.

    Our times are those between the call that submits a frame and the one that takes its results; in
    a server the generator counts from the scheduled time.
    """
    with rankslice.open(folder, queue=QUEUE) as pipeline:
        end_with_signals(pipeline, folder)
        frames = first_frames(pipeline, inputs, seed)
        for number in range(WARM_UP_FRAMES):
            pipeline(frames[number % len(frames)])
        system = System(pipeline, frames)
        run_generator(figures, system, len(frames), seed, logs)
        if system.error is not None:
            raise system.error
    times: list[NDArray[np.float64]] = [np.array(system.begins_s), np.array(system.ends_s)]
    seen = figures_of(
        figures.scenario, *times, target_fps=figures.target_fps, limit_s=figures.limit_s
    )
    log = (logs / "mlperf_log_detail.txt").read_text()
    return figures_of_log(figures.scenario.name, log), seen


def show(own: ScenarioFigures, reported: GeneratorFigures, seen: ScenarioFigures) -> None:
    def row(name: str, count: int, figures: ScenarioFigures | GeneratorFigures) -> list[str]:
        times = (figures.mean_s, figures.percentile_s, figures.proven_s)
        values = [figures.throughput_fps, *(None if time is None else 1e3 * time for time in times)]
        return [name, str(count), *("-" if value is None else f"{value:.2f}" for value in values)]

    print_table(
        f"MLPerf {own.scenario.name}, where {own.scenario.arrival}",
        ("measured by", "queries", "frames/s", "mean ms", "percentile", "at 99 % confidence"),
        [
            row("this run", own.queries, own),
            row(f"loadgen {reported.version}", reported.queries, reported),
            row("our clock in its test", seen.queries, seen),
        ],
    )
    console.print(f"this run: {own.verdict()}")
    verdict = "valid" if reported.is_valid else f"not valid: {reported.reason}"
    console.print(f"loadgen: the result is {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="OUT", help="the build folder")
    parser.add_argument("--scenario", choices=NAMES, default="single")
    parser.add_argument("--frames", type=int, help="as few as the scenario needs by default")
    parser.add_argument("--input", action="append", help="frames, as of rankslice bench")
    parser.add_argument("--seed", type=int, default=0, help="of frames and arrivals")
    parser.add_argument("--target-fps", type=float, help="server: mean rate of queries")
    parser.add_argument("--latency-limit-ms", type=float, help="server: limit of the latency")
    parser.add_argument("--logs", type=Path, help="folder to create for the generator's logs")
    parser.add_argument("--json", type=Path, help="file for all figures")
    arguments = parser.parse_args()
    if arguments.logs is not None:
        arguments.logs.mkdir(parents=True)
    inputs = {"inputs": tuple(arguments.input)} if arguments.input else {}
    try:
        own = rankslice.bench_scenario(
            arguments.folder,
            arguments.scenario,
            frames=arguments.frames,
            seed=arguments.seed,
            target_fps=arguments.target_fps,
            latency_limit_ms=arguments.latency_limit_ms,
            **inputs,
        ).figures
        with tempfile.TemporaryDirectory() as temporary:
            logs = arguments.logs or Path(temporary)
            source = inputs.get("inputs", RunOptions().inputs)
            reported, seen = drive(arguments.folder, own, source, arguments.seed, logs)
    except RankSliceError as error:
        sys.exit(f"error: {error}")
    show(own, reported, seen)
    if arguments.json is not None:
        record = {"this run": own, "loadgen": reported, "seen": seen}
        text = json.dumps({name: asdict(figures) for name, figures in record.items()})
        arguments.json.write_text(text)


if __name__ == "__main__":
    main()
