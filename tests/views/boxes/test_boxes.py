"""A folder of photographs through a detector on two ranks, to labelled pictures and a COCO file."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Ended, rankslice, succeed
from jobs import session
from PIL import Image

from rankslice.views.boxes.labelled_images import _free_name, _why_not_replaced

ROOT = Path(__file__).parents[3]
DETECTOR = ROOT / "models" / "digit_detector.onnx"
PHOTOGRAPHS = ROOT / "models" / "photographs"


def found_by_the_unsliced_model(path: Path) -> list[tuple[int, list[float]]]:
    """Return classes and boxes [x, y, width, height] in pixels of a photograph."""
    with Image.open(path) as image:
        across, down = image.width / 256, image.height / 192
        pixels = np.asarray(image.resize((256, 192), Image.Resampling.BILINEAR), np.float32)
        limits = [image.width, image.height] * 2
    frame = (pixels * np.float32(1 / 255)).transpose(2, 0, 1)[None]
    boxes, _, labels = session(DETECTOR).run(None, {"image": frame})
    corners = np.clip(boxes * [across, down, across, down], 0, limits)
    corners[:, 2:] -= corners[:, :2]
    return [(int(label), box) for label, box in zip(labels, corners.tolist(), strict=True)]


def run(out: Path, target: Path, *inputs: Path) -> Ended:
    named = [argument for path in inputs for argument in ("--input", path)]
    options = ("--boxes", "boxes,scores,labels", "--boxes-to", target)
    return rankslice("run", out, *named, *options)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of the detector, cut into two."""
    folder = tmp_path_factory.mktemp("detector") / "out"
    options = ("--cuts", "8", "--platform", "local", "--share-cores", "--out", folder)
    succeed("build", DETECTOR, *options)
    return folder


@pytest.mark.ci
def test_each_photograph_gets_the_boxes_that_the_unsliced_model_finds(
    out: Path, tmp_path: Path
) -> None:
    target = tmp_path / "labelled"
    other = shutil.copy(PHOTOGRAPHS / "temple1.jpg", tmp_path / "flower1.jpg")
    ended = run(out, target, PHOTOGRAPHS, other)
    assert 0 == ended.code, ended.err
    record: dict[str, Any] = json.loads((target / "coco.json").read_text())
    paths = [*sorted(PHOTOGRAPHS.iterdir()), other]
    assert f"{len(record['annotations'])} boxes on 7 images, in {target}" in ended.out
    names = [*(path.name for path in paths[:-1]), "flower1-2.jpg"]
    assert names == [image["file_name"] for image in record["images"]]
    assert {"coco.json", *names} == {path.name for path in target.iterdir()}
    assert ["zero", "one"] == [category["name"] for category in record["categories"][:2]]
    for image, path in zip(record["images"], paths, strict=True):
        annotations = [
            annotation
            for annotation in record["annotations"]
            if annotation["image_id"] == image["id"]
        ]
        expected = found_by_the_unsliced_model(path)
        assert [label for label, _ in expected] == [
            annotation["category_id"] for annotation in annotations
        ]
        np.testing.assert_allclose(
            [box for _, box in expected],
            [annotation["bbox"] for annotation in annotations],
            atol=0.05,
        )
        with Image.open(target / image["file_name"]) as picture, Image.open(path) as photograph:
            assert photograph.size == picture.size == (image["width"], image["height"])

    (target / "mine.txt").touch()
    ended = run(out, target, PHOTOGRAPHS)
    assert 1 == ended.code
    assert "also holds 'mine.txt': move it elsewhere; choose another --boxes-to" in ended.err


@pytest.mark.ci
def test_the_detector_of_litert_finds_the_same(tmp_path: Path) -> None:
    """Its file ends before non-maximum suppression, which ``--nms`` does."""
    options = ("--cuts", "8", "--platform", "local", "--share-cores", "--out", tmp_path / "out")
    assert 0 == rankslice("build", DETECTOR.with_suffix(".tflite"), *options).code
    ended = rankslice(
        *("run", tmp_path / "out", "--input", PHOTOGRAPHS, "--boxes-to", tmp_path / "labelled"),
        *("--boxes", "boxes,scores", "--nms", "0.5", "--min-score", "0.5"),
    )
    assert 0 == ended.code, ended.err
    record: dict[str, Any] = json.loads((tmp_path / "labelled" / "coco.json").read_text())
    expected = [
        (label, *box)
        for path in sorted(PHOTOGRAPHS.iterdir())
        for label, box in sorted(found_by_the_unsliced_model(path))
    ]
    found = [
        (annotation["image_id"], annotation["category_id"], *annotation["bbox"])
        for annotation in record["annotations"]
    ]
    np.testing.assert_allclose(expected, [row[1:] for row in sorted(found)], atol=0.05)


def test_a_folder_is_replaced_only_if_a_run_has_made_it(tmp_path: Path) -> None:
    assert "" == _why_not_replaced(tmp_path)
    (tmp_path / "a.jpg").touch()
    assert "exists and has no coco.json" == _why_not_replaced(tmp_path)
    (tmp_path / "coco.json").write_text('{"images": []}')
    assert "exists and has a coco.json that no run with --boxes made" == _why_not_replaced(tmp_path)
    for images in "null", "[7]", '[{"file_name": []}]', "[" * 9000:
        (tmp_path / "coco.json").write_text(f'{{"of": "rankslice-boxes", "images": {images}}}')
        assert "exists and has a coco.json that no run made" == _why_not_replaced(tmp_path)
    images = '[{"file_name": "a.jpg"}]'
    (tmp_path / "coco.json").write_text(f'{{"of": "rankslice-boxes", "images": {images}}}')
    assert "" == _why_not_replaced(tmp_path)


def test_pictures_never_overwrite_each_other() -> None:
    taken: Counter[str] = Counter()
    files = ["a.jpg", "a.jpg", "a-2.jpg", "a.jpg", "b.pgm", "b.PNG", "coco.json", "plain", ".jpg"]
    names = [_free_name(name, taken) for name in files]
    assert ["a.jpg", "a-2.jpg", "a-2-2.jpg", "a-3.jpg"] == names[:4]
    assert ["b.pgm.png", "b.PNG", "coco.json.png", "plain.png", ".jpg.png"] == names[4:]
    assert len(files) == len(set(names))


@pytest.mark.ci
def test_photographs_and_boxes_are_upright(out: Path, tmp_path: Path) -> None:
    upright, turned = PHOTOGRAPHS / "flower1.jpg", tmp_path / "turned.png"
    with Image.open(upright) as image:
        exif = image.getexif()
        exif[0x0112] = 8  # to be turned by 90 degrees against the clock
        image.convert("RGB").transpose(Image.Transpose.ROTATE_270).save(turned, exif=exif)
    ended = run(out, tmp_path / "labelled", upright, turned)
    assert 0 == ended.code, ended.err
    record: dict[str, Any] = json.loads((tmp_path / "labelled" / "coco.json").read_text())
    first, second = ({**image, "id": 0, "file_name": ""} for image in record["images"])
    assert first == second
    boxes = {number: [] for number in (1, 2)}
    for annotation in record["annotations"]:
        boxes[annotation["image_id"]].append(annotation["bbox"])
    assert boxes[1]
    assert boxes[1] == boxes[2]
    with Image.open(tmp_path / "labelled" / "turned.png") as drawn:
        assert (first["width"], first["height"]) == drawn.size
        assert 1 == drawn.getexif().get(0x0112, 1)


@pytest.mark.ci
def test_photographs_that_appear_in_a_folder_get_boxes_and_keep_their_names(
    out: Path, tmp_path: Path
) -> None:
    shutil.copytree(PHOTOGRAPHS, tmp_path / "photographs")
    for number, path in enumerate(sorted((tmp_path / "photographs").iterdir(), reverse=True)):
        os.utime(path, (number, number))
    named = [path.name for path in sorted(PHOTOGRAPHS.iterdir(), reverse=True)]
    lines, target = tmp_path / "lines.jsonl", tmp_path / "labelled"
    succeed(
        *("run", out, "--input", f"follow:{tmp_path / 'photographs'}", "--frames", len(named)),
        *("--boxes", "boxes,scores,labels", "--boxes-to", target, "--output", lines),
    )
    assert named == [json.loads(line)["input"] for line in lines.read_text().splitlines()]
    assert {*named, "coco.json"} == {path.name for path in target.iterdir()}
    record: dict[str, Any] = json.loads((target / "coco.json").read_text())
    assert named == [image["file_name"] for image in record["images"]]
    first = [
        annotation["bbox"] for annotation in record["annotations"] if annotation["image_id"] == 1
    ]
    expected = found_by_the_unsliced_model(PHOTOGRAPHS / named[0])
    assert len(expected) >= len(first) > 0
    every = np.array([box for _, box in expected])
    for box in first:
        assert np.abs(every - box).max(axis=1).min() < 0.01
