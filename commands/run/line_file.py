"""A file of lines that grows while a run lasts, or standard output."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.output_file import STDOUT, is_null


class LineFile:
    """Writes lines; each is whole in the file once it is written."""

    def __init__(self, target: Path, option: str) -> None:
        """Take a file, which is emptied at the first line, or :data:`STDOUT`.

        Args:
            target: as :func:`~rankslice.framework.files.output_file.check_output` returns it.
            option: that names it, for messages.
        """
        self._target = target
        self._option = option
        self._descriptor: int | None = None

    def write(self, text: bytes) -> None:
        """Write a text with its line ends.

        Raises:
            RankSliceError: it cannot be written.
            SystemExit: nobody reads standard output any more.
        """
        # By its number: a thread that waits in Python's stdout would keep the program from ending.
        left = memoryview(text)
        try:
            if self._descriptor is None:
                self._descriptor = self._open()
            while left:
                left = left[os.write(self._descriptor, left) :]
        except BrokenPipeError:
            raise SystemExit(1) from None
        except OSError as error:
            place = "standard output" if self._target == STDOUT else str(self._target)
            found = f"cannot be written: {error.strerror}"
            raise RankSliceError(Mistake(place, found, f"choose another {self._option}")) from None

    def close(self) -> None:
        """Close the file; without lines it is empty.

        Raises:
            RankSliceError: it cannot be written.
        """
        self.write(b"")
        if self._target != STDOUT and self._descriptor is not None:
            os.close(self._descriptor)

    def _open(self) -> int:
        if self._target == STDOUT:
            sys.stdout.flush()
            return sys.stdout.fileno()
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._target, flags, 0o666)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
        elif not is_null(self._target):
            os.close(descriptor)
            raise OSError(0, "is not a regular file")
        return descriptor
