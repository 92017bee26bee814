"""How outputs are read as boxes: what the options say, checked against the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.wording import listed, quoted

MIN_SCORE = 0.25
MAX_OVERLAP = 0.45
"""Of ``--nms`` without a value."""

_OPTION = "--boxes"
_FLOATS = ("float16", "float32", "float64")
_PARTS = ("boxes", "scores", "classes", "count")
_FORMS = "expected OUTPUT, or BOXES,SCORES,CLASSES, or BOXES,SCORES,CLASSES,COUNT"


class BoxForm(str, Enum):
    """What the four numbers of a box are."""

    xyxy = "xyxy"
    """Left, top, right, bottom: Pascal VOC, torchvision, YOLO with its own NMS."""
    xywh = "xywh"
    """Left, top, width, height: COCO."""
    cxcywh = "cxcywh"
    """Middle, width, height: YOLO's raw head, DETR."""
    yxyx = "yxyx"
    """Top, left, bottom, right: TensorFlow."""


class BoxUnit(str, Enum):
    """What a box is measured in."""

    auto = "auto"
    """Shares if no coordinate of the run exceeds 2, else pixels."""
    pixels = "pixels"
    """Pixels of the model's input."""
    share = "share"
    """Shares of its width and height."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the options say of a model's outputs."""

    boxes: str
    """Value of ``--boxes``: names of outputs."""
    form: BoxForm
    unit: BoxUnit = BoxUnit.auto
    min_score: float = MIN_SCORE
    overlap: float | None = None
    """The output is a raw head, and of boxes of a class that overlap more (intersection over union)
    only the best is kept; ``None``: it is no raw head."""


def find_outputs(reading: Reading, outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Return which outputs of the model hold the boxes: their numbers.

    One: rows of box, score and class, or a raw head. Three or four: boxes, scores, classes, count.

    Raises:
        RankSliceError: there are no such outputs, or they cannot hold boxes.
    """
    names = [spec.name for spec in outputs]
    wanted = [reading.boxes] if reading.boxes in names else reading.boxes.split(",")
    missing = [name for name in wanted if name not in names]
    if missing:
        found = f"the model has no output {quoted(missing[0])}"
        raise RankSliceError(Mistake(_OPTION, found, f"its outputs are {listed(names, 20)}"))
    if len(wanted) not in (1, 3, 4):
        raise RankSliceError(Mistake(_OPTION, f"{len(wanted)} outputs are named", _FORMS))
    if reading.overlap is not None and len(wanted) != 1:
        found = f"{len(wanted)} outputs are named"
        raise RankSliceError(Mistake("--nms", found, "expected one: YOLO's raw head"))
    numbers = tuple(names.index(name) for name in wanted)
    chosen = [outputs[number] for number in numbers]
    raise_mistakes(
        Mistake(_OPTION, f"output {quoted(spec.name)} is {spec.dtype} {list(spec.shape)}", expected)
        for number, spec in enumerate(chosen)
        if (expected := _misfit(reading, spec, number, len(chosen)))
    )
    return numbers


def _misfit(reading: Reading, spec: Tensor, number: int, count: int) -> str:
    """Return what is expected of an output, if it is something else; empty: it fits."""
    shape = spec.shape
    is_one = len(shape) > 0 and shape[0] == 1
    if reading.overlap is not None:
        fits = len(shape) == 3 and is_one and min(shape[1:]) > 4
        expected = "[1, 4 + classes, boxes] or [1, boxes, 5 + classes]"
        return "" if fits and spec.dtype in _FLOATS else f"expected floats {expected}"
    if count == 1 or number == 0:
        columns = 6 if count == 1 else 4
        fits = len(shape) in (2, 3) and shape[-1] == columns and (len(shape) == 2 or is_one)
        expected = f"expected floats [N, {columns}] or [1, N, {columns}]"
        if count == 1:
            expected += ": x1, y1, x2, y2, score, class; name several outputs, or give --nms"
        return "" if fits and spec.dtype in _FLOATS else expected
    part = _PARTS[number]
    if part == "count":
        fits = all(size == 1 for size in shape)
        return "" if fits else "expected the number of boxes, a single value"
    fits = len(shape) == 1 or (len(shape) == 2 and is_one)
    is_number = spec.dtype in _FLOATS or (part == "classes" and "int" in spec.dtype[:4])
    kinds = "numbers" if part == "classes" else "floats"
    return "" if fits and is_number else f"expected {part} as {kinds} [N] or [1, N]"
