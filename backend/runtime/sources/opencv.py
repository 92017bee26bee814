"""Frames that OpenCV captures, from video files and cameras."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import Source, only_input
from .image_input import image_input
from .image_source import pillow, write_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

MAX_PIXELS = 1 << 26
"""Of a frame; those of 8K have half as many."""

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
            "videos and cameras need the package opencv-python-headless on the source board:"
            " install it, or build with --video and deploy with --venv"
        ) from None
    return cv2


class CapturedSource(Source):
    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        pillow()
        self._takes = image_input(only_input(options, inputs), options.preprocessing)
        self._name = options.inputs[0]
        self.frames = options.frames

    @abstractmethod
    def pixels(self, index: int) -> NDArray[Any]:
        """Return a frame: uint8, [H, W, 3], blue first.

        Raises:
            EndOfStreamError: there is no such frame.
            JobError: it cannot be read.
        """

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Write a frame's values, as those of an image with the same pixels."""
        image = pillow().fromarray(self.pixels(index)[:, :, ::-1].copy())
        write_image(image, self.label(index), self._takes, slots[0])

    def _size_of(self, capture: Any) -> tuple[int, int]:
        """Check height and width of the frames of an opened ``cv2.VideoCapture``; return them."""
        cv2 = load_opencv()
        height, width = (
            int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH)
        )
        if not 0 < height * width <= MAX_PIXELS:
            raise JobError(
                f"{self._name}: has frames of {height}x{width} pixels; expected at most"
                f" {MAX_PIXELS} pixels"
            )
        self._takes.fit((height, width), self._name)
        return height, width
