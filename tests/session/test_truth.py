"""What files say of images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rankslice.framework.errors import RankSliceError
from rankslice.measurement.accuracy import TrueBox
from rankslice.session.truth import class_folders, read_truth

NAMES = ("bird", "cat", "dog")
COCO: dict[str, Any] = {
    "images": [{"id": 7, "file_name": "a.jpg"}, {"id": 9, "file_name": "b.jpg"}],
    "categories": [{"id": 18, "name": "dog"}, {"id": 16, "name": "bird"}],
    "annotations": [
        {"image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4]},
        {"image_id": 7, "category_id": 16, "bbox": [0, 0, 9, 9], "iscrowd": 1},
    ],
}
VOC = """<annotation><filename>{image}</filename><object><name>dog</name>
<difficult>{difficult}</difficult><bndbox><xmin>2</xmin><ymin>3</ymin><xmax>4</xmax><ymax>6</ymax>
</bndbox></object></annotation>"""


def labelled(folder: Path, *classes: str) -> Path:
    for name in classes:
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(folder / name / "1.png")
        (folder / name / "notes.txt").write_text("")
    (folder / "empty").mkdir()
    return folder


@pytest.mark.parametrize(
    ("classes", "names", "expected"),
    [
        (("dog", "cat"), NAMES, {"dog": 2, "cat": 1}),
        (("dog", "cat"), (), {"dog": 1, "cat": 0}),
        (("7", "10"), (), {"7": 7, "10": 10}),
    ],
)
def test_folders_are_classes(
    tmp_path: Path, classes: tuple[str, ...], names: tuple[str, ...], expected: dict[str, int]
) -> None:
    folder = labelled(tmp_path / "truth", *classes)
    truth = read_truth(folder, names)
    assert sorted(classes) == [of.name for of in class_folders(folder)]
    assert expected == {name: truth.class_of(folder / name / "1.png") for name in classes}
    assert truth.class_of(folder / "other" / "1.png") is None


def test_a_table_names_images_by_the_ends_of_their_paths(tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text('file,class\nx/a.png,dog\n"b, c.png", 0\ny/a.png,cat,extra\n\n')
    truth = read_truth(table, (*NAMES[:2], "dog", "0"))
    images = [Path("/data/x/a.png"), Path("b, c.png"), Path("data/y/a.png")]
    assert [2, 3, 1] == [truth.class_of(image) for image in images]
    truth.check(images)
    with pytest.raises(RankSliceError, match=r"nothing of 'z\.png' and 1 more"):
        truth.check([*images, Path("z.png"), Path("a.png")])
    table.write_text("a.png,3\n")
    assert 3 == read_truth(table, ()).class_of(Path("a.png"))


def test_annotations_of_coco(tmp_path: Path) -> None:
    file = tmp_path / "instances.json"
    file.write_text(json.dumps(COCO))
    for names, dog, bird in ((NAMES, 2, 0), ((), 1, 0), (("x", "y"), 1, 0)):
        truth = read_truth(file, names)
        crowd = TrueBox(bird, (0.0, 0.0, 9.0, 9.0), is_left_out=True)
        assert (TrueBox(dog, (1.0, 2.0, 3.0, 4.0)), crowd) == truth.boxes_of(Path("in/a.jpg"))
        assert () == truth.boxes_of(Path("b.jpg"))
        assert truth.boxes_of(Path("c.jpg")) is None


def test_annotations_of_pascal_voc(tmp_path: Path) -> None:
    (tmp_path / "1.xml").write_text(VOC.format(image="a.jpg", difficult=0))
    (tmp_path / "2.xml").write_text(VOC.format(image="", difficult=1))
    truth = read_truth(tmp_path, NAMES)
    box = (1.0, 2.0, 3.0, 4.0)
    assert (TrueBox(2, box),) == truth.boxes_of(Path("a.jpg"))
    assert (TrueBox(2, box, is_left_out=True),) == truth.boxes_of(Path("2.jpg"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "names no image; expected a CSV file"),
        ("t.csv", "file,class\n", "names no image"),
        ("t.csv", "a.png\n", r"line 1: has 1 cells; expected image,class"),
        ("t.csv", "a.png,cow\n", "the model has no class 'cow'"),
        ("t.csv", 'a,"b\n', "is no CSV file"),
        ("t.csv", f"a.png,{'9' * 5000}\n", "the model has no class '999"),
        ("t.json", "[1]", "these are no COCO annotations"),
        ("t.json", '{"images": 3}', "these are no COCO annotations"),
        ("t.json", json.dumps({**COCO, "categories": []}), "these are no COCO annotations"),
        (
            "t.json",
            json.dumps({**COCO, "annotations": [{**COCO["annotations"][0], "bbox": [1, 2, 3]}]}),
            "these are no COCO annotations",
        ),
        ("missing.csv", None, "no such file; expected a CSV file"),
        ("folder/t.txt", "", "has no folders of images; expected a CSV file"),
        ("folder/t.xml", "<a>", "cannot be read: no element found"),
        ("folder/t.xml", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "declares entities"),
        ("folder/t.xml", VOC.replace(">2<", ">x<"), "cannot be read: could not convert"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    if text is not None:
        path.write_text(text)
    with pytest.raises(RankSliceError, match=message):
        read_truth(path.parent if name.startswith("folder") else path, NAMES)


def test_words_need_the_names_of_the_classes(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a.png,cat\n")
    with pytest.raises(RankSliceError, match="give the names of the classes with --labels"):
        read_truth(tmp_path / "t.csv", ())
