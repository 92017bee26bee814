"""A pipeline of ranks as one writes it by hand, with mpi4py and an engine and nothing else.

A rank has receives waiting for three buffers, computes with what has arrived into one of three
others, and starts to send that. It waits within MPI, in the thread that computes. It runs where no
RankSlice is, and prints one JSON object: times in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BUFFERS = 3
WARM_UP = 10
"""Frames that are left out."""

Array = Any
Compute = Callable[[int], None]
"""Computes with the buffers of this number."""
Buffers = Sequence[Array] | None
"""``None``: the rank receives nothing, or sends nothing."""


def sleeping(given: argparse.Namespace, inboxes: Buffers, outboxes: Buffers, rank: int) -> Compute:
    """Return what sleeps instead of computing."""
    del inboxes, outboxes, rank
    return lambda slot: time.sleep(given.sleep_ms / 1e3)


def onnxruntime(
    given: argparse.Namespace, inboxes: Buffers, outboxes: Buffers, rank: int
) -> Compute:
    """Return what runs a rank's sub-model with onnxruntime, on the buffers themselves."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(given.models[rank], options, providers=["CPUExecutionProvider"])
    (source,), (target,) = session.get_inputs(), session.get_outputs()

    def arrays(buffers: Buffers, shape: Sequence[int]) -> list[Array]:
        if buffers is None:
            return [np.zeros(shape, np.float32)] * BUFFERS
        return [buffer.view(np.float32).reshape(shape) for buffer in buffers]

    def bound(before: Array, after: Array) -> Any:
        binding = session.io_binding()
        for bind, name, array in (
            (binding.bind_input, source.name, before),
            (binding.bind_output, target.name, after),
        ):
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        return binding

    # A binding keeps no reference to the memory that it names.
    ends = zip(arrays(inboxes, source.shape), arrays(outboxes, target.shape), strict=True)
    kept = [(bound(before, after), before, after) for before, after in ends]
    return lambda slot: session.run_with_iobinding(kept[slot][0])


def litert(given: argparse.Namespace, inboxes: Buffers, outboxes: Buffers, rank: int) -> Compute:
    """Return what runs a rank's sub-model with LiteRT, which has tensors of its own."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=given.models[rank], num_threads=1)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    before, after = interpreter.tensor(source["index"]), interpreter.tensor(target["index"])

    def arrays(buffers: Buffers, shape: Sequence[int]) -> list[Array] | None:
        return buffers and [buffer.view(np.float32).reshape(shape) for buffer in buffers]

    received, sent = arrays(inboxes, source["shape"]), arrays(outboxes, target["shape"])

    def compute(slot: int) -> None:
        if received:
            np.copyto(before(), received[slot])
        interpreter.invoke()
        if sent:
            np.copyto(sent[slot], after())

    return compute


ENGINES = {"null": sleeping, "onnxruntime": onnxruntime, "litert": litert}


def pipeline(given: argparse.Namespace, communicator: Any) -> dict[str, float]:
    """Run the frames; return the time per frame at the last rank, and that of computing."""
    from mpi4py import MPI

    rank, last = communicator.Get_rank(), communicator.Get_size() - 1
    inboxes = _buffers(given.bytes[rank - 1]) if rank else None
    outboxes = _buffers(given.bytes[rank]) if rank < last else None
    compute = ENGINES[given.engine](given, inboxes, outboxes, rank)
    compute(0)
    communicator.Barrier()
    receives = [communicator.Irecv(each, rank - 1) for each in inboxes or ()]
    sends = [MPI.REQUEST_NULL] * BUFFERS
    stamps = given.stamps.open("wb", buffering=0) if rank == last and given.stamps else None
    ended, computing = [], []
    for frame in range(given.frames):
        slot = frame % BUFFERS
        if inboxes:
            receives[slot].Wait()
        sends[slot].Wait()
        begin = time.perf_counter()
        compute(slot)
        computing.append(time.perf_counter() - begin)
        ended.append(time.perf_counter())
        if stamps:
            stamps.write(np.float64(time.monotonic()).tobytes())
        if outboxes:
            sends[slot] = communicator.Isend(outboxes[slot], rank + 1)
        if inboxes and frame + BUFFERS < given.frames:
            receives[slot] = communicator.Irecv(inboxes[slot], rank - 1)
    MPI.Request.Waitall(sends)
    passed = (ended[-1] - ended[WARM_UP - 1]) / (given.frames - WARM_UP)
    slower = communicator.allreduce(statistics.median(computing), op=MPI.MAX)
    return {"frame_ms": 1e3 * passed, "compute_ms": 1e3 * slower}


def _buffers(size: int) -> list[Array]:
    return [np.zeros(size, np.uint8) for _ in range(BUFFERS)]


def message(given: argparse.Namespace, communicator: Any) -> dict[str, float]:
    """Return the time of a message: half of a round trip, the median of all."""
    outbox, inbox = (np.ones(given.bytes[0], np.uint8) for _ in range(2))
    rank, peer, times = communicator.Get_rank(), 1 - communicator.Get_rank(), []
    for _ in range(given.frames):
        begin = time.perf_counter()
        if rank:
            communicator.Recv(inbox, peer)
            communicator.Send(outbox, peer)
        else:
            communicator.Send(outbox, peer)
            communicator.Recv(inbox, peer)
        times.append((time.perf_counter() - begin) / 2)
    return {"message_ms": 1e3 * statistics.median(times[WARM_UP:])}


def main() -> None:
    """Take the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--bytes", type=int, nargs="+", required=True, help="of a message between each two ranks")
    add("--frames", type=int, default=100)
    add("--engine", choices=ENGINES, help="without one: messages there and back alone")
    add("--sleep-ms", type=float, default=0, help="of the engine null")
    add("--models", nargs="+", help="the sub-models of the ranks")
    add("--cores", type=int, nargs="+", required=True, help="the cores of the ranks")
    add("--stamps", type=Path, help="where the last rank writes when each frame was finished")
    given = parser.parse_args()
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    os.sched_setaffinity(0, {given.cores[rank]})
    measure = pipeline if given.engine else message
    found = measure(given, MPI.COMM_WORLD)
    if rank == MPI.COMM_WORLD.Get_size() - 1:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
