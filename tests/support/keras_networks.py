"""Small Keras models of many forms, drawn with a seed, and what tests do with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankslice.frontend.formats.keras.merging import merge_normalisations
from rankslice.frontend.formats.keras.reader import KerasModel
from rankslice.frontend.formats.keras.tensorflow import quiet
from rankslice.frontend.formats.keras.writer import keras_submodel
from rankslice.frontend.formats.model_format import FLOAT32, Conversion
from rankslice.frontend.formats.pieces import write_submodel
from rankslice.frontend.partition.partition import PartitionSegment, partition

Array = NDArray[Any]


def residual() -> Any:
    """A skip connection within a block, another around two, and one to the end."""
    from keras import Input, Model, layers

    image = Input((8, 8, 3), name="image")
    first = layers.Conv2D(4, 3, padding="same", name="conv1")(image)
    x = layers.ReLU(name="relu1")(layers.BatchNormalization(name="norm1")(first))
    x = layers.Conv2D(4, 3, padding="same", name="conv2")(x)
    middle = layers.Add(name="add1")([x, first])
    x = layers.Conv2D(4, 1, activation="relu", name="conv3")(middle)
    x = layers.Concatenate(name="join")([x, first, middle])
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    return Model(image, layers.Dense(5, activation="softmax", name="scores")(x))


def shared() -> Any:
    """A layer that is called three times, and weights that two ranks need."""
    from keras import Input, Model, layers

    left, right = Input((6,), name="left"), Input((6,), name="right")
    tower = layers.Dense(6, activation="tanh", name="tower")
    a, b = tower(left), tower(right)
    c = tower(layers.Add(name="sum")([a, b]))
    return Model(
        [left, right], layers.Dense(2, name="top")(layers.Concatenate(name="both")([a, c]))
    )


def nested() -> Any:
    """A functional model called twice, with a sequential one in it."""
    from keras import Input, Model, Sequential, layers

    head = Sequential(
        [Input((4,)), layers.Dense(4, name="up"), layers.ReLU(name="cut")], name="head"
    )
    inner_input = Input((4,), name="inner_input")
    inner = Model(
        inner_input, layers.Add(name="plus")([head(inner_input), inner_input]), name="block"
    )
    x = Input((4,), name="x")
    return Model(x, layers.Dense(3, name="out")(inner(layers.Dense(4, name="in")(inner(x)))))


def several() -> Any:
    """Several inputs and outputs; an output that is read on, one that is a layer's second."""
    from keras import Input, Model, layers

    a, b = Input((5, 3), name="a"), Input((4,), name="b")
    states = layers.LSTM(4, return_sequences=True, return_state=True, name="lstm")(a)
    x = layers.Add(name="state")([states[1], b])
    y = layers.Dense(3, name="dense")(x)
    z = layers.Multiply(name="product")([states[0], layers.Reshape((1, 4), name="row")(x)])
    return Model([a, b], [x, states[2], layers.Softmax(name="p")(y), z])


def operations() -> Any:
    """Arithmetic between layers, as functions."""
    import keras
    from keras import Input, Model, layers

    x = Input((4, 4, 2), name="x")
    y = layers.Conv2D(2, 1, name="conv")(x)
    z = keras.ops.maximum(y * 2.0 + x, 0.1)
    z = keras.ops.concatenate([z, keras.ops.sqrt(z)], axis=-1)
    return Model(x, layers.Flatten(name="flat")(z[:, 1:, :, ::2]))


def passing() -> Any:
    """Layers that do nothing at inference, at cuts and at the end."""
    from keras import Input, Model, layers

    x = Input((6,), name="x")
    y = layers.Dropout(0.5, name="drop1")(x)
    y = layers.Dense(6, name="dense")(y)
    z = layers.Dropout(0.5, name="drop2")(y)
    w = layers.Identity(name="same")(z)
    return Model(x, [y, z, w, layers.ReLU(name="relu")(w)])


def augmented() -> Any:
    """Layers that change images in training only, also inside of a model."""
    from keras import Input, Model, Sequential, layers

    image = Input((8, 8, 3), name="image")
    augmentation = Sequential(
        [
            layers.RandomFlip("horizontal_and_vertical", name="flip"),
            layers.RandomRotation(0.2, name="rotation"),
            layers.RandomZoom(0.2, name="zoom"),
        ],
        name="augmentation",
    )
    x = layers.RandomTranslation(0.1, 0.1, name="translation")(augmentation(image))
    x = layers.RandomContrast(0.2, name="contrast")(x)
    x = layers.RandomBrightness(0.2, value_range=(0, 1), name="brightness")(x)
    x = layers.GaussianNoise(0.1, name="noise")(layers.Conv2D(4, 3, name="conv")(x))
    x = layers.BatchNormalization(name="norm")(x)
    return Model(image, layers.Dense(3, name="out")(layers.Flatten(name="flat")(x)))


def named_oddly() -> Any:
    """Names that TensorFlow takes for no name of its own."""
    from keras import Input, Model, layers

    x = Input((6,), name="_x")
    y = layers.Dense(4, activation="relu", name="-dense")(x)
    z = layers.Dense(4, name="_dense")(y)
    return Model(x, layers.Dense(2, name="out.")(layers.Add(name="add.-")([y, z])))


def attention_scores() -> Any:
    """Attention that gives its scores, too."""
    from keras import Input, Model, layers

    x, memory = Input((6, 8), name="x"), Input((5, 8), name="memory")
    heads = layers.MultiHeadAttention(2, 4, name="heads")
    y, scores = heads(x, memory, return_attention_scores=True)
    z, weights = layers.Attention(name="plain")([y, x], return_attention_scores=True)
    w, more = layers.AdditiveAttention(name="additive")([z, x], return_attention_scores=True)
    return Model([x, memory], [layers.Dense(2, name="out")(w), scores, weights, more])


def masked() -> Any:
    """A sequence whose zeros are padding: layers hand a mask on beside the tensors."""
    from keras import Input, Model, layers

    words = Input((6,), dtype="int32", name="words")
    x = layers.Embedding(10, 4, mask_zero=True, name="embed")(words)
    x = layers.LSTM(4, return_sequences=True, name="lstm1")(x)
    x = layers.LSTM(4, name="lstm2")(x)
    return Model(words, layers.Dense(2, name="out")(layers.ReLU(name="relu")(x)))


def attention() -> Any:
    """A block of a transformer."""
    from keras import Input, Model, layers

    x = Input((6, 8), name="x")
    y = layers.LayerNormalization(name="norm")(x)
    y = layers.MultiHeadAttention(2, 4, name="attention")(y, y, use_causal_mask=True)
    y = layers.Add(name="add")([x, y])
    y = layers.TimeDistributed(layers.Dense(8, activation="gelu"), name="each")(y)
    return Model(x, layers.Bidirectional(layers.GRU(3), name="both_ways")(y))


def convolutions() -> Any:
    """A sequential model of many kinds of convolution."""
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input((12, 12, 2), name="image"),
            layers.Rescaling(0.5, name="scale"),
            layers.ZeroPadding2D(1, name="pad"),
            layers.SeparableConv2D(4, 3, name="separable"),
            layers.DepthwiseConv2D(3, strides=2, name="depthwise"),
            layers.LeakyReLU(name="leaky"),
            layers.Conv2DTranspose(3, 3, strides=2, name="transpose"),
            layers.UpSampling2D(name="up"),
            layers.MaxPooling2D(name="pool"),
            layers.Conv2D(4, 3, groups=1, dilation_rate=2, name="dilated"),
            layers.PReLU(name="prelu"),
            layers.Flatten(name="flat"),
            layers.Dense(3, activation="sigmoid", name="out"),
        ]
    )


def normalised() -> Any:
    """Normalisations after convolutions and a dense layer; and such as no layer can take up."""
    from keras import Input, Model, layers

    image = Input((8, 8, 3), name="image")
    x = layers.Conv2D(6, 3, use_bias=False, name="conv1")(image)
    x = layers.ReLU(name="relu1")(layers.BatchNormalization(name="norm1")(x))
    x = layers.DepthwiseConv2D(3, padding="same", name="depthwise")(x)
    y = layers.ReLU(name="relu2")(layers.BatchNormalization(name="norm2")(x))
    y = layers.Conv2D(6, 1, activation="relu", name="conv2")(y)
    y = layers.BatchNormalization(name="after_relu")(y)
    join = layers.Concatenate(name="join")([x, y])
    x = layers.BatchNormalization(name="after_join")(join)
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.BatchNormalization(name="norm3")(layers.Dense(5, name="dense")(x))
    return Model(image, layers.Softmax(name="scores")(x))


def of_applications() -> Any:
    """Layers that networks of ``keras.applications`` define for themselves."""
    from keras import Input, Model, layers
    from keras.src.applications.convnext import LayerScale, StochasticDepth
    from keras.src.applications.inception_resnet_v2 import CustomScaleLayer

    image = Input((6, 6, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", name="conv1")(image)
    y = LayerScale(0.5, 4, name="layer_scale")(layers.Dense(4, name="dense")(x))
    y = layers.Add(name="add")([x, StochasticDepth(0.1, name="depth")(y)])
    y = CustomScaleLayer(0.3, name="scale")([x, y])
    return Model(image, layers.Conv2D(2, 3, name="conv2")(y))


NETWORKS: Mapping[str, Callable[[], Any]] = {
    function.__name__: function
    for function in (
        *(residual, shared, nested, several, operations, passing, augmented, named_oddly),
        *(masked, attention, attention_scores),
        *(convolutions, normalised, of_applications),
    )
}


def drawn(name: str, seed: int = 7) -> Any:
    """Return a model with weights that make all its layers matter."""
    import keras

    with quiet():
        keras.utils.clear_session()
        keras.utils.set_random_seed(seed)
        model = NETWORKS[name]()
        random = np.random.default_rng(seed)
        for variable in model.weights:
            if "seed_generator" not in variable.path:
                values = random.normal(0, 0.5, variable.shape)
                is_variance = variable.path.endswith("moving_variance")
                variable.assign(np.abs(values) + 0.5 if is_variance else values)
    return model


def saved(model: Any, path: Path) -> Path:
    """Save a model in the format that the suffix names."""
    with quiet():
        model.save(path)
    return path


def frames(model: KerasModel, count: int, seed: int = 1) -> list[list[Array]]:
    random = np.random.default_rng(seed)
    return [[_random(random, tensor) for tensor in model.graph.inputs] for _ in range(count)]


def _random(random: np.random.Generator, tensor: Any) -> Array:
    if tensor.dtype.startswith("int"):
        values = random.integers(1, 10, tensor.shape).astype(tensor.dtype)
        values[..., -2:] = 0  # padding
        return values
    return random.standard_normal(tensor.shape).astype(tensor.dtype)


def contiguous(model: KerasModel, ranks: int) -> dict[str, int]:
    layers = model.graph.layers
    return {layer.name: n * ranks // len(layers) for n, layer in enumerate(layers)}


def interleaved(model: KerasModel, ranks: int, seed: int = 0) -> dict[str, int]:
    """Return a mapping in which about 16 runs of layers are each on any rank."""
    random, layers = Random(seed), model.graph.layers
    assigned, rank = {}, 0
    for layer in layers:
        if random.random() < 16 / len(layers):
            rank = random.randrange(ranks)
        assigned[layer.name] = rank
    return assigned


MAPPINGS = {"contiguous": contiguous, "interleaved": interleaved}


class Sliced:
    """A model's segments for some mapping, and the unsliced model, as LiteRT runs them.

    Normalisations are where ``build`` has them, or literally where ``ranks`` says.
    """

    def __init__(
        self,
        model: KerasModel,
        ranks: Mapping[str, int],
        folder: Path,
        conversion: Conversion = FLOAT32,
        *,
        literally: bool = False,
    ) -> None:
        from litert import Runner

        graph = model.graph
        self.graph = graph
        merged = merge_normalisations(graph, ranks)
        self.partition = (
            partition(graph, ranks) if literally else partition(merged.graph, merged.rank_of)
        )
        self.segments = self.partition.segments
        self._parts = []
        for number, segment in enumerate(self.segments):
            file = folder / f"{number}.tflite"
            write_submodel(keras_submodel(model, segment, file.name, conversion), file)
            self._parts.append(Runner(file, xnnpack=True))
        file = folder / "whole.tflite"
        whole = PartitionSegment(graph.layers, graph.inputs, graph.outputs)
        write_submodel(keras_submodel(model, whole, file.name, conversion), file)
        self._whole = Runner(file, xnnpack=True)

    def run(self, frame: Sequence[Array]) -> list[Array]:
        """Return the outputs that the segments give, one after the other."""
        values = {
            tensor.name: array for tensor, array in zip(self.graph.inputs, frame, strict=True)
        }
        for segment, part in zip(self.segments, self._parts, strict=True):
            made = part.run([values[tensor.name] for tensor in segment.inputs])
            values |= {t.name: array.copy() for t, array in zip(segment.outputs, made, strict=True)}
        return [values[tensor.name] for tensor in self.graph.outputs]

    def whole(self, frame: Sequence[Array]) -> list[Array]:
        """Return the outputs of the unsliced model."""
        return [array.copy() for array in self._whole.run(frame)]


def difference(expected: Sequence[Array], actual: Sequence[Array]) -> float:
    """Return the largest difference of outputs, each relative to the range of the expected."""
    return max(
        float(np.abs(one - other).max() / max(np.ptp(one), 1e-6))
        for one, other in zip(expected, actual, strict=True)
    )
