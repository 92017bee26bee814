"""How outputs are read as boxes: the options, checked against the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TypeAlias

from rankslice.backend.runtime.job import Tensor
from rankslice.framework.errors import Mistake, RankSliceError, raise_mistakes
from rankslice.framework.option_records import option
from rankslice.framework.wording import joined, listed, quoted

MIN_SCORE = 0.25
MAX_OVERLAP = 0.45
"""Of ``--nms`` without a value."""

_OPTION = "--boxes"
_NUMBER = r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?|nan|inf"
_FLOATS = ("float16", "float32", "float64")
_PARTS = ("boxes", "scores", "classes", "count")
_EXPECTED = (
    "expected OUTPUT; BOXES,SCORES,CLASSES; BOXES,SCORES,CLASSES,COUNT; BOXES,SCORES,INDICES; or"
    " BOXES,SCORES with --nms"
)

Anchors: TypeAlias = tuple[tuple[float, float], ...]
"""Width and height of each, in pixels of the model's input, the smallest first."""

KNOWN_ANCHORS: Mapping[str, Anchors] = {
    "yolov3": (
        *((10, 13), (16, 30), (33, 23), (30, 61), (62, 45)),
        *((59, 119), (116, 90), (156, 198), (373, 326)),
    ),
    "yolov3-tiny": ((10, 14), (23, 27), (37, 58), (81, 82), (135, 169), (344, 319)),
}
"""Those that the authors of YOLOv3 have published for COCO."""


def _anchors(text: str) -> Anchors:
    if text in KNOWN_ANCHORS:
        return KNOWN_ANCHORS[text]
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or len(numbers) % 2 or not all(0 < number < inf for number in numbers):
        known = joined([*map(quoted, KNOWN_ANCHORS)], "or")
        raise ValueError(f"{text!r} is neither {known} nor W,H,W,H,...")
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


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
        " or one output with rows of all three. docs/detection.md lists the forms.",
        str,
        metavar="OUTPUT[,OUTPUT...]",
    )
    box_form: str | None = option(
        None,
        "With --boxes: meaning of a box's four numbers; cx, cy: its centre (default: xyxy, or"
        " cxcywh for raw heads).",
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
        "With --boxes: apply non-maximum suppression with this overlap"
        f" ({MAX_OVERLAP}), to a raw YOLO head or to boxes with a score for each class.",
        float,
        least=0,
        most=1,
        metavar="[IOU]",
        bare=(str(MAX_OVERLAP), _NUMBER),
        needs="boxes",
    )
    anchors: Anchors | None = option(
        None,
        "With --boxes: the outputs are YOLOv3's raw heads, with these anchors: yolov3,"
        " yolov3-tiny, or pairs of pixels.",
        _anchors,
        metavar="yolov3|yolov3-tiny|W,H,...",
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
        is_raw_head = self.nms is not None and "," not in (self.boxes or "")
        return self.box_form or ("cxcywh" if is_raw_head or self.anchors is not None else "xyxy")

    @property
    def overlap(self) -> float | None:
        """Beyond which boxes are suppressed; ``None``: none are."""
        return MAX_OVERLAP if self.nms is None and self.anchors is not None else self.nms


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
    numbers = tuple(names.index(name) for name in wanted)
    chosen = [outputs[number] for number in numbers]
    if reading.anchors is not None:
        raise_mistakes(_mistakes_of_heads(reading.anchors, chosen))
        return numbers
    if len(wanted) not in ((1, 2) if reading.nms is not None else (1, 3, 4)):
        problem = f"{len(wanted)} outputs are named"
        if reading.nms is not None:
            expected = "expected YOLO's raw head, or BOXES,SCORES with a score for each class"
            raise RankSliceError(Mistake("--nms", problem, expected))
        raise RankSliceError(Mistake(_OPTION, problem, _EXPECTED))
    raise_mistakes(
        Mistake(_OPTION, f"output {quoted(spec.name)} is {spec.dtype} {list(spec.shape)}", expected)
        for number, spec in enumerate(chosen)
        if (expected := _misfit(reading, chosen, number))
    )
    return numbers


def _mistakes_of_heads(anchors: Anchors, heads: Sequence[Tensor]) -> Iterator[Mistake]:
    per_head, rest = divmod(len(anchors), len(heads))
    if rest:
        found = f"has {len(anchors)} pairs for {len(heads)} outputs"
        yield Mistake("--anchors", found, "expected as many for each output")
        return
    for spec in heads:
        if spec.dtype not in _FLOATS or head_axes(spec.shape, per_head) is None:
            yield Mistake(
                _OPTION,
                f"output {quoted(spec.name)} is {spec.dtype} {list(spec.shape)}",
                f"expected floats [1, {per_head} x (5 + classes), rows, columns], or channels last",
            )


def head_axes(shape: Sequence[int], anchors: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return how a raw head becomes [anchors, rows, columns, 5 + classes].

    Args:
        shape: ``[1, anchors x (5 + classes), rows, columns]`` or ``[1, rows, columns, ...]``, where
            anchors and values may be two axes.
        anchors: of this head.

    Returns:
        The shape with anchors and values apart, and the order of its axes; ``None``: it is no head.
    """
    if len(shape) not in (4, 5) or shape[0] != 1:
        return None
    if len(shape) == 5:
        if anchors not in (shape[1], shape[3]) or shape[4] <= 5:
            return None
        return tuple(shape[1:]), ((0, 1, 2, 3) if shape[1] == anchors else (2, 0, 1, 3))
    is_last = shape[1] == shape[2] != shape[3] or shape[1] % anchors > 0
    values, rest = divmod(shape[3 if is_last else 1], anchors)
    if rest or values <= 5:
        return None
    if is_last:
        return (shape[1], shape[2], anchors, values), (2, 0, 1, 3)
    return (anchors, values, shape[2], shape[3]), (0, 2, 3, 1)


def has_score_per_class(shapes: Sequence[Sequence[int]]) -> bool:
    """Whether the second output has ``[1, classes, N]`` or ``[1, N, classes]`` scores."""
    return len(shapes) in (2, 3) and len(shapes[1]) == 3


def _misfit(reading: BoxOptions, chosen: Sequence[Tensor], number: int) -> str:
    """Return the expected type and shape if an output has others; empty: it fits."""
    spec, count, part = chosen[number], len(chosen), _PARTS[number]
    shape, is_float, is_integer = spec.shape, spec.dtype in _FLOATS, "int" in spec.dtype[:4]
    is_one = shape[:1] == (1,)

    def has_axes(count: int) -> bool:
        return len(shape) == count or (len(shape) == count + 1 and is_one)

    if reading.nms is not None and count == 1:
        fits = is_float and len(shape) == 3 and is_one and min(shape[1:]) > 4
        expected = "floats [1, 4 + classes, boxes] or [1, boxes, 5 + classes]"
    elif count == 1 or number == 0:
        columns = 6 if count == 1 else 4
        fits = is_float and has_axes(2) and shape[-1] == columns
        expected = f"floats [N, {columns}] or [1, N, {columns}]"
        if count == 1:
            expected += ": x1, y1, x2, y2, score, class; name several outputs, or give --nms"
    elif (has_score_per_class([of.shape for of in chosen]) or count == 2) and number == 1:
        fits = is_float and len(shape) == 3 and is_one
        expected = "floats [1, classes, N] or [1, N, classes]"
    elif has_score_per_class([of.shape for of in chosen]):
        fits = is_integer and has_axes(2) and shape[-1] == 3
        expected = "integers [M, 3]: frame, class and box of each"
    elif part == "count":
        fits = all(size == 1 for size in shape)
        expected = "the number of boxes, a single value"
    else:
        fits = has_axes(1) and (is_float or (is_integer and part == "classes"))
        expected = f"{part} as {'numbers' if part == 'classes' else 'floats'} [N] or [1, N]"
    return "" if fits else f"expected {expected}"
