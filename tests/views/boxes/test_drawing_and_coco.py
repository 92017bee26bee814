"""Boxes on images, COCO files, and names of classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image

from rankslice.frontend.formats.onnx.reader import read_metadata
from rankslice.views.boxes.detections import Detections
from rankslice.views.boxes.drawing import colour_of, draw
from rankslice.views.boxes.labelled_images import LabelledImage, coco
from rankslice.views.classes import parsed_names


def of(*boxes: tuple[float, ...]) -> Detections:
    """Return detections with scores that fall, of classes 0, 1, ..."""
    count = len(boxes)
    scores = np.linspace(0.9, 0.5, count) if count else np.empty(0)
    return Detections(np.array(boxes, float).reshape(-1, 4), scores, np.arange(count))


def test_a_box_is_drawn_along_its_edges_in_the_colour_of_its_class() -> None:
    image = Image.new("RGB", (200, 100), "white")
    draw(image, of((20, 40, 120, 90)), ["class 0"])
    colour = colour_of(0)
    assert [colour] * 4 == [image.getpixel(at) for at in ((20, 60), (119, 60), (90, 89), (60, 40))]
    assert (255, 255, 255) == image.getpixel((60, 60))  # inside
    assert (255, 255, 255) == image.getpixel((120, 60))  # the right edge is no part of the box
    label = np.asarray(image)[20:40, 20:60]
    assert (label == colour).all(2).mean() > 0.2


@pytest.mark.parametrize("size", [(1, 1), (5, 300), (3000, 4), (640, 480)])
def test_labels_are_written_wherever_a_box_is(
    size: tuple[int, int],
) -> None:
    image = Image.new("RGB", size)
    width, height = size
    detections = of(
        (0, 0, width, height), (width - 0.5, height - 0.5, width, height), (0, 0, 0.1, 0.1)
    )
    draw(image, detections, ["\x1b[31m\n" * 50, "", "名前"])
    assert size == image.size


def test_classes_that_follow_each_other_have_colours_that_differ() -> None:
    colours = np.array([colour_of(number) for number in range(90)])
    assert np.abs(np.diff(colours, axis=0)).max(axis=1).min() > 100
    assert 90 == len(np.unique(colours, axis=0))


def test_a_coco_file_has_what_its_readers_expect() -> None:
    images = [
        LabelledImage("a.jpg", 200, 100, of((10.5, 20, 30, 60))),
        LabelledImage("b.jpg", 20, 10, of()),
        LabelledImage("c.jpg", 200, 100, of((0, 0, 200, 100), (1, 2, 3, 4))),
    ]
    record = json.loads(json.dumps(coco(images, ("cat",))))
    assert [1, 2, 3] == [image["id"] for image in record["images"]]
    assert {"id": 2, "file_name": "b.jpg", "width": 20, "height": 10} == record["images"][1]
    assert [(1, 1, 0), (2, 3, 0), (3, 3, 1)] == [
        (annotation["id"], annotation["image_id"], annotation["category_id"])
        for annotation in record["annotations"]
    ]
    first = record["annotations"][0]
    assert ([10.5, 20, 19.5, 40], 780, 0, 0.9) == (
        *(first["bbox"], first["area"], first["iscrowd"], first["score"]),
    )
    assert [{"id": 0, "name": "cat"}, {"id": 1, "name": "1"}] == record["categories"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("{0: 'person', 1: \"bird's nest\"}", ("person", "bird's nest")),
        ('{"1": "b", "0": "a"}', ("a", "b")),
        ("['a', 'b']", ("a", "b")),
        ("__import__('os').abort()", ()),
        ("{0: open('/etc/passwd')}", ()),
        ("[" * 5000, ()),
        ("{0: 1}", ()),
        ("{-1: 'a'}", ()),
        ("{99999999999: 'a'}", ()),
        ("7", ()),
        ("", ()),
    ],
)
def test_names_in_metadata_are_read_as_literals_alone(text: str, names: tuple[str, ...]) -> None:
    assert names == parsed_names(text)


def test_metadata_is_read_without_the_model(tmp_path: Path) -> None:
    graph = helper.make_graph([], "g", [], [])
    model = helper.make_model(graph, producer_name="a maker")
    helper.set_model_props(model, {"names": "{0: 'ö'}", "long": "x" * 5000, "empty": ""})
    onnx.save(model, tmp_path / "model.onnx")
    expected = {"names": "{0: 'ö'}", "long": "x" * 5000, "empty": ""}
    assert expected == read_metadata(tmp_path / "model.onnx")
