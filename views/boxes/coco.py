"""Detections as a COCO file.

The form is that of ``instances_*.json`` (https://cocodataset.org/#format-data), each annotation
with a ``score`` as in results. So ``pycocotools`` reads the file, and takes its ``annotations`` for
results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rankslice.views.boxes.detections import Detections
from rankslice.views.classes import class_name

FORMAT = "rankslice-boxes"


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """An image and what was found in it."""

    name: str
    """Of its file."""
    width: int
    height: int
    detections: Detections
    """In its pixels."""


def coco(images: Sequence[LabelledImage], names: Sequence[str]) -> dict[str, Any]:
    """Return a COCO file as JSON has it.

    Images and annotations are numbered from 1. The number of a category is that of the model's
    class.

    Args:
        images: in order.
        names: of all classes, if they are known: each is a category, found or not.
    """
    used = {int(number) for image in images for number in image.detections.classes}
    numbered = [*enumerate(images, 1)]
    annotations = (one for number, image in numbered for one in _annotations(number, image))
    return {
        "info": {"format": FORMAT, "description": "boxes that a model found in images"},
        "images": [
            {"id": number, "file_name": image.name, "width": image.width, "height": image.height}
            for number, image in numbered
        ],
        "annotations": [{"id": number, **one} for number, one in enumerate(annotations, 1)],
        "categories": [
            {"id": number, "name": class_name(names, number)}
            for number in sorted(used.union(range(len(names))))
        ],
    }


def _annotations(number: int, image: LabelledImage) -> Iterator[dict[str, Any]]:
    detections = image.detections
    for (left, top, right, bottom), label, score in zip(
        *(detections.boxes.tolist(), detections.classes.tolist(), detections.scores.tolist()),
        strict=True,
    ):
        box = [round(side, 3) for side in (left, top, right - left, bottom - top)]
        yield {
            "image_id": number,
            "category_id": label,
            "bbox": box,
            "area": round(box[2] * box[3], 3),
            "iscrowd": 0,
            "score": round(score, 6),
        }
