"""What images show, as files say it: a class of each, or boxes of objects."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from rankslice.backend.runtime.sources.image_source import SUFFIXES, is_frame
from rankslice.framework.errors import Mistake, RankSliceError, nearest, raise_mistakes
from rankslice.framework.files.ordinary_file import read_text
from rankslice.framework.reading.read_json import read_json
from rankslice.framework.wording import quoted
from rankslice.measurement.accuracy import TrueBox
from rankslice.session.shared_options import is_number

OPTION = "--truth"
_MAX_BYTES = 1 << 28
"""Of a file of annotations."""
_HEADS = ("file", "filename", "image", "name", "path")
"""First cells of the first line of a CSV file that names columns."""
_KINDS = (
    "expected a CSV file (image,class), a folder with a folder of images for each class, COCO"
    " annotations (.json), or a folder of Pascal VOC annotations (.xml)"
)


@dataclass(frozen=True, slots=True)
class Truth:
    """Classes, or boxes, of images by their names: the last parts of their paths."""

    where: str
    classes: Mapping[str, int] = field(default_factory=dict)
    boxes: Mapping[str, tuple[TrueBox, ...]] | None = None
    """``None``: the images have classes."""

    def class_of(self, image: Path) -> int | None:
        return self.classes.get(_key(image, self.classes))

    def boxes_of(self, image: Path) -> tuple[TrueBox, ...] | None:
        assert self.boxes is not None
        return self.boxes.get(_key(image, self.boxes))

    def check(self, images: Iterable[Path]) -> None:
        """Refuse images of which nothing is known.

        Raises:
            RankSliceError: with the first of them.
        """
        of = self.classes if self.boxes is None else self.boxes
        missing = [image for image in images if _key(image, of) not in of]
        if missing:
            rest = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            found = f"says nothing of {quoted(missing[0].name)}{rest}"
            raise RankSliceError(Mistake(self.where, found, "expected each image of --input"))


def _key(image: Path, known: Mapping[str, Any]) -> str:
    """Return the longest end of a path that is known; empty: none."""
    parts = image.parts
    ends = ("/".join(parts[begin:]) for begin in range(len(parts)))
    return next((end for end in ends if end in known), "")


def class_folders(path: Path) -> tuple[Path, ...]:
    """Return the folders in a folder that have images, sorted: one for each class."""
    if not path.is_dir():
        return ()
    return tuple(folder for folder in sorted(path.iterdir()) if folder.is_dir() and _images(folder))


def _images(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if is_frame(file.name, SUFFIXES)]


def read_truth(path: Path, names: Sequence[str]) -> Truth:
    """Read what images show.

    Args:
        path: a CSV file, folders of classes, or annotations of COCO or Pascal VOC.
        names: of the model's classes; empty: unknown. Then numbers are classes, folders are
            classes in the order of their names, and annotated ones in that of their numbers.

    Raises:
        RankSliceError: it is none of these, or names another class.
    """
    if path.suffix.lower() == ".json":
        return _of_coco(path, names)
    if path.is_dir():
        if folders := class_folders(path):
            return _of_folders(path, folders, names)
        if files := sorted(path.glob("*.xml")):
            return _of_voc(path, files, names)
        raise RankSliceError(Mistake(str(path), "has no folders of images", _KINDS))
    return _of_csv(path, names)


def _of_folders(path: Path, folders: Sequence[Path], names: Sequence[str]) -> Truth:
    called = [folder.name for folder in folders]
    numbers = _numbered(str(path), called, names)
    return Truth(
        str(path),
        {
            f"{folder.name}/{name}": number
            for folder, number in zip(folders, numbers, strict=True)
            for name in _images(folder)
        },
    )


def _numbered(where: str, called: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return the numbers of classes by their names."""
    if all(map(is_number, called)):
        return [int(name) for name in called]
    if not names:
        order = sorted(set(called))
        return [order.index(name) for name in called]
    raise_mistakes(
        Mistake(
            where,
            f"the model has no class {quoted(name)}",
            nearest(name, names) or "expected a name of --labels",
        )
        for name in dict.fromkeys(called)
        if name not in names
    )
    return [names.index(name) for name in called]


def _of_csv(path: Path, names: Sequence[str]) -> Truth:
    try:
        lines = list(csv.reader(io.StringIO(read_text(path, "a CSV")), strict=True))
    except csv.Error as error:
        raise RankSliceError(Mistake(str(path), f"is no CSV file: {error}", _KINDS)) from None
    rows = [(number, row) for number, row in enumerate(lines, 1) if row]
    if rows and rows[0][1][0].strip().lower() in _HEADS:
        rows = rows[1:]
    if not rows:
        raise RankSliceError(Mistake(str(path), "names no image", _KINDS))
    raise_mistakes(
        Mistake(f"{path}, line {number}", f"has {len(row)} cells", "expected image,class")
        for number, row in rows
        if len(row) < 2
    )
    cells = [(row[0].strip(), row[1].strip()) for _, row in rows]
    if not names and not all(is_number(cell) for _, cell in cells):
        expected = "give the names of the classes with --labels"
        raise RankSliceError(Mistake(str(path), "names classes by words", expected))
    numbers = _numbered(str(path), [cell for _, cell in cells], names)
    return Truth(
        str(path), {image: number for (image, _), number in zip(cells, numbers, strict=True)}
    )


def _of_coco(path: Path, names: Sequence[str]) -> Truth:
    """Read COCO's annotations; a crowd (``iscrowd``) is left out."""
    where = str(path)
    record: Any = read_json(
        read_text(path, "annotations", _MAX_BYTES), where, "expected COCO annotations"
    )
    try:
        images = {image["id"]: str(image["file_name"]) for image in record["images"]}
        categories = sorted((entry["id"], str(entry["name"])) for entry in record["categories"])
        boxes: dict[str, list[TrueBox]] = {name: [] for name in images.values()}
        numbers = _of_categories(where, [name for _, name in categories], names)
        by_id = dict(zip((of for of, _ in categories), numbers, strict=True))
        for entry in record["annotations"]:
            box = _box(*map(float, entry["bbox"]))
            is_crowd = bool(entry.get("iscrowd", 0))
            made = TrueBox(by_id[entry["category_id"]], box, is_crowd)
            boxes[images[entry["image_id"]]].append(made)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"these are no COCO annotations ({type(error).__name__}: {error})"
        expected = "expected images, categories, and annotations with a bbox each"
        raise RankSliceError(Mistake(where, found, expected)) from None
    return Truth(where, boxes={name: tuple(of) for name, of in boxes.items()})


def _box(left: float, top: float, width: float, height: float) -> tuple[float, float, float, float]:
    if not all(abs(number) < 1e9 for number in (left, top, width, height)):
        raise ValueError("a box without bounds")
    return left, top, width, height


def _of_categories(where: str, called: Sequence[str], names: Sequence[str]) -> list[int]:
    """Return numbers of classes: by name where the model's are known, else in their order."""
    if names and all(name in names for name in called):
        return [names.index(name) for name in called]
    if names and len(names) != len(called):
        return _numbered(where, called, names)
    return list(range(len(called)))


def _of_voc(path: Path, files: Sequence[Path], names: Sequence[str]) -> Truth:
    """Read Pascal VOC's annotations; objects that are ``difficult`` are left out."""
    objects = {name: list(of) for name, of in map(_voc_objects, files)}
    called = sorted({name for of in objects.values() for name, _, _ in of})
    numbers = dict(zip(called, _numbered(str(path), called, names), strict=True))
    return Truth(
        str(path),
        boxes={
            image: tuple(TrueBox(numbers[name], box, difficult) for name, box, difficult in of)
            for image, of in objects.items()
        },
    )


def _voc_objects(file: Path) -> tuple[str, Iterator[tuple[str, Any, bool]]]:
    """Return the name of an image, and name, box and difficulty of its objects."""
    text = read_text(file, "annotations")
    expected = "expected an annotation of Pascal VOC"
    if "<!DOCTYPE" in text or "<!ENTITY" in text:  # entities may be anything
        raise RankSliceError(Mistake(str(file), "declares entities", expected))
    try:
        root = ElementTree.fromstring(text)
        image = root.findtext("filename", "").strip() or f"{file.stem}.jpg"
        return image, iter([_voc_object(of) for of in root.iter("object")])
    except (ElementTree.ParseError, ValueError) as error:
        raise RankSliceError(Mistake(str(file), f"cannot be read: {error}", expected)) from None


def _voc_object(of: ElementTree.Element) -> tuple[str, Any, bool]:
    sides = (of.findtext(f"bndbox/{side}", "") for side in ("xmin", "ymin", "xmax", "ymax"))
    left, top, right, bottom = map(float, sides)
    # Pixels are counted from 1, and the last ones belong to the box.
    box = _box(left - 1, top - 1, right - left + 1, bottom - top + 1)
    return of.findtext("name", "").strip(), box, of.findtext("difficult", "0").strip() == "1"
