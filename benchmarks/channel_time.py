"""How long a channel takes from send to ready-to-run, against a raw MPI ping-pong of as many bytes.

Two ranks bounce a tensor, with the threads that a rank has: what computes puts it into a slot,
which is sent, received by the other rank, and sent back. Half of the round trip is the channel's
time. The raw time is that of blocking mpi4py calls between the same two processes, measured in
turn with it, size by size: once with one buffer for each direction, and once with two that take
turns, as a channel has two slots, since twice the memory is more than some caches hold.

    python benchmarks/channel_time.py --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from rankslice.backend.launch import find_mpirun
from rankslice.backend.runtime.executor import Executor
from rankslice.backend.runtime.job import TensorSpec
from rankslice.backend.runtime.loop import CommunicationLoop, Incoming, Outgoing
from rankslice.backend.runtime.mpi import MpiTransport
from rankslice.backend.runtime.slots import Ring

SIZES = (4 << 10, 32 << 10, 256 << 10, 1 << 20, 3 << 20, 8 << 20)
SLOTS = 2
TARGET_EXTRA_S = {False: 150e-6, True: 60e-6}


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


def work(rounds: int, latency: bool) -> None:
    """Measure in one of the two ranks; rank 0 prints the medians as JSON."""
    mpi = MpiTransport()
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(os.getppid()))[mpi.rank]})
    found: dict[int, Any] = {}
    for size in SIZES:
        bounces = max(40, min(400, (64 << 20) // size))
        measured = []
        for _ in range(rounds):
            raw = raw_time_s(mpi, size, bounces)
            mpi.exchange(b"")
            turns = raw_time_s(mpi, size, bounces, SLOTS)
            mpi.exchange(b"")
            channel = channel_time_s(mpi, size, bounces, latency)
            mpi.exchange(b"")
            measured.append([statistics.median(times or [0]) for times in (raw, turns, channel)])
        found[size] = [statistics.median(times) for times in zip(*measured, strict=True)]
    if mpi.rank == 0:
        print(json.dumps(found))
    mpi.close()


def report(rounds: int, network: str, latency: bool) -> None:
    """Start two ranks over ``network`` and print what they measured."""
    command = [str(find_mpirun().path), "-n", "2", "--map-by", "slot:oversubscribe"]
    command += ["--bind-to", "none"]
    command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command += ["--mca", "btl", "tcp,self"] if network == "tcp" else []
    command += [sys.executable, __file__, "--rank", "--rounds", str(rounds)]
    command += ["--latency"] if latency else []
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    print(f"\n{network}{', --latency' if latency else ''}")
    print("    bytes      raw us  two bufs us  channel us   extra us   ratio  to two bufs  target")
    for text, (raw, turns, channel) in json.loads(answer).items():
        met = channel <= 1.15 * raw if raw >= 1e-3 else channel <= raw + TARGET_EXTRA_S[latency]
        print(
            f"{int(text):9}  {1e6 * raw:10.1f}  {1e6 * turns:11.1f}  {1e6 * channel:10.1f}"
            f" {1e6 * (channel - raw):10.1f}  {channel / raw:6.2f}  {channel / turns:11.2f}"
            f"  {'met' if met else 'missed'}"
        )


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="repetitions, medians are taken")
    parser.add_argument("--latency", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.rank:
        work(given.rounds, given.latency)
        return
    for network in ("shared memory", "tcp"):
        for latency in (False, True):
            report(given.rounds, network, latency)


if __name__ == "__main__":
    main()
