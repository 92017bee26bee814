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

Frames enter at rank 0 and leave at rank 1; at most 4 are inside at once.

The first frames, if a segment takes one step and messages take hardly any time.
In a cell, f3 is frame 3; a frame under out is a result.

  step  rank 0  rank 1  out
     0  f0      .
     1  f1      f0      f0

All further steps are like step 1: 1 frame in each.
"""

from runtime import Facts, Job, Rank, Receive, Segment, Send, Tensor, main

JOB = Job(
    model="model.onnx",
    window=4,
    source=0,
    sink=1,
    inputs=(Tensor("x", "float32", (1, 4)),),
    between=(Tensor("a", "float32", (1, 4)),),
    outputs=(Tensor("y", "float32", (1, 4)),),
    ranks=(
        # 1 layer, "conv" to "conv"
        Rank(
            0,
            "edge05_cpu0-3",
            board="edge05",
            host="10.0.0.5",
            accelerator="cpu",
            cores=(0, 1, 2, 3),
            engine="litert",
            shared=True,
            runs=(
                Segment(
                    "submodels/edge05_cpu0-3.0.onnx",
                    inputs=("x",),
                    outputs=("a",),
                    facts=Facts(keeps="it keeps variables"),
                ),
            ),
            sends=(Send("a", to=1),),
        ),
        # 1 layer, "relu" to "relu"
        Rank(
            1,
            "edge05_npu@3",
            board="edge05",
            host="10.0.0.5",
            accelerator="npu",
            cores=(3,),
            engine="litert",
            options={"delegate": "libQnnTFLiteDelegate.so", "backend_type": "htp"},
            environment={"ADSP_LIBRARY_PATH": "/opt/qairt/dsp"},
            allow_fallback=True,
            shared=True,
            receives=(Receive("a", source=0),),
            runs=(
                Segment(
                    "submodels/edge05_npu@3.0.onnx",
                    inputs=("a",),
                    outputs=("y",),
                    facts=Facts(keeps="it keeps variables", operators=1),
                ),
            ),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(main(JOB))
