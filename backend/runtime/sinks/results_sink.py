"""Writes the results file, as the frames come out."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, reason_of
from ..job import Job, Tensor, typed_view
from ..keeper import is_kept
from ..options import RunOptions
from ..records import RecordForm
from . import Sink
from .results import MAGIC


class ResultsWriter(Sink):
    """Appends each frame's outputs to a file."""

    @classmethod
    def open(cls, job: Job, options: RunOptions) -> Sink | None:
        """Return the writer of ``--results``; ``None`` if the keeper takes the results."""
        return None if is_kept(options.inputs) else cls(options.results, job.sha256, job.outputs)

    def __init__(self, path: Path, job_sha256: str, outputs: Sequence[Tensor]) -> None:
        """Create the file and write its head.

        Raises:
            JobError: the file cannot be written.
        """
        self._path = path
        head = {
            "job_sha256": job_sha256,
            "outputs": [
                [spec.name, spec.dtype, list(spec.shape), *([spec.symbols] if spec.symbols else [])]
                for spec in outputs
            ],
        }
        self._form = RecordForm(outputs)
        self._head = self._form.head
        most = self._head.size + sum(spec.nbytes for spec in outputs)
        self._record = memoryview(bytearray(most))
        self._fixed = None if self._form.has_sizes else self._views(outputs)
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise self._failure(error) from None
        try:
            _claim(self._file.fileno())
            self._write(memoryview(MAGIC + json.dumps(head).encode() + b"\n"))
        except OSError as error:
            self.close()
            raise self._failure(error) from None

    def write(self, frame: int, outputs: Sequence[NDArray[Any]]) -> None:
        """Append one frame.

        Raises:
            JobError: the file cannot be written; the disk is full, say.
        """
        if self._fixed is not None:
            self._head.pack_into(self._record, 0, frame, time.monotonic())
            for target, values in zip(self._fixed, outputs, strict=True):
                target[...] = values
            record = self._record
        else:
            record = self._record[: self._pack(frame, outputs)]
        try:
            count = self._file.write(record)
            if count < record.nbytes:
                self._write(record[count:])
        except OSError as error:
            raise self._failure(error) from None

    def _views(self, outputs: Sequence[Tensor]) -> list[NDArray[Any]]:
        """Return where the record has the values of outputs without open sizes."""
        record, begin = np.frombuffer(self._record, np.uint8), self._head.size
        views = []
        for spec in outputs:
            views.append(typed_view(spec, record[begin:]))
            begin += spec.nbytes
        return views

    def _pack(self, frame: int, outputs: Sequence[NDArray[Any]]) -> int:
        """Put a frame whose sizes change into the record; return where it ends."""
        sizes = self._form.sizes_of(outputs)
        self._head.pack_into(self._record, 0, frame, time.monotonic(), *sizes)
        end = self._head.size
        for values in outputs:
            begin, end = end, end + values.nbytes
            self._record[begin:end] = values.reshape(-1).view(np.uint8).data
        return end

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            self._file.close()

    def _failure(self, error: OSError) -> JobError:
        return JobError(f"results file {self._path}: {reason_of(error)}")


def _claim(descriptor: int) -> None:
    """Empty a file that no other job writes.

    Raises:
        OSError: another job writes it.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise OSError(error.errno, "another job is writing it; choose another --results") from None
    except OSError:
        pass  # a file system without locks
    os.ftruncate(descriptor, 0)


SINK = ResultsWriter
