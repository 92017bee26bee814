"""The best classes of every frame, for files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.summary.texts import top_classes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.plan import Plan

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun

_COLUMNS = ("frame", "input", "place", "class", "name", "score")


def check_classes(option: str, plan: Plan) -> None:
    """Refuse to show classes of a model whose first output has no fixed number of values."""
    output = _first_output(plan)
    if output.is_open:
        found = f"the model's first output {output.name!r} changes its shape from frame to frame"
        raise RankSliceError(Mistake(option, found, "expected a fixed number of classes"))


def check_labels(path: Path, names: Sequence[str], plan: Plan) -> None:
    """Refuse labels that do not name all classes: the values of the model's first output."""
    classes = math.prod(_first_output(plan).shape or ())
    if len(names) < classes:
        found = f"names {len(names)} classes; the model's first output has {classes}"
        raise RankSliceError(Mistake(str(path), found, "expected a name for each"))


def _first_output(plan: Plan) -> Tensor:
    return plan.job.outputs[0]


def classes_json(finished: FinishedRun, names: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Return the ``count`` best classes of each frame, by the model's first output.

    Each frame has ``frame``, ``input``, and ``classes``: the best first, each with ``class``,
    ``name`` (``None`` without labels) and ``score``.
    """
    return [
        {"frame": frame, "input": label, "classes": named_classes(best, names)}
        for frame, label, best in _best(finished, count)
    ]


def named_classes(best: Sequence[tuple[int, float]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "class": number,
            "name": names[number] if names else None,
            "score": score if math.isfinite(score) else None,
        }
        for number, score in best
    ]


def classes_csv(finished: FinishedRun, names: Sequence[str], count: int) -> Iterator[str]:
    """Yield the same as lines of CSV, the first of them with the names of the columns.

    A class has a line; ``place`` is 1 for the best of a frame.
    """
    yield _line(_COLUMNS)
    for frame, label, best in _best(finished, count):
        for place, (number, score) in enumerate(best, 1):
            name = names[number] if names else ""
            yield _line((frame, label, place, number, name, repr(score)))


def _best(finished: FinishedRun, count: int) -> Iterator[tuple[int, str, list[tuple[int, float]]]]:
    scores = finished.results.values(0)
    named = zip(finished.results.numbers, finished.labels, strict=True)
    for place, (frame, label) in enumerate(named):
        yield frame, label, top_classes(scores[place], count)


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
