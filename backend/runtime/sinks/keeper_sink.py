"""Sends results to the keeper of the frames."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, reason_of
from ..frame_records import Failure, RecordForm
from ..job import Job, Tensor
from ..keeper import END, FAILED, ROLE_SINK, connect, is_kept, send
from ..options import RunOptions
from . import Sink


class KeeperSink(Sink):
    @classmethod
    def open(cls, job: Job, options: RunOptions) -> Sink | None:
        """Return it if the keeper has the frames, or the launcher wants results as they come."""
        return cls(job.outputs) if options.stream or is_kept(options.inputs) else None

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._form = RecordForm(outputs)
        self._connection = connect(ROLE_SINK)

    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        head = self._form.head_of(frame, time.monotonic(), outputs)
        self._send(head, [np.ascontiguousarray(values) for values in outputs])

    def fail(self, frame: int, failure: Failure) -> None:
        self._send(self._form.head_alone(frame | FAILED) + failure.to_bytes(), ())

    def finish(self) -> None:
        self._send(self._form.head_alone(END), ())

    def _send(self, head: bytes, tensors: Sequence[NDArray[Any]]) -> None:
        begin = time.perf_counter()
        try:
            send(self._connection, head, tensors)
        except OSError as error:
            raise JobError(f"the keeper of the frames: {reason_of(error)}") from None
        self.waited_s += time.perf_counter() - begin

    def close(self) -> None:
        self._connection.close()


SINK = KeeperSink
