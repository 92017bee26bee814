"""Frames of a camera."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import JobError
from .arrivals import Arrivals, Live
from .video_source import CapturedSource, load_opencv

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..job import Tensor
    from ..options import RunOptions

_BACKEND = "CAP_V4L2"
_MAX_BYTES = 1 << 30
"""Of frames that wait."""
_JOIN_TIMEOUT_S = 1.0


class CameraSource(CapturedSource):
    """What a camera of the source's board sees, when it sees it.

    A thread captures. Frames wait in a queue of bounded size; the camera does not wait for them.
    """

    prefix = "camera:"
    usage = ("camera:N",)
    description = "camera:N"
    reads_files = False
    is_live = True

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        """Check the options; no camera is needed for it."""
        super().__init__(options, inputs)
        if options.fps is not None or options.arrivals is not None or options.pull:
            raise JobError(
                "--input: frames of a camera come when it makes them: leave out --fps, --period-ms,"
                " --arrivals and --pull"
            )
        self._device = _device(self._name)
        self._capture: Any = None
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def start(self, arrivals: Arrivals) -> None:
        assert isinstance(arrivals, Live)
        cv2 = load_opencv()
        with suppress(PermissionError):  # said below
            if not self._device.is_char_device():
                raise JobError(f"{self._name}: there is no camera {self._device}")
        capture = cv2.VideoCapture(str(self._device), getattr(cv2, _BACKEND))
        if not capture.isOpened():
            raise JobError(
                f"{self._name}: {self._device} cannot be opened as a camera: it may be in use, or"
                " not accessible (group 'video')"
            )
        self._capture = capture
        height, width = self._size_of(capture)
        nbytes = 3 * height * width * arrivals.capacity
        if nbytes > _MAX_BYTES:
            raise JobError(
                f"{self._name}: {arrivals.capacity} waiting frames of {height}x{width} pixels take"
                f" {nbytes / 1e9:.1f} GB; reduce --queue"
            )
        self._arrivals = arrivals
        self._thread = threading.Thread(target=self._run, name="camera", daemon=True)
        self._thread.start()

    def pixels(self, index: int) -> NDArray[Any]:
        """Return a captured frame, once."""
        pixels: NDArray[Any] = self._arrivals.content.pop(index)
        return pixels

    def close(self) -> None:
        self._is_closed = True
        if self._thread is not None:
            self._thread.join(_JOIN_TIMEOUT_S)
        if self._capture is not None and not (self._thread and self._thread.is_alive()):
            self._capture.release()

    def _run(self) -> None:
        while not self._is_closed:
            was_captured, pixels = self._capture.read()
            if not was_captured:
                self._arrivals.fail(f"{self._name}: gives no more frames: was it unplugged?")
                return
            self._arrivals.arrive(pixels)


def _device(name: str) -> Path:
    device = name.removeprefix(CameraSource.prefix)
    if device.isascii() and device.isdigit() and len(device) < 4:
        return Path(f"/dev/video{int(device)}")
    if device.startswith("/dev/"):
        return Path(device)
    raise JobError(f"--input: {name!r} names no camera; expected camera:0 or camera:/dev/video0")


SOURCE = CameraSource
