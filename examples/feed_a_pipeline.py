"""Slice a network over two cores, start it as a pipeline, and give it frames."""

from __future__ import annotations

import tempfile

import numpy as np

import rankslice
from rankslice.networks.digits import digits_model, heldout_digits

LAYERS = {"local_cpu0": ["conv1..pool1"], "local_cpu1": ["conv3..softmax"]}


def main() -> None:
    images, labels = heldout_digits()
    frames = (images[:, None, None] / 256).astype(np.float32)  # 360 frames of shape (1, 1, 8, 8)
    with tempfile.TemporaryDirectory() as folder:
        built = rankslice.build(digits_model(), LAYERS, out=f"{folder}/out")
        with rankslice.open(built.folder) as pipeline:
            result = pipeline(frames[0])  # one frame, and its result
            print(f"the first digit is a {result['probabilities'].argmax()}")
            # All frames: the pipeline is kept full, and the results come in order.
            digits = [result["probabilities"].argmax() for result in pipeline.map(frames)]
    print(f"{np.mean(digits == labels):.1%} of {len(digits)} digits are right")


if __name__ == "__main__":
    main()
