"""Classes that a model finds: their names, and the best of every frame as table, JSON and CSV."""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.summary.rates import top_classes
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.files.output_file import csv_lines
from rankslice.framework.plan import Plan
from rankslice.framework.wording import on_one_line
from rankslice.session.build_folder import REFERENCE
from rankslice.views.content import Table

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun

_COLUMNS = ("frame", "input", "place", "class", "name", "score")
_MAX_CLASSES = 1_000_000
_METADATA_KEY = "names"
"""Where Ultralytics writes ``{0: 'person', 1: 'bicycle', ...}``."""


def class_name(names: Sequence[str], number: int) -> str:
    """Return the name of a class, or its number if there is none."""
    return names[number] if number < len(names) else str(number)


def read_labels(path: Path) -> tuple[str, ...]:
    """Return the class names of a text file, one per line, or of a ``.json`` file.

    JSON may be a list of names, or an object with a name for each number of a class; instead of a
    name there may be a list that ends with it, as in Keras' ``imagenet_class_index.json``.

    Raises:
        RankSliceError: the file cannot be read, or holds something else.
    """
    text = read_text(path, "a label")
    if path.suffix.lower() != ".json":
        return tuple(text.splitlines())
    try:
        return _names_of(json.loads(text))
    except (ValueError, TypeError, IndexError, RecursionError):
        expected = """expected ["cat", ...] or {"0": "cat", ...}"""
        raise RankSliceError(Mistake(str(path), "holds no class names", expected)) from None


def _names_of(value: Any) -> tuple[str, ...]:
    """Return the names of a list, or of a dictionary by number; of those missing, the number.

    Raises:
        ValueError, TypeError, IndexError: it is something else.
    """
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    names = {int(key): name[-1] if isinstance(name, list) else name for key, name in pairs}
    if not names or not all(isinstance(name, str) for name in names.values()):
        raise TypeError
    if not 0 <= min(names) <= max(names) < _MAX_CLASSES:
        raise ValueError
    return tuple(names.get(index, str(index)) for index in range(max(names) + 1))


def model_names(folder: Path) -> tuple[str, ...]:
    """Return the class names in the metadata of a build folder's model; empty: there are none."""
    from rankslice.frontend.formats import find_format

    model = (folder / REFERENCE).resolve()
    model_format = find_format(model)
    if model_format is None or not model.exists():
        return ()
    with suppress(RankSliceError):  # the sub-models do not need it
        return parsed_names(model_format.metadata(model).get(_METADATA_KEY, ""))
    return ()


def parsed_names(text: str) -> tuple[str, ...]:
    """Return names from a list or dictionary, in JSON or as Python writes it; none: ``()``.

    Only literals are read, so nothing in the text is executed.
    """
    wrong = (ValueError, SyntaxError, RecursionError, MemoryError, TypeError, IndexError)
    for parse in (json.loads, ast.literal_eval):
        with suppress(*wrong):
            value = parse(text)
            if isinstance(value, (dict, list)):
                return _names_of(value)
    return ()


def check_classes(option: str, plan: Plan) -> None:
    """Refuse to show classes of a model whose first output has no fixed number of values."""
    output = plan.job.outputs[0]
    if output.is_open:
        problem = f"the model's first output {output.name!r} changes its shape from frame to frame"
        raise RankSliceError(Mistake(option, problem, "expected a fixed number of classes"))


def check_labels(path: Path, names: Sequence[str], plan: Plan) -> None:
    """Refuse labels that do not name all classes: the values of the model's first output."""
    classes = math.prod(plan.job.outputs[0].shape)
    if len(names) < classes:
        problem = f"names {len(names)} classes; the model's first output has {classes}"
        raise RankSliceError(Mistake(str(path), problem, "expected a name for each"))


def classes_parts(
    finished: FinishedRun, names: Sequence[str], count: int, max_frames: int = 20
) -> Iterator[Table | str]:
    """Yield the ``count`` best classes of the first frames as a table."""
    rows = []
    for _, (frame, label, best) in zip(range(max_frames), _best(finished, count), strict=False):
        classes = [f"{class_name(names, number)} {score:.3f}" for number, score in best]
        rows.append((str(frame), on_one_line(label), on_one_line(", ".join(classes))))
    yield Table("", ("frame", "input", f"top {count}"), tuple(rows))
    if len(finished.labels) > max_frames:
        yield f"... and {len(finished.labels) - max_frames} more frames"


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
    """Return the same as lines of CSV: one for each class; ``place`` is 1 for a frame's best."""
    rows = (
        (frame, label, place, number, names[number] if names else "", repr(score))
        for frame, label, best in _best(finished, count)
        for place, (number, score) in enumerate(best, 1)
    )
    return csv_lines(chain([_COLUMNS], rows))


def _best(finished: FinishedRun, count: int) -> Iterator[tuple[int, str, list[tuple[int, float]]]]:
    """Yield number, label and best classes of each frame."""
    scores = finished.results.values(0)
    for frame, label, values in zip(finished.results.numbers, finished.labels, scores, strict=True):
        yield frame, label, top_classes(values, count)
