#!/usr/bin/env python3
"""SPMD driver of a sliced neural network: every MPI rank runs this file.

JOB is all that a rank is told: which tensors it receives from whom in each frame, which sub-models
it runs on its accelerator, and which tensors it sends to whom. The library in the folder runtime/
does the rest: it overlaps receiving and sending with computing, keeps frames in order, and ends all
ranks if one fails.

    mpirun --map-by rankfile:file=rankfile --bind-to none --hostfile hostfile python driver.py --frames 10

Open MPI 4.1 wants -rf rankfile instead of --map-by rankfile:file=rankfile.

What stands here is what runs: it may be edited, in the same way on all boards. What contradicts
itself is refused before the start. `rankslice run` and `rankslice deploy` bring what was edited into
sender.json, receiver.json, rankfile and hostfile; plan.json says what was built.

Frames enter at rank 0 and leave at rank 0; at most 2 are inside at once.

The first frames, if a segment takes one step and messages take hardly any time.
In a cell, f3 is frame 3; a frame under out is a result.

  step  rank 0  out
     0  f0      f0

All further steps are like step 0: 1 frame in each.
"""

from runtime import Job, Rank, Segment, Tensor, main

JOB = Job(
    model="model.onnx",
    window=2,
    source=0,
    sink=0,
    inputs=(Tensor("x", "float32", (1, 4)),),
    between=(),
    outputs=(Tensor("y", "float32", (1, 4)),),
    ranks=(
        # 2 layers, "conv" to "relu"
        Rank(
            0,
            "board_cpu0",
            board="board",
            host="board",
            accelerator="cpu",
            cores=(0,),
            engine="onnxruntime",
            runs=(Segment("submodels/board_cpu0.0.onnx", inputs=("x",), outputs=("y",)),),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB))
