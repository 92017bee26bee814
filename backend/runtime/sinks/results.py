"""The results file: one record per frame, appended as the frames come out.

The file begins with a line of magic, then a line of JSON that names the outputs; then follow the
records: frame number (uint64), time of completion on the sink's clock (float64, seconds), the
sizes (uint32) of each output with open sizes, and the bytes of each output. Without such outputs
all records have one size. A file whose writer died has whole records up to the last frame that
came out.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError, what_is_wrong
from ..frame_records import RecordForm
from ..job import Job, Tensor, typed_view

MAGIC = b"rankslice results 2\n"
_MAX_HEAD = 1 << 20
_MAX_SIZE = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Results:
    job_sha256: str
    outputs: tuple[Tensor, ...]
    records: NDArray[np.void]
    """Fields ``frame`` and ``completed_s``. If all outputs are fixed, also ``output_0``,
    ``output_1``, ..., read from disk when used; else ``shape_N`` for each open output N."""
    _frames: tuple[Sequence[NDArray[Any]], ...]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def numbers(self) -> list[int]:
        """The numbers of its frames: frames that failed are missing."""
        numbers: list[int] = self.records["frame"].tolist()
        return numbers

    @property
    def completed_s(self) -> NDArray[np.float64]:
        """Times of completion in seconds, on the sink's clock."""
        return np.asarray(self.records["completed_s"])

    def frames(self, output: int) -> Sequence[NDArray[Any]]:
        """Return the values of one output by frame, each in its shape; read from disk when used."""
        return self._frames[output]

    def values(self, output: int) -> NDArray[Any]:
        """Return all frames of a fixed output in one array [frames, *shape].

        Raises:
            JobError: its shape may change from frame to frame.
        """
        spec = self.outputs[output]
        if spec.is_open:
            raise JobError(f"output {spec.name!r} has open sizes: its frames do not fit one array")
        dtype, shape = spec.storage
        return np.asarray(self._frames[output], dtype).reshape(len(self), *shape)

    def shapes(self, output: int) -> list[tuple[int, ...]]:
        """Return the shape of one output by frame."""
        spec = self.outputs[output]
        if not spec.is_open:
            return [spec.shape] * len(self)
        return [tuple(sizes) for sizes in self.records[f"shape_{output}"].tolist()]


class _Frames(Sequence[NDArray[Any]]):
    def __init__(
        self, form: RecordForm, output: int, raw: NDArray[np.uint8], begins: Sequence[int]
    ) -> None:
        """Take the bytes of all records, and where each of them begins."""
        self._form, self._output, self._raw, self._begins = form, output, raw, begins

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, frame: Any) -> Any:
        if isinstance(frame, slice):
            return [self[number] for number in range(*frame.indices(len(self)))]
        begin = self._begins[frame]
        specs = self._form.outputs_of(self._form.sizes(self._raw, begin))
        begin += self._form.head.size + sum(spec.nbytes for spec in specs[: self._output])
        return typed_view(specs[self._output], self._raw[begin:])


def max_bytes(outputs: Sequence[Tensor], frames: int) -> int:
    record = RecordForm(outputs).head.size + sum(spec.nbytes for spec in outputs)
    return len(MAGIC) + _MAX_HEAD + frames * record


def no_results(job: Job) -> Results:
    records = np.empty(0, np.dtype(RecordForm(job.outputs).fields))
    return Results(job.sha256, job.outputs, records, tuple(() for _ in job.outputs))


def read_results(path: Path) -> Results:
    """Open a results file, complete or cut short.

    Raises:
        JobError: it is missing, or no results file.
    """
    try:
        with path.open("rb") as file:
            if file.readline(len(MAGIC)) != MAGIC:
                raise JobError(f"{path}: not a results file, or one of another version")
            head = json.loads(file.readline(_MAX_HEAD))
            offset = file.tell()
        job_sha256 = head["job_sha256"]
        outputs = tuple(_output(*output) for output in head["outputs"])
        read = _open_records if any(spec.is_open for spec in outputs) else _fixed_records
        records, frames = read(path, offset, outputs)
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from None
    # SyntaxError: numpy reads the name of a type as if it were Python.
    except (
        *(ValueError, KeyError, TypeError, RecursionError, SyntaxError),
        *(OverflowError, MemoryError, AttributeError),
    ) as error:
        raise JobError(f"{path}: not a results file ({what_is_wrong(error)})") from None
    return Results(job_sha256, outputs, records, frames)


def _output(name: str, dtype: str, shape: Sequence[int], symbols: Sequence[str] = ()) -> Tensor:
    spec = Tensor(name, dtype, tuple(shape), tuple(symbols))
    are_sizes = all(type(size) is int and 0 <= size <= _MAX_SIZE for size in spec.shape)
    are_symbols = all(isinstance(symbol, str) for symbol in spec.symbols)
    if spec.is_open and not (are_sizes and are_symbols and len(spec.symbols) == len(spec.shape)):
        raise ValueError(f"output {name!r} has no sizes")
    return spec


_Records: TypeAlias = "tuple[NDArray[np.void], tuple[Sequence[NDArray[Any]], ...]]"
"""The records, and their values by output and frame."""


def _fixed_records(path: Path, offset: int, outputs: Sequence[Tensor]) -> _Records:
    names = [f"output_{number}" for number in range(len(outputs))]
    values = [(name, *spec.storage) for name, spec in zip(names, outputs, strict=True)]
    record = np.dtype([*RecordForm(outputs).fields, *values])  # packed, as written
    records = _mapped(path, offset, record)
    return records, tuple(np.asarray(records[name]) for name in names)  # type: ignore[misc]


def _open_records(path: Path, offset: int, outputs: Sequence[Tensor]) -> _Records:
    form = RecordForm(outputs)
    raw = _mapped(path, offset, np.dtype(np.uint8))
    heads, begins = bytearray(), array("q")
    nbytes_of = lru_cache(1024)(form.nbytes)
    begin = 0
    while begin + form.head.size <= len(raw):
        try:
            end = begin + nbytes_of(form.sizes(raw, begin))
        except JobError as error:
            fault = f"frame {len(begins)} is invalid: {error}"
            raise JobError(f"{path}: not a results file ({fault})") from None
        if end > len(raw):
            break
        heads += raw[begin : begin + form.head.size].data
        begins.append(begin)
        begin = end
    records = np.frombuffer(heads, np.dtype(form.fields))
    return records, tuple(_Frames(form, number, raw, begins) for number in range(len(outputs)))


def _mapped(path: Path, offset: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the rest of a file as an array of whole items, read from disk when used."""
    count = (path.stat().st_size - offset) // dtype.itemsize
    # A file without any cannot be mapped.
    return np.memmap(path, dtype, "r", offset, (count,)) if count else np.empty(0, dtype)


def results_of(job: Job, path: Path, *, may_lack: bool = False) -> Results:
    """Open the results file of a run of a job that came to its end, without frames that failed.

    Raises:
        JobError: it is missing or no results file, those of another job, or its frames are not in
            order.
    """
    results = read_results(path)
    if (results.job_sha256, results.outputs) != (job.sha256, job.outputs):
        raise JobError(f"{path}: has the results of another job")
    frames, times = results.records["frame"], results.completed_s
    in_order = np.array_equal(frames, np.arange(len(results), dtype=np.uint64)) or (
        may_lack and bool(np.all(frames[1:] > frames[:-1]))
    )
    if not in_order or not np.all(np.isfinite(times)) or np.any(np.diff(times) < 0):
        raise JobError(f"{path}: has frames that are out of order")
    return results
