"""One rank of a job: set up from the job, run to the end of the stream, measured."""

from __future__ import annotations

import json
import platform
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..compression import CompressedMessages
from ..direct.tokens import Outbox
from ..engines import has_own_process
from ..errors import JobError, NeighbourDiedError, reason_of
from ..figures.events import EventRing
from ..figures.rank_figures import RankFigures
from ..figures.rank_usage import BoardEnergy, cpu_s, peak_memory_mb
from ..job import Job
from ..job.strict import as_record, plain
from ..keeper import ROLE_DRAIN, connect as connect_to_keeper
from ..options import RunOptions
from ..process_setup import check_binding
from ..recording import Recorder, recorded_frames
from ..system.cores import processor
from ..transport import Transport
from .collectives import Peers, Sample, allgather, connect_ranks, run_on_all, sample_clocks
from .direct_channels import MAIN, POLLS, DirectChannels, Post
from .executor import Executor, OnStep, step_of
from .loop import CommunicationLoop, Incoming, Outgoing
from .setup import (
    LoadedSegments,
    OpenedSource,
    Setup,
    lent_rings,
    open_frames,
    sink_stage,
    source_stage,
)
from .slots import Ring
from .stages import SourceStage, Stage
from .waiting import Waiter
from .watch import Heartbeat, ProgressWatch, Ticker
from .wiring import CREDIT_CHANNEL, Wiring, connect, wire_all

_NO_STEP_YET = "its first frame"
"""What a rank works on that has computed none: in a surge alone, say."""
_JOIN_TIMEOUT_S = 1.0
"""How long a thread may take to come to the end of its step when the rank ends."""


class _Rank:
    def __init__(
        self,
        setup: Setup,
        peers: Peers,
        wiring: Wiring,
        channels: DirectChannels,
        opened: OpenedSource | None,
    ) -> None:
        self._setup = setup
        self._channels = channels
        self._not_direct = peers.not_direct
        job, number = setup.job, setup.transport.rank
        self._failure: tuple[str, BaseException] | None = None
        self._outboxes: list[Outbox] = []
        """Those of the main thread, and of threads that have ended."""
        rings = channels.rings
        self._receives_credits = wiring.receives_credits
        self._views = [rings[view.ring] for view in wiring.views if view.carries_frames]
        self._segments = LoadedSegments(setup, wiring, rings, channels.memories)
        self._source = source_stage(setup, opened, wiring, rings)
        self._sink = sink_stage(setup, wiring, rings)
        self._joined = channels.joined
        self._record_ends()
        if setup.options.skip_failed:
            for stage in (*self._segments.stages, self._source, self._sink):
                if stage is not None:
                    stage.rank = number
        self._threads = self._make_threads()
        self._computing = self._threads["compute"]
        self._executors = list(dict.fromkeys(self._threads.values()))
        self._watches = [
            ProgressWatch(executor, setup.options.frame_timeout_s)
            for executor in self._executors
            if executor.name not in ("source", *(["sink"] if setup.options.stream else []))
        ]
        beats, heard = rings[-2:]
        self._heartbeat = Heartbeat(job.ranks, number, beats, heard, peers.processes)
        self._ticker = Ticker()
        self._polled = channels.post(POLLS).outbox
        outgoing, incoming = _channel_ends(wiring, rings, setup.events)
        ends: list[Outgoing | Incoming] = [*outgoing, *incoming]
        self._frame_ends = [end for end in ends if end.lane.carries_frames]
        self._outgoing = [end for end in outgoing if end.lane.carries_frames]
        wakes = {name: executor.wake for name, executor in self._threads.items()}
        take_credits: Callable[[], object] = self._take_credits
        if self._source is not None and self._sink is None:
            take_credits = self._source.take_credits  # by the source's thread
        connect(wiring, rings, wakes, self._wake_loop, take_credits)
        if self._source is not None:
            self._source.wake_by(wakes["source"])
        self._loop = CommunicationLoop(
            setup.messages or setup.transport,
            outgoing,
            incoming,
            computing=self._computing,
            waiter=self._watch_neighbours(peers),
            after_poll=self._after_poll,
            latency=setup.options.latency,
        )

    def _record_ends(self) -> None:
        recorder, job = self._setup.recorder, self._setup.job
        if recorder is None:
            return
        if self._source is not None:
            self._source.record_by(recorder.of_stage((), [spec.name for spec in job.inputs]))
        if self._sink is not None:
            self._sink.record_by(recorder.of_stage([spec.name for spec in job.outputs], ()))

    def _watch_neighbours(self, peers: Peers) -> Waiter:
        """Make what the main thread sleeps on: its tokens, and the deaths of other ranks."""
        self._waiter = waiter = Waiter()
        self._adopt(self._channels.post(MAIN))
        for rank, neighbour in peers.neighbours.items():
            waiter.watch(neighbour.death, partial(self._note_death, rank, neighbour.death))
        options = self._setup.options
        if self._source is not None and (options.drain or options.announce):
            self._connect_launcher(self._source)
        return waiter

    def _connect_launcher(self, source: SourceStage) -> None:
        """End the stream at the word of the launcher, and tell it what enters if it wants that."""
        connection = connect_to_keeper(ROLE_DRAIN)
        self._setup.resources.callback(connection.close)
        if self._setup.options.announce:
            source.on_enter = lambda entered: connection.sendall(entered.to_line())

        def drain() -> None:
            self._waiter.forget(connection.fileno())
            source.end_stream()
            self._threads["source"].wake()

        self._waiter.watch(connection.fileno(), drain)

    def _note_death(self, rank: int, death: int) -> None:
        # No rank ends before all have left the loop.
        self._waiter.forget(death)
        name = self._setup.job.ranks[rank].name
        error = NeighbourDiedError(f"{name}: the process was killed or crashed")
        self._failure = self._failure or (str(error), error)

    def _adopt(self, post: Post) -> None:
        """Take the tokens of a thread that has ended, or has none of its own."""
        self._outboxes.append(post.outbox)
        for inbox in post.inboxes.values():
            self._waiter.watch(inbox.descriptor, inbox.take)

    def _make_threads(self) -> dict[str, Executor]:
        ends = {"source": self._source, "sink": self._sink}
        others: dict[str, Stage] = {n: stage for n, stage in ends.items() if stage is not None}
        joined = [others[name] for name in others if name in self._joined]
        stages = [*self._segments.stages, *joined]
        computing = self._executor("compute", stages, self._setup.on_step)
        beside = computing if len(self._setup.spec.cores) == 1 else None
        return {"compute": computing} | {
            name: computing
            if name in self._joined
            else self._executor(name, [stage], beside=beside)
            for name, stage in others.items()
        }

    def _executor(
        self,
        name: str,
        stages: Sequence[Stage],
        on_step: OnStep | None = None,
        beside: Executor | None = None,
    ) -> Executor:
        return Executor(
            name,
            stages,
            on_failure=self._fail,
            on_finished=partial(self._finish, name),
            on_step=on_step,
            post=self._channels.post(name),
            predicts=self._setup.options.latency,
            events=self._setup.events,
            beside=beside,
        )

    def _finish(self, thread: str) -> None:
        """Leave what may still come for a thread that ends to the main one."""
        self._adopt(self._channels.post(thread))
        self._loop.wake()

    def run(self) -> RankFigures:
        setup = self._setup
        if setup.cores:
            check_binding(setup.cores)
        begin_s, begin_cpu_s = time.monotonic(), cpu_s()
        for executor in self._executors:
            setup.resources.callback(executor.join, _JOIN_TIMEOUT_S)
            setup.resources.callback(executor.stop)
            polls = executor is self._computing and self._loop.has_channels
            executor.start(self._loop if polls else None)
        self._heartbeat.beat(_NO_STEP_YET)
        self._loop.run(self._is_over)
        measured = self._measurements(time.monotonic() - begin_s, cpu_s() - begin_cpu_s)
        self._segments.write_operators()
        return measured

    def _is_over(self) -> bool:
        if self._failure is not None:
            message, cause = self._failure
            kind = NeighbourDiedError if isinstance(cause, NeighbourDiedError) else JobError
            raise kind(message) from cause
        self._watch()
        over = all(executor.finished for executor in self._executors)
        over = over and all(end.finished for end in self._frame_ends)
        over = over and all(view.end is not None for view in self._views)
        if over:
            # Nobody else polls any more; the last frame's credit may have come after the last poll.
            self._take_credits()
            self._heartbeat.finish()
        for outbox in self._outboxes:
            outbox.flush()
        return over and self._heartbeat.has_ended

    def _watch(self) -> None:
        self._heartbeat.listen()
        if self._ticker.is_due():
            self._heartbeat.beat(self._computing.at or _NO_STEP_YET)
            self._heartbeat.tick()
            for watch in self._watches:
                watch.tick()

    def _after_poll(self) -> None:
        if self._receives_credits:
            self._take_credits()
        self._polled.flush()

    def _take_credits(self) -> None:
        if self._source is not None and self._source.take_credits():
            self._threads["source"].wake()

    def _wake_loop(self) -> None:
        if self._computing.is_current():
            self._computing.poll_soon()
        else:
            self._loop.wake()

    def _fail(self, stage: Stage | None, error: BaseException) -> None:
        if self._failure is None:
            text = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
            where = f"{step_of(stage)}: " if stage is not None else ""
            self._failure = where + text, error
        self._loop.wake()

    def _measurements(self, wall_s: float, cpu_s: float) -> RankFigures:
        spec, transport = self._setup.spec, self._setup.transport
        messages = self._setup.messages
        frames = max(1, self._segments.frames)
        source, sink = self._source, self._sink
        shares: dict[str, float] = {}
        if source is not None:
            shares["read_share"], shares["no_frame_share"] = source.reads.shares()
        if sink is not None:
            shares["write_share"], shares["not_taken_share"] = sink.writes.shares()
        return RankFigures(
            rank=spec.rank,
            key=spec.key,
            host=socket.gethostname(),
            cores=spec.cores,
            engine=spec.engine,
            wait_ms=1e3 * self._computing.waited_s / frames,
            send_ms=1e3 * sum(end.busy_s for end in self._outgoing) / frames,
            compression_ratio=messages.ratio if messages is not None else None,
            cpu_ms=1e3 * cpu_s / frames,
            wall_s=wall_s,
            memory_mb=peak_memory_mb(),
            processor=processor(),
            python=platform.python_version(),
            numpy=np.__version__,
            mpi=getattr(transport, "library", ""),
            not_direct=self._not_direct,
            apart=tuple(n for n, thread in self._threads.items() if thread.name != "compute"),
            source=None if source is None else source.figures(),
            sink=None if sink is None else sink.figures(self._setup.job.ranks),
            **self._segments.figures(shares),
        )


def _recorder(setup: Setup, folder: Path) -> Recorder:
    job, number = setup.job, setup.transport.rank
    recorder = Recorder(folder, job, number, recorded_frames(job, setup.options))
    setup.resources.callback(recorder.close)
    return recorder


def _open_channels(
    setup: Setup, wiring: Wiring, peers: Peers, opened: OpenedSource | None
) -> DirectChannels:
    elsewhere = has_own_process(setup.spec.engine, setup.engine_settings)
    joined = setup.joined(is_timed=opened is not None and opened.is_timed)
    channels = DirectChannels(
        wiring,
        peers.neighbours,
        joined=joined,
        lent={} if elsewhere else lent_rings(setup, opened, wiring),
        computes_elsewhere=elsewhere,
    )
    setup.resources.callback(channels.close)
    return channels


def _channel_ends(
    wiring: Wiring, rings: Sequence[Ring], events: EventRing
) -> tuple[list[Outgoing], list[Incoming]]:
    def ring_of(channel: int) -> EventRing | None:
        return events if channel > CREDIT_CHANNEL else None

    outgoing = [
        Outgoing(
            s.channel,
            s.destination,
            rings[s.reader.ring],
            s.reader.index,
            ring_of(s.channel),
            s.compress,
        )
        for s in wiring.sends
    ]
    return outgoing, [
        Incoming(r.channel, r.sender, rings[r.ring], ring_of(r.channel), r.compress)
        for r in wiring.receives
    ]


def run_rank(
    job: Job,
    folder: Path,
    options: RunOptions,
    transport: Transport,
    *,
    on_start: Callable[[], None] = lambda: None,
    on_step: OnStep | None = None,
    events: EventRing | None = None,
) -> list[RankFigures]:
    """Run one rank of a job to its end; return the measurements of all ranks, by rank.

    Args:
        job, folder: the driver's job, and where its sub-models lie.
        options: the same on all ranks.
        transport: stays open on failure, for the caller to abort.
        on_start: called when all ranks are ready for frame 0.
        on_step: called before each run of a segment.
        events: takes what the rank does.

    Raises:
        JobError: the message names rank, key, host, segment and frame.
    """
    spec = job.ranks[transport.rank]
    events = events or EventRing()
    try:
        with ExitStack() as resources:
            setup = Setup(job, folder, options, transport, resources, on_step, events)
            peers = connect_ranks(job, options, transport, resources)
            wirings = wire_all(job, options.window, peers.direct, heartbeats=True)
            wiring = wirings[spec.rank]
            messages = run_on_all(
                transport, lambda: CompressedMessages(transport) if wiring.compresses else None
            )
            setup = replace(setup, messages=messages)
            if options.record is not None:
                recorder = run_on_all(transport, partial(_recorder, setup, options.record))
                setup = replace(setup, recorder=recorder)
            opened = run_on_all(transport, partial(open_frames, setup))
            channels = run_on_all(transport, lambda: _open_channels(setup, wiring, peers, opened))
            run_on_all(transport, channels.hand_over)
            rank = run_on_all(transport, lambda: _Rank(setup, peers, wiring, channels, opened))
            energy = BoardEnergy([placed.board for placed in job.ranks], spec.rank)
            clocks = _sample(setup)
            on_start()
            measured, joules = energy.during(rank.run)
            measured = replace(measured, energy=joules)
            _sample(setup, clocks)
            shared = allgather(transport, plain(RankFigures, measured))
            events.close()
        if options.report is not None and spec.rank == job.sink:
            _write_report(options.report, shared)
    except NeighbourDiedError:
        raise
    except JobError as error:
        raise type(error)(f"{spec.name}: {error}") from error.__cause__
    return [as_record(RankFigures, record) for record in shared]


def _sample(setup: Setup, before: Sequence[Sample] = ()) -> list[Sample]:
    """Note what the clocks of boards show, if events are asked for. Collective."""
    if setup.options.events is None:
        return []
    samples = [*before, *sample_clocks(setup.job, setup.transport)]
    if samples:
        setup.events.describe(clock=samples)
    return samples


def _write_report(path: Path, ranks: list[dict[str, Any]]) -> None:
    temporary = path.with_name(path.name + ".part")
    try:
        temporary.write_text(json.dumps({"ranks": ranks}, indent=1) + "\n")
        temporary.replace(path)
    except OSError as error:
        raise JobError(f"report {path}: {reason_of(error)}") from None
