"""The results file: one record per frame, appended as the frames come out.

The file begins with a line of magic, then a line of JSON that names the outputs; then follow
records of fixed size: frame number (uint64), time of completion on the sink's clock (float64,
seconds), and the bytes of each output. A file whose writer died has whole records up to
the last frame that came out.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError
from ..job import Job, TensorSpec

MAGIC = b"rankslice results 1\n"
HEAD = struct.Struct("<Qd")
_MAX_HEAD = 1 << 20


@dataclass(frozen=True, slots=True)
class Results:
    """What came out of a job."""

    plan_sha256: str
    outputs: tuple[TensorSpec, ...]
    records: NDArray[np.void]
    """Fields ``frame``, ``completed_s`` and ``output_0``, ``output_1``, ...; read from disk
    when used."""

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.records)

    @property
    def completed_s(self) -> NDArray[np.float64]:
        """Times of completion in seconds, on the sink's clock."""
        return np.asarray(self.records["completed_s"])

    def values(self, output: int) -> NDArray[Any]:
        """Return all frames of one output: array [frames, *shape]."""
        return np.asarray(self.records[f"output_{output}"])


def most_bytes(outputs: Sequence[TensorSpec], frames: int) -> int:
    """Return how large a results file of so many frames can be."""
    return len(MAGIC) + _MAX_HEAD + frames * (HEAD.size + sum(spec.nbytes for spec in outputs))


def read_results(path: Path) -> Results:
    """Open a results file, complete or cut short.

    Raises:
        JobError: it is missing, or no results file.
    """
    try:
        with path.open("rb") as file:
            if file.readline(len(MAGIC)) != MAGIC:
                raise JobError(f"{path}: not a results file")
            head = json.loads(file.readline(_MAX_HEAD))
            offset = file.tell()
        plan_sha256 = head["plan_sha256"]
        outputs = tuple(
            TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in head["outputs"]
        )
        fields = [("frame", "<u8"), ("completed_s", "<f8")]
        for number, spec in enumerate(outputs):
            fields.append((f"output_{number}", *spec.storage))  # type: ignore[arg-type]
        record = np.dtype(fields)  # packed, as written
        count = (path.stat().st_size - offset) // record.itemsize
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    # SyntaxError: numpy reads the name of a type as if it were Python.
    except (
        *(ValueError, KeyError, TypeError, RecursionError, SyntaxError),
        *(OverflowError, MemoryError, AttributeError),
    ) as error:
        raise JobError(f"{path}: not a results file ({error})") from None
    # A file without records cannot be mapped.
    records = np.memmap(path, record, "r", offset, (count,)) if count else np.empty(0, record)
    return Results(plan_sha256, outputs, records)


def results_of(job: Job, path: Path) -> Results:
    """Open the results file of a run of a job that came to its end.

    Raises:
        JobError: it is missing or no results file, those of another job, or its frames are not in
            order.
    """
    results = read_results(path)
    if (results.plan_sha256, results.outputs) != (job.sha256, job.outputs):
        raise JobError(f"{path}: has the results of another job")
    frames, times = results.records["frame"], results.completed_s
    in_order = np.array_equal(frames, np.arange(len(results), dtype=np.uint64))
    if not in_order or not np.all(np.isfinite(times)) or np.any(np.diff(times) < 0):
        raise JobError(f"{path}: has frames that are out of order")
    return results
