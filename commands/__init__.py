"""The command line: options, one call each, and what is shown of it."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from rankslice.commands.app import run_program
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.option_records import MisuseError
from rankslice.views.terminal import print_line, talk

if TYPE_CHECKING:
    from types import FrameType

    from typing_extensions import Buffer

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line; exit 0 on success, 1 if input or run failed, 2 on misuse."""
    # So that a terminated build removes what it has half written.
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGALRM, _end)
    # A parent that ignores it hands that on, and exit codes of children are lost.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _checked(sys.stdout)
    try:
        _run(sys.argv[1:])
    except RankSliceError as error:
        for mistake in error.mistakes:
            print_line(talk, str(mistake), "error")
        sys.exit(2 if isinstance(error, MisuseError) else 1)
    except KeyboardInterrupt:
        talk.print("interrupted")
        sys.exit(128 + signal.SIGINT)
    sys.exit(0)


def _end(number: int, frame: FrameType | None) -> None:
    """End the program at SIGTERM; after an import, as exceptions may be lost in one."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)
            return
        frame = frame.f_back
    sys.exit(128 + signal.SIGTERM)


_AGAIN_S = 0.02


def _run(arguments: list[str]) -> None:
    try:
        run_program(arguments)
    finally:
        if sys.stdout is not None and not isinstance(sys.exc_info()[1], RankSliceError):
            sys.stdout.flush()


def _open_standard_streams() -> None:
    """Open those that are closed, or files of ours would get their numbers, and what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class _Stdout(io.FileIO):
    """Standard output whose failures are mistakes of the user's: a full disk, say."""

    has_failed = False

    def write(self, data: Buffer) -> int:
        """Write, or drop what comes after a failure."""
        if self.has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.has_failed = True
            if error.errno == errno.EPIPE:  # whoever reads it has seen enough
                sys.exit(1)
            problem = f"cannot be written: {error.strerror}"
            raise RankSliceError(Mistake("standard output", problem)) from None


def _checked(stdout: io.TextIOWrapper) -> io.TextIOWrapper:
    # A name that the terminal cannot show must not make the command fail.
    errors = "backslashreplace" if stdout.errors == "strict" else stdout.errors
    raw = _Stdout(stdout.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), stdout.encoding, errors, line_buffering=stdout.line_buffering
    )
