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

from numpy.typing import NDArray

from ..errors import JobError, reason_of
from ..frame_records import RecordForm
from ..job import Job, Tensor
from ..keeper import is_kept
from ..options import RunOptions
from . import Sink
from .results import MAGIC


class ResultsWriter(Sink):
    @classmethod
    def open(cls, job: Job, options: RunOptions) -> Sink | None:
        """Return the writer of ``--results``; ``None`` if the keeper takes the results."""
        return None if is_kept(options.inputs) else cls(options.results, job.sha256, job.outputs)

    def __init__(self, path: Path, job_sha256: str, outputs: Sequence[Tensor]) -> None:
        self._path = path
        head = {
            "job_sha256": job_sha256,
            "outputs": [
                [spec.name, spec.dtype, list(spec.shape), *([spec.symbols] if spec.symbols else [])]
                for spec in outputs
            ],
        }
        self._form = RecordForm(outputs)
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
        """Append one frame, in one call of the system."""
        head = self._form.head_of(frame, time.monotonic(), outputs)
        record: list[Any] = [head, *outputs]
        try:
            count = os.writev(self._file.fileno(), record)
            if count < len(head) + sum(values.nbytes for values in outputs):
                self._write(memoryview(b"".join(record))[count:])
        except OSError as error:
            raise self._failure(error) from None

    def _write(self, data: memoryview) -> None:
        while data:
            data = data[self._file.write(data) :]

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()

    def _failure(self, error: OSError) -> JobError:
        return JobError(f"results file {self._path}: {reason_of(error)}")


def _claim(descriptor: int) -> None:
    """Empty a file that no other job writes."""
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
