"""How long each operator took, as a table, and when it ran, on the clock of its rank's steps.

Files of ranks are read strictly: they may come from another machine.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.figures.operator_profile import (
    FORMAT,
    MAX_BYTES,
    NAME,
    VERSION,
    DeviceRuns,
    OperatorSpans,
    RankOperators,
)
from rankslice.backend.runtime.figures.operator_rows import OperatorRow, operator_rows
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_ordinary, read_text
from rankslice.framework.files.output_file import csv_lines
from rankslice.framework.plan import Plan
from rankslice.framework.reading.records import read_record
from rankslice.framework.reading.untrusted_json import from_other_machine
from rankslice.measurement.trace.clocks import Clock, fit_clock


@dataclass(frozen=True, slots=True)
class PlacedRow:
    """Times of an operator, and where it ran."""

    board: str
    accelerator: str
    """The mapping key."""
    engine: str
    row: OperatorRow


HEAD = (
    *(field.name for field in fields(PlacedRow) if field.name != "row"),
    *(field.name for field in fields(OperatorRow)),
)


def table_of(plan: Plan, operators: Sequence[RankOperators], frames: int) -> Iterator[PlacedRow]:
    """Yield the operators of a traced job, rank by rank, in the order in which they ran first.

    ``frames``: how many passed; runs before them, to warm up, are left out.
    """
    for of_rank in operators:
        rank = plan.ranks[of_rank.rank]
        for segment in of_rank.segments:
            for row in operator_rows(segment, frames):
                yield PlacedRow(rank.board, rank.key, rank.engine, row)


def records_of(rows: Iterable[PlacedRow]) -> list[dict[str, object]]:
    return [dict(zip(HEAD, _cells(row), strict=True)) for row in rows]


def operators_csv(rows: Iterable[PlacedRow]) -> str:
    """Return the table as CSV with a head; times are in milliseconds."""
    lines = (
        [f"{cell:.6f}" if isinstance(cell, float) else cell for cell in _cells(row)] for row in rows
    )
    return "".join(csv_lines(chain([HEAD], lines)))


def operators_text(file: Path, rows: Iterable[PlacedRow]) -> str:
    """Return the table as JSON if the file's name says so, else as CSV."""
    if file.suffix.lower() == ".json":
        return json.dumps({"operators": records_of(rows)}, indent=1) + "\n"
    return operators_csv(rows)


def read_operators_csv(path: Path) -> tuple[PlacedRow, ...]:
    """Return the rows of a CSV file that :func:`operators_csv` has made.

    Raises:
        RankSliceError: it cannot be read, or has other columns or values.
    """
    rows = csv.reader(read_text(path, "a table of operators").splitlines())
    if tuple(next(rows, ())) != HEAD:
        expected = "expected a file of trace --csv or profile --operators"
        raise RankSliceError(Mistake(str(path), "is no table of operators", expected))
    return tuple(_row(cells, f"{path}: line {rows.line_num}") for cells in rows)


def _row(cells: Sequence[str], where: str) -> PlacedRow:
    if len(cells) != len(HEAD):
        found = f"has {len(cells)} values"
        raise RankSliceError(Mistake(where, found, f"expected {len(HEAD)}, as the head has"))
    *texts, count, mean_ms, p50_ms, p95_ms = cells
    board, accelerator, engine, operator, shapes, kernel = texts
    try:
        numbers = int(count), float(mean_ms), float(p50_ms), float(p95_ms)
    except ValueError:
        numbers = -1, 0.0, 0.0, 0.0
    if not all(0 <= number < math.inf for number in numbers):
        expected = "expected a count, and times in milliseconds"
        raise RankSliceError(Mistake(where, "its last four values are none", expected))
    return PlacedRow(board, accelerator, engine, OperatorRow(operator, shapes, kernel, *numbers))


def _cells(placed: PlacedRow) -> tuple[object, ...]:
    return placed.board, placed.accelerator, placed.engine, *astuple(placed.row)


_SHAPE = "expected a file of operators, made by a run of this build folder"
_MAX_NUMBER = 1 << 50
"""No time has more micro- or nanoseconds."""


def read_operators(folder: Path, plan: Plan, job_sha256: str) -> tuple[RankOperators, ...]:
    """Read the operators that the engine of each rank reported, by rank.

    Raises:
        RankSliceError: a file is missing, or not what a rank of this plan writes.
    """
    return tuple(
        _read(folder / f"{NAME}{rank}", rank, job_sha256) for rank in range(len(plan.ranks))
    )


def _read(path: Path, rank: int, job_sha256: str) -> RankOperators:
    where = str(path)
    record = from_other_machine(read_ordinary(path, _SHAPE, MAX_BYTES), where, _SHAPE)
    head = {"format": FORMAT, "version": VERSION}
    if not isinstance(record, dict) or not head.items() <= record.items():
        raise RankSliceError(Mistake(where, "is no such file of this version", _SHAPE))
    body = {name: value for name, value in record.items() if name not in head}
    operators = read_record(RankOperators, body, where)
    if (operators.job_sha256, operators.rank) != (job_sha256, rank):
        raise RankSliceError(Mistake(where, "is of another job or rank", _SHAPE))
    if not all(map(_is_sound, operators.segments)):
        raise RankSliceError(Mistake(where, "has a span without a name or a time", _SHAPE))
    return operators


def _is_sound(segment: OperatorSpans) -> bool:
    """Return whether spans have names and possible times, and runs what belongs to each."""
    device = segment.device or DeviceRuns("", False, (), (), ())
    slack = [(slack_ns,) for slack_ns in device.slack_ns]
    return (
        _are_within(segment.spans, 3, len(segment.names))
        and _are_within(segment.runs, 2)
        and all(_are_within(run, 3, len(device.names)) for run in device.runs)
        and _are_within(slack, 1)
        and len(slack) == len(device.runs)
        and all(
            len(texts) in (0, len(segment.names)) for texts in (segment.shapes, segment.kernels)
        )
    )


def _are_within(spans: Sequence[tuple[int, ...]], width: int, names: int = _MAX_NUMBER) -> bool:
    """Return whether all have so many numbers in range, the first one below ``names``."""
    return all(
        len(span) == width and min(span) >= 0 and max(span) < _MAX_NUMBER and span[0] < names
        for span in spans
    )


@dataclass(frozen=True, slots=True)
class OperatorStep:
    """A run of an operator, in nanoseconds of the clock of the steps."""

    name: str
    frame: int
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class PlacedOperators:
    """Operators of a segment on the clock of its steps."""

    steps: tuple[OperatorStep, ...]
    by: str
    """The accelerator that reported them; empty: the engine did."""
    error_ns: float
    """Bound of the error of their times."""


def place_operators(
    segment: OperatorSpans, begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> Iterator[PlacedOperators]:
    """Yield the operators of a segment as its engine reports them, then as its accelerator does.

    Both have clocks of their own. Each run lies in its step, so the pair is a sample of both clocks
    like a message and its answer: the middles of run and step are the same moment to within half of
    what the step is longer. Offset and drift are fitted to these samples (:func:`fit_clock`).

    Args:
        segment: what was reported. Runs before the first frame are in it.
        begins: of the steps in nanoseconds, by frame; below zero where there is none.
        ends: of the steps, likewise.
    """
    frames = np.flatnonzero(ends >= 0)
    count = min(len(frames), len(segment.runs))
    if not count:
        return
    frames = frames[-count:]
    steps = np.column_stack([begins[frames], ends[frames]])
    runs = 1000 * np.array(segment.runs, np.int64)
    runs[:, 1] += runs[:, 0]
    clock = _fit(runs[-count:], steps)
    at = np.searchsorted(runs[:, 0], [1000 * span[1] for span in segment.spans], side="right")
    by_run: list[list[tuple[int, int, int]]] = [[] for _ in runs]
    for (place, begin, duration), run in zip(segment.spans, at.tolist(), strict=True):
        if run:
            by_run[run - 1].append((place, 1000 * begin, 1000 * duration))
    device = segment.device
    slack_ns = max(device.slack_ns[-count:], default=0) / 2 if device is not None else 0.0
    if np.isfinite(clock.error_ns):
        ran = _converted(segment.names, by_run[-count:], clock, frames, steps)
        error_ns = clock.error_ns + (slack_ns if segment.kernels else 0.0)
        yield PlacedOperators(tuple(ran), "", error_ns)
    if device is None or len(device.runs) < count:
        return
    parts = device.runs[-count:]
    error_ns = clock.error_ns + slack_ns
    if device.has_clock:
        full = np.array([bool(part) for part in parts])
        if not full.any():
            return
        extents = [(part[0][1], max(b + d for _, b, d in part)) for part in parts if part]
        clock = _fit(np.array(extents, np.int64), steps[full])
        error_ns = clock.error_ns
    kernels = tuple(_converted(device.names, parts, clock, frames, steps))
    if kernels:
        yield PlacedOperators(kernels, device.by, error_ns)


def _fit(runs: NDArray[np.int64], steps: NDArray[np.int64]) -> Clock:
    """Return the clock of steps, told from that of the runs which lie in them.

    Args:
        runs: begins and ends in nanoseconds of one clock, of shape [n, 2]. Those that are longer
            than their steps cannot lie in them, and are no samples.
        steps: likewise, of the other one.
    """
    longer = (steps[:, 1] - steps[:, 0]) - (runs[:, 1] - runs[:, 0])
    samples = np.column_stack([runs.sum(axis=1) // 2, steps.sum(axis=1) // 2, longer])
    return fit_clock(samples[longer >= 0], int(runs.min()), int(runs.max()))


def _converted(
    names: Sequence[str],
    runs: Sequence[Sequence[tuple[int, int, int]]],
    clock: Clock,
    frames: NDArray[np.int64],
    steps: NDArray[np.int64],
) -> Iterator[OperatorStep]:
    """Yield the operators of runs by begin, as far as they lie in the steps."""
    for frame, (first, last), run in zip(frames.tolist(), steps.tolist(), runs, strict=True):
        ordered = sorted(run, key=lambda span: span[1])
        begins = clock.convert(np.array([begin for _, begin, _ in ordered], np.int64))
        for (place, _, duration), begin in zip(ordered, begins.tolist(), strict=True):
            begin, end = max(begin, first), min(begin + duration, last)
            if begin < end:
                yield OperatorStep(names[place], frame, begin, end)
