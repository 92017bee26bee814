"""Keras models cut in every way compute what they compute whole."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from keras_networks import NETWORKS, Sliced, difference, drawn, frames, saved, write_submodel
from open_runs import Run, drawn_frame

from rankslice.framework.errors import RankSliceError
from rankslice.frontend.formats.input_shapes import GivenSizes
from rankslice.frontend.formats.keras.reader import KerasModel, read_keras
from rankslice.frontend.formats.keras.tensorflow import load_keras
from rankslice.frontend.formats.keras.writer import keras_submodel
from rankslice.frontend.partition.partition import PartitionSegment, partition

TOLERANCE = 1e-5
"""Of the range of an output: engines fuse across what a cut separates."""


def model_of(name: str, folder: Path, suffix: str = "keras") -> KerasModel:
    return read_keras(saved(drawn(name), folder / f"{name}.{suffix}"))


def bound(model: KerasModel, ranks: dict[str, int]) -> dict[str, int]:
    """Return the ranks, those of layers that have to be together made equal."""
    for bond in reversed(model.graph.bonds):
        for name in bond.layers:
            ranks[name] = ranks[bond.layers[-1]]
    return ranks


def every_layer_apart(model: KerasModel) -> dict[str, int]:
    return bound(model, {layer.name: n for n, layer in enumerate(model.graph.layers)})


def interleaved(model: KerasModel, seed: int) -> dict[str, int]:
    random = Random(seed)
    return bound(model, {layer.name: random.randrange(3) for layer in model.graph.layers})


@pytest.mark.parametrize("name", NETWORKS)
def test_every_layer_in_a_slice_of_its_own_gives_the_numbers_of_the_whole(name, tmp_path):
    model = model_of(name, tmp_path)
    sliced = Sliced(model, every_layer_apart(model), tmp_path)
    for frame in frames(model, 2):
        assert difference(sliced.whole(frame), sliced.run(frame)) <= TOLERANCE


@pytest.mark.parametrize("name", NETWORKS)
def test_layers_dealt_out_at_random_give_the_numbers_of_the_whole(name, tmp_path):
    model = model_of(name, tmp_path)
    sliced = Sliced(model, interleaved(model, 1), tmp_path)
    for frame in frames(model, 2):
        assert difference(sliced.whole(frame), sliced.run(frame)) <= TOLERANCE


@pytest.mark.parametrize("name", NETWORKS)
def test_the_converted_model_computes_what_keras_computes(name, tmp_path):
    model = model_of(name, tmp_path)
    sliced = Sliced(model, dict.fromkeys((layer.name for layer in model.graph.layers), 0), tmp_path)
    original = load_keras(model.path)
    for frame in frames(model, 2):
        made = original(frame if len(frame) > 1 else frame[0], training=False)
        expected = [np.asarray(array) for array in (made if isinstance(made, list) else [made])]
        assert difference(expected, sliced.run(frame)) <= 1e-4
        assert any(np.ptp(array) > 0 for array in expected)


def test_hdf5_files_are_sliced_like_archives(tmp_path):
    old, new = (model_of("residual", tmp_path, suffix) for suffix in ("h5", "keras"))
    folder = tmp_path / "of_archive"
    folder.mkdir()
    assert [layer.name for layer in new.graph.layers] == [layer.name for layer in old.graph.layers]
    sliced = Sliced(old, every_layer_apart(old), tmp_path)
    expected = Sliced(new, interleaved(new, 3), folder)
    for frame in frames(old, 2):
        assert difference(expected.whole(frame), sliced.run(frame)) <= TOLERANCE


def test_each_call_of_a_shared_layer_is_a_layer(tmp_path):
    model = model_of("shared", tmp_path)
    names = [layer.name for layer in model.graph.layers]
    assert {"tower", "tower:1", "tower:2"} < set(names)
    first, second = (layer for layer in model.graph.layers if layer.name in ("tower", "tower:1"))
    assert first.weights == second.weights
    assert 4 == len(model.graph.weights)


def test_models_inside_of_models_are_taken_apart(tmp_path):
    names = [layer.name for layer in model_of("nested", tmp_path).graph.layers]
    assert [
        *("block/head/up", "block/head/cut", "block/plus", "in"),
        *("block:1/head/up", "block:1/head/cut", "block:1/plus", "out"),
    ] == names


def test_tensors_of_a_layer_with_several_are_numbered(tmp_path):
    model = model_of("several", tmp_path)
    (lstm,) = (layer for layer in model.graph.layers if layer.op == "LSTM")
    assert ["lstm.0", "lstm.1", "lstm.2"] == [tensor.name for tensor in lstm.outputs]
    assert [(1, 5, 4), (1, 4), (1, 4)] == [tensor.shape for tensor in lstm.outputs]
    assert ["state", "lstm.2", "p", "product"] == [t.name for t in model.graph.outputs]


def test_layers_that_share_a_mask_stay_together(tmp_path):
    model = model_of("masked", tmp_path)
    ranks = {layer.name: n for n, layer in enumerate(model.graph.layers)}
    with pytest.raises(RankSliceError, match="share the mask of a sequence"):
        partition(model.graph, ranks)


def test_the_numbering_is_that_of_the_tutorial(tmp_path):
    path = saved(drawn("residual"), tmp_path / "m.h5")
    expected = [layer.name for layer in load_keras(path).layers[1:]]
    assert expected == [layer.name for layer in read_keras(path).graph.layers]


def test_open_sizes_are_given_by_shape(tmp_path):
    from keras import Input, Model, layers

    image = Input((None, None, 3), name="image")
    network = Model(image, layers.Conv2D(2, 3, name="conv")(image))
    path = saved(network, tmp_path / "open.keras")
    with pytest.raises(RankSliceError, match=r"--shape image=1,224,224,3"):
        read_keras(path)
    graph = read_keras(path, GivenSizes({"image": (2, 6, 8, 3)})).graph
    assert ((2, 6, 8, 3), (2, 4, 6, 2)) == (graph.inputs[0].shape, graph.outputs[0].shape)
    for shape, found in (((1, 6, 8, 4), "does not fit"), ((1, 2, 2, 3), "cannot work")):
        with pytest.raises(RankSliceError, match=found):
            read_keras(path, GivenSizes({"image": shape}))
    with pytest.raises(RankSliceError, match="did you mean 'image'"):
        read_keras(path, GivenSizes({"imgae": (1, 6, 8, 3)}))


def images_of_any_size() -> Any:
    from keras import Input, Model, layers, utils

    utils.set_random_seed(2)
    image = Input((None, None, 3), name="image")
    found = layers.Conv2D(4, 3, strides=2, padding="same", name="conv")(image)
    kept = layers.Dropout(0.5, name="drop")(layers.ReLU(name="relu")(found))
    scores = layers.Dense(2, name="scores")(kept)
    mean = layers.GlobalAveragePooling2D(name="mean")(kept)
    return Model(image, [scores, kept, layers.Dense(3, name="classes")(mean)])


def texts_of_any_length() -> Any:
    from keras import Input, Model, layers, utils

    utils.set_random_seed(3)
    text = Input((None,), name="text", dtype="int32")
    words = layers.Embedding(50, 8, name="words")(text)
    mixed = layers.MultiHeadAttention(2, 4, name="attention")(words, words)
    joined = layers.LayerNormalization(name="norm")(layers.Add(name="add")([words, mixed]))
    return Model(text, layers.Dense(3, activation="softmax", name="scores")(joined))


@pytest.mark.parametrize(
    ("network", "bounds"),
    [(images_of_any_size, {"image": (2, 30, 41, 3)}), (texts_of_any_length, {"text": (3, 20)})],
)
def test_slices_give_the_numbers_of_the_whole_at_all_sizes(network, bounds, tmp_path):
    path = saved(network(), tmp_path / "open.keras")
    model = read_keras(path, GivenSizes(at_most=bounds))
    graph = model.graph
    original = load_keras(path)

    def converted(name: str, part) -> Run:
        file = tmp_path / name
        write_submodel(keras_submodel(model, part, name), file)
        return Run(file, part.inputs, part.outputs)

    cut = partition(graph, {layer.name: n % 2 for n, layer in enumerate(graph.layers)})
    whole = converted("whole.tflite", PartitionSegment(graph.layers, graph.inputs, graph.outputs))
    parts = [converted(f"{n}.tflite", part) for n, part in enumerate(cut.segments)]
    random = np.random.default_rng(0)
    for _ in range(6):
        values = drawn_frame(graph, random, 1)
        expected = list(whole.run(values).values())
        made = original(next(iter(values.values())), training=False)
        keras_made = [np.asarray(one) for one in (made if isinstance(made, list) else [made])]
        for part in parts:
            values |= part.run(values)
        found = [values[tensor.name] for tensor in graph.outputs]
        assert [one.shape for one in keras_made] == [one.shape for one in found]
        assert difference(expected, found) <= TOLERANCE
        assert difference(keras_made, found) <= 1e-4


def test_open_sizes_are_those_that_keras_leaves_open(tmp_path):
    path = saved(images_of_any_size(), tmp_path / "open.keras")
    graph = read_keras(path, GivenSizes(at_most={"image": (1, 30, 41, 3)})).graph
    found = {t.name: (t.shape, t.symbols) for layer in graph.layers for t in layer.outputs}
    assert (("", "image.1", "image.2", "")) == graph.inputs[0].symbols
    assert ((1, 15, 21, 4), ("", "?", "?", "")) == found["drop"]
    assert ((1, 3), ()) == found["classes"]
    with pytest.raises(RankSliceError, match="the model has no such input; bounds of other"):
        read_keras(path, GivenSizes(at_most={"image": (1, 30, 41, 3), "drop": (1, 1, 1, 4)}))


def test_what_cannot_be_converted_with_open_sizes_is_told(tmp_path):
    from keras import Input, Model, layers

    text = Input((None, 4), name="text")
    path = saved(Model(text, layers.LSTM(3, name="lstm")(text)), tmp_path / "open.keras")
    model = read_keras(path, GivenSizes(at_most={"text": (3, 20, 4)}))
    graph = model.graph
    whole = PartitionSegment(graph.layers, graph.inputs, graph.outputs)
    with pytest.raises(RankSliceError, match=r"layers 'lstm' to 'lstm': .*fixed sizes"):
        keras_submodel(model, whole, "part.tflite")


def test_the_same_model_gives_the_same_bytes(tmp_path):
    model = model_of("residual", tmp_path)
    written = []
    for turn in range(2):
        folder = tmp_path / str(turn)
        folder.mkdir()
        Sliced(read_keras(model.path), interleaved(model, 1), folder)
        written.append([file.read_bytes() for file in sorted(folder.iterdir())])
    assert written[0] == written[1]
