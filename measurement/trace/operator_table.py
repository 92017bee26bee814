"""How long each operator took, as a table: for CSV, JSON, and reports of several boards."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path

from rankslice.backend.runtime.figures.operator_profile import RankOperators
from rankslice.backend.runtime.figures.operator_rows import OperatorRow, operator_rows
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.files.output_file import csv_lines
from rankslice.framework.plan import Plan


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


def read_operators(path: Path) -> tuple[PlacedRow, ...]:
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
