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

Ranks take turns: the segments of one with turns=Turns(period, positions) handle the frames whose
number, modulo the period, is one of the positions. A tensor goes from rank to rank in the frames
that both of them handle.

Frames enter at rank 0 and leave at rank 3; at most 8 are inside at once.

The first frames, if a segment takes one step and messages take hardly any time.
Of ranks in turn, one that handles a third of the frames takes three steps.
In a cell, f3 is frame 3; a frame under out is a result.

  step  rank 0  rank 1  rank 2  rank 3  out
     0  f0      .       .       .
     1  f1      f0      .       .
     2  f2      .       f1      f0      f0
     3  f3      f2      f1      .
     4  f4      f2      f1      .
     5  f5      f3      f4      f1      f1
     6  f6      f5      f4      f2      f2
     7  f7      f5      f4      f3      f3

Steps 5 to 7 repeat: 3 frames in 3 steps.
"""

from runtime import Job, Rank, Receive, Segment, Send, Tensor, Turns, main

JOB = Job(
    model="model.onnx",
    window=8,
    source=0,
    sink=3,
    inputs=(Tensor("x", "float32", (1, 4)),),
    between=(
        Tensor("a", "float32", (1, 4)),
        Tensor("b", "float32", (1, 4)),
        Tensor("c", "float32", (1, 4)),
    ),
    outputs=(Tensor("y", "float32", (1, 4)),),
    ranks=(
        # 1 layer, "conv" to "conv"
        Rank(
            0,
            "edge01_cpu0",
            board="edge01",
            host="edge01",
            accelerator="cpu",
            cores=(0,),
            engine="onnxruntime",
            runs=(Segment("submodels/edge01_cpu0.0.onnx", inputs=("x",), outputs=("a", "b")),),
            sends=(Send("a", to=1), Send("a", to=2), Send("b", to=3)),
        ),
        # 1 layer, "fc" to "fc"
        Rank(
            1,
            "edge02_cpu0-2",
            board="edge02",
            host="edge02",
            accelerator="cpu",
            cores=(1,),
            engine="onnxruntime",
            turns=Turns(3, (0, 2)),
            receives=(Receive("a", source=0),),
            runs=(Segment("submodels/edge02_cpu0-2.0.onnx", inputs=("a",), outputs=("c",)),),
            sends=(Send("c", to=3),),
        ),
        # 1 layer, "fc" to "fc"
        Rank(
            2,
            "edge03_cpu0",
            board="edge03",
            host="edge03",
            accelerator="cpu",
            cores=(2,),
            engine="onnxruntime",
            turns=Turns(3, (1,)),
            receives=(Receive("a", source=0),),
            runs=(Segment("submodels/edge03_cpu0.0.onnx", inputs=("a",), outputs=("c",)),),
            sends=(Send("c", to=3),),
        ),
        # 1 layer, "add" to "add"
        Rank(
            3,
            "edge01_cpu3",
            board="edge01",
            host="edge01",
            accelerator="cpu",
            cores=(3,),
            engine="onnxruntime",
            receives=(Receive("b", source=0), Receive("c", source=1), Receive("c", source=2)),
            runs=(Segment("submodels/edge01_cpu3.0.onnx", inputs=("b", "c"), outputs=("y",)),),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB))
