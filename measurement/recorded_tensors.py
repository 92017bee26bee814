"""Recorded tensors, read strictly: they may come from another machine."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.errors import JobError
from rankslice.backend.runtime.job import Job, Tensor, typed_view
from rankslice.backend.runtime.recording import (
    NAME,
    RECORD,
    KeptTensor,
    RecordedFrames,
    expected_records,
    head_of,
    kept_tensors,
)
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.wording import quoted

_SHAPE = "expected the tensors of a rank, recorded by a run of this job"


@dataclass(frozen=True, slots=True)
class RankTensors:
    """What one rank has of the recorded frames."""

    path: Path
    rank: int
    kept: dict[str, KeptTensor]
    """Its tensors, by name."""
    _places: dict[tuple[int, str], tuple[int, Tensor]]
    """Where the values of a frame's tensor begin, and what they are."""

    def has(self, frame: int, name: str) -> bool:
        return (frame, name) in self._places

    def frames_of(self, name: str) -> list[int]:
        return sorted(frame for frame, tensor in self._places if tensor == name)

    def values(self, frame: int, name: str) -> NDArray[Any]:
        """Return a tensor of a frame, in the shape that it has there; read from disk.

        Raises:
            RankSliceError: the file cannot be read any more.
            KeyError: it is not there.
        """
        offset, spec = self._places[frame, name]
        try:
            raw = np.fromfile(self.path, np.uint8, spec.nbytes, offset=offset)
        except OSError as error:
            raise RankSliceError(_unreadable(self.path, error)) from None
        if raw.size < spec.nbytes:
            raise RankSliceError(Mistake(str(self.path), "is cut short", _SHAPE))
        return typed_view(spec, raw)


def read_tensors(
    folder: Path, job: Job, frames: RecordedFrames, completed: int
) -> tuple[RankTensors, ...]:
    """Read the tensors that the ranks of a job have recorded, by rank.

    Raises:
        RankSliceError: a file is missing, or not what its rank writes.
    """
    return tuple(read_rank_tensors(folder, job, rank.rank, frames, completed) for rank in job.ranks)


def read_rank_tensors(
    folder: Path, job: Job, rank: int, frames: RecordedFrames, completed: int
) -> RankTensors:
    path = folder / f"{NAME}{rank}"
    kept = kept_tensors(job, rank, frames.route)
    turns = {tensor.spec.name: tensor.turns for tensor in kept}
    places: dict[tuple[int, str], tuple[int, Tensor]] = {}
    try:
        with path.open("rb") as file:
            head = head_of(job, rank, frames)
            if file.read(len(head)) != head:
                raise RankSliceError(
                    Mistake(str(path), "is not a file of recorded tensors", _SHAPE)
                )
            for frame, name, offset, spec in _records(file, path.stat().st_size, kept):
                if (frame, name) in places:
                    raise JobError(f"it has {quoted(name)} of frame {frame} twice")
                if frame not in frames or frame >= completed or not turns[name].has(frame):
                    raise JobError(f"it has {quoted(name)} of frame {frame}, which no run records")
                places[frame, name] = offset, spec
    except OSError as error:
        raise RankSliceError(_unreadable(path, error)) from None
    except JobError as error:
        raise RankSliceError(Mistake(str(path), f"is damaged: {error}", _SHAPE)) from None
    except struct.error:
        raise RankSliceError(Mistake(str(path), "is damaged: it is cut short", _SHAPE)) from None
    # Each record is there once and belongs there: the search for a missing one ends soon.
    for frame, tensor in expected_records(job, rank, frames, completed):
        if (frame, tensor.spec.name) not in places:
            found = f"lacks {quoted(tensor.spec.name)} of frame {frame}"
            raise RankSliceError(Mistake(str(path), found, _SHAPE))
    return RankTensors(path, rank, {tensor.spec.name: tensor for tensor in kept}, places)


def _records(
    file: BinaryIO, size: int, kept: tuple[KeptTensor, ...]
) -> Iterator[tuple[int, str, int, Tensor]]:
    """Yield frame and name of each record, where its values begin, and what they are.

    Raises:
        JobError, struct.error: one is cut short, or cannot be.
    """
    while (offset := file.tell()) < size:
        frame, number, nbytes = RECORD.unpack(file.read(RECORD.size))
        if number >= len(kept):
            raise JobError(f"byte {offset} names tensor {number} of {len(kept)}")
        spec = kept[number].spec
        count = len(spec.shape)
        shape = struct.unpack(f"<{count}I", file.read(4 * count))
        here = spec.of_shape(shape)
        begin = file.tell()
        if here.nbytes != nbytes or begin + nbytes > size:
            raise JobError(f"{quoted(spec.name)} of frame {frame} has {nbytes} bytes")
        yield frame, spec.name, begin, here
        file.seek(begin + nbytes)


def _unreadable(path: Path, error: OSError) -> Mistake:
    return Mistake(str(path), f"cannot be read: {error.strerror}", _SHAPE)
