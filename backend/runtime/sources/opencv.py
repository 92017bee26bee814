"""Frames that OpenCV captures, from video files and cameras."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from .image_sizes import ImageInput, image_input
from .image_source import pillow, write_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

MAX_PIXELS = 1 << 26
"""Of a frame; those of 8K have half as many."""
PACKAGE = "opencv-python-headless"

_QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}
"""What is wrong is told by messages of ours."""


def load_opencv() -> Any:
    """Return the module ``cv2``.

    Raises:
        JobError: it is not installed.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        import cv2
    except ImportError:
        raise JobError(
            f"videos and cameras need the package {PACKAGE} on the source board: install it, or"
            " build with --video and deploy with --venv"
        ) from None
    return cv2


def captured_input(options: RunOptions, inputs: Sequence[Tensor]) -> ImageInput:
    """Return the model input that captured frames feed.

    Raises:
        JobError: there are several, or it takes no image; or several sources are given, or pillow
            is not installed.
    """
    pillow()
    if len(options.inputs) != 1:
        raise JobError("--input: a video or a camera must be the only input")
    if len(inputs) != 1:
        raise JobError(
            f"--input: videos and cameras feed models of one input; this one has {len(inputs)}"
        )
    return image_input(inputs[0], options.preprocessing)


def size_of(capture: Any, name: str, takes: ImageInput) -> tuple[int, int]:
    """Return height and width of the frames of an opened ``cv2.VideoCapture``.

    Raises:
        JobError: they are too large, or do not fit the model input.
    """
    cv2 = load_opencv()
    height, width = (
        int(capture.get(each)) for each in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH)
    )
    if not 0 < height * width <= MAX_PIXELS:
        raise JobError(
            f"{name}: has frames of {height}x{width} pixels; expected at most {MAX_PIXELS} pixels"
        )
    takes.fit((height, width), name)
    return height, width


def write_captured(pixels: NDArray[Any], name: str, takes: ImageInput, slot: Slot) -> None:
    """Write a frame's values into a slot, as those of an image with the same pixels.

    Args:
        pixels: from ``cv2.VideoCapture.read``: uint8, [H, W, 3], blue first.
        name: of the frame, for messages.
        takes: the model input, and what the options say.
        slot: of the model input.

    Raises:
        JobError: the size does not fit.
    """
    write_image(pillow().fromarray(pixels[:, :, ::-1].copy()), name, takes, slot)
