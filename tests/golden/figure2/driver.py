#!/usr/bin/env python3
"""SPMD driver of a sliced neural network: every MPI rank runs this file.

The rank's number selects its block in RANKS. A block says, for each frame, which tensors
the rank receives from whom, which sub-models it runs on its accelerator, and which tensors it
sends to whom. The library in the folder runtime/ does the rest: it overlaps receiving and
sending with computing, keeps frames in order, and ends all ranks if one fails.

plan.json is authoritative. The blocks are compared with it at the start, so a change of the
mapping needs a new build.

    mpirun --map-by rankfile:file=rankfile --bind-to none --hostfile hostfile python driver.py --frames 10

Frames enter at rank 0 and leave at rank 2; at most 8 are inside at once.

The first frames, if a segment takes one step and messages take hardly any time.
In a cell, 1:f3 is frame 3 in segment 1 of the rank; a frame under out is a result.

  step  rank 0  rank 1  rank 2  out
     0  0:f0    .       .
     1  0:f1    0:f0    0:f0
     2  0:f2    0:f1    0:f1
     3  1:f0    0:f2    0:f2
     4  1:f1    .       1:f0    f0
     5  1:f2    .       1:f1    f1
     6  0:f3    .       1:f2    f2

Steps 1 to 6 repeat: 3 frames in 6 steps.
"""

from runtime import Rank, Receive, Segment, Send, main

MODEL = "model.onnx"
PLAN_SHA256 = "d47590b85e8113531aa28ec1d51ffb510dedc009fd04b6f139956f3eea146b26"

RANKS = {
    # 2 layers, "MaxPool1" to "Add1"
    0: Rank(
        key="edge01_arm123",
        host="192.168.1.11",
        accelerator="cpu",
        cores=(1, 2, 3),
        engine="onnxruntime",
        receives=(
            Receive("Buff2", source=1, channel=3),
            Receive("Buff3", source=2, channel=4),
        ),
        segments=(
            Segment(
                "submodels/edge01_arm123.0.onnx",
                inputs=("input",),
                outputs=("Buff1",),
            ),
            Segment(
                "submodels/edge01_arm123.1.onnx",
                inputs=("Buff2", "Buff3"),
                outputs=("Buff4",),
            ),
        ),
        sends=(
            Send("Buff1", destination=1, channel=1),
            Send("Buff1", destination=2, channel=2),
            Send("Buff4", destination=2, channel=5),
        ),
    ),
    # 1 layers, "FC1" to "FC1"
    1: Rank(
        key="edge01_gpu",
        host="192.168.1.11",
        accelerator="gpu",
        cores=(0,),
        engine="onnxruntime",
        receives=(
            Receive("Buff1", source=0, channel=1),
        ),
        segments=(
            Segment(
                "submodels/edge01_gpu.0.onnx",
                inputs=("Buff1",),
                outputs=("Buff2",),
            ),
        ),
        sends=(
            Send("Buff2", destination=0, channel=3),
        ),
    ),
    # 2 layers, "Conv1" to "Relu1"
    2: Rank(
        key="edge04_arm45",
        host="192.168.1.14",
        accelerator="cpu",
        cores=(4, 5),
        engine="onnxruntime",
        receives=(
            Receive("Buff1", source=0, channel=2),
            Receive("Buff4", source=0, channel=5),
        ),
        segments=(
            Segment(
                "submodels/edge04_arm45.0.onnx",
                inputs=("Buff1",),
                outputs=("Buff3",),
            ),
            Segment(
                "submodels/edge04_arm45.1.onnx",
                inputs=("Buff4",),
                outputs=("output",),
            ),
        ),
        sends=(
            Send("Buff3", destination=0, channel=4),
        ),
    ),
}

if __name__ == "__main__":
    raise SystemExit(main(__file__, PLAN_SHA256, RANKS))
