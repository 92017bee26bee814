"""Other ways to hand a frame to another process: each is a sender and a receiver of ``gaps.py``.

    python benchmarks/channel_peers.py zenoh receive FOLDER BYTES

``fifo`` hands over the stamp alone, which the receiver sleeps on. ``mpi`` is a ping-pong of
blocking mpi4py calls, without gaps. ``zenoh`` and ``dora`` use their shared memory. Senders fill a
frame before they stamp it. In the folder lie ``turns``, a FIFO, and ``log``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from gaps import STAMP, Log, Turns

KEY = "rankslice/frames"
LAST = -1
"""In place of a turn's number: the sender stops."""
SLOTS = 4
"""Frames for which zenoh's memory has room."""


def fifo_send(folder: Path, size: int) -> None:
    turns, fifo = Turns(f"{folder}/turns"), os.open(folder / "fifo", os.O_WRONLY)
    while True:
        turn = turns.await_frame()
        os.write(fifo, STAMP.pack(turn, time.monotonic_ns()))


def fifo_receive(folder: Path, size: int) -> None:
    log, fifo = Log(f"{folder}/log"), os.open(folder / "fifo", os.O_RDONLY)
    while stamp := os.read(fifo, STAMP.size):
        ready_ns = time.monotonic_ns()
        log.note(*STAMP.unpack(stamp), ready_ns)


def mpi_both(folder: Path, size: int) -> None:
    """Be one of two ranks; between its turns rank 1 sleeps on a FIFO, as MPI would spin."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    bind(world.rank)
    frame = np.ones(size // 8, np.int64)
    if world.rank:
        _bounce(world, folder, frame)
        return
    turns, bell = Turns(f"{folder}/turns"), os.open(folder / "fifo", os.O_WRONLY)
    while True:
        turn = turns.await_turn()
        os.write(bell, b"!")
        while True:
            frame.fill(turn)
            frame[:2] = turn, time.monotonic_ns()
            world.Send(frame, 1)
            world.Recv(frame, 1)
            if turns.is_over():
                break
        frame[0] = LAST
        world.Send(frame, 1)


def _bounce(world: Any, folder: Path, frame: Any) -> None:
    log, bell = Log(f"{folder}/log"), os.open(folder / "fifo", os.O_RDONLY)
    while os.read(bell, 1):
        while True:
            world.Recv(frame, 0)
            ready_ns = time.monotonic_ns()
            turn, sent_ns = frame[:2].tolist()
            if turn == LAST:
                break
            log.note(turn, sent_ns, ready_ns, frame)
            world.Send(frame, 0)


def zenoh_send(folder: Path, size: int) -> None:
    import zenoh

    turns = Turns(f"{folder}/turns")
    with zenoh.open(_zenoh_settings(folder, "listen")) as session:
        memory = zenoh.shm.ShmProvider.default_backend(SLOTS * size)
        policy = zenoh.shm.BlockOn(zenoh.shm.GarbageCollect())
        publisher = session.declare_publisher(
            KEY, congestion_control=zenoh.CongestionControl.BLOCK, express=True
        )
        while True:
            turn = turns.await_frame()
            frame = memory.alloc(size, policy=policy)
            frame[:] = bytes(size)
            publisher.put(frame, attachment=STAMP.pack(turn, time.monotonic_ns()))


def zenoh_receive(folder: Path, size: int) -> None:
    """Note when samples arrive; that Python has to copy them before it can use them is left out."""
    import zenoh

    log = Log(f"{folder}/log")
    with (
        zenoh.open(_zenoh_settings(folder, "connect")) as session,
        session.declare_subscriber(KEY) as samples,
    ):
        for sample in samples:
            ready_ns = time.monotonic_ns()
            assert sample.payload.as_shm() is not None, "it came by another way"
            log.note(*STAMP.unpack(sample.attachment.to_bytes()), ready_ns)


def _zenoh_settings(folder: Path, role: str) -> Any:
    import zenoh

    settings = zenoh.Config()
    where = f"unixsock-stream/{folder}/zenoh"
    for key, value in (
        ("mode", "peer"),
        (f"{role}/endpoints", [where]),
        ("scouting/multicast/enabled", False),
        ("transport/shared_memory/enabled", True),
    ):
        settings.insert_json5(key, json.dumps(value))
    return settings


def dora_send(folder: Path, size: int) -> None:
    from dora import Node

    turns, node = Turns(f"{folder}/turns"), Node()
    while True:
        turn = turns.await_frame()
        sample = node.send_output_raw("frame", size)
        view = sample.as_memoryview()
        values = np.frombuffer(view, np.int64)
        values.fill(turn)
        values[1] = time.monotonic_ns()
        del values
        view.release()
        sample.send()


def dora_receive(folder: Path, size: int) -> None:
    from dora import Node

    log = Log(f"{folder}/log")
    for event in Node():
        ready_ns = time.monotonic_ns()
        if event["type"] == "INPUT":
            turn, sent_ns = event["value"].to_numpy().view(np.int64)[:2].tolist()
            log.note(turn, sent_ns, ready_ns)


def dora_dataflow(python: Path, program: Path, folder: Path, size: int) -> str:
    """Return the description of a dataflow with both nodes."""
    nodes = [
        {
            "id": part,
            "path": str(python),
            "args": f"{program} dora {part} {folder} {size}",
            **ends,
        }
        for part, ends in (
            ("send", {"outputs": ["frame"]}),
            ("receive", {"inputs": {"frame": "send/frame"}}),
        )
    ]
    return json.dumps({"nodes": nodes})


def bind(number: int) -> None:
    """Keep this process on one of the launcher's cores, unless there are fewer."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})


def main() -> None:
    way, part, folder, size = sys.argv[1:]
    if part != "both":
        bind(part == "receive")
    with suppress(EOFError):
        globals()[f"{way}_{part}"](Path(folder), int(size))


if __name__ == "__main__":
    main()
