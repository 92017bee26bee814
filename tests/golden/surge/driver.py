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

There are two routes. Frames take that under surge=Route(...) while more come than the usual one can
handle. The source changes the route when no frame is inside.

Frames enter at rank 0 and leave at rank 0; at most 2 are inside at once.
On the second route at most 11 are.

The first frames, if a segment takes one step and messages take hardly any time.
Of ranks in turn, one that handles a third of the frames takes three steps.
In a cell, 1:f3 is frame 3 in segment 1 of the rank; a frame under out is a result.

On the usual route:

  step  rank 0  out
     0  0:f0    f0

All further steps are like step 0: 1 frame in each.

On the second route:

  step  rank 0  rank 1  rank 2  rank 3  out
     0  1:f0    .       .       .
     1  1:f1    0:f0    .       0:f0
     2  1:f2    .       0:f1    0:f1
     3  2:f0    0:f2    0:f1    0:f2
     4  1:f3    0:f2    0:f1    1:f0    f0
     5  1:f4    0:f3    .       0:f3
     6  2:f1    .       0:f4    0:f4
     7  2:f2    .       0:f4    1:f1    f1
     8  2:f3    .       0:f4    1:f2    f2
     9  1:f5    .       .       1:f3    f3
    10  2:f4    0:f5    .       0:f5
    11  1:f6    0:f5    .       1:f4    f4
    12  1:f7    0:f6    .       0:f6
    13  2:f5    .       0:f7    0:f7
    14  2:f6    .       0:f7    1:f5    f5
    15  1:f8    .       0:f7    1:f6    f6
    16  1:f9    0:f8    .       0:f8
    17  2:f7    0:f8    .       0:f9
    18  1:f10   0:f9    .       1:f7    f7

Steps 13 to 18 repeat: 3 frames in 6 steps.
"""

from runtime import Rank, Receive, Route, Segment, Send, Turns, main

MODEL = "model.onnx"
PLAN_SHA256 = "0257430063b47ee07fb1351904fcc8186543b463e4e7945b25e49d3459f95d13"

RANKS = {
    # 5 layers, "MaxPool1" to "Relu1"
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
                inputs=("input",),
                outputs=("output",),
            ),
        ),
        sends=(
        ),
        surge=Route(
            receives=(
                Receive("Buff2", source=1, channel=4),
                Receive("Buff2", source=2, channel=5),
                Receive("Buff3", source=3, channel=6),
                Receive("output", source=3, channel=8),
            ),
            segments=(
                Segment(
                    "submodels/board_cpu0.1.onnx",
                    inputs=("input",),
                    outputs=("Buff1",),
                ),
                Segment(
                    "submodels/board_cpu0.2.onnx",
                    inputs=("Buff2", "Buff3"),
                    outputs=("Buff4",),
                ),
            ),
            sends=(
                Send("Buff1", destination=1, channel=1),
                Send("Buff1", destination=2, channel=2),
                Send("Buff1", destination=3, channel=3),
                Send("Buff4", destination=3, channel=7),
            ),
        ),
    ),
    # only on the route for a surge
    1: Rank(
        key="board_cpu1",
        host="board",
        accelerator="cpu",
        cores=(1,),
        engine="onnxruntime",
        receives=(
        ),
        segments=(
        ),
        sends=(
        ),
        surge=Route(
            receives=(
                Receive("Buff1", source=0, channel=1),
            ),
            segments=(
                Segment(
                    "submodels/board_cpu1.0.onnx",
                    inputs=("Buff1",),
                    outputs=("Buff2",),
                ),
            ),
            sends=(
                Send("Buff2", destination=0, channel=4),
            ),
            turns=Turns(3, (0, 2)),
        ),
    ),
    # only on the route for a surge
    2: Rank(
        key="board_cpu2",
        host="board",
        accelerator="cpu",
        cores=(2,),
        engine="onnxruntime",
        receives=(
        ),
        segments=(
        ),
        sends=(
        ),
        surge=Route(
            receives=(
                Receive("Buff1", source=0, channel=2),
            ),
            segments=(
                Segment(
                    "submodels/board_cpu2.0.onnx",
                    inputs=("Buff1",),
                    outputs=("Buff2",),
                ),
            ),
            sends=(
                Send("Buff2", destination=0, channel=5),
            ),
            turns=Turns(3, (1,)),
        ),
    ),
    # only on the route for a surge
    3: Rank(
        key="board_cpu3",
        host="board",
        accelerator="cpu",
        cores=(3,),
        engine="onnxruntime",
        receives=(
        ),
        segments=(
        ),
        sends=(
        ),
        surge=Route(
            receives=(
                Receive("Buff1", source=0, channel=3),
                Receive("Buff4", source=0, channel=7),
            ),
            segments=(
                Segment(
                    "submodels/board_cpu3.0.onnx",
                    inputs=("Buff1",),
                    outputs=("Buff3",),
                ),
                Segment(
                    "submodels/board_cpu3.1.onnx",
                    inputs=("Buff4",),
                    outputs=("output",),
                ),
            ),
            sends=(
                Send("Buff3", destination=0, channel=6),
                Send("output", destination=0, channel=8),
            ),
        ),
    ),
}

if __name__ == "__main__":
    raise SystemExit(main(__file__, PLAN_SHA256, RANKS))
