"""Frames from files that appear in a folder."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import JobError, reason_of
from . import EndOfStreamError, Source, only_input, open_ordinary
from .image_input import image_input
from .image_source import SUFFIXES, is_frame, load_image

if TYPE_CHECKING:
    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

_NUMPY = ".npy"
_EVERY_S = 0.05
"""Between two readings of the folder."""
_MAX_FILES = 1 << 20
"""In the folder; some 200 bytes of memory each."""

_NAMES_KEPT = 4096
_State = tuple[int, int]
"""Time of the last change in nanoseconds, and size."""


class FollowSource(Source):
    """Images and ``.npy`` files of a folder on the source's board, and those that appear in it.

    They are taken in the order of their last change, then by name, each once. A file is complete
    when two readings in succession find the same size and time of change. Hidden files are left
    out.
    """

    prefix = "follow:"
    usage = ("follow:FOLDER",)
    description = "follow:FOLDER"
    reads_files = False
    names_late = True

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        """Check the options; the folder need not be on this machine."""
        self.folder = Path(options.inputs[0].removeprefix(self.prefix))
        self._input = only_input(options, inputs)
        self._preprocessing = options.preprocessing
        self.frames = options.frames
        self._seen: dict[str, _State] = {}
        """What the last reading found of files that have not been taken."""
        self._taken: set[str] = set()
        self._names: dict[int, str] = {}
        self._ready: deque[str] = deque()
        self._ended = threading.Event()
        self._next = 0

    def start(self, arrivals: object) -> None:
        self._poll()

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Wait for a complete file and read it; those before it are left out."""
        while True:
            name = self._take()
            self._next += 1
            if self._next > index:
                break
        path = self.folder / name
        self._names[index] = name
        self._names.pop(index - _NAMES_KEPT, None)
        if path.suffix.lower() != _NUMPY:
            load_image(path, image_input(self._input, self._preprocessing), slots[0])
            return
        from .numpy_files import read_array

        with open_ordinary(path) as file:
            read_array(file, str(path), self._input, slots[0])

    def label(self, index: int) -> str:
        """Return the name of the frame's file; of the last frames that were read alone."""
        return self._names.get(index) or super().label(index)

    def end(self) -> None:
        self._ended.set()

    def _take(self) -> str:
        begin = time.perf_counter()
        while not self._ready:
            if self._ended.wait(_EVERY_S):
                raise EndOfStreamError
            self._poll()
        self.waited_s += time.perf_counter() - begin
        return self._ready.popleft()

    def _poll(self) -> None:
        """Find the files that have become complete."""
        present: set[str] = set()
        seen: dict[str, _State] = {}
        try:
            with os.scandir(self.folder) as entries:
                frames = (entry for entry in entries if is_frame(entry.name, (*SUFFIXES, _NUMPY)))
                for entry in frames:
                    present.add(entry.name)
                    if len(present) > _MAX_FILES:
                        raise JobError(f"{self.folder}: has more than {_MAX_FILES} files")
                    if entry.name not in self._taken:
                        with suppress(FileNotFoundError):  # it is gone again
                            state = entry.stat()
                            seen[entry.name] = state.st_mtime_ns, state.st_size
        except OSError as error:
            raise JobError(f"{self.folder}: cannot be followed: {reason_of(error)}") from None
        complete = {name for name, state in seen.items() if self._seen.get(name) == state}
        self._seen = seen
        # A file that was taken away may come again.
        self._taken = (self._taken & present) | complete
        self._ready.extend(sorted(complete, key=lambda name: (seen[name][0], name)))


SOURCE = FollowSource
