"""One rank of a job: set up from the plan, run to the end of the stream, measured."""

from __future__ import annotations

import json
import platform
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..affinity import bind_to_cores, check_binding
from ..errors import JobError, reason_of
from ..figures.energy import BoardEnergy
from ..figures.rank_figures import cpu_s, peak_memory_mb
from ..job import Job
from ..options import RunOptions
from ..transport.transport import Transport
from .executor import Executor, Stage, step_of
from .loop import CommunicationLoop, Incoming, Outgoing
from .meeting import Peers, meet, share, together
from .setup import LoadedSegments, Setup, sink_stage, source_stage
from .slots import Ring
from .watch import Heartbeat, ProgressWatch, Ticker
from .wiring import Wiring, connect, threadless_stages, wire

_JOIN_TIMEOUT_S = 1.0
"""How long a thread may take to come to the end of its step when the rank ends."""

_LARGE_MESSAGE = 1 << 16
"""Bytes; Open MPI sends smaller ones over a network at once, whether they are awaited or not."""


class _Rank:
    """The parts of one rank, ready for frame 0."""

    def __init__(self, setup: Setup, peers: Peers) -> None:
        """Bind to the cores, load engines, open source and sinks, allocate all memory.

        Raises:
            JobError: something of this cannot be done here.
        """
        self._setup = setup
        if setup.cores:
            bind_to_cores(setup.cores)
        job, number = setup.job, setup.transport.rank
        self._failure: tuple[str, BaseException] | None = None
        wiring = wire(job, number, setup.window)
        rings = [Ring(spec.tensor, spec.depth, spec.readers) for spec in wiring.rings]
        self._segments = LoadedSegments(setup, wiring, rings)
        self._source = source_stage(setup, wiring, rings)
        self._sink = sink_stage(setup, wiring, rings)
        self._threads = self._make_threads()
        self._computing = self._threads["compute"]
        self._executors = list(dict.fromkeys(self._threads.values()))
        self._watches = [
            ProgressWatch(executor, setup.options.frame_timeout_s)
            for executor in self._executors
            if executor.name != "source"
        ]
        self._heartbeat = Heartbeat(job.ranks, number, self._wake_main, peers.processes)
        self._ticker = Ticker()
        self._outgoing, self._incoming = _channel_ends(wiring, rings, peers)
        wakes = {name: executor.wake for name, executor in self._threads.items()}
        connect(wiring, rings, wakes, self._wake_loop, self._take_credits)
        self._loop = CommunicationLoop(
            setup.transport,
            [*self._outgoing, *self._heartbeat.outgoing],
            [*self._incoming, *self._heartbeat.incoming],
            computing=self._computing,
            after_look=self._take_credits if self._sink is None else lambda: None,
            latency=setup.options.latency,
        )

    def _make_threads(self) -> dict[str, Executor]:
        """Return the thread of each kind of stage."""
        ends = {"source": self._source, "sink": self._sink}
        others: dict[str, Stage] = {n: stage for n, stage in ends.items() if stage is not None}
        is_timed = self._source is not None and self._source.is_timed
        joined = threadless_stages(self._setup.spec, is_timed=is_timed)
        stages = [*self._segments.stages, *(others[name] for name in others if name in joined)]
        computing = self._executor("compute", stages, self._setup.on_step)
        return {"compute": computing} | {
            name: computing if name in joined else self._executor(name, [stage])
            for name, stage in others.items()
        }

    def _executor(
        self, name: str, stages: Sequence[Stage], on_step: Callable[[str], None] | None = None
    ) -> Executor:
        return Executor(
            name, stages, on_failure=self._fail, on_finished=self._wake_main, on_step=on_step
        )

    def run(self) -> dict[str, Any]:
        """Run until the stream has ended everywhere; return this rank's measurements."""
        setup = self._setup
        if setup.cores:
            check_binding(setup.cores)
        begin_s, begin_cpu_s = time.monotonic(), cpu_s()
        for executor in self._executors:
            setup.resources.callback(executor.join, _JOIN_TIMEOUT_S)
            setup.resources.callback(executor.stop)
            executor.start(self._loop if executor is self._computing else None)
        self._heartbeat.beat("its first frame")
        self._loop.run(self._is_over)
        return self._measurements(time.monotonic() - begin_s, cpu_s() - begin_cpu_s)

    def _is_over(self) -> bool:
        if self._failure is not None:
            message, cause = self._failure
            raise JobError(message) from cause
        self._watch()
        ends: list[Outgoing | Incoming] = [*self._outgoing, *self._incoming]
        over = all(executor.finished for executor in self._executors)
        over = over and all(end.finished for end in ends)
        if over:
            # Nobody else looks any more; the last frame's credit may have come after the last look.
            self._take_credits()
            self._heartbeat.finish()
        return over

    def _watch(self) -> None:
        self._heartbeat.listen()
        if self._ticker.is_due():
            self._heartbeat.beat(self._computing.at)
            self._heartbeat.tick()
            for watch in self._watches:
                watch.tick()

    def _take_credits(self) -> None:
        if self._source is not None and self._source.take_credits():
            self._threads["source"].wake()

    def _wake_main(self) -> None:
        self._loop.wake()

    def _wake_loop(self) -> None:
        """Have a thread look: there is something to send."""
        if self._computing.is_current():
            self._computing.look_soon()
        else:
            self._loop.wake()

    def _fail(self, stage: Stage | None, error: BaseException) -> None:
        if self._failure is None:
            text = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
            where = f"{step_of(stage)}: " if stage is not None else ""
            self._failure = where + text, error
        self._loop.wake()

    def _measurements(self, wall_s: float, cpu_s: float) -> dict[str, Any]:
        spec, transport = self._setup.spec, self._setup.transport
        frames = max(1, self._segments.times.histogram.count)
        record: dict[str, Any] = {
            "rank": spec.rank,
            "key": spec.key,
            "host": socket.gethostname(),
            "cores": list(spec.cores),
            "engine": spec.engine,
            "wait_ms": 1e3 * self._computing.waited_s / frames,
            "send_ms": 1e3 * sum(end.busy_s for end in self._outgoing) / frames,
            "cpu_ms": 1e3 * cpu_s / frames,
            "wall_s": wall_s,
            "memory_mb": peak_memory_mb(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "mpi": getattr(transport, "library", ""),
            **self._segments.figures(),
        }
        if self._source is not None:
            record["source"] = {**self._source.figures(), "fps": self._setup.options.fps}
        if self._sink is not None:
            record["sink"] = {"postprocess_ms": self._sink.writes.with_mean_ms(50, 99)}
        return record


def _channel_ends(
    wiring: Wiring, rings: Sequence[Ring], peers: Peers
) -> tuple[list[Outgoing], list[Incoming]]:
    def uses_network(peer: int, ring: int) -> bool:
        return rings[ring].tensor.nbytes > _LARGE_MESSAGE and peers.is_far(peer)

    outgoing = [
        Outgoing(
            send.channel,
            send.destination,
            rings[send.reader.ring],
            send.reader.index,
            uses_network=uses_network(send.destination, send.reader.ring),
        )
        for send in wiring.sends
    ]
    incoming = [
        Incoming(
            receive.channel,
            receive.sender,
            rings[receive.ring],
            uses_network=uses_network(receive.sender, receive.ring),
        )
        for receive in wiring.receives
    ]
    return outgoing, incoming


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
    try:
        with ExitStack() as resources:
            setup = Setup(job, folder, options, transport, resources, on_step)
            peers = meet(job, options, transport)
            rank = together(transport, lambda: _Rank(setup, peers))
            energy = BoardEnergy(job.ranks, spec.rank)
            on_start()
            records = share(transport, energy.during(rank.run))
        if options.report is not None and spec.rank == job.sink_rank:
            _write_report(options.report, records)
    except JobError as error:
        raise type(error)(f"{spec.name}: {error}") from error.__cause__
    return records


def _write_report(path: Path, records: list[dict[str, Any]]) -> None:
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(json.dumps({"ranks": records}, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise JobError(f"report {path}: {reason_of(error)}") from None
