"""Frames that OpenCV captures; here, from a video file."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from . import EndOfStreamError, Source, only_input, open_ordinary
from .image_input import image_input
from .image_source import pillow, write_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot
    from .image_input import Fit

_ONLY = "format_whitelist;mov,mp4,m4a,3gp,3g2,mj2,avi,matroska,webm|protocol_whitelist;file"
"""Options of FFmpeg. Playlists would name other files."""
_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
_MAX_SKIPPED = 100
"""Frames that are tried after one that cannot be read."""
_MAX_FPS = 1000.0
_MATROSKA = (b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67")
"""Begins the head and the segment."""

_MAX_PARTS = 1 << 16
"""That are looked at: a video has a part for each of its fragments, and few others."""

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


class VideoSource(CapturedSource):
    """The frames of a video, which arrive at its rate.

    With a number of frames beyond the last it begins again. A damaged frame ends what can be read,
    which is an error.
    """

    usage = ("VIDEO.mp4",)
    suffixes = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm")
    description = f"a video ({', '.join(suffixes)})"
    can_replay = True

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        super().__init__(options, inputs)
        self._path = Path(options.inputs[0])
        self._begins_again = options.frames is not None or options.unlimited
        self._next = 0
        self._capture = self._opened()
        self.size = self._size_of(self._capture)
        """Height and width of the frames."""
        fps = self._get("FPS")
        if 0 < fps <= _MAX_FPS:
            self.fps = fps
        elif options.fps is None and options.arrivals is None and not options.pull:
            raise JobError(
                f"{self._path}: gives no rate of its frames: give one (--fps), or read it as fast"
                " as possible (--pull)"
            )
        if not self._capture.grab():
            raise JobError(f"{self._path}: has no frame that can be read")
        self._rewind()

    def pixels(self, index: int) -> NDArray[Any]:
        """Decode a frame; those between the last one and it are left out."""
        import numpy as np

        if index + 1 < self._next:
            self._next = 0
            self._rewind()
        while self._next <= index:
            self._advance()
        _, pixels = self._capture.retrieve()
        if pixels is None or pixels.shape[:2] != self.size:
            problem = "cannot be decoded" if pixels is None else f"has the shape {pixels.shape}"
            height, width = self.size
            raise JobError(
                f"{self._path}: frame {index} {problem}; expected {height}x{width} pixels"
            )
        return np.asarray(pixels)

    def fit(self) -> Fit:
        return self._takes.fit(self.size, self._path.name)

    def label(self, index: int) -> str:
        return f"{self._path.name}[{index}]"

    def note(self) -> str:
        return self._takes.note(self._path.name, self.size)

    def close(self) -> None:
        self._capture.release()

    def _opened(self) -> Any:
        cv2 = load_opencv()
        open_ordinary(self._path).close()
        os.environ[_OPTIONS] = _ONLY
        try:
            # A relative name with a colon would be taken for that of a protocol.
            capture = cv2.VideoCapture(str(self._path.absolute()), cv2.CAP_FFMPEG)
        finally:
            del os.environ[_OPTIONS]
        if not capture.isOpened():
            raise JobError(
                f"{self._path}: not a video that can be read; expected {self.description}"
            )
        return capture

    def _rewind(self) -> None:
        self._capture.release()
        self._capture = self._opened()
        self._count, self._at_s = 0, 0.0

    def _advance(self) -> None:
        """Go to the next frame; after the last one, to the first if that is wanted."""
        if not self._capture.grab():
            self._check_end()
            if not self._begins_again:
                raise EndOfStreamError(self._next)
            self._rewind()
            if not self._capture.grab():
                raise JobError(f"{self._path}: cannot be read any more")
        self._next += 1
        self._count += 1
        self._at_s = max(self._at_s, 1e-3 * self._get("POS_MSEC"))

    def _check_end(self) -> None:
        """Raise an error if frames are missing.

        The container's number of frames proves nothing: it counts those that a cut leaves out, or
        is an estimate by the length of the sound. Only AVI files have neither. But OpenCV also
        ends at a damaged frame; then the next ones can be read.
        """
        promised, fps = self._get("FRAME_COUNT"), self._get("FPS")
        lacks_time = self._path.suffix.lower() == ".avi" and self._at_s * fps < 0.9 * promised
        if self._count < promised and (
            lacks_time
            or any(self._capture.grab() for _ in range(_MAX_SKIPPED))
            or is_cut_short(self._path)
        ):
            raise JobError(
                f"{self._path}: only {self._count} frames can be read: the next one is damaged, or"
                " the file was cut short"
            )

    def _get(self, name: str) -> float:
        value = self._capture.get(getattr(load_opencv(), f"CAP_PROP_{name}"))
        return float(value)


def is_cut_short(path: Path) -> bool:
    """Return whether an MP4, AVI or Matroska file is shorter than it says itself."""
    place = 0
    with open_ordinary(path) as file:
        size = os.fstat(file.fileno()).st_size
        for _ in range(_MAX_PARTS):
            file.seek(place)
            length = _part_bytes(file.read(16).ljust(16, b"\0"))
            place += length
            if not length or place >= size:
                return place > size
    return False


def _part_bytes(head: bytes) -> int:
    """Return the size of a part of a file, by its first bytes; 0: it is not known."""
    if head.startswith(b"RIFF"):
        return 8 + int.from_bytes(head[4:8], "little")
    if head[:4] in _MATROSKA:
        width = 9 - head[4].bit_length()
        unknown = (1 << 7 * width) - 1
        length = int.from_bytes(head[4 : 4 + width], "big") & unknown
        return 0 if length == unknown else 4 + width + length
    length = int.from_bytes(head[:4], "big")  # of a box of an MP4 file
    length = int.from_bytes(head[8:], "big") if length == 1 else length
    return length if length >= 8 else 0


SOURCE = VideoSource
