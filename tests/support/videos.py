"""Small videos whose frames are known."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor

PICTURE = Tensor("x", "float32", (1, 3, 4, 4))
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


def leave_out_first(path: Path, frames: int, *, fps: float = 25.0) -> None:
    """Have the edit list of an MP4 file leave out frames, as a cut without encoding does."""
    content = bytearray(path.read_bytes())
    timescale = struct.unpack_from(">I", content, content.index(b"mdhd") + 16)[0]
    begin = content.index(b"elst") + 16  # version, number of entries and the first duration
    struct.pack_into(">I", content, begin, round(frames * timescale / fps))
    path.write_bytes(content)


def prolong(path: Path, seconds: float) -> None:
    """Give a Matroska file another duration, as sound that is longer than the pictures does."""
    content = bytearray(path.read_bytes())
    struct.pack_into(">d", content, content.index(b"\x44\x89\x88") + 3, 1e3 * seconds)
    path.write_bytes(content)
