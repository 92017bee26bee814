"""When operators ran: files of ranks, read strictly, and brought to the clock of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rankslice.backend.runtime.figures.operators import FORMAT, MOST_BYTES, NAME, VERSION
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan
from rankslice.framework.reading.untrusted_json import UntrustedJsonError, untrusted_json

_SHAPE = "expected a file of operators, made by a run of this build folder"
_Microseconds = Annotated[int, Field(ge=0, lt=1 << 50)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SegmentOperators(_Strict):
    """Spans of one segment in microseconds, on a clock of the engine's own."""

    index: Annotated[int, Field(ge=0, strict=True)]
    """Number of the segment in its rank."""
    names: tuple[str, ...]
    spans: tuple[tuple[_Microseconds, _Microseconds, _Microseconds], ...]
    """Place in the names, begin, duration."""
    runs: tuple[tuple[_Microseconds, _Microseconds], ...]
    """Begin and duration of each run of the segment, in order."""

    @model_validator(mode="after")
    def _names_are_there(self) -> SegmentOperators:
        if any(place >= len(self.names) for place, _, _ in self.spans):
            raise ValueError("a span is of an operator without a name")
        return self


class RankOperators(_Strict):
    """What the engine of a rank told."""

    format: Literal[FORMAT]  # type: ignore[valid-type]
    version: Literal[VERSION]  # type: ignore[valid-type]
    plan: str
    rank: int
    segments: tuple[SegmentOperators, ...]


def read_operators(folder: Path, plan: Plan, plan_sha256: str) -> tuple[RankOperators, ...]:
    """Return what the engine of each rank told, by rank.

    Raises:
        RankSliceError: a file is missing, or not what a rank of this plan writes.
    """
    return tuple(
        _read(folder / f"{NAME}{rank}", rank, plan_sha256) for rank in range(len(plan.ranks))
    )


def _read(path: Path, rank: int, plan_sha256: str) -> RankOperators:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise RankSliceError(Mistake(str(path), f"has more than {MOST_BYTES >> 20} MiB"))
        found = RankOperators.model_validate(untrusted_json(path.read_bytes()))
    except OSError as error:
        raise RankSliceError(Mistake(str(path), f"cannot be read: {error.strerror}")) from None
    except UntrustedJsonError as error:
        raise RankSliceError(Mistake(str(path), str(error), _SHAPE)) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise RankSliceError(Mistake(str(path), f"{where}: {first['msg']}", _SHAPE)) from None
    if (found.plan, found.rank) != (plan_sha256, rank):
        raise RankSliceError(Mistake(str(path), "is of another plan or rank", _SHAPE))
    return found


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """A run of an operator, in nanoseconds of the clock of the steps."""

    name: str
    frame: int
    """Place of the frame."""
    begin_ns: int
    end_ns: int


def operator_steps(
    segment: SegmentOperators, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[OperatorStep]:
    """Yield the operators of a segment's steps, in order.

    The engine's clock is not that of the steps, but each run lies in its step. So the clocks differ
    by at least as much as a begin of a step is behind that of its run, and at most as much as an
    end is. The middle between the tightest of these bounds is taken; where clocks have drifted and
    a run would leave its step, it is moved into it.

    Args:
        segment: what the engine told. Runs before the first frame are in it.
        begins: of the steps in nanoseconds, by frame; below zero where there is none.
        ends: of the steps, likewise.
    """
    frames = np.flatnonzero(ends >= 0)
    count = min(len(frames), len(segment.runs))
    if not count:
        return
    frames = frames[-count:]
    runs = 1000 * np.array(segment.runs[-count:], np.int64)
    least = begins[frames] - runs[:, 0]
    most = ends[frames] - runs[:, 0] - runs[:, 1]
    middle = (int(least.max()) + int(most.min())) // 2
    shifts = np.maximum(np.minimum(middle, most), least)
    spans = 1000 * np.array([each[1:] for each in segment.spans], np.int64).reshape(-1, 2)
    places = np.searchsorted(runs[:, 0], spans[:, 0], side="right") - 1
    order = np.argsort(spans[:, 0], kind="stable")
    for number in order.tolist():
        place = int(places[number])
        if place < 0:
            continue
        frame = int(frames[place])
        begin = int(spans[number, 0] + shifts[place])
        end = min(begin + int(spans[number, 1]), int(ends[frame]))
        if begin < end:
            yield OperatorStep(segment.names[segment.spans[number][0]], frame, begin, end)
