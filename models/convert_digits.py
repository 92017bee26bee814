"""The digit classifier and the detector as Keras and TensorFlow Lite files.

Run it as ``python models/convert_digits.py [FOLDER]``; it needs TensorFlow (``rankslice[keras]``)
and scikit-learn. The weights are those of ``digits.onnx`` and ``digit_detector.onnx``; pixels and
channels are in TensorFlow's order, so the inputs are ``[1, 8, 8, 1]`` and ``[1, 192, 256, 3]``. The
detector ends before non-maximum suppression.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from rankslice.frontend.formats.keras.reader import read_keras
from rankslice.frontend.formats.keras.tensorflow import quiet, tensorflow
from rankslice.frontend.formats.keras.writer import keras_submodel
from rankslice.frontend.formats.model_format import Conversion
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment
from rankslice.models.train_digits import load, network_input

__all__ = ["detector", "keras_model", "main"]

_CALIBRATION_FRAMES = 200


def keras_model(weights: dict[str, NDArray[np.float32]]) -> Any:
    """Return the network as a Keras model, ``image`` ``[None, 8, 8, 1]`` to ``softmax``."""
    from keras import Input, Model, layers

    image = Input((8, 8, 1), name="image")
    x = layers.Conv2D(_outputs(weights, "conv1"), 3, padding="same", name="conv1")(image)
    x = layers.ReLU(name="relu1")(x)
    x = layers.Conv2D(_outputs(weights, "conv2"), 3, padding="same", name="conv2")(x)
    x = layers.ReLU(name="relu2")(x)
    pooled = layers.MaxPooling2D(name="pool1")(x)
    x = layers.Conv2D(_outputs(weights, "conv3"), 3, padding="same", name="conv3")(pooled)
    x = layers.ReLU(name="relu3")(x)
    x = layers.Conv2D(_outputs(weights, "conv4"), 3, padding="same", name="conv4")(x)
    shortcut = layers.Conv2D(_outputs(weights, "shortcut"), 1, name="shortcut")(pooled)
    x = layers.ReLU(name="relu4")(layers.Add(name="add")([x, shortcut]))
    x = layers.MaxPooling2D(name="pool2")(x)
    channels, height, width = (int(size) for size in (x.shape[3], x.shape[1], x.shape[2]))
    x = layers.Flatten(name="flatten")(x)
    x = layers.Dense(_outputs(weights, "dense"), name="dense")(x)
    model = Model(image, layers.Softmax(name="softmax")(x), name="digits")
    for name in ("conv1", "conv2", "conv3", "conv4", "shortcut"):
        kernel = weights[f"{name}.weight"].transpose(2, 3, 1, 0)
        model.get_layer(name).set_weights([kernel, weights[f"{name}.bias"]])
    dense = weights["dense.weight"].reshape(-1, channels, height, width).transpose(2, 3, 1, 0)
    matrix = dense.reshape(channels * height * width, -1)
    model.get_layer("dense").set_weights([matrix, weights["dense.bias"]])
    return model


def _outputs(weights: dict[str, NDArray[np.float32]], layer: str) -> int:
    return len(weights[f"{layer}.bias"])


def _calibration() -> Iterator[list[NDArray[np.float32]]]:
    """Yield images that the network was trained with, as frames ``[1, 8, 8, 1]``."""
    images = network_input(load()[0].images[:_CALIBRATION_FRAMES])
    for image in images:
        yield [image.reshape(1, 8, 8, 1)]


def detector(weights: dict[str, NDArray[np.float32]]) -> bytes:
    """Return the detector as a ``.tflite`` file, ``image`` ``[1, 192, 256, 3]``.

    The outputs are ``boxes`` ``[1, 768, 4]`` (left, top, right, bottom in pixels of the input) and
    ``scores`` ``[1, 768, 10]``.
    """
    import tensorflow as tf
    from tensorflow.lite.tools import flatbuffer_utils

    def detect(image: Any) -> dict[str, Any]:
        x = image
        for number in range(1, 7):
            around, stride = 2 if number > 4 else 1, 2 if number < 4 else 1
            x = tf.pad(x, [[0, 0], [around, around], [around, around], [0, 0]])
            kernel = weights[f"conv{number}.weight"].transpose(2, 3, 1, 0)
            x = tf.nn.conv2d(x, kernel, stride, "VALID", dilations=around)
            x = tf.nn.relu(tf.nn.bias_add(x, weights[f"conv{number}.bias"]))
        x = tf.nn.conv2d(x, weights["head.weight"].transpose(2, 3, 1, 0), 1, "VALID")
        rows = tf.reshape(tf.nn.bias_add(x, weights["head.bias"]), [1, 768, 14])
        boxes = tf.exp(rows[:, :, :4]) * weights["directions"] + weights["places"]
        return {"boxes": boxes, "scores": tf.sigmoid(rows[:, :, 4:])}

    image = tf.TensorSpec([1, 192, 256, 3], tf.float32, name="image")
    function = tf.function(detect, input_signature=[image]).get_concrete_function()
    converted = tf.lite.TFLiteConverter.from_concrete_functions([function]).convert()
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(converted))
    graph = model.subgraphs[0]
    names = ("image", "boxes", "scores")
    for tensor, name in zip((*graph.inputs, *graph.outputs), names, strict=True):
        graph.tensors[tensor].name = name
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def _weights(model: str) -> dict[str, NDArray[np.float32]]:
    source = onnx.load(Path(__file__).parent / model)
    return {item.name: numpy_helper.to_array(item) for item in source.graph.initializer}


def main(folder: Path) -> None:
    """Write the five files into ``folder``."""
    tensorflow("digits")
    weights = _weights("digits.onnx")
    with quiet():
        model = keras_model(weights)
        for suffix in ("keras", "h5"):
            model.save(folder / f"digits.{suffix}")
    read = read_keras(folder / "digits.keras")
    whole = PartitionSegment(read.graph.layers, read.graph.inputs, read.graph.outputs)
    for name, conversion in (
        ("digits.tflite", Conversion()),
        ("digits-int8.tflite", Conversion("int8", _calibration)),
    ):
        write_submodel(keras_submodel(read, whole, name, conversion), folder / name)
    with quiet():
        (folder / "digit_detector.tflite").write_bytes(detector(_weights("digit_detector.onnx")))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
