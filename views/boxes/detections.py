"""Detections of a frame: the model's outputs as boxes in pixels of the image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.backend.runtime.job import Tensor
from rankslice.backend.runtime.sinks.results import Results
from rankslice.backend.runtime.sources.image_input import Fit
from rankslice.framework.errors import RankSliceError
from rankslice.views.boxes.reading import Anchors, BoxOptions, has_score_per_class, head_axes

_MAX_SHARE = 2.0
"""Boxes of objects that reach over the edge are larger than the image, but not by much."""
_MAX_CLASSES = 1 << 31

Array = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Detections:
    """Boxes with what is in them; N may be 0."""

    boxes: NDArray[np.float64]
    """``[N, 4]``: left, top, right, bottom."""
    scores: NDArray[np.float64]
    """``[N]``, finite."""
    classes: NDArray[np.int64]
    """``[N]``."""

    def __len__(self) -> int:
        """Return the number of detections."""
        return len(self.scores)

    def only(self, chosen: Array) -> Detections:
        """Return some of them, by a mask or by their numbers."""
        return Detections(self.boxes[chosen], self.scores[chosen], self.classes[chosen])


class RunBoxes:
    """The boxes of each frame of a run, in pixels of its image."""

    def __init__(
        self, reading: BoxOptions, outputs: Sequence[Tensor], frames: Sequence[Sequence[Array]]
    ) -> None:
        """Take the outputs that hold boxes, as :func:`find_outputs` names them.

        Args:
            reading: how they are read.
            outputs: their types and shapes.
            frames: the values of each of them, by frame.
        """
        self._reading, self._outputs = reading, frames
        self._by_column = has_boxes_by_column(outputs[0].shape)
        numbers = range(len(frames[0]))
        unit = reading.box_unit if reading.anchors is None else "pixels"
        self._shares = are_shares(unit, (self._read(number)[0] for number in numbers))

    def _read(self, number: int) -> tuple[Detections, int]:
        outputs = [frames[number] for frames in self._outputs]
        return read_detections(self._reading, outputs, by_column=self._by_column)

    def on_image(
        self, number: int, fit: Fit, image: tuple[int, int]
    ) -> tuple[Detections, int, int]:
        """Return the detections of a frame, by its number among the results.

        ``fit``: how an image of this height and width became the frame.

        Returns:
            The detections; how many were left out because a number is not finite or a class
            negative; and how many because they lie outside the image.
        """
        detections, unsound = self._read(number)
        detections = in_frame(detections, fit, shares=self._shares)
        if self._reading.overlap is not None:
            detections = suppressed(detections, self._reading.overlap)
        detections, outside = in_image(detections, fit, image)
        return detections, unsound, outside


def boxes_of(reading: BoxOptions, outputs: Sequence[int], results: Results) -> RunBoxes:
    """Return the boxes of a run's results; ``outputs``: as :func:`find_outputs` returns them."""
    chosen = [results.outputs[number] for number in outputs]
    return RunBoxes(reading, chosen, [results.frames(number) for number in outputs])


def read_detections(
    reading: BoxOptions, outputs: Sequence[Array], *, by_column: bool = False
) -> tuple[Detections, int]:
    """Return the detections that reach the least score, in the model's own units.

    Args:
        reading: how the outputs are read.
        outputs: of a frame, those that :func:`find_outputs` names.
        by_column: whether each column of a raw head is a box, and not each row.

    Returns:
        The detections, and how many were left out because a number is not finite or a class
        negative.

    Raises:
        RankSliceError: the outputs have different numbers of rows.
    """
    boxes, scores, classes = _columns(reading, outputs, by_column=by_column)
    reaches = ~(scores < reading.min_score)  # a score that is no number is left out below
    boxes, scores, classes = boxes[reaches], scores[reaches], classes[reaches]
    is_sound = np.isfinite(boxes).all(1) & np.isfinite(scores)
    is_sound &= (classes >= 0) & (classes < _MAX_CLASSES)
    detections = Detections(
        corners(boxes[is_sound], reading.form),
        scores[is_sound],
        np.rint(classes[is_sound]).astype(np.int64),
    )
    return detections, int((~is_sound).sum())


def _columns(
    reading: BoxOptions, outputs: Sequence[Array], *, by_column: bool
) -> tuple[Array, Array, Array]:
    """Return boxes [N, 4], scores [N] and classes [N] as float64, as the model gives them."""
    if reading.anchors is not None:
        return _anchored(reading.anchors, outputs)
    if reading.nms is not None and len(outputs) == 1:
        return _raw_head(outputs[0].astype(np.float64), by_column=by_column)
    if has_score_per_class([values.shape for values in outputs]):
        return _scored_per_class(outputs)
    if len(outputs) == 1:
        rows = outputs[0].reshape(-1, 6).astype(np.float64)
        return rows[:, :4], rows[:, 4], rows[:, 5]
    boxes = outputs[0].reshape(-1, 4).astype(np.float64)
    scores, classes = (values.reshape(-1).astype(np.float64) for values in outputs[1:3])
    if not len(boxes) == len(scores) == len(classes):
        problem = f"{len(boxes)} boxes, {len(scores)} scores and {len(classes)} classes"
        raise RankSliceError(f"--boxes: a frame has {problem}; expected one of each for an object")
    if len(outputs) == 4:
        value = float(outputs[3].reshape(-1)[0])
        count = int(min(max(0.0, value), len(boxes))) if np.isfinite(value) else 0
        boxes, scores, classes = boxes[:count], scores[:count], classes[:count]
    return boxes, scores, classes


_COARSEST = 32
"""Pixels of the input from one cell of YOLOv3's first head to the next; half as many in the next
head."""


def _anchored(anchors: Anchors, heads: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return the best class of each box of YOLOv3's raw heads, in pixels of the input.

    The heads may be in any order: the one of the most cells has the first anchors. A value is x, y,
    width, height, objectness and a score per class: J. Redmon and A. Farhadi, "YOLOv3: An
    incremental improvement" (2018), section 2.1.
    """
    per_head = len(anchors) // len(heads)
    parts = []
    finest = sorted(heads, key=lambda head: -head.size)
    for place, head in enumerate(finest):
        axes = head_axes(head.shape, per_head)
        assert axes is not None  # as find_outputs has checked
        values = head.astype(np.float64).reshape(axes[0]).transpose(axes[1])
        sides = np.array(anchors[place * per_head :][:per_head])[:, None, None]
        stride = _COARSEST / 2 ** (len(heads) - 1 - place)
        rows, columns = np.mgrid[: values.shape[1], : values.shape[2]]
        with np.errstate(over="ignore"):
            centres = (_sigmoid(values[..., :2]) + np.stack([columns, rows], -1)) * stride
            boxes = np.concatenate([centres, sides * np.exp(values[..., 2:4])], -1)
        by_class = _sigmoid(values[..., 5:]) * _sigmoid(values[..., 4:5])
        parts.append(np.concatenate([boxes, by_class], -1).reshape(-1, values.shape[-1] - 1))
    every = np.concatenate(parts)
    return _best_classes(every[:, :4], every[:, 4:])


def _sigmoid(values: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * values))


def _best_classes(boxes: Array, by_class: Array) -> tuple[Array, Array, Array]:
    """Return boxes [N, 4] with the score and the number of the best of their classes [N, C]."""
    classes = by_class.argmax(1)
    return boxes, by_class[np.arange(len(boxes)), classes], classes.astype(np.float64)


def _scored_per_class(outputs: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Return boxes with their best classes, or those that indices ``[M, 3]`` name.

    An index is the number of the frame, of the class and of the box, as ONNX's NonMaxSuppression
    gives it; rows of -1 fill up.
    """
    boxes = outputs[0].reshape(-1, 4).astype(np.float64)
    scores = outputs[1][0].astype(np.float64)
    by_class = scores if scores.shape[1] == len(boxes) else scores.T
    if by_class.shape[1] != len(boxes):
        problem = f"{len(boxes)} boxes and scores of shape {list(scores.shape)}"
        raise RankSliceError(f"--boxes: a frame has {problem}; expected a score for each box")
    if len(outputs) == 2:
        return _best_classes(boxes, by_class.T)
    classes, places = outputs[2].reshape(-1, 3)[:, 1:].T
    is_there = (classes >= 0) & (classes < len(by_class)) & (places >= 0) & (places < len(boxes))
    classes, places = classes[is_there], places[is_there]
    return boxes[places], by_class[classes, places], classes.astype(np.float64)


def has_boxes_by_column(head: Sequence[int]) -> bool:
    """Tell by the largest shape of a raw head whether each of its columns is a box.

    There are more boxes than numbers of a box; in a small frame with open sizes there may be fewer.
    """
    return len(head) == 3 and head[1] < head[2]


def _raw_head(head: Array, *, by_column: bool) -> tuple[Array, Array, Array]:
    """Return the best class of each box of a raw YOLO head.

    ``[1, 4 + classes, boxes]`` is that of version 8 and later, ``[1, boxes, 5 + classes]`` that of
    version 5, whose fifth column says whether there is an object at all.
    """
    if by_column:
        head = head.transpose(0, 2, 1)
    rows = head.reshape(-1, head.shape[2])
    by_class = rows[:, 4:] if by_column else rows[:, 5:] * rows[:, 4:5]
    if not by_class.shape[1]:  # there is one class
        by_class = rows[:, 4:5]
    return _best_classes(rows[:, :4], by_class)


def corners(boxes: Array, form: str) -> Array:
    """Return boxes [N, 4] as left, top, right, bottom."""
    if form == "yxyx":
        return boxes[:, [1, 0, 3, 2]]
    if form == "xyxy":
        return boxes
    first, sides = boxes[:, :2], boxes[:, 2:]
    if form == "cxcywh":
        first = first - sides / 2
    return np.concatenate([first, first + sides], axis=1)


def are_shares(unit: str, frames: Iterable[Detections]) -> bool:
    """Tell whether boxes of a run are shares of width and height, or pixels."""
    if unit != "auto":
        return unit == "share"
    return all(np.abs(frame.boxes).max(initial=0) <= _MAX_SHARE for frame in frames)


def suppressed(detections: Detections, overlap: float) -> Detections:
    """Return the best of the detections of a class that overlap, the best first.

    ``overlap``: intersection over union beyond which two boxes are taken for one object.
    """
    order = np.argsort(-detections.scores, kind="stable")
    kept: list[int] = []
    while len(order):
        best, order = order[0], order[1:]
        kept.append(int(best))
        is_other = detections.classes[order] != detections.classes[best]
        others = overlaps(detections.boxes[best], detections.boxes[order])
        order = order[is_other | (others <= overlap)]
    return detections.only(np.array(kept, np.int64))


def overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box [4] with each of [N, 4]; 0 with empty boxes."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.clip(sides, 0, None).prod(axis=1)
    areas = np.clip(others[:, 2:] - others[:, :2], 0, None).prod(axis=1)
    union = np.clip(box[2:] - box[:2], 0, None).prod() + areas - shared
    shares: Array = np.divide(shared, union, out=np.zeros(len(others)), where=union > 0)
    return shares


def in_frame(detections: Detections, fit: Fit, *, shares: bool) -> Detections:
    """Return detections in pixels of the frame."""
    height, width = fit.size if shares else (1, 1)
    return replace(detections, boxes=detections.boxes * np.array([width, height] * 2, np.float64))


def in_image(detections: Detections, fit: Fit, image: tuple[int, int]) -> tuple[Detections, int]:
    """Return detections of a frame in pixels of its image, of this height and width, clipped to it.

    Returns:
        The detections, and how many were left out because nothing of them lies in the image.
    """
    corner, size, resized = (
        np.array([*pair][::-1] * 2) for pair in (fit.corner, image, fit.resized)
    )
    boxes = np.clip((detections.boxes + corner) * (size / resized), 0, size)
    has_area = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    kept = replace(detections, boxes=boxes).only(has_area)
    return kept, int((~has_area).sum())
