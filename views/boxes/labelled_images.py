"""``run --boxes``: a folder of labelled images and ``coco.json``, made of a run's results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankslice.backend.runtime.sources import Source
from rankslice.backend.runtime.sources.follow_source import FollowSource
from rankslice.backend.runtime.sources.image_input import ImageInput, image_input
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
from rankslice.views.boxes.coco import FORMAT, LabelledImage, coco
from rankslice.views.boxes.detections import RunBoxes
from rankslice.views.boxes.drawing import draw
from rankslice.views.boxes.reading import BoxOptions, find_outputs
from rankslice.views.classes import model_names

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun

COCO = "coco.json"
_OPTION = "--boxes-to"
_KEPT_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
"""Of images whose format holds colours; others become PNG files."""
_JPEG_QUALITY = 92


@dataclass(frozen=True, slots=True)
class BoxWork:
    """Boxes that are to be drawn after a run."""

    reading: BoxOptions
    outputs: tuple[int, ...]
    """Numbers of the model's outputs that hold boxes."""
    source: Source
    """Of images."""
    takes: ImageInput
    names: tuple[str, ...]
    """Of the classes; empty: unknown."""


def prepare_boxes(prepared: PreparedRun, reading: BoxOptions, names: Sequence[str]) -> BoxWork:
    """Check before the run what can be checked of what follows it.

    Args:
        prepared: the run.
        reading: how its outputs are read.
        names: of the classes; empty: those that the model's file has, if any.

    Raises:
        RankSliceError: frames are no images, outputs hold no boxes, or the folder cannot be made.
    """
    folder = reading.boxes_to
    if problem := what_forbids(folder, _why_not_replaced):
        raise RankSliceError(Mistake(str(folder), problem, f"choose another {_OPTION}"))
    source = prepared.source
    follows_here = isinstance(source, FollowSource) and prepared.boards is None
    if not (isinstance(source, ImageSource) or follows_here):
        problem = f"{' '.join(prepared.options.inputs)} gives no images on this machine to draw on"
        raise RankSliceError(Mistake("--boxes", problem, "name images or a folder with --input"))
    job = prepared.plan.job
    outputs = find_outputs(reading, job.outputs)
    known = tuple(names) or model_names(prepared.folder)
    takes = image_input(job.inputs[0], prepared.options.preprocessing)
    return BoxWork(reading, outputs, source, takes, known)


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


def write_boxes(work: BoxWork, finished: FinishedRun, on_drawn: Callable[[int], None]) -> str:
    """Draw what a run has found on its images; write them and ``coco.json`` into a new folder.

    Returns:
        A line that says what was drawn, and what was left out.

    Raises:
        RankSliceError: an image cannot be read any more, or something cannot be written.
    """
    boxes = RunBoxes(work.reading, work.outputs, finished.results)
    left_out: Counter[str] = Counter()
    images: list[LabelledImage] = []
    taken: Counter[str] = Counter()
    with new_folder(
        work.reading.boxes_to, replaces=_why_not_replaced, kind="folders of boxes"
    ) as folder:
        for number, path in enumerate(_paths(work, finished)):
            name = _free_name(path.name, taken)
            with as_user_errors():
                image = _opened(path)
                size = image.height, image.width
                fit = work.takes.fit(size, path.name)
                detections, unsound, outside = boxes.on_image(number, fit, size)
                draw(image, detections, work.names)
                _save(image, folder / name)
            left_out["without area in the image"] += outside
            left_out["with an invalid number or class"] += unsound
            images.append(LabelledImage(name, image.width, image.height, detections))
            on_drawn(len(images))
        text = json.dumps(coco(images, work.names), indent=1)
        (folder / COCO).write_text(text + "\n", encoding="utf-8")
    count = sum(len(image.detections) for image in images)
    reasons = [f"{number} {reason}" for reason, number in left_out.items() if number]
    rest = f"; left out: {', '.join(reasons)}" if reasons else ""
    return f"{count} boxes on {len(images)} images, in {work.reading.boxes_to}{rest}"


def _paths(work: BoxWork, finished: FinishedRun) -> list[Path]:
    """Return the image of each frame."""
    source = work.source
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
