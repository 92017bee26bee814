"""A pipeline of two ranks as one writes it by hand, with mpi4py and an engine and nothing else.

Rank 0 computes into one of three buffers and starts to send it; rank 1 has receives waiting for
three, and computes with what has arrived. Each waits within MPI, in the thread that computes. It
runs where no RankSlice is, and prints one JSON object: times in milliseconds.
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
"""Computes with the buffer of this number."""


def sleeping(given: argparse.Namespace, buffers: Sequence[Array], rank: int) -> Compute:
    """Return what sleeps instead of computing."""
    del buffers, rank
    return lambda slot: time.sleep(given.sleep_ms / 1e3)


def onnxruntime(given: argparse.Namespace, buffers: Sequence[Array], rank: int) -> Compute:
    """Return what runs a rank's sub-model with onnxruntime, on the buffers themselves."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(given.models[rank], options, providers=["CPUExecutionProvider"])
    (source,), (target,) = session.get_inputs(), session.get_outputs()
    own = np.zeros(target.shape if rank else source.shape, np.float32)

    def bound(buffer: Array) -> Any:
        binding = session.io_binding()
        shape = source.shape if rank else target.shape
        ends = (buffer.view(np.float32).reshape(shape), own)
        before, after = ends if rank else ends[::-1]
        for bind, name, array in (
            (binding.bind_input, source.name, before),
            (binding.bind_output, target.name, after),
        ):
            bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
        return binding

    # A binding keeps no reference to the memory that it names.
    kept = [(bound(buffer), own) for buffer in buffers]
    return lambda slot: session.run_with_iobinding(kept[slot][0])


def litert(given: argparse.Namespace, buffers: Sequence[Array], rank: int) -> Compute:
    """Return what runs a rank's sub-model with LiteRT, which has tensors of its own."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=given.models[rank], num_threads=1)
    interpreter.allocate_tensors()
    (source,), (target,) = interpreter.get_input_details(), interpreter.get_output_details()
    before, after = interpreter.tensor(source["index"]), interpreter.tensor(target["index"])
    shape = source["shape"] if rank else target["shape"]
    arrays = [buffer.view(np.float32).reshape(shape) for buffer in buffers]

    def first(slot: int) -> None:
        interpreter.invoke()
        np.copyto(arrays[slot], after())

    def second(slot: int) -> None:
        np.copyto(before(), arrays[slot])
        interpreter.invoke()

    return second if rank else first


ENGINES = {"null": sleeping, "onnxruntime": onnxruntime, "litert": litert}


def pipeline(given: argparse.Namespace, communicator: Any) -> dict[str, float]:
    """Run the frames; return the time per frame at the second rank, and that of computing."""
    from mpi4py import MPI

    rank, peer = communicator.Get_rank(), 1 - communicator.Get_rank()
    buffers = [np.zeros(given.bytes, np.uint8) for _ in range(BUFFERS)]
    compute = ENGINES[given.engine](given, buffers, rank)
    compute(0)
    communicator.Barrier()
    start = communicator.Irecv if rank else communicator.Isend
    requests = [start(buffer, peer) if rank else MPI.REQUEST_NULL for buffer in buffers]
    stamps = given.stamps.open("wb", buffering=0) if rank and given.stamps else None
    ended, computing = [], []
    for frame in range(given.frames):
        slot = frame % BUFFERS
        requests[slot].Wait()
        begin = time.perf_counter()
        compute(slot)
        computing.append(time.perf_counter() - begin)
        ended.append(time.perf_counter())
        if stamps:
            stamps.write(np.float64(time.monotonic()).tobytes())
        if not rank or frame + BUFFERS < given.frames:
            requests[slot] = start(buffers[slot], peer)
    MPI.Request.Waitall(requests)
    passed = (ended[-1] - ended[WARM_UP - 1]) / (given.frames - WARM_UP)
    slower = communicator.allreduce(statistics.median(computing), op=MPI.MAX)
    return {"frame_ms": 1e3 * passed, "compute_ms": 1e3 * slower}


def message(given: argparse.Namespace, communicator: Any) -> dict[str, float]:
    """Return the time of a message: half of a round trip, the median of all."""
    outbox, inbox = np.ones(given.bytes, np.uint8), np.ones(given.bytes, np.uint8)
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
    add("--bytes", type=int, required=True, help="of a message")
    add("--frames", type=int, default=100)
    add("--engine", choices=ENGINES, help="without one: messages there and back alone")
    add("--sleep-ms", type=float, default=0, help="of the engine null")
    add("--models", nargs=2, help="the sub-models of both ranks")
    add("--cores", type=int, nargs=2, required=True, help="the cores of both ranks")
    add("--stamps", type=Path, help="where the second rank writes when each frame was finished")
    given = parser.parse_args()
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.Get_rank()
    os.sched_setaffinity(0, {given.cores[rank]})
    measure = pipeline if given.engine else message
    found = measure(given, MPI.COMM_WORLD)
    if rank == 1:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
