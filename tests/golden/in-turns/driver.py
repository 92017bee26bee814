#!/usr/bin/env python3
"""SPMD driver of a sliced neural network: every MPI rank runs this file.

The rank's number selects its block in RANKS. A block says, for each frame, which tensors
the rank receives from whom, which sub-models it runs on its accelerator, and which tensors it
sends to whom. The library in the folder runtime/ does the rest: it overlaps receiving and
sending with computing, keeps frames in order, and ends all ranks if one fails.

plan.json is authoritative. The blocks are compared with it at the start, so a change of the
mapping needs a new build.

    mpirun --map-by rankfile:file=rankfile --bind-to none --hostfile hostfile python driver.py --frames 10

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

from runtime import Rank, Receive, Segment, Send, Turns, main

MODEL = "model.onnx"
PLAN_SHA256 = "72da26c9527e12f1e1a8c53798fbdbfef999c368af47440e5585e46afce6599b"

RANKS = {
    # 1 layers, "conv" to "conv"
    0: Rank(
        key="edge01_cpu0",
        host="edge01",
        accelerator="cpu",
        cores=(0,),
        engine="onnxruntime",
        receives=(
        ),
        segments=(
            Segment(
                "submodels/edge01_cpu0.0.onnx",
                inputs=("x",),
                outputs=("a", "b"),
            ),
        ),
        sends=(
            Send("a", destination=1, channel=1),
            Send("a", destination=2, channel=2),
            Send("b", destination=3, channel=3),
        ),
    ),
    # 1 layers, "fc" to "fc"
    1: Rank(
        key="edge02_cpu0-2",
        host="edge02",
        accelerator="cpu",
        cores=(1,),
        engine="onnxruntime",
        receives=(
            Receive("a", source=0, channel=1),
        ),
        segments=(
            Segment(
                "submodels/edge02_cpu0-2.0.onnx",
                inputs=("a",),
                outputs=("c",),
            ),
        ),
        sends=(
            Send("c", destination=3, channel=4),
        ),
        turns=Turns(3, (0, 2)),
    ),
    # 1 layers, "fc" to "fc"
    2: Rank(
        key="edge03_cpu0",
        host="edge03",
        accelerator="cpu",
        cores=(2,),
        engine="onnxruntime",
        receives=(
            Receive("a", source=0, channel=2),
        ),
        segments=(
            Segment(
                "submodels/edge03_cpu0.0.onnx",
                inputs=("a",),
                outputs=("c",),
            ),
        ),
        sends=(
            Send("c", destination=3, channel=5),
        ),
        turns=Turns(3, (1,)),
    ),
    # 1 layers, "add" to "add"
    3: Rank(
        key="edge01_cpu3",
        host="edge01",
        accelerator="cpu",
        cores=(3,),
        engine="onnxruntime",
        receives=(
            Receive("b", source=0, channel=3),
            Receive("c", source=1, channel=4),
            Receive("c", source=2, channel=5),
        ),
        segments=(
            Segment(
                "submodels/edge01_cpu3.0.onnx",
                inputs=("b", "c"),
                outputs=("y",),
            ),
        ),
        sends=(
        ),
    ),
}

if __name__ == "__main__":
    raise SystemExit(main(__file__, PLAN_SHA256, RANKS))
