"""Detections as a COCO file.

The form is that of ``instances_*.json`` (https://cocodataset.org/#format-data), each annotation
with a ``score`` as in results. So ``pycocotools`` reads the file, and takes its ``annotations`` for
results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rankslice.views.boxes.detections import Detections

FORMAT = "rankslice-boxes"


@dataclass(frozen=True, slots=True)
class LabelledImage:
    """An image and what was found in it."""

    name: str
    """Of its file."""
    width: int
    height: int
    found: Detections
    """In its pixels."""


def coco(
    images: Sequence[LabelledImage], names: Sequence[str], name_of: Callable[[int], str]
) -> dict[str, Any]:
    """Return a COCO file as JSON has it.

    Images and annotations are numbered from 1. The number of a category is that of the model's
    class.

    Args:
        images: in order.
        names: of all classes, if they are known: each is a category, found or not.
        name_of: returns the name of a class.
    """
    used = {int(number) for image in images for number in image.found.classes}
    annotations: list[dict[str, Any]] = []
    for number, image in enumerate(images, 1):
        annotations += _annotations(number, image.found, len(annotations) + 1)
    return {
        "info": {"format": FORMAT, "description": "boxes that a model found in images"},
        "images": [
            {
                "id": number,
                "file_name": image.name,
                "width": image.width,
                "height": image.height,
            }
            for number, image in enumerate(images, 1)
        ],
        "annotations": annotations,
        "categories": [
            {"id": number, "name": name_of(number)}
            for number in sorted(used.union(range(len(names))))
        ],
    }


def _annotations(image: int, found: Detections, first: int) -> list[dict[str, Any]]:
    """Return the annotations of an image, numbered from ``first``."""
    told = []
    for number in range(len(found)):
        left, top, right, bottom = found.boxes[number].tolist()
        box = [round(each, 3) for each in (left, top, right - left, bottom - top)]
        told.append(
            {
                "id": first + number,
                "image_id": image,
                "category_id": int(found.classes[number]),
                "bbox": box,
                "area": round(box[2] * box[3], 3),
                "iscrowd": 0,
                "score": round(float(found.scores[number]), 6),
            }
        )
    return told
