"""The tensors that a rank has of some frames, in a file of its own.

The file begins with a line of magic, then a line of JSON that names the rank's tensors; then follow
the records: frame number (uint64), place of the tensor in that list (uint32), bytes of the values
(uint64), the sizes (uint32) that it has in this frame, and its values as they lie in slots. Each
tensor is there once per frame: as the rank made it, else as it got it.
"""

from __future__ import annotations

import json
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import JobError, reason_of
from .job import ALL, Job, Tensor, Turns
from .options import RunOptions
from .sizes import Slot, values_in
from .sources.switching import ROUTE_NAMES

MAGIC = b"rankslice tensors 2\n"
NAME = "tensors-"
"""Of a rank's file, before the number of the rank."""
RECORD = struct.Struct("<QIQ")
"""Number of the frame, place of the tensor in the head, bytes of the values. Sizes follow."""
_SIZE_BYTES = 4

TakeFrame = Callable[[int, Sequence[NDArray[Any]], Sequence[Slot]], None]
"""Takes a frame's number, and what a stage has read and written."""


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A tensor that a rank has."""

    spec: Tensor
    turns: Turns
    """The frames in which the rank has it."""
    made: Turns | None
    """Those in which the rank makes it, or lets it in; ``None``: none of them."""

    @property
    def max_bytes(self) -> int:
        return RECORD.size + _SIZE_BYTES * len(self.spec.shape) + self.spec.nbytes


@dataclass(frozen=True, slots=True)
class RecordedFrames:
    """Which frames are recorded."""

    first: int
    count: int
    route: int = 0
    """Number of the way that all of them take."""

    def __contains__(self, frame: int) -> bool:
        return self.first <= frame < self.first + self.count


def recorded_frames(job: Job, options: RunOptions) -> RecordedFrames:
    """Read from the options which frames are recorded.

    Raises:
        JobError: frames may change the route, so that ranks count them differently.
    """
    route = 0
    if job.surge is not None:
        if options.switch not in ROUTE_NAMES:
            raise JobError(
                "frames of a job with two routes are recorded on one of them: --switch normal or"
                " --switch surge"
            )
        route = ROUTE_NAMES.index(options.switch)
    return RecordedFrames(options.record_first, options.record_frames, route)


def kept_tensors(job: Job, rank: int, route: int = 0) -> tuple[KeptTensor, ...]:
    """List the tensors that a rank has on a route, by first use."""
    job = job.routes[route]
    own = job.ranks[rank].turns
    tensors: dict[str, KeptTensor] = {}

    def add(name: str, turns: Turns, made: Turns | None) -> None:
        kept = tensors.setdefault(name, KeptTensor(job.tensors[name], turns, made))
        turns = ALL if ALL in (turns, kept.turns) else turns
        tensors[name] = replace(kept, turns=turns, made=kept.made or made)

    if rank == job.source:
        for spec in job.inputs:
            add(spec.name, ALL, ALL)
    for segment in job.segments_of(rank):
        for name in segment.inputs:
            add(name, own, None)
        for name in segment.outputs:
            add(name, own, own)
    if rank == job.sink:
        for spec in job.outputs:
            add(spec.name, ALL, None)
    return tuple(tensors.values())


def max_bytes(job: Job, rank: int, frames: RecordedFrames) -> int:
    """Largest size of a rank's file."""
    nbytes = len(head_of(job, rank, frames))
    for tensor in kept_tensors(job, rank, frames.route):
        before, until = map(tensor.turns.count_in, (frames.first, frames.first + frames.count))
        nbytes += tensor.max_bytes * (until - before)
    return nbytes


def head_of(job: Job, rank: int, frames: RecordedFrames) -> bytes:
    """Make the head of a rank's file; nothing in it depends on the run."""
    head = {
        "job_sha256": job.sha256,
        "rank": rank,
        "first": frames.first,
        "frames": frames.count,
        "route": frames.route,
        "tensors": [
            [kept.spec.name, kept.spec.dtype, list(kept.spec.shape), list(kept.spec.symbols)]
            for kept in kept_tensors(job, rank, frames.route)
        ],
    }
    return MAGIC + json.dumps(head).encode() + b"\n"


class Recorder:
    """Writes a rank's file; any thread may add to it."""

    def __init__(self, folder: Path, job: Job, rank: int, frames: RecordedFrames) -> None:
        """Make the file, with room for all that may come.

        Raises:
            JobError: there is no room, or the file cannot be written.
        """
        self._path = folder / f"{NAME}{rank}"
        self._frames = frames
        kept = kept_tensors(job, rank, frames.route)
        self._numbers = {tensor.spec.name: number for number, tensor in enumerate(kept)}
        self._specs = [tensor.spec for tensor in kept]
        self._written: set[tuple[int, int]] = set()
        self._lock = threading.Lock()
        self._path.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._file = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise self._failure(error) from None
        self._end = 0
        try:
            os.posix_fallocate(self._file, 0, max_bytes(job, rank, frames))
            self._append(head_of(job, rank, frames))
        except OSError as error:
            self.close()
            raise self._failure(error) from None

    @property
    def route(self) -> int:
        return self._frames.route

    def of_stage(self, inputs: Sequence[str], outputs: Sequence[str]) -> TakeFrame:
        """Make the recorder of a stage that reads and writes these tensors."""

        def take(frame: int, read: Sequence[NDArray[Any]], written: Sequence[Slot]) -> None:
            if frame in self._frames:
                arrays = [*read, *map(values_in, written[: len(outputs)])]
                for name, values in zip((*inputs, *outputs), arrays, strict=True):
                    self._add(frame, name, values)

        return take

    def _add(self, frame: int, name: str, values: NDArray[Any]) -> None:
        number = self._numbers[name]
        spec = self._specs[number]
        shape = values.shape if spec.is_open else spec.shape
        if len(shape) != len(spec.shape):
            raise JobError(f"tensor {name!r} of packed values cannot be recorded: its size changes")
        head = RECORD.pack(frame, number, values.nbytes)
        head += struct.pack(f"<{len(shape)}I", *shape)
        with self._lock:
            if (frame, number) in self._written:
                return
            self._written.add((frame, number))
            try:
                self._append(head)
                self._append(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            except OSError as error:
                raise self._failure(error) from None

    def _append(self, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            count = os.pwrite(self._file, left, self._end)
            left, self._end = left[count:], self._end + count

    def close(self) -> None:
        """Cut off the room that was not needed."""
        os.ftruncate(self._file, self._end)
        os.close(self._file)

    def _failure(self, error: OSError) -> JobError:
        return JobError(f"recording {self._path}: {reason_of(error)}")


def expected_records(
    job: Job, rank: int, frames: RecordedFrames, completed: int
) -> Iterator[tuple[int, KeptTensor]]:
    """Yield frame and tensor of each record that a rank's file has."""
    kept = kept_tensors(job, rank, frames.route)
    numbers = range(frames.first, min(completed, frames.first + frames.count))
    for frame in numbers if kept else ():
        for tensor in kept:
            if tensor.turns.has(frame):
                yield frame, tensor
