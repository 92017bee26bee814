"""Frames that come in on standard input."""

from __future__ import annotations

import io
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import JobError, reason_of
from ..keeper import ROLE_SOURCE, STREAM, VARIABLE, connect, is_streamed
from . import EndOfStreamError, Source, write_frame
from .json_lines_source import check_types, longest_line, read_line, values_of_line

if TYPE_CHECKING:
    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot

_MAGIC = b"\x93NUMPY"
"""Begins an array of ``numpy.save``."""
_BUFFER_BYTES = 1 << 16


class StreamSource(Source):
    """Frames on the launcher's standard input, one after the other, until it ends.

    They are lines of JSON, as in a ``.jsonl`` file, or arrays as ``numpy.save`` writes them: for
    each frame one per model input, in the model's order. The launcher sends what it reads through a
    connection, for not every mpirun forwards it.
    """

    usage = (STREAM,)
    reads_files = False

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        return is_streamed(inputs)

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        self.frames = options.frames
        self._inputs = inputs
        self._connection: socket.socket | None = None
        self._next = 0

    def start(self, arrivals: object) -> None:
        if VARIABLE not in os.environ:
            raise JobError(
                f"--input {STREAM}: 'rankslice run' alone can read standard input, not the mpirun"
                " line"
            )
        self._connection = connect(ROLE_SOURCE)
        self._stream = io.BufferedReader(_Waiting(self, self._connection), _BUFFER_BYTES)

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        """Read the next frame into the slots; those before it are left out."""
        while self._next <= index:
            name = f"standard input: frame {self._next}"
            self._next += 1
            try:
                self._read(name, slots)
            except OSError as error:
                raise JobError(f"{name}: {reason_of(error)}") from None

    def _read(self, name: str, slots: Sequence[Slot]) -> None:
        begin = self._stream.peek(len(_MAGIC))[:1]
        if not begin:
            raise EndOfStreamError
        if begin == _MAGIC[:1]:
            from .numpy_files import read_array

            for spec, slot in zip(self._inputs, slots, strict=True):
                read_array(self._stream, name, spec, slot)
            return
        check_types(self._inputs)
        line = read_line(self._stream, longest_line(self._inputs), name)
        write_frame(values_of_line(line, name, self._inputs), slots)

    def end(self) -> None:
        """Take what has come so far for all there is."""
        if self._connection is not None:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _Waiting(io.RawIOBase):
    """What comes through a connection; the source notes how long it waits for it."""

    def __init__(self, source: Source, connection: socket.socket) -> None:
        self._source, self._connection = source, connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Wait for bytes; return how many have come: 0 at the end."""
        begin = time.perf_counter()
        count = self._connection.recv_into(buffer)
        self._source.waited_s += time.perf_counter() - begin
        return count


SOURCE = StreamSource
