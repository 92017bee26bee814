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

from runtime import Job, Rank, Receive, Route, Segment, Send, Tensor, Turns, main

JOB = Job(
    model="model.onnx",
    window=2,
    source=0,
    sink=0,
    inputs=(Tensor("input", "float32", (1, 4)),),
    between=(
        Tensor("Buff1", "float32", (1, 4)),
        Tensor("Buff2", "float32", (1, 4)),
        Tensor("Buff3", "float32", (1, 4)),
        Tensor("Buff4", "float32", (1, 4)),
    ),
    outputs=(Tensor("output", "float32", (1, 4)),),
    ranks=(
        # 5 layers, "MaxPool1" to "Relu1"
        Rank(
            0,
            "board_cpu0",
            board="board",
            host="board",
            accelerator="cpu",
            cores=(0,),
            engine="onnxruntime",
            runs=(Segment("submodels/board_cpu0.0.onnx", inputs=("input",), outputs=("output",)),),
            surge=Route(
                receives=(
                    Receive("Buff2", source=1),
                    Receive("Buff2", source=2),
                    Receive("Buff3", source=3),
                    Receive("output", source=3),
                ),
                runs=(
                    Segment("submodels/board_cpu0.1.onnx", inputs=("input",), outputs=("Buff1",)),
                    Segment(
                        "submodels/board_cpu0.2.onnx",
                        inputs=("Buff2", "Buff3"),
                        outputs=("Buff4",),
                    ),
                ),
                sends=(
                    Send("Buff1", to=1),
                    Send("Buff1", to=2),
                    Send("Buff1", to=3),
                    Send("Buff4", to=3),
                ),
            ),
        ),
        # only on the route for a surge
        Rank(
            1,
            "board_cpu1",
            board="board",
            host="board",
            accelerator="cpu",
            cores=(1,),
            engine="onnxruntime",
            surge=Route(
                turns=Turns(3, (0, 2)),
                receives=(Receive("Buff1", source=0),),
                runs=(
                    Segment("submodels/board_cpu1.0.onnx", inputs=("Buff1",), outputs=("Buff2",)),
                ),
                sends=(Send("Buff2", to=0),),
            ),
        ),
        # only on the route for a surge
        Rank(
            2,
            "board_cpu2",
            board="board",
            host="board",
            accelerator="cpu",
            cores=(2,),
            engine="onnxruntime",
            surge=Route(
                turns=Turns(3, (1,)),
                receives=(Receive("Buff1", source=0),),
                runs=(
                    Segment("submodels/board_cpu2.0.onnx", inputs=("Buff1",), outputs=("Buff2",)),
                ),
                sends=(Send("Buff2", to=0),),
            ),
        ),
        # only on the route for a surge
        Rank(
            3,
            "board_cpu3",
            board="board",
            host="board",
            accelerator="cpu",
            cores=(3,),
            engine="onnxruntime",
            surge=Route(
                receives=(Receive("Buff1", source=0), Receive("Buff4", source=0)),
                runs=(
                    Segment("submodels/board_cpu3.0.onnx", inputs=("Buff1",), outputs=("Buff3",)),
                    Segment("submodels/board_cpu3.1.onnx", inputs=("Buff4",), outputs=("output",)),
                ),
                sends=(Send("Buff3", to=0), Send("output", to=0)),
            ),
        ),
    ),
    surge_window=11,
)

if __name__ == "__main__":
    raise SystemExit(main(JOB))
