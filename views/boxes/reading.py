"""How outputs are read as boxes: the options, checked against the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.option_records import option
from rankslice.framework.wording import listed, quoted

MIN_SCORE = 0.25
MAX_OVERLAP = 0.45
"""Of ``--nms`` without a value."""

_OPTION = "--boxes"
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf"
_FLOATS = ("float16", "float32", "float64")
_PARTS = ("boxes", "scores", "classes", "count")
_EXPECTED = "expected OUTPUT, or BOXES,SCORES,CLASSES, or BOXES,SCORES,CLASSES,COUNT"


BOX_FORMS = ("xyxy", "xywh", "cxcywh", "yxyx")
"""The four numbers of a box.

``xyxy``
    left, top, right, bottom: Pascal VOC, torchvision, YOLO with its own NMS;
``xywh``
    left, top, width, height: COCO;
``cxcywh``
    middle, width, height: YOLO's raw head, DETR;
``yxyx``
    top, left, bottom, right: TensorFlow.
"""
BOX_UNITS = ("auto", "pixels", "share")
"""Pixels of the model's input; shares of its width and height; ``auto``: shares if no coordinate of
the run exceeds 2, else pixels."""


@dataclass(frozen=True, slots=True)
class BoxOptions:
    """How outputs are read as boxes, if ``boxes`` names some, and where pictures with them go."""

    boxes: str | None = option(
        None,
        "Draw boxes on the images, and write coco.json: outputs with boxes, scores and classes,"
        " or one output with rows of all three.",
        str,
        metavar="OUTPUT[,SCORES,CLASSES[,COUNT]]",
    )
    box_form: str | None = option(
        None,
        "With --boxes: meaning of a box's four numbers; cx, cy: its centre (default: xyxy, or"
        " cxcywh with --nms).",
        BOX_FORMS,
        needs="boxes",
    )
    box_unit: str = option(
        "auto",
        "With --boxes: pixels of the model input, or shares of its width and height; auto: shares"
        " if no coordinate exceeds 2.",
        BOX_UNITS,
        needs="boxes",
    )
    min_score: float = option(
        MIN_SCORE, "With --boxes: lowest score of a box.", float, least=0, needs="boxes"
    )
    nms: float | None = option(
        None,
        "With --boxes: the output is a raw YOLO head; apply non-maximum suppression with this"
        f" overlap ({MAX_OVERLAP}).",
        float,
        least=0,
        most=1,
        metavar="[IOU]",
        bare=(str(MAX_OVERLAP), _NUMBER),
        needs="boxes",
    )
    boxes_to: Path = option(
        Path("labelled"),
        "With --boxes: folder to create, with labelled images and coco.json.",
        Path,
        needs="boxes",
    )

    @property
    def form(self) -> str:
        """What the four numbers of a box are: one of :data:`BOX_FORMS`."""
        return self.box_form or ("xyxy" if self.nms is None else "cxcywh")


def find_outputs(reading: BoxOptions, outputs: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the numbers of the model's outputs that hold boxes.

    One: rows of box, score and class, or a raw head. Three or four: boxes, scores, classes, count.

    Raises:
        RankSliceError: there are no such outputs, or they cannot hold boxes.
    """
    names = [spec.name for spec in outputs]
    boxes = reading.boxes or ""
    wanted = [boxes] if boxes in names else boxes.split(",")
    missing = [name for name in wanted if name not in names]
    if missing:
        problem = f"the model has no output {quoted(missing[0])}"
        raise RankSliceError(Mistake(_OPTION, problem, f"its outputs are {listed(names, 20)}"))
    if len(wanted) not in (1, 3, 4):
        raise RankSliceError(Mistake(_OPTION, f"{len(wanted)} outputs are named", _EXPECTED))
    if reading.nms is not None and len(wanted) != 1:
        problem = f"{len(wanted)} outputs are named"
        raise RankSliceError(Mistake("--nms", problem, "expected one: YOLO's raw head"))
    numbers = tuple(names.index(name) for name in wanted)
    chosen = [outputs[number] for number in numbers]
    raise_mistakes(
        Mistake(_OPTION, f"output {quoted(spec.name)} is {spec.dtype} {list(spec.shape)}", expected)
        for number, spec in enumerate(chosen)
        if (expected := _misfit(reading, spec, number, len(chosen)))
    )
    return numbers


def _misfit(reading: BoxOptions, spec: Tensor, number: int, count: int) -> str:
    """Return the expected type and shape if an output has others; empty: it fits."""
    shape = spec.shape
    is_one = len(shape) > 0 and shape[0] == 1
    if reading.nms is not None:
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
