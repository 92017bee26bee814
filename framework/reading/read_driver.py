"""A driver read as data: the literals of its job, without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rankslice.backend.runtime.job import (
    Facts,
    Job,
    Rank,
    Receive,
    Route,
    Segment,
    Send,
    Tensor,
    Turns,
)
from rankslice.backend.runtime.job.check import check_job
from rankslice.backend.runtime.job.strict import Fault, as_record, field_types
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.files.ordinary_file import read_ordinary
from rankslice.framework.wording import bare, joined, quoted

_MAX_BYTES = 64 << 20
"""Of a driver; one of 10,000 ranks has 8 MiB."""

RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Facts, Job, Rank, Receive, Route, Segment, Send, Tensor, Turns)
}

_SHAPE = "expected a driver that `rankslice build` made"


def read_driver(path: Path) -> Job:
    """Return the job of a driver, which is neither run nor imported."""
    where = str(path)
    content = read_ordinary(path, _SHAPE, _MAX_BYTES)
    try:
        tree = ast.parse(content)
    except SyntaxError as error:
        line = f"{where}:{error.lineno}" if error.lineno else where
        raise RankSliceError(Mistake(line, f"this is not Python: {error.msg}", _SHAPE)) from None
    except (ValueError, RecursionError, MemoryError):
        raise RankSliceError(Mistake(where, "this is not Python", _SHAPE)) from None
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "JOB":
            return _job(statement.value, where)
    remedy = "made by another version of RankSlice: build it again"
    raise RankSliceError(Mistake(where, "it has no JOB", remedy))


def _job(node: ast.expr, where: str) -> Job:
    reader = _Reader(where)
    job = reader.value(node, "")
    raise_mistakes(reader.located(check_job(job)))
    checked: Job = as_record(Job, job)
    return checked


class _Reader:
    """Turns calls of records, and literals, into values."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._lines: dict[str, int] = {}
        """By path inside the job."""

    def located(self, faults: Iterator[Fault]) -> Iterator[Mistake]:
        for path, found, expected in faults:
            place = path
            while place not in self._lines:
                place = place[: max(place.rfind("."), place.rfind("["), 0)]
            yield self._mistake(self._lines[place], path, found, expected)

    def _mistake(self, line: int, path: str, found: str, expected: str) -> Mistake:
        return Mistake(f"{self._where}:{line}{': ' if path else ''}{path}", found, expected)

    def value(self, node: ast.expr, path: str) -> Any:
        """Evaluate an expression of literals and records."""
        self._lines[path] = node.lineno
        if isinstance(node, ast.Call):
            return self._record(node, path)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(
                self.value(element, f"{path}[{at}]") for at, element in enumerate(node.elts)
            )
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, RecursionError, MemoryError):
            found = f"found {quoted(ast.unparse(node))}"
            expected = f"expected a literal, or {joined([*RECORDS], 'or')}"
            raise self._error(node, path, found, expected) from None

    def _record(self, node: ast.Call, path: str) -> Any:
        name = ast.unparse(node.func)
        kind = RECORDS.get(name)
        if kind is None:
            expected = f"expected {joined([*RECORDS], 'or')}"
            raise self._error(node, path, f"found {bare(name)}(...)", expected)
        fields = [*field_types(kind)]
        if len(node.args) > len(fields):
            raise self._error(node, path, f"{name} has {len(fields)} fields", "expected no more")
        arguments = [*zip(fields, node.args, strict=False)]
        for keyword in node.keywords:
            if keyword.arg not in fields:
                found = f"{name} has no field {quoted(keyword.arg or '**')}"
                raise self._error(node, path, found, f"expected {joined(fields, 'or')}")
            arguments.append((keyword.arg, keyword.value))
        if len(dict(arguments)) < len(arguments):
            raise self._error(node, path, f"{name} has a field twice", "expected each once")
        prefix = f"{path}." if path else ""
        values = {field: self.value(argument, f"{prefix}{field}") for field, argument in arguments}
        try:
            return kind(**values)
        except TypeError as error:
            missing = str(error).rpartition(": ")[2]
            raise self._error(node, path, f"{name} lacks fields", f"expected {missing}") from None

    def _error(self, node: ast.expr, path: str, found: str, expected: str) -> RankSliceError:
        return RankSliceError(self._mistake(node.lineno, path, found, expected))
