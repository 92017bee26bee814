"""``run --truth``: accuracy of a job on labelled images, beside its unsliced model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import rankslice
from PIL import Image

import rankslice as package
from rankslice.framework.errors import RankSliceError

MODELS = Path(__file__).parents[3] / "models"
LOCAL = ("--platform", "local", "--share-cores")
pytestmark = pytest.mark.ci


def heldout() -> tuple[Any, Any]:
    with np.load(MODELS / "digits_heldout.npz") as arrays:
        return arrays["images"], arrays["labels"]


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    options = ("--cuts", "3", *LOCAL, "--out", folder / "out")
    assert 0 == rankslice("build", MODELS / "digits.onnx", *options).code
    for number, (image, label) in enumerate(zip(*heldout(), strict=True)):
        (folder / "photos" / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / "photos" / str(label) / f"{number:03}.png")
    return folder


def test_labelled_images_give_the_classifiers_accuracy(digits: Path, tmp_path: Path) -> None:
    out, photos = digits / "out", digits / "photos"
    ended = rankslice(
        *("run", out, "--truth", photos, "--scale", "0.00390625", "--json", tmp_path / "run.json")
    )
    assert 0 == ended.code, ended.err
    assert "accuracy on 360 images" in ended.out
    accuracy = json.loads((tmp_path / "run.json").read_text())["accuracy"]
    # models/README.md: 354 of 360 are right.
    assert {360} == {accuracy["frames"]}
    assert 354 / 360 == pytest.approx(accuracy["top1"]["sliced"])
    assert accuracy["top1"]["sliced"] == accuracy["top1"]["unsliced"]
    low, high = accuracy["top1"]["interval"]
    assert low < 0 < high
    table = tmp_path / "labels.csv"
    rows = [f"{path.name},{path.parent.name}" for path in sorted(photos.rglob("*.png"))]
    table.write_text("\n".join(["file,class", *rows]))
    folders = sorted(map(str, photos.iterdir()))
    finished = package.run(out, input=folders, truth=table, scale=1 / 256)
    assert accuracy == finished.accuracy.to_json()


def test_what_cannot_be_measured_is_told_before_the_run(digits: Path, tmp_path: Path) -> None:
    out = digits / "out"
    (tmp_path / "labels.csv").write_text("000.png,10\n")
    (tmp_path / "boxes.json").write_text('{"images": [], "categories": [], "annotations": []}')
    image = digits / "photos" / "0"
    for truth, inputs, message in (
        (tmp_path / "labels.csv", image, "says nothing of"),
        (tmp_path / "labels.csv", "random", "random gives no images"),
        (tmp_path / "boxes.json", image, "says nothing of"),
    ):
        with pytest.raises(RankSliceError, match=message):
            package.run(out, input=inputs, truth=truth)
    first = next(iter(sorted(image.iterdir())))
    (tmp_path / "labels.csv").write_text(f"{first.name},10\n")
    with pytest.raises(RankSliceError, match="has class 10, and the model's output 10 values"):
        package.run(out, input=first, truth=tmp_path / "labels.csv")
    coco = {"images": [{"id": 1, "file_name": first.name}], "categories": [], "annotations": []}
    (tmp_path / "boxes.json").write_text(json.dumps(coco))
    with pytest.raises(RankSliceError, match="name the outputs with --boxes"):
        package.run(out, input=first, truth=tmp_path / "boxes.json")


def scene(random: np.random.Generator, images: Any, labels: Any) -> tuple[Any, list[Any]]:
    """Return a picture with three digits, and class and box of each."""
    pixels = random.normal(200, 4, (192, 256)).clip(0, 255)
    found = []
    for column in range(3):
        number = int(random.integers(len(labels)))
        ink = np.asarray(Image.fromarray(images[number]).resize((48, 48))) / 255
        rows, columns = (np.nonzero(ink.max(axis) > 0.5)[0] for axis in (1, 0))
        top, left = 70 + int(random.integers(-40, 40)), 20 + 80 * column
        pixels[top : top + 48, left : left + 48] *= 1 - ink
        box = [left + columns[0], top + rows[0], columns[-1] - columns[0], rows[-1] - rows[0]]
        found.append((int(labels[number]), [float(side) for side in box]))
    return np.repeat(pixels.astype(np.uint8)[:, :, None], 3, axis=2), found


def test_annotated_images_give_the_detectors_mean_average_precision(tmp_path: Path) -> None:
    options = ("--cuts", "8", *LOCAL, "--out", tmp_path / "out")
    assert 0 == rankslice("build", MODELS / "digit_detector.onnx", *options).code
    random, coco = np.random.default_rng(0), {"images": [], "annotations": []}
    coco["categories"] = [{"id": 10 + digit, "name": str(digit)} for digit in range(10)]
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels, objects = scene(random, *heldout())
        Image.fromarray(pixels).resize((512, 384)).save(tmp_path / "photos" / f"{number}.png")
        coco["images"].append({"id": number, "file_name": f"{number}.png"})
        coco["annotations"] += [
            {"image_id": number, "category_id": 10 + digit, "bbox": [2 * side for side in box]}
            for digit, box in objects
        ]
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    ended = rankslice(
        *(
            "run",
            tmp_path / "out",
            "--input",
            tmp_path / "photos",
            "--truth",
            tmp_path / "coco.json",
        ),
        *("--boxes", "boxes,scores,labels", "--boxes-to", tmp_path / "labelled"),
        *("--json", tmp_path / "run.json"),
    )
    assert 0 == ended.code, ended.err
    accuracy = json.loads((tmp_path / "run.json").read_text())["accuracy"]
    assert 12 == accuracy["frames"]
    assert 0.7 < accuracy["map50"]["sliced"] == accuracy["map50"]["unsliced"]
    assert 0.3 < accuracy["map"]["sliced"] < accuracy["map50"]["sliced"]
    assert "mAP, IoU 0.5 " in ended.out
