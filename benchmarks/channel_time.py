"""How long a channel takes from send to ready-to-run, against a raw MPI ping-pong of as many bytes.

Two ranks bounce a tensor, with the threads that a rank has: what computes puts it into a slot,
which is sent, received by the other rank, and sent back. Half of the round trip is the channel's
time. The raw time is that of blocking mpi4py calls between the same two processes, measured in
turn with it, a few messages each, size by size: once with one buffer for each direction, and once
with two that take turns, as a channel has two slots, since twice the memory is more than some
caches hold. Each round gives a difference and a ratio; their medians and 95 % intervals are told.
Where a process finds its memory makes a difference as well, so several pairs take part.

    python benchmarks/channel_time.py --rounds 20 --sizes 3M 8M
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import median
from typing import TypeAlias

import numpy as np
from timing import confident, confident_ratios, console, machine, print_table

from rankslice.backend.launch.mpirun import find_mpirun
from rankslice.backend.runtime.job import TensorSpec
from rankslice.backend.runtime.pipeline.executor import Executor
from rankslice.backend.runtime.pipeline.loop import CommunicationLoop, Incoming, Outgoing
from rankslice.backend.runtime.pipeline.slots import Ring
from rankslice.backend.runtime.transport.mpi import MpiTransport

SIZES = {
    "4k": 4 << 10,
    "32k": 32 << 10,
    "256k": 256 << 10,
    "1M": 1 << 20,
    "3M": 3 << 20,
    "8M": 8 << 20,
}
SLOTS = 2
MOVED_BYTES = 64 << 20
"""In a block of messages, if they are neither too many nor too few."""
TARGET_RATIO = 1.15
"""Of messages that take a millisecond or more."""
TARGET_EXTRA_US = {False: 150, True: 60}
"""Beyond the raw time of others: by default, and with ``--latency``."""

Times: TypeAlias = Sequence[float]

COLUMNS = (
    "bytes",
    "raw us",
    "two buffers us",
    "channel us",
    "channel - raw us",
    "channel / raw",
    "channel / two buffers",
    "target",
)


class Bouncing:
    """A stage that sends back what it gets; on rank 0 it begins, and times the round trips."""

    def __init__(self, inbox: Ring, outbox: Ring, bounces: int, *, begins: bool) -> None:
        """Take both rings; ``begins`` lets it send first, and receive last."""
        self.frame = 0
        self.finished = False
        self.times: list[float] = []
        """Half the time of each round trip, in seconds."""
        self._inbox, self._outbox = inbox, outbox
        self._bounces = bounces
        self._begins = begins
        self._begin_s = 0.0

    def is_ready(self) -> bool:
        """The tensor is here."""
        is_first = self._begins and self.frame == 0
        return is_first or (self._inbox.has_frame(0) and self._outbox.has_room())

    def step(self) -> None:
        """Take the tensor, unless it has yet to be sent first; send it, unless it is back."""
        now = time.perf_counter()
        if self.frame or not self._begins:
            self._inbox.free(0)
        if self._begins and self.frame:
            self.times.append((now - self._begin_s) / 2)
        self._begin_s = now
        if self.frame < self._bounces:
            self._outbox.put()
        self.frame += 1
        self.finished = self.frame == self._bounces + self._begins
        if self.finished:
            self._outbox.finish()

    def pause_s(self) -> float | None:
        """Nothing changes by itself."""
        return None

    def describe(self) -> str:
        """Name the stage."""
        return "bouncing"


def channel_time_s(transport: MpiTransport, size: int, bounces: int, latency: bool) -> list[float]:
    """Return half the time of each round trip through two channels, in seconds."""
    tensor = TensorSpec("tensor", "uint8", (size,))
    peer = 1 - transport.rank
    outbox, inbox = Ring(tensor, SLOTS, 1), Ring(tensor, SLOTS, 1)
    outgoing = Outgoing(1 + transport.rank, peer, outbox, 0)
    incoming = Incoming(1 + peer, peer, inbox)
    stage = Bouncing(inbox, outbox, bounces, begins=not transport.rank)
    failures: list[BaseException] = []
    executor = Executor(
        "compute",
        [stage],
        on_failure=lambda _, error: failures.append(error),
        on_finished=lambda: loop.wake(),
    )
    loop = CommunicationLoop(transport, [outgoing], [incoming], computing=executor, latency=latency)
    outbox.on_written = (executor.look_soon,)
    inbox.on_written = (executor.wake,)
    executor.start(loop)
    loop.run(lambda: executor.finished or bool(failures))
    executor.join(60)
    transport.open([], [])  # withdraws the receives that are still posted
    if failures:
        raise failures[0]
    return stage.times[bounces // 5 :]


def raw_time_s(transport: MpiTransport, size: int, bounces: int, slots: int = 1) -> list[float]:
    """Return half the time of each round trip of blocking calls, in seconds.

    ``slots`` buffers take turns in each direction.
    """
    from mpi4py import MPI

    outboxes = [np.ones(size, np.uint8) for _ in range(slots)]
    inboxes = [np.ones(size, np.uint8) for _ in range(slots)]
    peer = 1 - transport.rank
    times = []
    for bounce in range(bounces):
        outbox, inbox = outboxes[bounce % slots], inboxes[bounce % slots]
        begin = time.perf_counter()
        if transport.rank == 0:
            MPI.COMM_WORLD.Send(outbox, peer)
            MPI.COMM_WORLD.Recv(inbox, peer)
        else:
            MPI.COMM_WORLD.Recv(inbox, peer)
            MPI.COMM_WORLD.Send(outbox, peer)
        if bounce >= bounces // 5:
            times.append((time.perf_counter() - begin) / 2)
    return times


def work(sizes: Iterable[int], rounds: int, latency: bool) -> None:
    """Measure in one of the two ranks; rank 0 prints the medians of each round as JSON."""
    mpi = MpiTransport()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(os.getppid()))[mpi.rank]})
    found = []
    for size in sizes:
        bounces = max(25, min(400, MOVED_BYTES // size))
        measured = []
        for _ in range(rounds):
            raw = raw_time_s(mpi, size, bounces)
            mpi.exchange(b"")
            turns = raw_time_s(mpi, size, bounces, SLOTS)
            mpi.exchange(b"")
            channel = channel_time_s(mpi, size, bounces, latency)
            mpi.exchange(b"")
            measured.append([1e6 * median(times or [0]) for times in (raw, turns, channel)])
        found.append(measured)
    if mpi.rank == 0:
        print(json.dumps(found))
    mpi.close()


def report(sizes: Sequence[str], pairs: int, rounds: int, network: str, latency: bool) -> None:
    """Start pairs of ranks over ``network``, one after the other; print what they measured."""
    command = [str(find_mpirun().path), "-n", "2", "--map-by", "slot:oversubscribe"]
    command += ["--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["--mca", "btl", "tcp,self"] if network == "tcp" else []
    command += [sys.executable, __file__, "--rank", "--rounds", str(rounds), "--sizes", *sizes]
    command += ["--latency"] if latency else []
    answers = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        for _ in range(pairs)
    ]
    rows = []
    for size, *measured in zip(sizes, *answers, strict=True):
        raw, turns, channel = zip(*chain.from_iterable(measured), strict=True)
        rows.append(row_of(size, raw, turns, channel, latency))
    print_table(f"{network}{', --latency' if latency else ''}", COLUMNS, rows)


def row_of(size: str, raw: Times, turns: Times, channel: Times, latency: bool) -> list[str]:
    """Return a row of the table from the rounds' times, in microseconds."""
    extra = confident(one - other for one, other in zip(channel, raw, strict=True))
    ratio = confident_ratios(channel, raw)
    if median(raw) >= 1000:
        met = ratio.middle <= TARGET_RATIO
    else:
        met = extra.middle <= TARGET_EXTRA_US[latency]
    times = [f"{median(each):.1f}" for each in (raw, turns, channel)]
    to_turns = confident_ratios(channel, turns).text()
    return [size, *times, extra.text(1), ratio.text(), to_turns, "met" if met else "missed"]


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="of each pair and size")
    parser.add_argument("--pairs", type=int, default=5, help="of ranks")
    parser.add_argument(
        "--sizes", nargs="+", choices=SIZES, default=list(SIZES), help="of messages"
    )
    parser.add_argument("--latency", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        work([SIZES[size] for size in given.sizes], given.rounds, given.latency)
        return
    console.print(machine(), style="dim")
    for network in ("shared memory", "tcp"):
        for latency in (False, True):
            report(given.sizes, given.pairs, given.rounds, network, latency)


if __name__ == "__main__":
    main()
