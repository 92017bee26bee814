"""The digit classifier and the detector as Keras and TensorFlow Lite files.

Run it as ``python models/convert_digits.py [FOLDER]``; it needs TensorFlow (``rankslice[keras]``)
and scikit-learn. The weights are those of ``digits.onnx`` and ``digit_detector.onnx``; pixels and
channels are in TensorFlow's order, so the inputs are ``[1, 8, 8, 1]`` and ``[1, 192, 256, 3]``. The
detector ends before non-maximum suppression. It is also made as two parts, a backbone in int8 for
LiteRT and a head in ONNX, which ``digit_detector-parts.yaml`` joins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

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

    def detect(image: Any) -> dict[str, Any]:
        x = _features(weights, image)
        x = tf.nn.conv2d(x, weights["head.weight"].transpose(2, 3, 1, 0), 1, "VALID")
        rows = tf.reshape(tf.nn.bias_add(x, weights["head.bias"]), [1, 768, 14])
        boxes = tf.exp(rows[:, :, :4]) * weights["directions"] + weights["places"]
        return {"boxes": boxes, "scores": tf.sigmoid(rows[:, :, 4:])}

    return _named(_converter(detect).convert(), ("image", "boxes", "scores"))


def _features(weights: dict[str, NDArray[np.float32]], image: Any) -> Any:
    """Return what the detector's backbone makes of images: ``[1, 24, 32, 48]``."""
    import tensorflow as tf

    x = image
    for number in range(1, 7):
        around, stride = 2 if number > 4 else 1, 2 if number < 4 else 1
        x = tf.pad(x, [[0, 0], [around, around], [around, around], [0, 0]])
        kernel = weights[f"conv{number}.weight"].transpose(2, 3, 1, 0)
        x = tf.nn.conv2d(x, kernel, stride, "VALID", dilations=around)
        x = tf.nn.relu(tf.nn.bias_add(x, weights[f"conv{number}.bias"]))
    return x


def _converter(function: Any) -> Any:
    import tensorflow as tf

    image = tf.TensorSpec([1, 192, 256, 3], tf.float32, name="image")
    concrete = tf.function(function, input_signature=[image]).get_concrete_function()
    return tf.lite.TFLiteConverter.from_concrete_functions([concrete])


def _named(converted: bytes, names: tuple[str, ...]) -> bytes:
    """Return a ``.tflite`` file whose inputs and outputs have other names."""
    from tensorflow.lite.tools import flatbuffer_utils

    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(converted))
    graph = model.subgraphs[0]
    for tensor, name in zip((*graph.inputs, *graph.outputs), names, strict=True):
        graph.tensors[tensor].name = name
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def int8_backbone(weights: dict[str, NDArray[np.float32]]) -> bytes:
    """Return the detector's backbone in int8: ``image`` float32 to ``features`` int8.

    It is calibrated with the photographs.
    """
    import tensorflow as tf
    from PIL import Image

    def frames() -> Iterator[list[NDArray[np.float32]]]:
        for path in sorted((Path(__file__).parent / "photographs").glob("*.jpg")):
            pixels = Image.open(path).convert("RGB").resize((256, 192))
            yield [np.divide(np.asarray(pixels)[np.newaxis], 255, dtype=np.float32)]

    converter = _converter(lambda image: {"features": _features(weights, image)})
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = frames
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_output_type = tf.int8
    return _named(converter.convert(), ("image", "features"))


def onnx_head(source: onnx.ModelProto, backbone: bytes) -> onnx.ModelProto:
    """Return the rest of the detector in ONNX, for the backbone's ``features`` in NCHW."""
    import tensorflow as tf

    output = tf.lite.Interpreter(model_content=backbone).get_output_details()[0]
    scale, zero = output["quantization"]
    head = onnx.ModelProto()
    head.CopyFrom(source)
    graph = head.graph
    kept = [node for node in graph.node if not node.name.startswith(("conv", "relu"))]
    read = {name for node in kept for name in node.input}
    weights = [item for item in graph.initializer if item.name in read]
    for field, items in (("node", kept), ("initializer", weights)):
        graph.ClearField(field)
        getattr(graph, field).extend(items)
    for name, value in (("scale", np.float32(scale)), ("zero point", np.int8(zero))):
        graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    inputs = ["features", "scale", "zero point"]
    real = onnx.helper.make_node("DequantizeLinear", inputs, ["relu6"], "real features")
    graph.node.insert(0, real)
    features = onnx.helper.make_tensor_value_info("features", TensorProto.INT8, [1, 48, 24, 32])
    graph.ClearField("input")
    graph.input.append(features)
    graph.ClearField("value_info")
    onnx.checker.check_model(head, full_check=True)
    return head


def _weights(model: str) -> dict[str, NDArray[np.float32]]:
    source = onnx.load(Path(__file__).parent / model)
    return {item.name: numpy_helper.to_array(item) for item in source.graph.initializer}


def main(folder: Path) -> None:
    """Write the seven files into ``folder``."""
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
        weights = _weights("digit_detector.onnx")
        (folder / "digit_detector.tflite").write_bytes(detector(weights))
        backbone = int8_backbone(weights)
        source = onnx.load(Path(__file__).parent / "digit_detector.onnx")
        head = onnx_head(source, backbone).SerializeToString()
    (folder / "digit_detector-backbone.tflite").write_bytes(backbone)
    (folder / "digit_detector-head.onnx").write_bytes(head)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
