"""Compare the results of a pipeline with those of the whole network in onnxruntime."""

from __future__ import annotations

import os
import tempfile

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before onnxruntime is imported

import numpy as np
import onnxruntime

import rankslice
from rankslice.networks.digits import digits_model, heldout_digits

LAYERS = {
    "local_cpu0": ["conv1..relu2", "flatten..softmax"],  # the first layers, and the last ones
    "local_cpu1": ["pool1..pool2"],
}


def main() -> None:
    images, _ = heldout_digits()
    frames = (images[:, None, None] / 256).astype(np.float32)
    whole = onnxruntime.InferenceSession(digits_model())
    expected = [whole.run(["probabilities"], {"image": frame})[0] for frame in frames]
    with tempfile.TemporaryDirectory() as folder:
        built = rankslice.build(digits_model(), LAYERS, out=f"{folder}/out")
        for segment in built.plan.segments:
            print(f"rank {segment.rank}: {', '.join(segment.layers)}")
        with rankslice.open(built.folder) as pipeline:
            results = [result["probabilities"] for result in pipeline.map(frames)]
    largest = np.abs(np.array(results) - np.array(expected)).max()
    print(f"{len(results)} frames, largest difference {largest:g}")


if __name__ == "__main__":
    main()
