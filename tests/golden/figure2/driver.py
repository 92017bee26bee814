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

from runtime import Job, Rank, Receive, Segment, Send, Tensor, main

JOB = Job(
    model="model.onnx",
    window=8,
    source=0,
    sink=2,
    inputs=(Tensor("input", "float32", (1, 4)),),
    between=(
        Tensor("Buff1", "float32", (1, 4)),
        Tensor("Buff2", "float32", (1, 4)),
        Tensor("Buff3", "float32", (1, 4)),
        Tensor("Buff4", "float32", (1, 4)),
    ),
    outputs=(Tensor("output", "float32", (1, 4)),),
    ranks=(
        # 2 layers, "MaxPool1" to "Add1"
        Rank(
            0,
            "edge01_arm123",
            board="edge01",
            host="192.168.1.11",
            accelerator="cpu",
            cores=(1, 2, 3),
            engine="onnxruntime",
            receives=(Receive("Buff2", source=1), Receive("Buff3", source=2)),
            runs=(
                Segment("submodels/edge01_arm123.0.onnx", inputs=("input",), outputs=("Buff1",)),
                Segment(
                    "submodels/edge01_arm123.1.onnx",
                    inputs=("Buff2", "Buff3"),
                    outputs=("Buff4",),
                ),
            ),
            sends=(Send("Buff1", to=1), Send("Buff1", to=2), Send("Buff4", to=2)),
        ),
        # 1 layer, "FC1" to "FC1"
        Rank(
            1,
            "edge01_gpu",
            board="edge01",
            host="192.168.1.11",
            accelerator="gpu",
            cores=(0,),
            engine="onnxruntime",
            options={"provider": "CUDAExecutionProvider"},
            receives=(Receive("Buff1", source=0),),
            runs=(Segment("submodels/edge01_gpu.0.onnx", inputs=("Buff1",), outputs=("Buff2",)),),
            sends=(Send("Buff2", to=0),),
        ),
        # 2 layers, "Conv1" to "Relu1"
        Rank(
            2,
            "edge04_arm45",
            board="edge04",
            host="192.168.1.14",
            accelerator="cpu",
            cores=(4, 5),
            engine="onnxruntime",
            receives=(Receive("Buff1", source=0), Receive("Buff4", source=0)),
            runs=(
                Segment("submodels/edge04_arm45.0.onnx", inputs=("Buff1",), outputs=("Buff3",)),
                Segment("submodels/edge04_arm45.1.onnx", inputs=("Buff4",), outputs=("output",)),
            ),
            sends=(Send("Buff3", to=0),),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB))
