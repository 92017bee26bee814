#!/usr/bin/env python3
"""SPMD driver of a sliced neural network: every MPI rank runs this file.

The rank's number selects its block in RANKS. A block says, for each frame, which tensors
the rank receives from whom, which sub-models it runs on its accelerator, and which tensors it
sends to whom. The library in the folder runtime/ does the rest: it overlaps receiving and
sending with computing, keeps frames in order, and ends all ranks if one fails.

plan.json is authoritative. The blocks are compared with it at the start, so a change of the
mapping needs a new build.

    mpirun --map-by rankfile:file=rankfile --bind-to none --hostfile hostfile python driver.py --frames 10

Frames enter at rank 0 and leave at rank 0; at most 2 are inside at once.

The first frames, if a segment takes one step and messages take hardly any time.
In a cell, f3 is frame 3; a frame under out is a result.

  step  rank 0  out
     0  f0      f0

All further steps are like step 0: 1 frame in each.
"""

from runtime import Rank, Receive, Segment, Send, main

MODEL = "model.onnx"
PLAN_SHA256 = "0e4886708da83592f4092a17d7e9b19efac0e29046ccdf9d7a74de815173fe1d"

RANKS = {
    # 2 layers, "conv" to "relu"
    0: Rank(
        key="board_cpu0",
        host="board",
        accelerator="cpu",
        cores=(0,),
        engine="onnxruntime",
        receives=(
        ),
        segments=(
            Segment(
                "submodels/board_cpu0.0.onnx",
                inputs=("x",),
                outputs=("y",),
            ),
        ),
        sends=(
        ),
    ),
}

if __name__ == "__main__":
    raise SystemExit(main(__file__, PLAN_SHA256, RANKS))
