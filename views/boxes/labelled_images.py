"""``run --boxes``: a folder of labelled images and ``coco.json``, made of a run's results."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
from rankslice.framework.reading.read_text import read_text
from rankslice.session.prepare import PreparedRun, as_user_errors
from rankslice.views.boxes.coco import FORMAT, LabelledImage, coco
from rankslice.views.boxes.names import model_names
from rankslice.views.boxes.reading import Reading, find_outputs

if TYPE_CHECKING:
    from rankslice.session.run import FinishedRun
    from rankslice.views.boxes.detections import Detections

COCO = "coco.json"
_OPTION = "--boxes-to"
_KEPT_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".png", ".ppm", ".webp")
"""Of images whose format holds colours; others become PNG files."""
_JPEG_QUALITY = 92


@dataclass(frozen=True, slots=True)
class BoxWork:
    """Boxes that are to be drawn after a run."""

    reading: Reading
    outputs: tuple[int, ...]
    """Numbers of the model's outputs that hold boxes."""
    source: Source
    """Of images."""
    takes: ImageInput
    folder: Path
    """To be made."""
    names: tuple[str, ...]
    """Of the classes; empty: unknown."""

    def name_of(self, number: int) -> str:
        """Return the name of a class, or its number."""
        return self.names[number] if number < len(self.names) else str(number)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was drawn."""

    folder: Path
    images: int
    boxes: int
    unsound: int
    """Boxes left out because a number is not finite, or a class negative."""
    outside: int
    """Boxes left out because nothing of them lies in the image."""

    def __str__(self) -> str:
        """Return a line that says so."""
        reasons = {
            "without area in the image": self.outside,
            "with an invalid number or class": self.unsound,
        }
        told = [f"{count} {reason}" for reason, count in reasons.items() if count]
        left_out = f"; left out: {', '.join(told)}" if told else ""
        return f"{self.boxes} boxes on {self.images} images, in {self.folder}{left_out}"


def prepare_boxes(
    prepared: PreparedRun, reading: Reading, folder: Path, names: Sequence[str]
) -> BoxWork:
    """Check before the run what can be checked of what follows it.

    Args:
        prepared: the run.
        reading: how its outputs are read.
        folder: to be made.
        names: of the classes; empty: those that the model's file has, if any.

    Raises:
        RankSliceError: frames are no images, outputs hold no boxes, or the folder cannot be made.
    """
    if found := _what_forbids(folder):
        raise RankSliceError(Mistake(str(folder), found, f"choose another {_OPTION}"))
    source = prepared.source
    follows_here = isinstance(source, FollowSource) and prepared.boards is None
    if not (isinstance(source, ImageSource) or follows_here):
        found = f"{' '.join(prepared.options.inputs)} gives no images on this machine to draw on"
        raise RankSliceError(Mistake("--boxes", found, "name images or a folder with --input"))
    job = prepared.plan.job
    outputs = find_outputs(reading, job.outputs)
    known = tuple(names) or model_names(prepared.folder)
    takes = image_input(job.inputs[0], prepared.options.preprocessing)
    return BoxWork(reading, outputs, source, takes, folder, known)


def _what_forbids(folder: Path) -> str:
    """Return why a folder cannot be made, as a clause; empty: it can."""
    folder = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow a link at the end
    if os.path.lexists(folder):
        return what_forbids(folder, _why_not_replaced)
    parent = next(each for each in folder.parents if os.path.lexists(each))
    if not parent.is_dir():
        return f"lies in {parent}, which is not a folder"
    return "" if os.access(parent, os.W_OK) else "cannot be written: Permission denied"


def _why_not_replaced(folder: Path) -> str:
    """Return what shows that a folder is none of an earlier run; empty: nothing."""
    if not any(folder.iterdir()):
        return ""
    found = other_maker(folder, COCO, FORMAT, "run with --boxes")
    if found:
        return f"exists and {found}"
    try:
        images = json.loads(read_text(folder / COCO, "a COCO file"))["images"]
        own = {COCO, *(image["file_name"] for image in images)}
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"exists and has a {COCO} that no run made"
    return other_entries(folder, own.__contains__)


def write_boxes(work: BoxWork, finished: FinishedRun, on_drawn: Callable[[int], None]) -> Drawn:
    """Draw what a run has found on its images; write them and ``coco.json`` into a new folder.

    Raises:
        RankSliceError: an image cannot be read any more, or something cannot be written.
    """
    from rankslice.views.boxes.detections import (
        are_shares,
        has_boxes_by_column,
        read_detections,
    )

    by_column = has_boxes_by_column(finished.results.outputs[work.outputs[0]].shape)

    def detections() -> Iterator[tuple[Detections, int]]:
        frames = zip(*(finished.results.frames(number) for number in work.outputs), strict=True)
        return (read_detections(work.reading, outputs, by_column=by_column) for outputs in frames)

    shares = are_shares(work.reading.unit, (found for found, _ in detections()))
    unsound = outside = 0
    images: list[LabelledImage] = []
    taken: Counter[str] = Counter()
    with new_folder(work.folder, replaces=_why_not_replaced, kind="folders of boxes") as folder:
        for path, (found, count) in zip(_paths(work, finished), detections(), strict=True):
            name = _free_name(path.name, taken)
            with as_user_errors():
                image, lost = _label(work, path, found, folder / name, shares=shares)
            unsound, outside = unsound + count, outside + lost
            images.append(image)
            on_drawn(len(images))
        text = json.dumps(coco(images, work.names, work.name_of), indent=1)
        (folder / COCO).write_text(text + "\n", encoding="utf-8")
    boxes = sum(len(image.found) for image in images)
    return Drawn(work.folder, len(images), boxes, unsound, outside)


def _paths(work: BoxWork, finished: FinishedRun) -> list[Path]:
    """Return the image of each frame."""
    source = work.source
    if isinstance(source, ImageSource):
        return [source.path(index) for index in finished.arrivals]
    assert isinstance(source, FollowSource)
    # The names come from a rank: they must not lead out of the folder.
    return [source.folder / Path(name).name for name in finished.labels]


def _label(
    work: BoxWork, path: Path, found: Detections, target: Path, *, shares: bool
) -> tuple[LabelledImage, int]:
    """Write the image of a frame with its boxes; return it, and how many boxes lie outside."""
    from rankslice.views.boxes.detections import in_frame, in_image, suppressed
    from rankslice.views.boxes.drawing import draw

    with opened_image(path) as opened:
        image = decoded(opened, 3)
    size = image.height, image.width
    fit = work.takes.fit(size, path.name)
    image = (image.convert("L") if image.mode == "F" else image).convert("RGB")
    found = in_frame(found, fit, shares=shares)
    if work.reading.overlap is not None:
        found = suppressed(found, work.reading.overlap)
    found, outside = in_image(found, fit, size)
    draw(image, found, work.name_of)
    options: dict[str, Any] = {}
    if target.suffix.lower() in (".jpg", ".jpeg", ".webp"):
        options["quality"] = _JPEG_QUALITY
    try:
        image.save(target, **options)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        # Some formats hold no image of this size.
        found_wrong = f"cannot be written as {target.suffix} file: {error}"
        raise RankSliceError(Mistake(target.name, found_wrong)) from None
    return LabelledImage(target.name, image.width, image.height, found), outside


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
