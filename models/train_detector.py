"""Train the small digit detector that ships with RankSlice.

    python models/train_detector.py [FOLDER]

writes ``digit_detector.onnx``, the folder ``photographs`` and its truth, ``photographs.json``, into
FOLDER (default: the folder of this script) in about ten minutes on two cores. It needs PyTorch
(2.14.1), scikit-learn and pillow. The data are made of what scikit-learn has: its handwritten
digits, drawn upon parts of its two photographs. The last 360 digits and the right part of both
photographs are held out: the figures that the script prints, and the pictures in ``photographs``,
are made of those alone.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from PIL import Image
from torch import nn
from train_digits import LABELS, Digits, load

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime

HEIGHT, WIDTH = 192, 256
"""Of the network's input, in pixels."""
STRIDE = 8
"""Pixels from one place where digits are looked for to the next."""
TRAINED_ON = 0.45
"""Which part of the photographs is for training, from the left."""
SMALLEST, LARGEST = 0.12, 0.34
"""Heights of digits as shares of the picture's."""
MAX_DIGITS = 8
CONTRAST = 90
"""At least, between ink and what is around it: grey values of 255."""
SCENES = 4000
EPOCHS = 14
BATCH = 16
RATE = 3e-3
SEED = 5
MAX_FOUND = 50
MIN_SCORE = 0.5
MAX_OVERLAP = 0.5

Pixels = NDArray[np.uint8]
Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture with digits."""

    pixels: Pixels
    """``[height, width, 3]``."""
    boxes: Array
    """``[n, 4]``: left, top, right and bottom of each digit, in pixels."""
    labels: NDArray[np.int64]
    """``[n]``."""


# Scenes: digits on parts of photographs.


def photographs() -> tuple[list[Pixels], list[Pixels]]:
    """Return the parts of both photographs to train with, and those held out."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    edge = int(images[0].shape[1] * TRAINED_ON)
    return [image[:, :edge] for image in images], [image[:, edge:] for image in images]


def background(photograph: Pixels, size: tuple[int, int], random: np.random.Generator) -> Pixels:
    """Return a part of a photograph, at random, resized to (height, width)."""
    height, width = photograph.shape[:2]
    largest = min(height, width * size[0] / size[1])
    tall = largest * random.uniform(0.35, 1.0)
    wide = tall * size[1] / size[0]
    top, left = random.uniform(0, height - tall), random.uniform(0, width - wide)
    image = Image.fromarray(photograph)
    part = image.resize(size[::-1], Image.Resampling.BILINEAR, (left, top, left + wide, top + tall))
    pixels = np.asarray(part)
    return pixels[:, ::-1] if random.random() < 0.5 else pixels


def ink(digit: Pixels, height: int, stretch: float) -> Array:
    """Return how much of each pixel a digit's strokes cover, 0 to 1, cut to where there are any."""
    image = Image.fromarray(digit)
    width = max(6, round(height * stretch))
    grey = np.asarray(image.resize((width, height), Image.Resampling.BICUBIC), np.float32) / 255
    covered: Array = np.clip((grey - np.float32(0.25)) / np.float32(0.35), 0, 1)
    rows, columns = np.nonzero(covered.max(1) > 0.5)[0], np.nonzero(covered.max(0) > 0.5)[0]
    return covered[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]


def drawn_scene(pixels: Pixels, digits: Digits, count: int, random: np.random.Generator) -> Scene:
    """Return a picture with digits drawn on it; those that find no free place are left out."""
    canvas = pixels.astype(np.float32)
    tall, wide = pixels.shape[:2]
    boxes: list[tuple[int, int, int, int]] = []
    labels: list[int] = []
    for _ in range(count):
        number = int(random.integers(len(digits.labels)))
        size = round(tall * random.uniform(SMALLEST, LARGEST))
        covered = ink(digits.images[number], size, float(random.uniform(0.85, 1.2)))
        height, width = covered.shape
        top, left = random.integers(2, tall - height - 2), random.integers(2, wide - width - 2)
        box = (int(left), int(top), int(left + width), int(top + height))
        if any(_near(box, other) for other in boxes):
            continue
        place = canvas[top : top + height, left : left + width]
        place += covered[:, :, None] * (_colour(place, random) - place)
        boxes.append(box)
        labels.append(int(digits.labels[number]))
    return Scene(
        canvas.round().astype(np.uint8),
        np.array(boxes, np.float32).reshape(-1, 4),
        np.array(labels, np.int64),
    )


def _near(box: Sequence[int], other: Sequence[int], gap: int = 3) -> bool:
    return (
        box[0] < other[2] + gap
        and other[0] < box[2] + gap
        and box[1] < other[3] + gap
        and other[1] < box[3] + gap
    )


def _colour(around: Array, random: np.random.Generator) -> Array:
    """Return a colour that can be told from what is around."""
    grey = np.array([0.3, 0.59, 0.11], np.float32)
    level = float((around @ grey).mean())
    while True:
        colour = random.uniform(0, 255, 3).astype(np.float32)
        if random.random() < 0.5:
            colour[:] = 255 if level < 128 else 0
        if abs(float(colour @ grey) - level) >= CONTRAST:
            return colour


def scenes(
    parts: Sequence[Pixels],
    digits: Digits,
    count: int,
    random: np.random.Generator,
    least: int = 0,
) -> list[Scene]:
    """Return pictures of the network's size with ``least`` to ``MAX_DIGITS`` digits each."""
    found = []
    for number in range(count):
        pixels = background(parts[number % len(parts)], (HEIGHT, WIDTH), random)
        wanted = int(random.integers(least, MAX_DIGITS + 1))
        found.append(drawn_scene(pixels, digits, wanted, random))
    return found


# The network, and what it learns from.


class Detector(nn.Module):  # type: ignore[misc]
    """At each place: four distances to a digit's edges (as logarithms), ten classes."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 16, 24, 48, 48, 48, 48)
        layers: list[nn.Module] = []
        for number, (below, above) in enumerate(itertools.pairwise(sizes)):
            stride, dilation = (2, 1) if number < 3 else (1, 2 if number > 3 else 1)
            layers += [
                nn.Conv2d(below, above, 3, stride, dilation, dilation, bias=False),
                nn.BatchNorm2d(above),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers)
        self.head = nn.Conv2d(sizes[-1], 4 + len(LABELS), 1)
        with torch.no_grad():
            self.head.bias[4:] = -4.0  # most places have no digit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``[frames, 4 + classes, rows, columns]``."""
        return self.head(self.body(x))


def centres() -> Array:
    """Return x and y of all places, [rows * columns, 2], in pixels."""
    rows, columns = HEIGHT // STRIDE, WIDTH // STRIDE
    y, x = np.mgrid[0:rows, 0:columns].reshape(2, -1)
    return (np.stack([x, y], 1) * STRIDE + STRIDE / 2).astype(np.float32)


def targets(scene: Scene) -> tuple[NDArray[np.int64], Array]:
    """Return for each place the class (-1: none) and the logarithms of four distances in strides.

    The places of a digit are those in the inner half of its box, and the one nearest its middle.
    """
    at = centres()
    classes = np.full(len(at), -1, np.int64)
    logs = np.zeros((len(at), 4), np.float32)
    for box, label in zip(scene.boxes, scene.labels, strict=True):
        middle, size = (box[:2] + box[2:]) / 2, box[2:] - box[:2]
        away = np.abs(at - middle)
        chosen = (away <= size / 4).all(1)
        chosen[(away**2).sum(1).argmin()] = True
        classes[chosen] = label
        distances = np.concatenate([at[chosen] - box[:2], box[2:] - at[chosen]], 1)
        logs[chosen] = np.log(np.maximum(distances, 1) / STRIDE)
    return classes, logs


def loss_of(out: torch.Tensor, classes: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    """Return focal loss of the classes (Lin et al., ICCV 2017) plus smooth L1 of the distances."""
    out = out.flatten(2).transpose(1, 2)
    true = nn.functional.one_hot(classes.clamp(min=0), len(LABELS)).float()
    true *= (classes >= 0)[..., None]
    logits = out[..., 4:]
    entropy = nn.functional.binary_cross_entropy_with_logits(logits, true, reduction="none")
    surprise = torch.abs(true - logits.sigmoid())
    weight = torch.where(true > 0, 0.5, 0.25) * surprise**1.5
    is_digit = classes >= 0
    count = is_digit.sum().clamp(min=1)
    distances = nn.functional.smooth_l1_loss(
        out[..., :4][is_digit], logs[is_digit], reduction="sum", beta=0.1
    )
    return (4 * (weight * entropy).sum() + distances) / count


def train(training: Sequence[Scene]) -> Detector:
    """Return the trained network."""
    torch.manual_seed(SEED)
    network: Detector = Detector().to(memory_format=torch.channels_last)
    pixels = torch.tensor(np.stack([scene.pixels for scene in training]))
    classes, logs = map(np.stack, zip(*map(targets, training), strict=True))
    of_class, of_box = torch.tensor(classes), torch.tensor(logs)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=1e-3)
    steps = len(training) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=EPOCHS * steps)
    for epoch in range(EPOCHS):
        order = torch.randperm(len(training))
        total = 0.0
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            x = pixels[chosen].permute(0, 3, 1, 2).float() / 255
            gain = 0.7 + 0.6 * torch.rand(len(chosen), 1, 1, 1)
            loss = loss_of(network((x * gain).clamp(0, 1)), of_class[chosen], of_box[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {total / steps:.3f}", flush=True)
    network.eval()
    return network


# The network as an ONNX model, with non-maximum suppression in it.


def folded(network: Detector) -> dict[str, Array]:
    """Return the weights of all convolutions, normalisations folded in."""
    weights: dict[str, Array] = {}
    convolutions = [each for each in network.body if isinstance(each, nn.Conv2d)]
    norms = [each for each in network.body if isinstance(each, nn.BatchNorm2d)]
    for number, (conv, norm) in enumerate(zip(convolutions, norms, strict=True), start=1):
        gain = norm.weight / torch.sqrt(norm.running_var + norm.eps)
        weight = conv.weight * gain[:, None, None, None]
        bias = norm.bias - norm.running_mean * gain
        weights[f"conv{number}.weight"] = weight.detach().contiguous().numpy()
        weights[f"conv{number}.bias"] = bias.detach().numpy()
    weights["head.weight"] = network.head.weight.detach().contiguous().numpy()
    weights["head.bias"] = network.head.bias.detach().numpy()
    return weights


def onnx_model(weights: dict[str, Array], facts: dict[str, str]) -> ModelProto:
    """Return the detector as an ONNX model: ``image`` to ``boxes``, ``scores`` and ``labels``."""

    def node(op: str, name: str, *below: str, output: str = "", **attributes: Any) -> NodeProto:
        return helper.make_node(op, below, [output or name], name=name, **attributes)

    at = centres()
    constants = {
        "flat": np.array([1, 4 + len(LABELS), len(at)]),
        "parts": np.array([4, len(LABELS)]),
        "places": np.concatenate([at, at], 1)[None],
        "directions": np.array([-STRIDE, -STRIDE, STRIDE, STRIDE], np.float32),
        "most found": np.array([MAX_FOUND]),
        "most overlap": np.array([MAX_OVERLAP], np.float32),
        "least score": np.array([MIN_SCORE], np.float32),
        "place": np.array(2),
        "frame": np.array([0]),
        "one row": np.array([-1]),
    }
    layers: list[NodeProto] = []
    below = "image"
    for number in range(1, 7):
        dilation = 2 if number > 4 else 1
        inputs = (below, f"conv{number}.weight", f"conv{number}.bias")
        layers.append(
            node(
                *("Conv", f"conv{number}", *inputs),
                kernel_shape=[3, 3],
                pads=[dilation] * 4,
                strides=[2, 2] if number < 4 else [1, 1],
                dilations=[dilation] * 2,
            )
        )
        below = f"relu{number}"
        layers.append(node("Relu", below, f"conv{number}"))
    split = helper.make_node("Split", ["rows", "parts"], ["logs", "logits"], name="split", axis=1)
    layers += [
        node("Conv", "head", below, "head.weight", "head.bias", kernel_shape=[1, 1]),
        node("Reshape", "rows", "head", "flat"),
        split,
        node("Exp", "distances", "logs"),
        node("Transpose", "turned", "distances", perm=[0, 2, 1]),
        node("Mul", "offsets", "turned", "directions"),
        node("Add", "all boxes", "places", "offsets"),
        node("Sigmoid", "probabilities", "logits"),
        node("ReduceMax", "all scores", "probabilities", axes=[1], keepdims=1),
        node("ArgMax", "all labels", "logits", axis=1, keepdims=0),
        node(
            *("NonMaxSuppression", "suppression", "all boxes", "all scores"),
            *("most found", "most overlap", "least score"),
            output="selected",
        ),
        node("Gather", "selected places", "selected", "place", axis=1),
        node("Squeeze", "boxes of frame", "all boxes", "frame"),
        node("Reshape", "scores of frame", "all scores", "one row"),
        node("Reshape", "labels of frame", "all labels", "one row"),
        node("Gather", "boxes", "boxes of frame", "selected places", axis=0),
        node("Gather", "scores", "scores of frame", "selected places", axis=0),
        node("Gather", "labels", "labels of frame", "selected places", axis=0),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        layers,
        "digit_detector",
        [value("image", TensorProto.FLOAT, [1, 3, HEIGHT, WIDTH])],
        [
            value("boxes", TensorProto.FLOAT, ["found", 4]),
            value("scores", TensorProto.FLOAT, ["found"]),
            value("labels", TensorProto.INT64, ["found"]),
        ],
        [numpy_helper.from_array(array, name) for name, array in (weights | constants).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "rankslice"
    helper.set_model_props(model, {"names": str(dict(enumerate(LABELS)))} | facts)
    onnx.checker.check_model(model, full_check=True)
    return model


# How well it does.


def overlap(boxes: Array, others: Array) -> Array:
    """Return the intersections over unions of boxes, [n, m]."""
    corner = np.maximum(boxes[:, None, :2], others[None, :, :2])
    sides = np.clip(np.minimum(boxes[:, None, 2:], others[None, :, 2:]) - corner, 0, None)
    shared = sides.prod(2)
    areas = [(each[:, 2:] - each[:, :2]).prod(1) for each in (boxes, others)]
    union = areas[0][:, None] + areas[1] - shared
    found: Array = shared / np.maximum(union, 1e-9)
    return found


def figures(model: ModelProto, held_out: Sequence[Scene]) -> dict[str, str]:
    """Return mean average precision, precision and recall at half overlap, and their scenes."""
    session = load_onnxruntime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    found: list[tuple[float, int, bool]] = []
    there = np.zeros(len(LABELS), int)
    for scene in held_out:
        x = scene.pixels.transpose(2, 0, 1)[None].astype(np.float32) / np.float32(255)
        boxes, scores, labels = session.run(None, {"image": x})
        there += np.bincount(scene.labels, minlength=len(LABELS))
        free = np.ones(len(scene.labels), bool)
        overlaps = overlap(boxes, scene.boxes)
        for number in (-scores).argsort(kind="stable"):
            fits = free & (scene.labels == labels[number]) & (overlaps[number] >= 0.5)
            if fits.any():
                free[np.where(fits, overlaps[number], -1).argmax()] = False
            found.append((float(scores[number]), int(labels[number]), bool(fits.any())))
    precisions = [_average_precision([f for f in found if f[1] == k], there[k]) for k in range(10)]
    right = sum(is_right for *_, is_right in found)
    return {
        "held-out scenes": str(len(held_out)),
        "held-out digits": str(there.sum()),
        "mean average precision at half overlap": f"{np.mean(precisions):.3f}",
        "precision": f"{right / len(found):.3f}",
        "recall": f"{right / there.sum():.3f}",
    }


def _average_precision(found: Sequence[tuple[float, int, bool]], there: int) -> float:
    """Return the area under precision over recall, precision made monotonous as COCO does."""
    right = np.cumsum([is_right for *_, is_right in sorted(found, reverse=True)])
    precision = right / np.arange(1, len(right) + 1)
    best = np.maximum.accumulate(precision[::-1])[::-1]
    return float((best * np.diff(right, prepend=0)).sum() / there)


def write_photographs(folder: Path, parts: Sequence[Pixels], digits: Digits) -> None:
    """Write six pictures of different sizes with held-out digits, as JPEG files.

    What is on them goes to ``photographs.json`` beside the folder, as annotations of COCO.
    """
    random = np.random.default_rng(SEED + 2)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    names = ("temple", "flower")
    sizes = ((264, 352), (300, 352), (400, 352))
    folder.mkdir(exist_ok=True)
    for number, (size, name) in enumerate(itertools.product(sizes, names)):
        pixels = background(parts[number % 2], size, random)
        scene = drawn_scene(pixels, digits, 2 + number, random)
        path = folder / f"{name}{number // 2 + 1}.jpg"
        Image.fromarray(scene.pixels).save(path, quality=88)
        images.append({"id": number, "file_name": path.name})
        for box, label in zip(scene.boxes.tolist(), scene.labels.tolist(), strict=True):
            corner, sides = box[:2], [box[2] - box[0], box[3] - box[1]]
            annotations.append(
                {"image_id": number, "category_id": label, "bbox": [*corner, *sides]}
            )
    categories = [{"id": number, "name": name} for number, name in enumerate(LABELS)]
    truth = {"images": images, "annotations": annotations, "categories": categories}
    text = json.dumps(truth).replace("[{", "[\n{").replace(", {", ",\n{")
    folder.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")


def main(folder: Path) -> None:
    """Train, measure and write the files into ``folder``."""
    random = np.random.default_rng(SEED)
    training_digits, held_out_digits = load()
    training_parts, held_out_parts = photographs()
    network = train(scenes(training_parts, training_digits, SCENES, random))
    weights = folded(network)
    held_out = scenes(held_out_parts, held_out_digits, 500, np.random.default_rng(SEED + 1))
    facts = figures(onnx_model(weights, {}), held_out)
    for name, value in facts.items():
        print(f"{name}: {value}")
    (folder / "digit_detector.onnx").write_bytes(onnx_model(weights, facts).SerializeToString())
    write_photographs(folder / "photographs", held_out_parts, held_out_digits)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
