"""Small videos whose frames are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray

from rankslice.backend.runtime.job import TensorSpec

PICTURE = TensorSpec("x", "float32", (1, 3, 4, 4))
RELUS = onnx.parser.parse_model(
    """
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3,4,4] x) => (float[1,3,4,4] y) { a = Relu(x) y = Relu(a) }
    """
)
"""A model of layers ``a`` and ``y`` that returns its input."""

STEP = 8
"""Grey levels between one frame and the next."""


def write_video(
    path: Path, frames: int, *, fps: float = 25.0, size: tuple[int, int] = (24, 32)
) -> str:
    """Write a video of one colour per frame: grey of level ``STEP * n``; return its name.

    Args:
        path: ``.avi`` has Motion JPEG, others MPEG-4.
        frames: how many.
        fps: its rate.
        size: height and width.
    """
    code = cv2.VideoWriter.fourcc(*("MJPG" if path.suffix == ".avi" else "mp4v"))
    writer = cv2.VideoWriter(str(path), code, fps, size[::-1])
    for number in range(frames):
        writer.write(np.full((*size, 3), STEP * number % 256, np.uint8))
    writer.release()
    return str(path)


def number_of(frame: NDArray[Any]) -> int:
    """Return which frame of the video this one is: codecs change grey levels a little."""
    return round(255 * float(frame.mean()) / STEP)
