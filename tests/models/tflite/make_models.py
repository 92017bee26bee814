"""Make the small ``.tflite`` models of this folder, which the tests read, or those that are named.

Run it in an environment with TensorFlow and ai-edge-litert; the files in the repository come from
TensorFlow 2.21. Weights are drawn from a seed. Each model is small, and has what a reader of the
format can stumble over:

======================  ==========================================================================
``cnn_<kind>``          a network with skip connections, stored in each of the converter's kinds
``open_batch``          the batch size left open, and a layer that computes a shape
``many_outputs``        layers with several outputs, weights that layers share, an unused output
``control_flow``        IF and WHILE, whose bodies are subgraphs with weights of their own
``variable``            a variable that is set up once, read by one layer and written by another
``open_<network>``      Keras networks of :data:`OPEN` with the batch size left open, and so sizes
                        that are computed; some in other kinds, as above
``open_kinds``          other operators whose results have computed sizes
``open_segments``       one whose sizes only LiteRT tells
``open_variable``       ``variable`` with the batch size left open
``hash_table``          a table from integers to text, filled once
``lstm``                a loop over a sequence
``variable_tensor``     a layer with a variable tensor, and an optional input left out
``sparse``              weights stored as a sparse matrix
``outside``             ``cnn_float32`` with its weights behind the flatbuffer, as above 2 GB
``same_names``          ``cnn_float32`` with tensors that share a name or have none
``ethos_u``             what Vela makes: one custom operator with opaque settings and work memory
``custom_in_between``   a custom operator between layers that anybody has
======================  ==========================================================================
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import flatbuffers
import keras
import numpy as np
import tensorflow as tf
from ai_edge_litert import schema_py_generated as schema

FOLDER = Path(__file__).parent

layers = keras.layers


def cnn() -> keras.Model:
    keras.backend.clear_session()
    keras.utils.set_random_seed(1)
    image = keras.Input((16, 16, 3), batch_size=1)
    first = layers.Conv2D(8, 3, strides=2, padding="same", activation="relu6")(image)
    deep = layers.DepthwiseConv2D(3, padding="same", activation="relu")(first)
    deep = layers.Conv2D(8, 1)(deep)
    joined = layers.Add()([first, deep])
    pooled = layers.MaxPooling2D()(joined)
    side = layers.Conv2D(8, 1, activation="sigmoid")(pooled)
    joined = layers.Concatenate()([pooled, side])
    flat = layers.Reshape((4 * 4 * 16,))(joined)
    hidden = layers.Dense(12, activation="tanh")(flat)
    return keras.Model(image, layers.Dense(5, activation="softmax")(hidden))


def samples() -> Iterator[list[np.ndarray]]:
    random = np.random.default_rng(1)
    for _ in range(8):
        yield [random.standard_normal((1, 16, 16, 3), dtype=np.float32)]


def converted_cnn(kind: str) -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(cnn())
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind in ("int8", "int16x8"):
        converter.representative_dataset = samples
    if kind == "int8":
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    if kind == "int16x8":
        converter.target_spec.supported_ops = [
            tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8
        ]
    return converter.convert()


def open_batch() -> bytes:
    keras.backend.clear_session()
    keras.utils.set_random_seed(2)
    image = keras.Input((8, 8, 1))
    made = layers.Conv2D(4, 3, activation="relu")(image)
    made = layers.Flatten()(made)
    made = layers.Dense(6, activation="relu")(made)
    return tf.lite.TFLiteConverter.from_keras_model(
        keras.Model(image, layers.Dense(3)(made))
    ).convert()


def open_dense() -> tuple[object, object]:
    image = keras.Input((4, 4, 8))
    made = layers.Conv2D(8, 3, padding="same")(image)
    made = layers.ReLU()(layers.Dense(16)(made))
    return image, layers.Conv2D(4, 3)(layers.Dense(8)(made))


def open_attention() -> tuple[object, object]:
    sequence = keras.Input((6, 8))
    made = layers.MultiHeadAttention(2, 4)(sequence, sequence)
    made = layers.LayerNormalization()(layers.Add()([sequence, made]))
    return sequence, layers.Dense(3, activation="gelu")(made)


def open_permuted() -> tuple[object, object]:
    image = keras.Input((4, 6, 3))
    made = layers.Permute((2, 1, 3))(image)
    made = layers.Dense(5, activation="relu")(layers.Reshape((6, 12))(made))
    made = layers.Softmax()(layers.Reshape((-1, 3))(made))
    return image, layers.Dense(2)(made)


def open_distributed() -> tuple[object, object]:
    video = keras.Input((3, 6, 6, 2))
    made = layers.TimeDistributed(layers.Conv2D(4, 3, strides=2, activation="relu"))(video)
    made = layers.TimeDistributed(layers.MaxPooling2D())(made)
    return video, layers.Dense(3)(layers.TimeDistributed(layers.Flatten())(made))


def open_sequence() -> tuple[object, object]:
    sequence = keras.Input((8, 3))
    made = layers.Conv1D(4, 3, padding="causal", activation="relu")(sequence)
    made = layers.UpSampling1D(2)(layers.MaxPooling1D()(made))
    made = layers.Cropping1D(1)(layers.Dense(5)(made))
    return sequence, layers.Dense(2)(layers.GlobalAveragePooling1D()(made))


def open_upward() -> tuple[object, object]:
    image = keras.Input((3, 3, 4))
    made = layers.Conv2DTranspose(4, 3, strides=2, padding="same")(image)
    made = layers.Dense(6, activation="relu")(made)
    made = layers.ZeroPadding2D(1)(layers.UpSampling2D(2)(made))
    return image, layers.DepthwiseConv2D(3)(layers.Dense(2)(made))


def open_products() -> tuple[object, object]:
    sequence = keras.Input((5, 6))
    made = layers.EinsumDense("abc,cde->abde", output_shape=(None, 2, 3))(sequence)
    made = layers.Reshape((10, 3))(made)
    made = layers.Dot(axes=2)([made, layers.Dense(3)(sequence)])
    return sequence, layers.Dense(2)(made)


def open_repeated() -> tuple[object, object]:
    vector = keras.Input((4,))
    made = layers.RepeatVector(3)(layers.Dense(5, activation="tanh")(vector))
    made = layers.Concatenate()([made, layers.Dense(2)(made)])
    return vector, layers.Dense(3)(layers.Flatten()(made))


def open_words() -> tuple[object, object]:
    words = keras.Input((6,), dtype="int32")
    made = layers.Dense(3)(layers.Embedding(128, 2)(keras.ops.maximum(words, 0)))
    return words, layers.Dense(2)(layers.GlobalMaxPooling1D()(made))


def open_groups() -> tuple[object, object]:
    image = keras.Input((4, 4, 4))
    made = layers.GroupNormalization(2)(image)
    scale = layers.Dense(4, activation="sigmoid")(layers.GlobalAveragePooling2D()(made))
    made = layers.Multiply()([made, layers.Reshape((1, 1, 4))(scale)])
    return image, layers.Dense(3)(layers.Cropping2D(1)(made))


def open_memory() -> tuple[object, object]:
    sequence = keras.Input((2, 3))
    made = layers.LSTM(2, return_sequences=True, unroll=True)(layers.Dense(4)(sequence))
    return sequence, layers.Dense(2)(made)


def open_strided() -> tuple[object, object]:
    image = keras.Input((4, 6, 4))
    first, second = keras.ops.split(image, 2, axis=2)
    made = layers.Dense(4)(keras.ops.stack([first, second], axis=1))
    made = keras.ops.flip(made[:, :, ::2], axis=1)
    made = keras.ops.sum(made, axis=3) + keras.ops.mean(image, axis=(1, 2))[:, None, None]
    return image, layers.Dense(2)(made)


OPEN = {
    "open_attention": open_attention,
    "open_dense": open_dense,
    "open_distributed": open_distributed,
    "open_groups": open_groups,
    "open_memory": open_memory,
    "open_permuted": open_permuted,
    "open_products": open_products,
    "open_repeated": open_repeated,
    "open_sequence": open_sequence,
    "open_strided": open_strided,
    "open_upward": open_upward,
    "open_words": open_words,
}


def open_network(name: str, kind: str = "float32") -> bytes:
    keras.backend.clear_session()
    keras.utils.set_random_seed(12)
    image, made = OPEN[name]()
    converter = tf.lite.TFLiteConverter.from_keras_model(keras.Model(image, made))
    if kind != "float32":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if kind == "float16":
        converter.target_spec.supported_types = [tf.float16]
    if kind == "int8":
        random = np.random.default_rng(12)
        shape = (1, *image.shape[1:])
        frames = [random.standard_normal(shape, dtype=np.float32) for _ in range(4)]
        converter.representative_dataset = lambda: ([frame] for frame in frames)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    return converter.convert()


def of_function(function: Callable[..., object], *specs: tf.TensorSpec) -> tf.lite.TFLiteConverter:
    module = tf.Module()
    module.run = tf.function(function, input_signature=specs)
    return tf.lite.TFLiteConverter.from_concrete_functions(
        [module.run.get_concrete_function()], module
    )


def float_spec(*shape: int) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32)


def weights(seed: int, *shape: int) -> tf.Tensor:
    return tf.constant(np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))


def many_outputs() -> bytes:
    def run(x, y):
        shared = weights(3, 8, 8)
        first, second = tf.split(tf.matmul(x, shared), 2, axis=1)
        values, places = tf.math.top_k(tf.concat([second, first], 1) + y, 3)
        other = tf.matmul(tf.nn.relu(x), shared) * y
        return {"values": values, "places": places, "other": tf.tanh(other)}

    return of_function(run, float_spec(1, 8), float_spec(1, 8)).convert()


def control_flow() -> bytes:
    def run(x):
        x = tf.matmul(x, weights(4, 4, 4))
        x = tf.cond(
            tf.reduce_sum(x) > 0,
            lambda: tf.matmul(x, weights(5, 4, 4)),
            lambda: tf.nn.relu(x) + weights(6, 1, 4),
        )
        _, x = tf.while_loop(
            lambda count, _: count < 3,
            lambda count, value: (count + 1, tf.tanh(tf.matmul(value, weights(7, 4, 4)))),
            (tf.constant(0), x),
        )
        return tf.nn.relu(x) * 2.0

    return of_function(run, float_spec(1, 4)).convert()


class Counter(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(np.full((1, 4), 0.5, np.float32), name="total")

    @tf.function(input_signature=[tf.TensorSpec((1, 4), tf.float32)])
    def run(self, x: tf.Tensor) -> tf.Tensor:
        before = tf.nn.relu(x * 3.0)
        mixed = self.total + before
        after = tf.tanh(mixed)
        self.total.assign(after * 0.5)
        return tf.nn.relu(after) + mixed


class OpenCounter(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.total = tf.Variable(np.full((1, 4), 0.5, np.float32), name="total")

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32)])
    def run(self, x: tf.Tensor) -> tf.Tensor:
        mixed = self.total + tf.nn.relu(x * 3.0)
        self.total.assign(tf.reduce_mean(tf.tanh(mixed), axis=0, keepdims=True))
        return tf.nn.relu(mixed) + 1.0


def open_segments() -> bytes:
    def run(x):
        count = tf.shape(x)[0]
        return tf.nn.relu(tf.math.unsorted_segment_sum(x, tf.range(count), count + 3)) + 1.0

    return of_function(run, float_spec(None, 4)).convert()


def open_kinds() -> bytes:
    def run(x):
        count = tf.shape(x)[0]
        wide = tf.broadcast_to(x[:, :1], tf.stack([count, 3, 6]))
        wide = tf.tile(tf.concat([wide, x], 1), tf.stack([1, count + 1, 1]))
        part = wide[:, count : 4 * count : 2, ::-1]
        first, second, third = tf.split(tf.reshape(part, (-1, 2)), [1, 3, -1])
        top = tf.math.top_k(tf.concat([third, first], 0), 2).values
        rows = tf.gather(top, tf.range(2 * count), axis=0)
        spread = tf.where(second > 0, tf.fill(tf.stack([3 * count, 2]), 2.0), second)
        image = tf.reshape(x[:, :, :4], (-1, 4, 4, 1))
        image = tf.nn.depth_to_space(tf.nn.relu(tf.nn.space_to_depth(image, 2)), 2)
        image = tf.nn.relu(tf.nn.space_to_batch(image, [2, 2], [[0, 0], [0, 0]]))
        image = tf.image.resize(image, tf.stack([count + 2, 3]))
        image = tf.pad(image, tf.stack([[0, 0], [1, count], [0, 0], [0, 0]]), mode="CONSTANT")
        several = tf.unstack(tf.transpose(image, [1, 0, 2, 3])[:3], num=3, axis=0)
        hot = tf.one_hot(tf.argmax(several[1], axis=1), 1 + 4)
        matrix = tf.matmul(tf.reshape(hot, (-1, 5)), tf.ones((5, 2)) * 0.5)
        _, grown = tf.while_loop(
            lambda step, _: step < 2,
            lambda step, value: (step + 1, tf.tanh(tf.reshape(value * 2.0, tf.shape(value)))),
            (tf.constant(0), tf.concat([matrix, rows], 0)),
        )
        return tf.cumsum(tf.concat([grown, spread], 0)), tf.squeeze(several[0], [-1])

    return of_function(run, float_spec(None, 4, 6)).convert()


def variable(module: tf.Module) -> bytes:
    converter = tf.lite.TFLiteConverter.from_concrete_functions(
        [module.run.get_concrete_function()], module
    )
    converter.experimental_enable_resource_variables = True
    return converter.convert()


class Words(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(["one", "two", "three"]), tf.constant([1, 2, 3], tf.int64)
            ),
            default_value=-1,
        )

    @tf.function(input_signature=[tf.TensorSpec((1, 2), tf.int64)])
    def run(self, x: tf.Tensor) -> tf.Tensor:
        known = self.table.lookup(tf.constant([["one", "three"]]))
        return tf.maximum(x * 2, tf.reshape(known, (1, 2))) + 1


def hash_table() -> bytes:
    module = Words()
    return tf.lite.TFLiteConverter.from_concrete_functions(
        [module.run.get_concrete_function()], module
    ).convert()


def lstm() -> bytes:
    keras.backend.clear_session()
    keras.utils.set_random_seed(8)
    sequence = keras.Input((5, 3), batch_size=1)
    made = layers.Dense(4, activation="relu")(sequence)
    made = layers.LSTM(4)(made)
    return tf.lite.TFLiteConverter.from_keras_model(
        keras.Model(sequence, layers.Dense(2, activation="tanh")(made))
    ).convert()


def sparse() -> bytes:
    def run(x):
        matrix = np.random.default_rng(9).standard_normal((64, 64)).astype(np.float32)
        matrix[np.arange(64)[:, None] % 16 // 4 != np.arange(64)[None, :] % 16 // 4] = 0
        return tf.nn.relu(tf.matmul(tf.nn.relu(x), tf.constant(matrix)))

    converter = of_function(run, float_spec(1, 64))
    converter.optimizations = [tf.lite.Optimize.EXPERIMENTAL_SPARSITY]
    return converter.convert()


def outside() -> bytes:
    converter = tf.lite.TFLiteConverter.from_keras_model(cnn())
    converter._experimental_use_buffer_offset = True
    return converter.convert()


def unpacked(content: bytes) -> schema.ModelT:
    return schema.ModelT.InitFromPackedBuf(content)


def packed(model: schema.ModelT) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def same_names() -> bytes:
    model = unpacked(converted_cnn("float32"))
    for index, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.name = b"" if index % 3 == 0 else b"same"
    model.signatureDefs = None
    return packed(model)


def tensor(
    name: str, shape: tuple[int, ...], kind: str, buffer: int = 0, scale: float | None = None
) -> schema.TensorT:
    made = schema.TensorT()
    made.name, made.shape, made.buffer = name, list(shape), buffer
    made.type = getattr(schema.TensorType, kind)
    if scale:
        made.quantization = schema.QuantizationParametersT()
        made.quantization.scale, made.quantization.zeroPoint = [scale], [-128]
    return made


def operator(code: int, inputs: list[int], outputs: list[int]) -> schema.OperatorT:
    made = schema.OperatorT()
    made.opcodeIndex, made.inputs, made.outputs = code, inputs, outputs
    return made


def code(kind: str, custom: str | None = None, version: int = 1) -> schema.OperatorCodeT:
    made = schema.OperatorCodeT()
    made.builtinCode = getattr(schema.BuiltinOperator, kind)
    made.deprecatedBuiltinCode = min(made.builtinCode, 127)
    made.customCode, made.version = custom, version
    return made


def model_of(
    subgraph: schema.SubGraphT, codes: list[schema.OperatorCodeT], contents: list[bytes]
) -> bytes:
    model = schema.ModelT()
    model.version, model.description = 3, "made by hand"
    model.operatorCodes, model.subgraphs = codes, [subgraph]
    model.buffers = [schema.BufferT() for _ in range(len(contents) + 1)]
    for buffer, content in zip(model.buffers[1:], contents, strict=True):
        buffer.data = np.frombuffer(content, np.uint8)
    return packed(model)


def ethos_u() -> bytes:
    random = np.random.default_rng(10)
    graph = schema.SubGraphT()
    graph.name = "main"
    graph.tensors = [
        tensor("answer", (1, 2), "INT8", 0, 1 / 256),
        tensor("_split_1_command_stream", (816,), "UINT8", 1),
        tensor("_split_1_flash", (2604,), "UINT8", 2),
        tensor("_split_1_scratch", (7446,), "UINT8"),
        tensor("_split_1_scratch_fast", (7446,), "UINT8"),
        tensor("image", (1, 24, 24, 1), "INT8", 0, 1 / 128),
        tensor("scaled", (1, 2), "FLOAT32"),
    ]
    graph.inputs, graph.outputs = [5], [6]
    npu = operator(0, [1, 2, 3, 4, 5], [0])
    npu.customOptions = [1, 4, 1]
    graph.operators = [npu, operator(1, [0], [6])]
    contents = [random.bytes(816), random.bytes(2604)]
    return model_of(graph, [code("CUSTOM", "ethos-u"), code("DEQUANTIZE", version=2)], contents)


def variable_tensor() -> bytes:
    random = np.random.default_rng(11)
    graph = schema.SubGraphT()
    graph.tensors = [
        tensor("x", (1, 3), "FLOAT32"),
        tensor("features", (4, 3), "FLOAT32", 1),
        tensor("times", (4, 5), "FLOAT32", 2),
        tensor("state", (1, 20), "FLOAT32"),
        tensor("filtered", (1, 4), "FLOAT32"),
        tensor("rectified", (1, 3), "FLOAT32"),
        tensor("y", (1, 4), "FLOAT32"),
    ]
    graph.tensors[3].isVariable = True
    graph.inputs, graph.outputs = [0], [6]
    svdf = operator(1, [5, 1, 2, -1, 3], [4])
    svdf.builtinOptionsType = schema.BuiltinOptions.SVDFOptions
    svdf.builtinOptions = schema.SVDFOptionsT()
    svdf.builtinOptions.rank = 1
    graph.operators = [operator(0, [0], [5]), svdf, operator(2, [4], [6])]
    contents = [random.standard_normal(size, np.float32).tobytes() for size in (12, 20)]
    return model_of(graph, [code("RELU"), code("SVDF", version=3), code("TANH")], contents)


def custom_in_between() -> bytes:
    graph = schema.SubGraphT()
    names = ("x", "a", "b", "c", "y")
    graph.tensors = [tensor(name, (1, 4), "FLOAT32") for name in names]
    graph.inputs, graph.outputs = [0], [4]
    special = operator(1, [1, -1], [2])
    special.customOptions = list(b"opaque settings")
    special.intermediates = [3]
    graph.operators = [operator(0, [0], [1]), special, operator(0, [2], [4])]
    return model_of(graph, [code("RELU"), code("CUSTOM", "Vendor.Special", version=5)], [])


MODELS: dict[str, Callable[[], bytes]] = {
    **{
        f"cnn_{kind}": lambda kind=kind: converted_cnn(kind)
        for kind in ("float32", "float16", "dynamic", "int8", "int16x8")
    },
    "open_batch": open_batch,
    "open_kinds": open_kinds,
    "open_segments": open_segments,
    **{name: lambda name=name: open_network(name) for name in OPEN},
    **{
        f"open_{network}_{kind}": lambda name=f"open_{network}", kind=kind: open_network(name, kind)
        for network, kind in (
            *(("dense", "int8"), ("dense", "float16"), ("dense", "dynamic")),
            *(("attention", "int8"), ("permuted", "int8"), ("upward", "int8")),
        )
    },
    "many_outputs": many_outputs,
    "control_flow": control_flow,
    "variable": lambda: variable(Counter()),
    "open_variable": lambda: variable(OpenCounter()),
    "hash_table": hash_table,
    "lstm": lstm,
    "sparse": sparse,
    "outside": outside,
    "same_names": same_names,
    "variable_tensor": variable_tensor,
    "ethos_u": ethos_u,
    "custom_in_between": custom_in_between,
}


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make = MODELS[name]
        with contextlib.redirect_stdout(io.StringIO()):
            content = make()
        (FOLDER / f"{name}.tflite").write_bytes(content)
        print(f"{name}: {len(content)} bytes")
