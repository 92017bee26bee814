"""How often a job is right, and its unsliced model: classes of images, and boxes in them."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.bench.intervals import Interval

if TYPE_CHECKING:
    from pycocotools.cocoeval import COCOeval

TOP = (1, 5)
MISSING = "--truth with boxes needs pycocotools: pip install 'rankslice[accuracy]'"

Box: TypeAlias = tuple[float, float, float, float]

_NORMAL_95 = 1.959964
_RESAMPLES = (50, 1000)
"""Fewest and most resampled sets of images."""
_RESAMPLED_DETECTIONS = 2_000_000
"""Of all resamples together: what decides how many there are."""
_MAX_DETECTIONS = 100
"""Per image, as COCO counts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of accuracy, 0 to 1."""

    name: str
    sliced: float
    unsliced: float
    difference: Interval
    """Sliced - unsliced, over other sets of as many images."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    frames: int
    measures: tuple[Measure, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "frames": self.frames,
            **{
                measure.name: {
                    "sliced": measure.sliced,
                    "unsliced": measure.unsliced,
                    "difference": measure.difference.value,
                    "interval": [measure.difference.low, measure.difference.high],
                }
                for measure in self.measures
            },
        }


def place_of(scores: NDArray[Any], truth: int) -> int:
    """Return how many classes come before the true one, those of equal scores in their order."""
    flat = scores.reshape(-1)
    own = flat[truth]
    return int((flat > own).sum() + (flat[:truth] == own).sum())


def class_accuracy(sliced: Sequence[int], unsliced: Sequence[int], classes: int) -> Accuracy:
    """Return top-1 and top-5 by the places of the true classes, one per image.

    The interval of a difference of two shares of the same images is that of Agresti and Min,
    "Simple improved confidence intervals for comparing matched proportions" (2005).
    """
    places = np.array(sliced), np.array(unsliced)
    return Accuracy(
        len(sliced),
        tuple(
            _share(f"top{best}", *(of < best for of in places)) for best in TOP if best < classes
        ),
    )


def _share(name: str, sliced: NDArray[np.bool_], unsliced: NDArray[np.bool_]) -> Measure:
    gained = int((sliced & ~unsliced).sum())
    lost = int((unsliced & ~sliced).sum())
    count = len(sliced) + 2
    middle = (gained - lost) / count
    half = _NORMAL_95 * sqrt(gained + lost + 1 - (gained - lost) ** 2 / count) / count
    value = (gained - lost) / len(sliced)
    interval = Interval(value, max(-1.0, middle - half), min(1.0, middle + half))
    return Measure(name, float(sliced.mean()), float(unsliced.mean()), interval)


@dataclass(frozen=True, slots=True)
class TrueBox:
    """An annotated object; left, top, width and height in pixels of the image."""

    class_: int
    box: Box
    is_left_out: bool = False
    """It is a crowd, or difficult: finding it or not counts nothing."""


@dataclass(frozen=True, slots=True)
class FoundBox:
    class_: int
    score: float
    box: Box


def check_installed() -> None:
    try:
        import pycocotools.cocoeval  # noqa: F401
    except ImportError:
        raise RankSliceError(MISSING) from None


def box_accuracy(
    truth: Sequence[Sequence[TrueBox]],
    sliced: Sequence[Sequence[FoundBox]],
    unsliced: Sequence[Sequence[FoundBox]],
) -> Accuracy:
    """Return COCO's mean average precision, by image: over overlaps of 0.5 to 0.95, and of 0.5.

    The interval of a difference is from sets of images that are drawn from these, with both models
    on the same set. The draws are the same each time.
    """
    evaluated = _evaluated(truth, sliced), _evaluated(truth, unsliced)
    every = np.arange(len(truth))
    points = [_precisions(evaluation, every) for evaluation in evaluated]
    differences = np.zeros((1, 2))
    if list(map(list, sliced)) != list(map(list, unsliced)):
        random = np.random.default_rng(0)
        drawn = [random.integers(0, len(truth), len(truth)) for _ in range(_resamples(sliced))]
        pairs = [[_precisions(evaluation, of) for evaluation in evaluated] for of in drawn]
        differences = np.array([np.subtract(one, other) for one, other in pairs])
    low, high = np.percentile(differences, [2.5, 97.5], axis=0)
    return Accuracy(
        len(truth),
        tuple(
            Measure(name, one, other, Interval(one - other, float(low[at]), float(high[at])))
            for at, (name, one, other) in enumerate(zip(("map", "map50"), *points, strict=True))
        ),
    )


def _resamples(found: Sequence[Sequence[FoundBox]]) -> int:
    least, most = _RESAMPLES
    return max(least, min(most, _RESAMPLED_DETECTIONS // max(1, sum(map(len, found)))))


def _evaluated(truth: Sequence[Sequence[TrueBox]], found: Sequence[Sequence[FoundBox]]) -> COCOeval:
    from pycocotools.cocoeval import COCOeval

    classes = sorted({true.class_ for image in truth for true in image})
    annotated = [
        {"image_id": image, "category_id": true.class_, "bbox": [*true.box], "iscrowd": crowd}
        for image, boxes in enumerate(truth)
        for true in boxes
        for crowd in [int(true.is_left_out)]
    ]
    detected = [
        {"image_id": image, "category_id": box.class_, "bbox": [*box.box], "score": box.score}
        for image, boxes in enumerate(found)
        for box in boxes
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        sets = [_coco(annotations, len(truth), classes) for annotations in (annotated, detected)]
        evaluation = COCOeval(*sets, "bbox")
        evaluation.params.areaRng = evaluation.params.areaRng[:1]
        evaluation.params.areaRngLbl = evaluation.params.areaRngLbl[:1]
        evaluation.params.maxDets = [_MAX_DETECTIONS]
        evaluation.evaluate()
    return evaluation


def _coco(annotations: list[dict[str, Any]], images: int, classes: Sequence[int]) -> Any:
    from pycocotools.coco import COCO

    coco = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in range(images)],
        "categories": [{"id": class_} for class_ in classes],
        "annotations": [
            {"iscrowd": 0, **annotation, "id": number, "area": box[2] * box[3]}
            for number, annotation in enumerate(annotations, 1)
            for box in [annotation["bbox"]]
        ],
    }
    coco.createIndex()
    return coco


def _precisions(evaluation: COCOeval, images: NDArray[np.int64]) -> tuple[float, float]:
    """Return the average precisions over some of the images, each as often as it is named."""
    kept = evaluation.evalImgs
    by_class = [kept[begin : begin + len(images)] for begin in range(0, len(kept), len(images))]
    evaluation.evalImgs = [of[image] for of in by_class for image in images]
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation.accumulate()
    evaluation.evalImgs = kept
    precisions = evaluation.eval["precision"]  # [overlaps, recalls, classes, areas, counts]
    return _mean(precisions), _mean(precisions[:1])


def _mean(precisions: NDArray[np.float64]) -> float:
    """Return the mean over classes of which there is an object; -1 marks others."""
    counted = precisions[precisions > -1]
    return float(counted.mean()) if counted.size else 0.0
