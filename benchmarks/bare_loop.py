"""A pipeline of ranks as one writes it by hand, with mpi4py and an engine and nothing else.

A rank has receives waiting for three buffers, computes with what has arrived into one of three
others, and starts to send that. It waits within MPI, in the thread that computes. It runs where no
RankSlice is, until it is ended, and the last rank notes when each frame was finished.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BUFFERS = 3

Array = Any
Compute = Callable[[int], None]
"""Computes with the buffers of this number."""
Buffers = Sequence[Array] | None
"""``None``: the rank receives nothing, or sends nothing."""


def onnxruntime(model: str, inboxes: Buffers, outboxes: Buffers) -> Compute:
    """Return what runs a sub-model with onnxruntime, on the buffers themselves."""
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
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


def litert(model: str, inboxes: Buffers, outboxes: Buffers) -> Compute:
    """Return what runs a sub-model with LiteRT, which has tensors of its own."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=1)
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


def main() -> None:
    """Take the command line, and be a rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--bytes", type=int, nargs="+", required=True, help="of a message between each two ranks")
    add("--models", nargs="+", required=True, help="the sub-models of the ranks")
    add("--cores", type=int, nargs="+", required=True, help="the cores of the ranks")
    add("--stamps", type=Path, required=True, help="where the last rank writes its times")
    args = parser.parse_args()
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    rank, last = world.Get_rank(), world.Get_size() - 1
    os.sched_setaffinity(0, {args.cores[rank]})
    inboxes = _buffers(args.bytes[rank - 1]) if rank else None
    outboxes = _buffers(args.bytes[rank]) if rank < last else None
    open_model = litert if args.models[rank].endswith(".tflite") else onnxruntime
    compute = open_model(args.models[rank], inboxes, outboxes)
    compute(0)
    world.Barrier()
    receives = [world.Irecv(inbox, rank - 1) for inbox in inboxes or ()]
    sends = [MPI.REQUEST_NULL] * BUFFERS
    stamps = args.stamps.open("wb", buffering=0) if rank == last else None
    slot = 0
    while True:
        if inboxes:
            receives[slot].Wait()
        sends[slot].Wait()
        compute(slot)
        if stamps:
            stamps.write(np.float64(time.monotonic()).tobytes())
        if outboxes:
            sends[slot] = world.Isend(outboxes[slot], rank + 1)
        if inboxes:
            receives[slot] = world.Irecv(inboxes[slot], rank - 1)
        slot = (slot + 1) % BUFFERS


def _buffers(size: int) -> list[Array]:
    return [np.zeros(size, np.uint8) for _ in range(BUFFERS)]


if __name__ == "__main__":
    main()
