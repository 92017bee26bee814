"""One rank of a job: set up from the plan, run to the end of the stream, measured."""

from __future__ import annotations

import json
import math
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from ..affinity import bind_to_cores, check_binding
from ..engines import Acceleration, Engine, engine_settings, open_engine
from ..engines.acceleration import total
from ..errors import ElsewhereError, JobError, reason_of
from ..faults.watch import Heartbeat, ProgressWatch, Ticker
from ..figures.energy import BoardEnergy
from ..figures.histogram import Histogram
from ..figures.rank_figures import ComputeTimes, GpuMemory, cpu_s, peak_memory_mb
from ..job import Job
from ..options import RunOptions
from ..sinks import open_sinks
from ..sources import open_source
from ..sources.arrivals import PATIENCE_S, Arrivals, Pulled, Timed
from ..transport.transport import Transport
from ..version import RUNTIME_VERSION
from .executor import Executor, Stage, step_of
from .loop import CommunicationLoop, Incoming, Outgoing
from .slots import Ring
from .stages import Input, SegmentStage, SinkStage, SourceStage
from .warm_up import WarmUp
from .wiring import Reader, connect, threadless_stages, wire

__all__ = ["run_rank", "together"]

_T = TypeVar("_T")

_JOIN_TIMEOUT_S = 1.0
"""How long a thread may take to come to the end of its step when the rank ends."""

_JUDGED_AFTER_S = 10.0
"""A step's deadline is over by then, and whoever watches it has told so."""

_LARGE_MESSAGE = 1 << 16
"""Bytes; Open MPI sends smaller ones over a network at once, whether they are awaited or not."""


@dataclass
class _Failure:
    """The first thing that went wrong in a thread of this rank."""

    message: str = ""
    cause: BaseException | None = None


class _Rank:
    """The parts of one running rank."""

    def __init__(
        self,
        job: Job,
        folder: Path,
        options: RunOptions,
        transport: Transport,
        resources: ExitStack,
        on_step: Callable[[str], None] | None,
    ) -> None:
        self.job = job
        self.options = options
        self.transport = transport
        self.resources = resources
        self.spec = job.ranks[transport.rank]
        self.window = options.window or job.window
        self.failure = _Failure()
        self.source: SourceStage | None = None
        self.sink: SinkStage | None = None
        self.arrivals: Arrivals | None = None
        self.is_live = options.fps is not None
        """Whether the source may have to wait for its frames."""

        wiring = wire(job, transport.rank, self.window)
        self.rings = [Ring(spec.tensor, spec.depth, spec.readers) for spec in wiring.rings]
        self.compute = ComputeTimes(len(wiring.segments), self.window)
        self.gpu_memory = GpuMemory(self.spec.accelerator)
        self.accelerations: list[Acceleration | None] = []
        self.warm_up = WarmUp()
        segments: list[Stage] = []
        for segment, stage in wiring.segments:
            engine = self._load(folder, segment)
            inputs = self._inputs(stage.inputs)
            outputs = [self.rings[ring] for ring in stage.outputs]
            self.warm_up.run(segment.index, engine, [each.ring for each in inputs], outputs)
            segments.append(SegmentStage(segment.index, engine, inputs, outputs, self.compute.add))
        others: dict[str, Stage] = {}
        if wiring.source is not None:
            others["source"] = self.source = self._open_source(
                wiring.source.inputs, wiring.source.outputs
            )
        if wiring.sink is not None:
            sinks = open_sinks(job, options)
            resources.callback(sinks.close)
            credit = self.rings[wiring.sink.outputs[0]]
            others["sink"] = self.sink = SinkStage(sinks, self._inputs(wiring.sink.inputs), credit)
        without_thread = threadless_stages(self.spec, is_timed=self.is_live)
        joined = {name: stage for name, stage in others.items() if name in without_thread}
        self.computing = Executor(
            "compute",
            [*segments, *joined.values()],
            on_failure=self._fail,
            on_finished=self._wake_main,
            on_step=on_step,
        )
        self.executors = [
            self.computing,
            *(self._executor(name, others[name]) for name in others if name not in joined),
        ]
        self.watches = [
            ProgressWatch(executor, options.frame_timeout_s)
            for executor in self.executors
            if executor.name != "source"
        ]
        self.outgoing = [
            Outgoing(s.channel, s.destination, self.rings[s.reader.ring], s.reader.index)
            for s in wiring.sends
        ]
        self.incoming = [Incoming(r.channel, r.sender, self.rings[r.ring]) for r in wiring.receives]
        self.wakes = {executor.name: executor.wake for executor in self.executors}
        self.wakes |= dict.fromkeys(joined, self.computing.wake)
        connect(wiring, self.rings, self.wakes, self._wake_loop, self._take_credits)
        self.heartbeat = Heartbeat(job.ranks, transport.rank, self._wake_main)
        self.ticker = Ticker()

    def _inputs(self, readers: Sequence[Reader]) -> list[Input]:
        return [Input(self.rings[reader.ring], reader.index) for reader in readers]

    def _executor(self, name: str, stage: Stage) -> Executor:
        return Executor(name, [stage], on_failure=self._fail, on_finished=self._wake_main)

    def _load(self, folder: Path, segment: Any) -> Engine:
        settings = engine_settings(self.spec, exact=self.options.exact)
        engine = open_engine(self.spec.engine, settings)
        self.resources.callback(engine.close)
        tensors = self.job.tensors
        engine.load(
            folder / segment.file,
            [tensors[name] for name in segment.inputs],
            [tensors[name] for name in segment.outputs],
        )
        self.accelerations.append(engine.acceleration())
        return engine

    def _open_source(self, credit: Sequence[Reader], outputs: Sequence[int]) -> SourceStage:
        options = self.options
        source = open_source(options, self.job.inputs)
        self.resources.callback(source.close)
        self.is_live |= not source.can_replay
        if options.fps is None:
            self.arrivals = Pulled(source.frames)
        else:
            queue = options.queue or max(self.window, math.ceil(options.fps))
            patience_s = max(PATIENCE_S, (options.frame_timeout_s or 0.0) + _JUDGED_AFTER_S)
            self.arrivals = Timed(
                source.frames, options.fps, queue, options.overflow, patience_s=patience_s
            )
        rings = [self.rings[ring] for ring in outputs]
        return SourceStage(source, self.arrivals, self.window, self._inputs(credit)[0], rings)

    def agree(self) -> None:
        """Compare what the ranks were started with; raise :class:`JobError` if it differs."""
        mine: dict[str, Any] = {
            "plan": self.job.sha256,
            "runtime version": RUNTIME_VERSION,
            "window": self.window,
            "exact": self.options.exact,
            "byte order": sys.byteorder,
            "ranks": self.transport.size,
        }
        records = self.share({**mine, "host": socket.gethostname(), "process": os.getpid()})
        hosts = [record.get("host") for record in records]
        ends: list[Outgoing | Incoming] = [*self.outgoing, *self.incoming]
        for end in ends:
            is_large = end.lane.slots[0].nbytes > _LARGE_MESSAGE
            end.uses_network = is_large and hosts[end.lane.peer] != socket.gethostname()
        for rank, record in enumerate(records):
            for name in mine:
                value = records[0].get(name)
                if record.get(name) != value:
                    kind = ElsewhereError if self.transport.rank else JobError
                    raise kind(
                        f"rank {rank} was started with {name} {record.get(name)!r}, rank 0 with"
                        f" {value!r}: deploy and start all boards from the same build"
                    )
        self.heartbeat.meet([record["process"] for record in records])

    def share(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Give a record to all ranks; return everybody's, by rank."""
        records = self.transport.exchange(json.dumps(record).encode())
        return [json.loads(text) for text in records]

    def run(self) -> dict[str, Any]:
        """Run until the stream has ended everywhere; return this rank's measurements."""
        self.loop = CommunicationLoop(
            self.transport,
            [*self.outgoing, *self.heartbeat.outgoing],
            [*self.incoming, *self.heartbeat.incoming],
            computing=self.computing,
            after_look=self._take_credits if self.sink is None else lambda: None,
            latency=self.options.latency,
        )
        if self.options.bind and self.spec.cores:
            check_binding(self.spec.cores)
        begin_s, begin_cpu_s = time.monotonic(), cpu_s()
        for executor in self.executors:
            self.resources.callback(executor.join, _JOIN_TIMEOUT_S)
            self.resources.callback(executor.stop)
            executor.start(self.loop if executor is self.computing else None)
        self.heartbeat.beat("its first frame")
        self.loop.run(self._is_over)
        return self._measurements(time.monotonic() - begin_s, cpu_s() - begin_cpu_s)

    def _is_over(self) -> bool:
        if self.failure.cause is not None:
            raise JobError(self.failure.message) from self.failure.cause
        self._watch()
        over = (
            self.computing.finished
            and all(executor.finished for executor in self.executors)
            and all(end.finished for end in self.outgoing)
            and all(end.finished for end in self.incoming)
        )
        if over:
            # Nobody else looks any more; the last frame's credit may have come after the last look.
            self._take_credits()
            self.heartbeat.finish()
        return over

    def _watch(self) -> None:
        self.heartbeat.listen()
        if self.ticker.is_due():
            self.heartbeat.beat(self.computing.at)
            self.heartbeat.tick()
            for watch in self.watches:
                watch.tick()

    def _take_credits(self) -> None:
        if self.source is not None and self.source.take_credits():
            self.wakes["source"]()

    def _wake_main(self) -> None:
        self.loop.wake()

    def _wake_loop(self) -> None:
        """Let somebody look: there is something to send."""
        if self.computing.is_current():
            self.computing.look_soon()
        else:
            self.loop.wake()

    def _fail(self, stage: Stage | None, error: BaseException) -> None:
        if self.failure.cause is None:
            text = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
            where = f"{step_of(stage)}: " if stage is not None else ""
            self.failure.message = where + text
            self.failure.cause = error
        self.loop.wake()

    def _measurements(self, wall_s: float, cpu_s: float) -> dict[str, Any]:
        frames = max(1, self.compute.histogram.count)
        gpu_bytes = self.gpu_memory.bytes()
        record: dict[str, Any] = {
            "rank": self.spec.rank,
            "key": self.spec.key,
            "host": socket.gethostname(),
            "cores": list(self.spec.cores),
            "engine": self.spec.engine,
            "accelerated": total(self.accelerations),
            "compute_ms": _with_mean_ms(self.compute.histogram, 50, 99),
            "wait_ms": 1e3 * self.executors[0].waited_s / frames,
            "send_ms": 1e3 * sum(end.busy_s for end in self.outgoing) / frames,
            "cpu_ms": 1e3 * cpu_s / frames,
            "wall_s": wall_s,
            "memory_mb": peak_memory_mb(),
            "warm_up_ms": 1e3 * self.warm_up.seconds,
            "not_warmed_up": self.warm_up.left_out,
            "steady": self.compute.steady(),
            "gpu_memory_mb": None if gpu_bytes is None else 1e-6 * gpu_bytes,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mpi": getattr(self.transport, "library", ""),
        }
        if self.source is not None and self.arrivals is not None:
            record["source"] = {
                "frames": self.source.frame,
                "window": self.window,
                "fps": self.options.fps,
                "latency_ms": _with_mean_ms(self.source.latencies, 50, 90, 99),
                "preprocess_ms": _with_mean_ms(self.source.reads, 50, 99),
                "dropped": self.arrivals.dropped,
            }
        if self.sink is not None:
            record["sink"] = {"postprocess_ms": _with_mean_ms(self.sink.writes, 50, 99)}
        return record


def _with_mean_ms(histogram: Histogram, *percents: float) -> dict[str, float]:
    return {"mean": 1e3 * histogram.mean_s, **histogram.summary_ms(*percents)}


def run_rank(
    job: Job,
    folder: Path,
    options: RunOptions,
    transport: Transport,
    *,
    on_start: Callable[[], None] = lambda: None,
    on_step: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Run one rank of a job to its end; return the measurements of all ranks, by rank.

    Args:
        job: the plan.
        folder: where ``plan.json`` and the sub-models lie.
        options: of this run; the same on all ranks.
        transport: connects the ranks; stays open on failure, for the caller to abort.
        on_start: called when all ranks are ready for frame 0.
        on_step: called before each run of a segment with its name: ``segment 0, frame 17``.

    Raises:
        JobError: the message names rank, key, host, segment and frame.
    """
    spec = job.ranks[transport.rank]

    def set_up(resources: ExitStack) -> _Rank:
        if options.bind and spec.cores:
            bind_to_cores(spec.cores)
        return _Rank(job, folder, options, transport, resources, on_step)

    try:
        with ExitStack() as resources:
            rank = together(transport, lambda: set_up(resources))
            energy = BoardEnergy(job.ranks, spec.rank)
            rank.agree()
            on_start()
            records = rank.share(energy.during(rank.run))
        if options.report is not None and spec.rank == job.sink_rank:
            _write_report(options.report, records)
    except JobError as error:
        raise type(error)(f"{spec.name}: {error}") from error.__cause__
    return records


def together(transport: Transport, step: Callable[[], _T]) -> _T:
    """Do a step on all ranks and return what it gave here. Collective.

    Raises:
        JobError: the step failed here, and on no rank before this one.
        ElsewhereError: it failed on another rank, the first of which raises :class:`JobError`.
    """
    result, failure = None, None
    try:
        result = step()
    except JobError as error:
        failure = error
    messages = transport.exchange(str(failure or "").encode())
    first = next((rank for rank, message in enumerate(messages) if message), None)
    if first is None:
        return cast(_T, result)
    if first == transport.rank and failure is not None:
        raise failure
    raise ElsewhereError(messages[first].decode())


def _write_report(path: Path, records: list[dict[str, Any]]) -> None:
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(json.dumps({"ranks": records}, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise JobError(f"report {path}: {reason_of(error)}") from None
