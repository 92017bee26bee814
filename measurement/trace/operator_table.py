"""How long each operator took, as a table: for CSV, JSON, and reports of several boards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import chain
from pathlib import Path

from rankslice.backend.runtime.figures.operator_profile import RankOperators
from rankslice.backend.runtime.figures.operator_rows import OperatorRow, operator_rows
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


def _cells(placed: PlacedRow) -> tuple[object, ...]:
    return placed.board, placed.accelerator, placed.engine, *astuple(placed.row)
