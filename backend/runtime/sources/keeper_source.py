"""Frames from the keeper: a program outside of the job that has them."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import JobError, reason_of
from ..frame_records import RecordForm
from ..keeper import END, ROLE_SOURCE, bytes_of, connect, is_kept, receive, receive_head
from . import EndOfStreamError, Source

if TYPE_CHECKING:
    from ..job import Tensor
    from ..options import RunOptions
    from ..sizes import Slot


class KeeperSource(Source):
    """The frames that the keeper sends. It is asked for the first one when all ranks are ready."""

    usage = ()
    reads_files = False

    @classmethod
    def accepts(cls, inputs: Sequence[str]) -> bool:
        return is_kept(inputs)

    def __init__(self, options: RunOptions, inputs: Sequence[Tensor]) -> None:
        self.frames = options.frames
        self._form = RecordForm(inputs)
        self._connection: socket.socket | None = None

    def read(self, index: int, slots: Sequence[Slot]) -> None:
        from ..sizes import shaped

        if self._connection is None:
            self._connection = connect(ROLE_SOURCE)
        begin = time.perf_counter()
        try:
            head = receive_head(self._connection, self._form)
            self.waited_s += time.perf_counter() - begin
            if head is not None and head[0] == END:
                raise EndOfStreamError
            specs = self._form.outputs_of(head[1]) if head else ()
            is_whole = head is not None and all(
                receive(self._connection, bytes_of(shaped(slot, spec.shape)))
                for spec, slot in zip(specs, slots, strict=True)
            )
        except OSError as error:
            raise JobError(f"the keeper of the frames: {reason_of(error)}") from None
        if not is_whole:
            raise JobError("the program that has the frames has ended")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


SOURCE = KeeperSource
