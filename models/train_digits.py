"""Train the small digit classifier that ships with RankSlice, in numpy alone.

    python models/train_digits.py [FOLDER]

writes ``digits.onnx``, ``digits_heldout.npz`` and ``digits_labels.txt`` into FOLDER (default: the
folder of this script) in about a minute on one core. It needs scikit-learn for its data set: 1797
handwritten digits of 8 x 8 pixels (E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten
Digits", UCI Machine Learning Repository, 1998). The last 360 images are held out, as a block: the
set is ordered, and neighbours are alike. They decide nothing: step size and decay were chosen
among four pairs on the 360 images before them, and the length of the training is fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from rankslice.backend.runtime.engines.onnxruntime_package import load_onnxruntime

Array = NDArray[np.float32]
Weights = dict[str, Array]

LABELS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HELD_OUT = 360
SCALE = 1 / 256
"""Factor from a pixel's value to the network's input: a power of two, so it rounds nothing."""

NARROW, WIDE = 24, 48
"""Channels before and after the first pooling."""
EPOCHS = 60
BATCH = 48
RATE = 3e-3
"""Adam's first step size; it falls to zero along half a cosine."""
DECAY = 1e-3
"""Weight decay, apart from the gradient (AdamW: Loshchilov and Hutter, ICLR 2019)."""
SEED = 1


@dataclass(frozen=True, slots=True)
class Digits:
    """Images with their labels."""

    images: NDArray[np.uint8]
    """``[n, 8, 8]``, from 0 (paper) to 255 (ink)."""
    labels: NDArray[np.int64]
    """``[n]``, from 0 to 9."""


def load() -> tuple[Digits, Digits]:
    """Return the images to train with, and those held out."""
    from sklearn.datasets import load_digits

    source = load_digits()
    images = np.minimum(source.images * 16, 255).astype(np.uint8)
    labels = source.target.astype(np.int64)
    return (
        Digits(images[:-HELD_OUT], labels[:-HELD_OUT]),
        Digits(images[-HELD_OUT:], labels[-HELD_OUT:]),
    )


def network_input(images: NDArray[np.uint8]) -> Array:
    """Return ``[n, 1, 8, 8]``: the pixels' values times ``SCALE``."""
    return images[:, None].astype(np.float32) * np.float32(SCALE)


# The network, forwards and backwards. Each pair of functions is one kind of layer; activations
# are [frame, channel, row, column].


def convolve(x: Array, weight: Array, bias: Array) -> tuple[Array, Array]:
    """Return the convolution with zeros around the image, and the columns its gradient needs."""
    size = weight.shape[2]
    margin = size // 2
    padded = np.pad(x, ((0, 0), (0, 0), (margin, margin), (margin, margin)))
    windows = sliding_window_view(padded, (size, size), axis=(2, 3))
    frames, _, height, width = x.shape
    columns = windows.transpose(0, 2, 3, 1, 4, 5).reshape(frames * height * width, -1)
    rows = columns @ weight.reshape(len(weight), -1).T + bias
    return rows.reshape(frames, height, width, -1).transpose(0, 3, 1, 2), columns


def convolve_back(gradient: Array, columns: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of the input, the weight and the bias."""
    rows = gradient.transpose(0, 2, 3, 1).reshape(-1, len(weight))
    turned = weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    below, _ = convolve(gradient, turned, np.zeros(len(turned), np.float32))
    return below, (rows.T @ columns).reshape(weight.shape), rows.sum(axis=0)


def pool(x: Array) -> tuple[Array, NDArray[np.bool_]]:
    """Return the largest of each 2 x 2 pixels, and where it lies."""
    frames, channels, height, width = x.shape
    cells = x.reshape(frames, channels, height // 2, 2, width // 2, 2)
    largest = cells.max(axis=(3, 5), keepdims=True)
    return largest[:, :, :, 0, :, 0], cells == largest


def pool_back(gradient: Array, chosen: NDArray[np.bool_]) -> Array:
    """Return the gradient of the input; equal largest pixels share it."""
    share = gradient[:, :, :, None, :, None] / chosen.sum(axis=(3, 5), keepdims=True)
    frames, channels, rows, _, columns, _ = chosen.shape
    spread: Array = (chosen * share).astype(gradient.dtype)
    return spread.reshape(frames, channels, 2 * rows, 2 * columns)


def softmax(logits: Array) -> Array:
    """Return the probabilities of each row."""
    exponentials: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def initial_weights(random: np.random.Generator) -> Weights:
    """Return He-normal weights and zero biases, named as in the ONNX file."""
    shapes = {
        "conv1": (NARROW, 1, 3, 3),
        "conv2": (NARROW, NARROW, 3, 3),
        "conv3": (WIDE, NARROW, 3, 3),
        "conv4": (WIDE, WIDE, 3, 3),
        "shortcut": (WIDE, NARROW, 1, 1),
        "dense": (len(LABELS), WIDE * 2 * 2),
    }
    weights: Weights = {}
    for layer, shape in shapes.items():
        deviation = np.float32(np.sqrt(2 / np.prod(shape[1:])))
        weights[f"{layer}.weight"] = deviation * random.standard_normal(shape, np.float32)
        weights[f"{layer}.bias"] = np.zeros(shape[0], np.float32)
    return weights


def loss_and_gradients(
    weights: Weights, x: Array, labels: NDArray[np.int64]
) -> tuple[float, Weights]:
    """Return the mean cross-entropy, and its gradient with respect to each weight."""

    def forward(layer: str, below: Array) -> tuple[Array, Array]:
        return convolve(below, weights[f"{layer}.weight"], weights[f"{layer}.bias"])

    found: Weights = {}

    def backward(layer: str, above: Array, columns: Array) -> Array:
        below, weight, bias = convolve_back(above, columns, weights[f"{layer}.weight"])
        found[f"{layer}.weight"], found[f"{layer}.bias"] = weight, bias
        return below

    conv1, columns1 = forward("conv1", x)
    conv2, columns2 = forward("conv2", np.maximum(conv1, 0))
    pool1, chosen1 = pool(np.maximum(conv2, 0))
    conv3, columns3 = forward("conv3", pool1)
    conv4, columns4 = forward("conv4", np.maximum(conv3, 0))
    shortcut, columns_shortcut = forward("shortcut", pool1)
    added = conv4 + shortcut
    pool2, chosen2 = pool(np.maximum(added, 0))
    features = pool2.reshape(len(x), -1)
    probabilities = softmax(features @ weights["dense.weight"].T + weights["dense.bias"])

    true = (np.arange(len(x)), labels)
    loss = -float(np.log(probabilities[true]).mean())
    error = probabilities
    error[true] -= 1
    error /= len(x)
    found["dense.weight"], found["dense.bias"] = error.T @ features, error.sum(axis=0)
    to_pool2 = (error @ weights["dense.weight"]).reshape(pool2.shape)
    to_add = pool_back(to_pool2, chosen2) * (added > 0)
    to_conv3 = backward("conv4", to_add, columns4) * (conv3 > 0)
    to_pool1 = backward("conv3", to_conv3, columns3)
    to_pool1 += backward("shortcut", to_add, columns_shortcut)
    to_conv2 = pool_back(to_pool1, chosen1) * (conv2 > 0)
    to_conv1 = backward("conv2", to_conv2, columns2) * (conv1 > 0)
    backward("conv1", to_conv1, columns1)
    return loss, found


def shifted(images: Array, random: np.random.Generator) -> Array:
    """Return the images, each moved by at most one pixel each way, at random."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, images.shape[2:], axis=(2, 3))
    down, right = random.integers(0, 3, (2, len(images)))
    return windows[np.arange(len(images)), :, down, right]


def batches(
    digits: Digits, random: np.random.Generator
) -> Iterator[tuple[Array, NDArray[np.int64]]]:
    """Yield the images of one epoch, shuffled and shifted, with their labels."""
    images = network_input(digits.images)
    order = random.permutation(len(images))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        chosen = order[start : start + BATCH]
        yield shifted(images[chosen], random), digits.labels[chosen]


def train(digits: Digits, seed: int = SEED) -> Weights:
    """Return the weights after ``EPOCHS`` epochs of AdamW; the seed decides everything."""
    random = np.random.default_rng(seed)
    weights = initial_weights(random)
    first = {name: np.zeros_like(weight) for name, weight in weights.items()}
    second = {name: np.zeros_like(weight) for name, weight in weights.items()}
    steps = EPOCHS * (len(digits.images) // BATCH)
    stream = (batch for _ in range(EPOCHS) for batch in batches(digits, random))
    for step, (x, labels) in enumerate(stream, start=1):
        rate = RATE / 2 * (1 + np.cos(np.pi * step / steps))
        _, gradients = loss_and_gradients(weights, x, labels)
        for name, gradient in gradients.items():
            first[name] += 0.1 * (gradient - first[name])
            second[name] += 0.001 * (gradient**2 - second[name])
            mean = first[name] / (1 - 0.9**step)
            square = second[name] / (1 - 0.999**step)
            update = mean / (np.sqrt(square) + 1e-8) + DECAY / RATE * weights[name]
            weights[name] -= (rate * update).astype(np.float32)
    return weights


def onnx_model(weights: Weights, facts: dict[str, str]) -> ModelProto:
    """Return the network as an ONNX model, ``image`` ``[1, 1, 8, 8]`` to ``probabilities``."""

    def weighted(op: str, name: str, below: str, **attributes: Any) -> NodeProto:
        inputs = [below, f"{name}.weight", f"{name}.bias"]
        return helper.make_node(op, inputs, [name], name=name, **attributes)

    def plain(op: str, name: str, *below: str, **attributes: Any) -> NodeProto:
        return helper.make_node(op, below, [name], name=name, **attributes)

    around = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    halving = {"kernel_shape": [2, 2], "strides": [2, 2]}
    softmax_layer = plain("Softmax", "softmax", "dense", axis=1)
    softmax_layer.output[0] = "probabilities"
    layers = [
        weighted("Conv", "conv1", "image", **around),
        plain("Relu", "relu1", "conv1"),
        weighted("Conv", "conv2", "relu1", **around),
        plain("Relu", "relu2", "conv2"),
        plain("MaxPool", "pool1", "relu2", **halving),
        weighted("Conv", "conv3", "pool1", **around),
        plain("Relu", "relu3", "conv3"),
        weighted("Conv", "conv4", "relu3", **around),
        weighted("Conv", "shortcut", "pool1", kernel_shape=[1, 1]),
        plain("Add", "add", "conv4", "shortcut"),
        plain("Relu", "relu4", "add"),
        plain("MaxPool", "pool2", "relu4", **halving),
        plain("Flatten", "flatten", "pool2", axis=1),
        weighted("Gemm", "dense", "flatten", transB=1),
        softmax_layer,
    ]
    graph = helper.make_graph(
        layers,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, len(LABELS)])],
        [numpy_helper.from_array(weight, name) for name, weight in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "rankslice"
    helper.set_model_props(model, facts)
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(model: ModelProto, digits: Digits) -> float:
    """Return the share of the images to whose label the model gives the highest probability."""
    session = load_onnxruntime().InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    images = network_input(digits.images)
    answers = [session.run(None, {"image": image[None]})[0].argmax() for image in images]
    return float(np.mean(np.array(answers) == digits.labels))


def main(folder: Path) -> None:
    """Train, measure and write the three files into ``folder``."""
    training, held_out = load()
    weights = train(training)
    facts = {
        "labels": " ".join(LABELS),
        "preprocessing": "pixel / 256, from 0 (paper) to 255 (ink)",
        "training images": str(len(training.labels)),
        "held-out images": str(len(held_out.labels)),
    }
    share = accuracy(onnx_model(weights, facts), held_out)
    model = onnx_model(weights, facts | {"held-out accuracy": f"{share:.4f}"})
    (folder / "digits.onnx").write_bytes(model.SerializeToString())
    (folder / "digits_labels.txt").write_text("\n".join(LABELS) + "\n", encoding="utf-8")
    np.savez_compressed(
        folder / "digits_heldout.npz", images=held_out.images, labels=held_out.labels
    )
    print(f"held-out accuracy {share:.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
