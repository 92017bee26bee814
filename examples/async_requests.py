"""Answer requests of several asyncio tasks with one pipeline."""

from __future__ import annotations

import asyncio
import tempfile
import time

import numpy as np
from numpy.typing import NDArray

import rankslice
from rankslice.networks.digits import digits_model, heldout_digits

LAYERS = {"local_cpu0": ["conv1..pool1"], "local_cpu1": ["conv3..softmax"]}


async def ask(pipeline: rankslice.Pipeline, frames: NDArray[np.float32]) -> list[int]:
    """Return the digits of frames, one request after the other, as a client would."""
    results = [await pipeline.infer(frame) for frame in frames]
    return [int(result["probabilities"].argmax()) for result in results]


async def ask_all(pipeline: rankslice.Pipeline) -> None:
    images, labels = heldout_digits()
    frames = (images[:, None, None] / 256).astype(np.float32)
    start = time.perf_counter()
    # Each client waits for its own results; together they keep the pipeline full.
    answers = await asyncio.gather(*(ask(pipeline, part) for part in np.split(frames, 8)))
    rate = len(frames) / (time.perf_counter() - start)
    right = np.mean(np.concatenate(answers) == labels)
    print(f"8 clients, {rate:.0f} requests/s, {right:.1%} right")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        built = rankslice.build(digits_model(), LAYERS, out=f"{folder}/out")
        with rankslice.open(built.folder) as pipeline:
            asyncio.run(ask_all(pipeline))


if __name__ == "__main__":
    main()
