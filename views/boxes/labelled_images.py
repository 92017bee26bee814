"""``run --boxes``: a folder of labelled images and ``coco.json``, made of a run's results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.sources import Source
from rankslice.backend.runtime.sources.follow_source import FollowSource
from rankslice.backend.runtime.sources.image_input import image_input
from rankslice.backend.runtime.sources.image_source import ImageSource, decoded, opened_image
from rankslice.framework.errors import Mistake, RankSliceError
from rankslice.framework.files.new_folder import (
    new_folder,
    other_entries,
    other_maker,
    what_forbids,
)
from rankslice.framework.files.ordinary_file import read_text
from rankslice.session.prepare import PreparedRun, as_user_errors
from rankslice.views.boxes.detections import Detections, boxes_of
from rankslice.views.boxes.drawing import draw
from rankslice.views.boxes.reading import BoxOptions, find_outputs
from rankslice.views.classes import class_name, model_names

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun

COCO = "coco.json"
FORMAT = "rankslice-boxes"
_OPTION = "--boxes-to"
_KEPT_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
"""Of images whose format holds colours; others become PNG files."""
_JPEG_QUALITY = 92


class LabelledFolder:
    """A folder of labelled images, made after a run."""

    def __init__(self, prepared: PreparedRun, reading: BoxOptions, names: Sequence[str]) -> None:
        """Check before the run that its frames are images, its outputs boxes, the folder free.

        ``names``: of the classes; empty: those that the model's file has, if any.
        """
        folder = reading.boxes_to
        if problem := what_forbids(folder, _why_not_replaced):
            raise RankSliceError(Mistake(str(folder), problem, f"choose another {_OPTION}"))
        source = prepared.source
        follows_here = isinstance(source, FollowSource) and prepared.boards is None
        if not (isinstance(source, ImageSource) or follows_here):
            inputs = " ".join(prepared.options.inputs)
            problem = f"{inputs} gives no images on this machine to draw on"
            hint = "name images or a folder with --input"
            raise RankSliceError(Mistake("--boxes", problem, hint))
        job = prepared.plan.job
        self._reading, self._source = reading, source
        self._outputs = find_outputs(reading, job.outputs)
        self._names = tuple(names) or model_names(prepared.folder)
        self._input = image_input(job.inputs[0], prepared.options.preprocessing)

    def write(self, finished: FinishedRun, on_drawn: Callable[[int], None]) -> str:
        """Draw what a run has found on its images; write them and ``coco.json`` into a new folder.

        Returns:
            A line that says what was drawn, and what was left out.

        Raises:
            RankSliceError: an image cannot be read any more, or something cannot be written.
        """
        target = self._reading.boxes_to
        boxes = boxes_of(self._reading, self._outputs, finished.results)
        left_out: Counter[str] = Counter()
        images: list[LabelledImage] = []
        taken: Counter[str] = Counter()
        with new_folder(target, replaces=_why_not_replaced, kind="folders of boxes") as folder:
            for number, path in enumerate(image_paths(self._source, finished)):
                name = _free_name(path.name, taken)
                with as_user_errors():
                    image = _opened(path)
                    size = image.height, image.width
                    fit = self._input.fit(size, path.name)
                    detections, unsound, outside = boxes.on_image(number, fit, size)
                    draw(image, detections, self._names)
                    _save(image, folder / name)
                left_out["without area in the image"] += outside
                left_out["with an invalid number or class"] += unsound
                images.append(LabelledImage(name, image.width, image.height, detections))
                on_drawn(len(images))
            text = json.dumps(coco(images, self._names), indent=1)
            (folder / COCO).write_text(text + "\n", encoding="utf-8")
        count = sum(len(image.detections) for image in images)
        reasons = [f"{number} {reason}" for reason, number in left_out.items() if number]
        rest = f"; left out: {', '.join(reasons)}" if reasons else ""
        return f"{count} boxes on {len(images)} images, in {target}{rest}"


def _why_not_replaced(folder: Path) -> str:
    """Return evidence that a folder is not from an earlier run, as a clause; empty: none."""
    if not any(folder.iterdir()):
        return ""
    problem = other_maker(folder, COCO, FORMAT, "run with --boxes")
    if problem:
        return f"exists and {problem}"
    try:
        images = json.loads(read_text(folder / COCO, "a COCO file"))["images"]
        own = {COCO, *(image["file_name"] for image in images)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"exists and has a {COCO} that no run made"
    return other_entries(folder, own.__contains__)


def image_paths(source: Source, finished: FinishedRun) -> list[Path]:
    """Return the image of each frame of a run."""
    if isinstance(source, ImageSource):
        return [source.path(index) for index in finished.arrivals]
    assert isinstance(source, FollowSource)
    # The names come from a rank: they must not lead out of the folder.
    return [source.folder / Path(name).name for name in finished.labels]


def _opened(path: Path) -> Any:
    """Return an image as an RGB image of pillow."""
    with opened_image(path) as opened:
        image = decoded(opened, 3)
    return (image.convert("L") if image.mode == "F" else image).convert("RGB")


def _save(image: Any, target: Path) -> None:
    options: dict[str, Any] = {}
    if target.suffix.lower() in (".jpg", ".jpeg", ".webp"):
        options["quality"] = _JPEG_QUALITY
    try:
        image.save(target, **options)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # Some formats hold no image of this size.
        refused = f"cannot be written as {target.suffix} file: {error}"
        raise RankSliceError(Mistake(target.name, refused)) from None


def _free_name(name: str, taken: Counter[str]) -> str:
    """Return the file name of an image's picture; a name that came before gets a number."""
    path = Path(name)
    suffix = path.suffix if path.suffix.lower() in _KEPT_SUFFIXES else f"{path.suffix}.png"
    free = f"{path.stem}{suffix}"
    while taken[free]:
        taken[free] += 1
        free = f"{path.stem}-{taken[free]}{suffix}"
    taken[free] += 1
    return free


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
    """Return detections as a COCO file, as JSON has it.

    The form is that of ``instances_*.json`` (https://cocodataset.org/#format-data), each annotation
    with a ``score`` as in results: ``pycocotools`` reads the file, and takes its ``annotations``
    for results. Images and annotations are numbered from 1; the number of a category is that of the
    model's class.

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
